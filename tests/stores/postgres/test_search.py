"""Words are found in what was said and done, as the search of the other store finds them, by any node."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from switchtower.core import codec, events, journal, search
from switchtower.stores.postgres import connections, words
from switchtower.stores.postgres.journal import PostgresJournal
from switchtower.stores.postgres.search import PostgresSearch
from switchtower.stores.sqlite import SqliteJournal
from switchtower.stores.sqlite_search import LONGEST, SqliteSearch
from switchtower.testing.journal_contract import NOON, card

OWNER = events.Actor(name="owner", via="cli")


class Library:
    def __init__(self, journal_: journal.Journal, search_: search.Search) -> None:
        self.journal = journal_
        self.search = search_
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
async def library(dsn: str) -> AsyncIterator[Library]:
    library = Library(PostgresJournal(dsn), PostgresSearch(dsn))
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
    await library.say("sess_a", answer("first walrus"))
    assert await library.found("walrus") == [("sess_a", 1)]
    await library.say("sess_a", answer("second walrus"))
    await library.say("sess_b", answer("third walrus"))
    assert await library.found("walrus") == [("sess_a", 1), ("sess_a", 2), ("sess_b", 1)]
    assert await library.found("walrus") == [("sess_a", 1), ("sess_a", 2), ("sess_b", 1)]


async def test_one_session_can_be_searched_alone_and_a_long_one_wholly(library: Library) -> None:
    await library.say("sess_a", *(answer(f"walrus number{number}") for number in range(1_201)))
    await library.say("sess_b", answer("walrus number1200"))
    assert await library.found("number1200") == [("sess_a", 1_201), ("sess_b", 1)]
    assert await library.found("number1200", session_id="sess_b") == [("sess_b", 1)]


async def test_a_deleted_session_is_not_found_any_more_and_a_forgotten_one_is_read_again(library: Library) -> None:
    for session_id in ("sess_a", "sess_b"):
        await library.say(session_id, answer("walrus"))
    assert len(await library.found("walrus")) == 2
    await library.journal.delete("sess_a")
    assert await library.found("walrus") == [("sess_b", 1)]
    await library.search.forget("sess_b")
    await library.search.forget("sess_none")
    assert await library.found("walrus") == [("sess_b", 1)]


async def test_nodes_that_search_at_once_read_everything_once(library: Library, dsn: str) -> None:
    others = [PostgresSearch(dsn) for _ in range(4)]
    for turn in range(1, 4):
        for number in range(5):
            await library.say(f"sess_{number}", *(answer(f"walrus {text}") for text in range(60)))
        for hits in await asyncio.gather(*(other.find("walrus", 1_000) for other in others)):
            assert len({(hit.session_id, hit.seq) for hit in hits}) == len(hits) == turn * 300
    await asyncio.gather(*(other.close() for other in others))


async def test_only_the_beginning_of_a_long_text_is_looked_at(library: Library) -> None:
    await library.say("sess_a", answer("walrus " + "x " * LONGEST + "tiger"))
    assert await library.found("walrus") == [("sess_a", 1)]
    assert await library.found("tiger") == []


async def test_a_hit_tells_what_it_is_and_shows_some_words_around(library: Library) -> None:
    await library.say("sess_a", answer(" ".join(f"w{number}" for number in range(100))), at_ms=NOON + 7)
    (hit,) = await library.search.find("w50", 5)
    assert (hit.session_id, hit.seq, hit.ts_ms, hit.kind) == ("sess_a", 1, NOON + 7, events.MessageCompleted.kind)
    assert hit.snippet == "…" + " ".join(f"w{number}" for number in range(42, 58)) + "…"
    await library.say("sess_b", answer("A short one, whole!"))
    (hit,) = await library.search.find("short", 5)
    assert hit.snippet == "A short one, whole!"


async def test_the_best_comes_first_and_there_are_no_more_than_asked_for(library: Library) -> None:
    await library.say("sess_a", answer("walrus and much else"), answer("walrus walrus walrus"), answer("walrus once"))
    hits = await library.search.find("walrus", 2)
    assert hits[0].seq == 2
    assert len(hits) == 2
    assert await library.search.find("walrus", 0) == []


@pytest.mark.parametrize("text", ["", "   ", '"', "***", '""', "- + ^", "_ __"])
def test_a_text_without_words_asks_for_nothing(text: str) -> None:
    assert words.question(text) is None


TEXTS = [
    "The quick brown-fox jumps; over_the lazy.dog 42 times",
    "naïve café ÉCOLE straße Ωmega 東京 x1y2",
    "quick_quick \x00 slow 'quoted' \\back: & | ! <-> (a)",
    "it's a test of e-mail me@example.org http://example.org/a?b=c",
]


async def test_both_stores_find_the_same(library: Library, tmp_path: Path) -> None:
    other = Library(SqliteJournal(tmp_path / "journal.db"), SqliteSearch(tmp_path / "search.db", tmp_path / "journal.db"))
    await other.journal.open()
    for store in (library, other):
        await store.say("sess_a", *map(answer, TEXTS))
    asked = {piece for text in TEXTS for piece in (*text.split(), text[4:15], f'"{text[:9]}"', text[:3], text.upper()[:12])}
    for text in sorted(
        asked | {"quick slow", "CAFE naive", "ecole", "東京", "東", "dog lazy", "me@example", "brown fox", "it s"}
    ):
        assert await library.found(text) == await other.found(text), text
    await other.search.close()
    await other.journal.close()


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=st.text(max_size=200), said=st.text(max_size=200))
@example(text="NEAR(a b) & ! | 'x':* <-> \\", said="''\\':1A &")
async def test_no_text_is_taken_for_a_command_of_the_index(dsn: str, text: str, said: str) -> None:
    connection = await connections.connect(dsn)
    try:
        await connection.fetchval("SELECT $1::text::tsvector", words.vector(said))
        if question := words.question(text):
            await connection.fetchval("SELECT $1::text::tsquery", question.query)
            assert isinstance(question.snippet(said), str)
    finally:
        await connection.close()
