"""Words are found in what was said and done, also in what came since the last search, and not in what is gone."""

import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from switchtower.core import codec, events, journal
from switchtower.stores.sqlite import SqliteJournal
from switchtower.stores.sqlite_search import LONGEST, SqliteSearch, query
from switchtower.testing.journal_contract import NOON, card

OWNER = events.Actor(name="owner", via="cli")


class Library:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.journal = SqliteJournal(folder / "journal.db")
        self.search = SqliteSearch(folder / "search.db", folder / "journal.db")
        self._heads: dict[str, int] = {}

    async def say(self, session_id: str, *said: events.AnyEvent, at_ms: int = NOON) -> None:
        head = self._heads.get(session_id, 0)
        entries = [
            journal.Entry(head + number, at_ms, "run_1", event.kind, codec.encode(event)) for number, event in enumerate(said, 1)
        ]
        self._heads[session_id] = head + len(said)
        updated = card(session_id, updated_at_ms=at_ms)
        await self.journal.append(journal.Append(session_id=session_id, epoch=1, entries=entries, card=updated))

    async def found(self, text: str, **options: str) -> list[tuple[str, int]]:
        return sorted((hit.session_id, hit.seq) for hit in await self.search.find(text, 50, **options))


@pytest.fixture
async def library(tmp_path: Path) -> AsyncIterator[Library]:
    library = Library(tmp_path)
    await library.journal.open()
    yield library
    await library.search.close()
    await library.journal.close()


def answer(text: str) -> events.MessageCompleted:
    return events.MessageCompleted(message_id="msg_1", text=text)


async def test_words_are_found_wherever_they_were_said_or_done(library: Library) -> None:
    approval = events.Approval("appr_1", "call_1", "exec", "Run zebra", "make", {}, 1, "f")
    await library.say(
        "sess_a",
        events.RunStarted(text="mend the zebra", by=OWNER),
        events.TextDelta("zebra in pieces"),
        answer("The ZEBRA is mended"),
        events.ToolCalled("call_1", "run", {"command": "cat zebra.txt", "n": 3}),
        events.ToolFinished("call_1", "run", 1, "zébra output"),
        events.SessionConfigured(by=OWNER, title="On zebras, plural"),
        events.ApprovalRequested(approval),
        events.ShellStarted("sh_1", "ls zebra", OWNER),
        events.ShellFinished("sh_1", 0, "zebra.txt"),
        events.MessageImported("user", "zebra of old", NOON),
        events.WarningRaised("CODE", "zebra is not looked for here"),
    )
    assert await library.found("zebra") == [("sess_a", seq) for seq in (1, 3, 4, 5, 6, 7, 8, 9, 10)]


async def test_all_words_must_be_there_and_the_last_may_be_a_beginning(library: Library) -> None:
    await library.say("sess_a", answer("the quick brown fox"), answer("a quick test"))
    assert await library.found("fox quick") == [("sess_a", 1)]
    assert await library.found("quick te") == [("sess_a", 2)]
    assert await library.found("te quick") == []
    assert await library.found('"quick brown"') == [("sess_a", 1)]
    assert await library.found('"brown quick"') == []
    assert await library.found("slow") == []


async def test_what_came_since_the_last_search_is_found_and_nothing_twice(library: Library) -> None:
    now_ms = time.time_ns() // 1_000_000
    await library.say("sess_a", answer("first walrus"), at_ms=now_ms)
    assert await library.found("walrus") == [("sess_a", 1)]
    await library.say("sess_a", answer("second walrus"), at_ms=now_ms)
    await library.say("sess_b", answer("third walrus"))
    assert await library.found("walrus") == [("sess_a", 1), ("sess_a", 2), ("sess_b", 1)]
    assert await library.found("walrus") == [("sess_a", 1), ("sess_a", 2), ("sess_b", 1)]


async def test_one_session_can_be_searched_alone_and_a_long_one_wholly(library: Library) -> None:
    await library.say("sess_a", *(answer(f"walrus number{number}") for number in range(1_201)))
    await library.say("sess_b", answer("walrus number1200"))
    assert await library.found("number1200") == [("sess_a", 1_201), ("sess_b", 1)]
    assert await library.found("number1200", session_id="sess_b") == [("sess_b", 1)]


async def test_a_deleted_session_is_not_found_any_more(library: Library) -> None:
    for session_id in ("sess_a", "sess_b"):
        await library.say(session_id, answer("walrus"))
    assert len(await library.found("walrus")) == 2
    await library.journal.delete("sess_a")
    assert await library.found("walrus") == [("sess_b", 1)]  # also when nobody told
    await library.search.forget("sess_b")
    assert await library.found("walrus") == [("sess_b", 1)]  # it is still in the journal, and read again


async def test_a_broken_index_is_made_anew(library: Library) -> None:
    await library.say("sess_a", answer("walrus"))
    assert await library.found("walrus") == [("sess_a", 1)]
    await library.search.close()
    (library.folder / "search.db").write_bytes(b"rubbish" * 1_000)
    assert await library.found("walrus") == [("sess_a", 1)]
    assert (library.folder / "search.db").stat().st_mode & 0o077 == 0


async def test_only_the_beginning_of_a_long_text_is_looked_at(library: Library) -> None:
    await library.say("sess_a", answer("walrus " + "x " * LONGEST + "tiger"))
    assert await library.found("walrus") == [("sess_a", 1)]
    assert await library.found("tiger") == []


@pytest.mark.parametrize("text", ["", "   ", '"', "***", '""', "- + ^"])
def test_a_text_without_words_asks_for_nothing(text: str) -> None:
    assert query(text) is None


@given(text=st.text(max_size=200))
async def test_no_text_is_taken_for_a_command_of_the_index(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    library = Library(tmp_path_factory.mktemp("search"))
    await library.journal.open()
    try:
        await library.say("sess_a", answer("walrus NEAR(a b) OR NOT text:x"))
        assert isinstance(await library.search.find(text, 5), list)
    finally:
        await library.search.close()
        await library.journal.close()
