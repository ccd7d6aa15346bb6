"""What every search must find, as tests. A store's own test file subclasses `SearchContract` and says how to make one.

    class TestMySearch(SearchContract):
        @pytest.fixture
        def make_search_fixture(self, tmp_path):
            return lambda: SearchFixture(MyJournal(tmp_path), MySearch(tmp_path))

The tests are coroutines: run them with pytest-asyncio's `asyncio_mode = "auto"`.
"""

import time
from collections.abc import AsyncIterator, Callable

import pytest

from switchtower.core import codec, events
from switchtower.core.ports import journal
from switchtower.stores import search_text
from switchtower.testing.session_driver import NOON, make_card

OWNER = events.Actor(name="owner", via="cli")


class SearchFixture:
    """A journal, and the search over it."""

    def __init__(self, journal_: journal.Journal, search_: journal.Search) -> None:
        self.journal = journal_
        self.search = search_
        self._heads: dict[str, int] = {}

    async def append_text(self, session_id: str, *said: events.AnyEvent, at_ms: int = NOON) -> None:
        head = self._heads.get(session_id, 0)
        entries = [
            journal.Entry(head + number, at_ms, "run_1", event.kind, codec.encode(event)) for number, event in enumerate(said, 1)
        ]
        self._heads[session_id] = head + len(said)
        updated = make_card(session_id, updated_at_ms=at_ms)
        await self.journal.append(journal.Append(session_id=session_id, epoch=1, entries=entries, card=updated))

    async def find(self, text: str, **options: str) -> list[tuple[str, int]]:
        return sorted((hit.session_id, hit.seq) for hit in await self.search.find(text, 50, **options))


MakeSearchFixture = Callable[[], SearchFixture]


def make_answer(text: str) -> events.MessageCompleted:
    return events.MessageCompleted(message_id="msg_1", text=text)


class SearchContract:
    @pytest.fixture
    def make_search_fixture(self) -> MakeSearchFixture:
        raise NotImplementedError("say how to make one")

    @pytest.fixture
    async def search_fixture(self, make_search_fixture: MakeSearchFixture) -> AsyncIterator[SearchFixture]:
        search_fixture = make_search_fixture()
        await search_fixture.journal.open()
        yield search_fixture
        await search_fixture.search.close()
        await search_fixture.journal.close()

    async def test_words_are_found_wherever_they_were_said_or_done(self, search_fixture: SearchFixture) -> None:
        approval = events.Approval("appr_1", "call_1", "exec", "Run zebra", "make", {}, 1, "f")
        await search_fixture.append_text(
            "sess_a",
            events.RunStarted(text="mend the zebra", by=OWNER),
            events.TextDelta("zebra in pieces"),
            make_answer("The ZEBRA is mended"),
            events.ToolCalled("call_1", "run", {"command": "cat zebra.txt", "n": 3}),
            events.ToolFinished("call_1", "run", 1, "zébra output"),
            events.SessionConfigured(by=OWNER, title="On zebras, plural"),
            events.ApprovalRequested(approval),
            events.ShellStarted("sh_1", "ls zebra", OWNER),
            events.ShellFinished("sh_1", 0, "zebra.txt"),
            events.MessageImported("user", "zebra of old", NOON),
            events.WarningRaised("CODE", "zebra is not looked for here"),
        )
        assert await search_fixture.find("zebra") == [("sess_a", seq) for seq in (1, 3, 4, 5, 6, 7, 8, 9, 10)]

    async def test_all_words_must_be_there_and_the_last_may_be_a_beginning(self, search_fixture: SearchFixture) -> None:
        await search_fixture.append_text("sess_a", make_answer("the quick brown fox"), make_answer("a quick test"))
        assert await search_fixture.find("fox quick") == [("sess_a", 1)]
        assert await search_fixture.find("quick te") == [("sess_a", 2)]
        assert await search_fixture.find("te quick") == []
        assert await search_fixture.find('"quick brown"') == [("sess_a", 1)]
        assert await search_fixture.find('"brown quick"') == []
        assert await search_fixture.find("slow") == []

    async def test_what_came_since_the_last_search_is_found_and_nothing_twice(self, search_fixture: SearchFixture) -> None:
        now_ms = time.time_ns() // 1_000_000
        await search_fixture.append_text("sess_a", make_answer("first walrus"), at_ms=now_ms)
        assert await search_fixture.find("walrus") == [("sess_a", 1)]
        await search_fixture.append_text("sess_a", make_answer("second walrus"), at_ms=now_ms)
        await search_fixture.append_text("sess_b", make_answer("third walrus"))
        assert await search_fixture.find("walrus") == [("sess_a", 1), ("sess_a", 2), ("sess_b", 1)]
        assert await search_fixture.find("walrus") == [("sess_a", 1), ("sess_a", 2), ("sess_b", 1)]

    async def test_one_session_can_be_searched_alone_and_a_long_one_wholly(self, search_fixture: SearchFixture) -> None:
        await search_fixture.append_text("sess_a", *(make_answer(f"walrus number{number}") for number in range(1_201)))
        await search_fixture.append_text("sess_b", make_answer("walrus number1200"))
        assert await search_fixture.find("number1200") == [("sess_a", 1_201), ("sess_b", 1)]
        assert await search_fixture.find("number1200", session_id="sess_b") == [("sess_b", 1)]

    async def test_a_deleted_session_is_not_found_any_more_and_a_forgotten_one_is_read_again(
        self, search_fixture: SearchFixture
    ) -> None:
        for session_id in ("sess_a", "sess_b"):
            await search_fixture.append_text(session_id, make_answer("walrus"))
        assert len(await search_fixture.find("walrus")) == 2
        await search_fixture.journal.delete("sess_a")
        assert await search_fixture.find("walrus") == [("sess_b", 1)]
        await search_fixture.search.forget("sess_b")
        await search_fixture.search.forget("sess_none")
        assert await search_fixture.find("walrus") == [("sess_b", 1)]

    async def test_only_the_beginning_of_a_long_text_is_looked_at(self, search_fixture: SearchFixture) -> None:
        await search_fixture.append_text("sess_a", make_answer("walrus " + "x " * search_text.LONGEST + "tiger"))
        assert await search_fixture.find("walrus") == [("sess_a", 1)]
        assert await search_fixture.find("tiger") == []

    async def test_a_hit_tells_what_it_is_and_shows_some_words_around(self, search_fixture: SearchFixture) -> None:
        await search_fixture.append_text("sess_a", make_answer(" ".join(f"w{number}" for number in range(100))), at_ms=NOON + 7)
        (hit,) = await search_fixture.search.find("w50", 5)
        assert (hit.session_id, hit.seq, hit.ts_ms, hit.kind) == ("sess_a", 1, NOON + 7, events.MessageCompleted.kind)
        shown = hit.snippet.strip("…").split()
        first = int(shown[0].removeprefix("w"))
        assert shown == [f"w{number}" for number in range(first, first + 16)]
        assert "w50" in shown
        assert hit.snippet.startswith("…")
        assert hit.snippet.endswith("…")
        await search_fixture.append_text("sess_b", make_answer("A short one, whole!"))
        (hit,) = await search_fixture.search.find("short", 5)
        assert hit.snippet == "A short one, whole!"

    async def test_the_best_comes_first_and_there_are_no_more_than_asked_for(self, search_fixture: SearchFixture) -> None:
        await search_fixture.append_text(
            "sess_a", make_answer("walrus and much else"), make_answer("walrus walrus walrus"), make_answer("walrus once")
        )
        hits = await search_fixture.search.find("walrus", 2)
        assert hits[0].seq == 2
        assert len(hits) == 2
        assert await search_fixture.search.find("walrus", 0) == []
