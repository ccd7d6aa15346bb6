"""What every journal must do, as tests. A store's own test file subclasses `JournalContract` and says how to make one.

    class TestMyJournal(JournalContract):
        @pytest.fixture
        def make_journal(self, tmp_path):
            return lambda: MyJournal(tmp_path / "journal")

The tests are coroutines: run them with pytest-asyncio's `asyncio_mode = "auto"`. This is the only module of the package
that needs pytest."""

import asyncio
from collections.abc import AsyncIterator, Callable

import msgspec
import pytest

from switchtower.core import codec, errors, events
from switchtower.core.ports import journal
from switchtower.testing.session_driver import (
    NOON,
    make_append,
    make_card,
    make_delta,
    make_deltas,
    make_receipt,
    make_warning,
    read_seqs,
)

MakeJournal = Callable[[], journal.Journal]


class JournalContract:
    @pytest.fixture
    def make_journal(self) -> MakeJournal:
        """Makes an unopened journal; each call gives one with the same content, as after a restart."""
        raise NotImplementedError

    @pytest.fixture
    async def store(self, make_journal: MakeJournal) -> AsyncIterator[journal.Journal]:
        store = make_journal()
        await store.open()
        yield store
        await store.close()

    # Appending and reading

    async def test_what_was_appended_is_read_back_exactly(self, store: journal.Journal) -> None:
        entries = [
            make_warning(1),
            make_delta(2, NOON + 5),
            journal.Entry(3, NOON + 6, "run_é", "text.delta", '{"text":"\\n\u2028é"}'.encode()),
        ]
        await store.append(make_append("sess_a", entries))
        page = await store.read("sess_a", 0, 10)
        assert page == entries
        assert all(type(entry) is journal.Entry and type(entry.data) is bytes for entry in page)

    async def test_a_session_nobody_started_reads_as_empty(self, store: journal.Journal) -> None:
        assert await store.read("sess_none", 0, 10) == []
        assert await store.load("sess_none") is None
        assert await store.find_gap("sess_none", 0) is None
        assert await store.list_cards(limit=10, session_id="sess_none") == []

    async def test_reading_goes_on_after_the_cursor_page_by_page(self, store: journal.Journal) -> None:
        await store.append(make_append("sess_a", make_deltas(1, 7)))
        await store.append(make_append("sess_b", make_deltas(1, 3)))
        pages, cursor = [], 0
        while page := await store.read("sess_a", cursor, 3):
            pages.append([entry.seq for entry in page])
            cursor = page[-1].seq
        assert pages == [[1, 2, 3], [4, 5, 6], [7]]

    # Reading backwards

    @pytest.mark.parametrize("limit", [1, 3, 100, 700, 2_000])
    async def test_going_back_page_by_page_comes_to_the_beginning(self, store: journal.Journal, limit: int) -> None:
        """Over strips of streamed text and what stands between them."""
        entries = [
            make_warning(1),
            *make_deltas(2, 650),
            make_warning(651),
            make_warning(652),
            *make_deltas(653, 700),
            make_delta(701, NOON + 5),
            make_warning(702),
        ]
        await store.append(make_append("sess_a", entries))
        await store.append(make_append("sess_b", make_deltas(1, 3)))
        pages: list[list[journal.Entry]] = []
        before = 2**62
        while page := await store.read_back("sess_a", before, limit):
            assert len(page) <= limit
            pages.insert(0, page)
            before = page[0].seq
        assert [entry for page in pages for entry in page] == entries

    async def test_going_back_begins_right_before_the_seq_wherever_that_is(self, store: journal.Journal) -> None:
        entries = [*make_deltas(1, 600), make_warning(601), *make_deltas(602, 620)]
        await store.append(make_append("sess_a", entries))
        for before in (1, 2, 300, 512, 513, 514, 600, 601, 602, 603, 620, 621, 5_000):
            assert await store.read_back("sess_a", before, 4) == entries[: before - 1][-4:]

    async def test_going_back_without_streamed_text_passes_over_it(self, store: journal.Journal) -> None:
        screen = events.ScreenCaptured(text="$ ", cols=80, rows=24)
        entries = [
            make_warning(1),
            *make_deltas(2, 600),
            make_warning(601),
            journal.Entry(602, NOON, "run_1", screen.kind, codec.encode(screen)),
            make_warning(603),
            *make_deltas(604, 610),
        ]
        await store.append(make_append("sess_a", entries))

        async def back(before: int, limit: int) -> list[int]:
            return [entry.seq for entry in await store.read_back("sess_a", before, limit, streamed=False)]

        assert await back(2**62, 10) == [1, 601, 603]
        assert await back(2**62, 2) == [601, 603]
        assert await back(603, 10) == [1, 601]
        assert await back(600, 10) == [1]
        assert await back(1, 10) == []

    async def test_going_back_finds_nothing_where_nothing_is(self, store: journal.Journal) -> None:
        await store.append(make_append("sess_a", make_deltas(1, 3)))
        assert await store.read_back("sess_none", 2**62, 10) == []
        assert await store.read_back("sess_a", 1, 10) == []
        assert await store.read_back("sess_a", 0, 10) == []
        assert await store.read_back("sess_a", 3, 0) == []

    async def test_going_back_over_what_was_pruned_gives_what_is_left(self, store: journal.Journal) -> None:
        await store.append(
            make_append(
                "sess_a", [make_warning(1), *make_deltas(2, 9), make_warning(10), *make_deltas(11, 20)], snapshot=b"folded"
            )
        )
        await store.prune(journal.Retention(keep_entries=4, keep_ms=0), NOON)
        assert [entry.seq for entry in await store.read_back("sess_a", 2**62, 100)] == [1, 10, 17, 18, 19, 20]
        assert [entry.seq for entry in await store.read_back("sess_a", 19, 3)] == [10, 17, 18]
        assert [entry.seq for entry in await store.read_back("sess_a", 2**62, 100, streamed=False)] == [1, 10]

    async def test_going_back_over_large_entries_is_bounded_and_still_comes_to_the_beginning(
        self, store: journal.Journal
    ) -> None:
        large = [
            journal.Entry(seq, NOON, "run_1", "text.delta", codec.encode(events.TextDelta(text=f"{seq}" + "x" * 300_000)))
            for seq in range(1, 21)
        ]
        await store.append(make_append("sess_a", large))
        found: list[int] = []
        before = 2**62
        while page := await store.read_back("sess_a", before, 1_000):
            found = [entry.seq for entry in page] + found
            before = page[0].seq
        assert found == list(range(1, 21))

    async def test_appends_of_any_length_arrive_whole(self, store: journal.Journal) -> None:
        head = 0
        for length in (1, 2, 63, 64, 65, 255, 256, 257, 700):
            await store.append(make_append("sess_a", make_deltas(head + 1, head + length)))
            head += length
        assert await read_seqs(store, "sess_a") == list(range(1, head + 1))

    async def test_an_append_is_visible_as_a_whole_and_at_the_latest_when_it_returns(self, store: journal.Journal) -> None:
        append = make_append("sess_a", make_deltas(1, 600))
        append.receipts = [make_receipt("msg_1")]
        appending = asyncio.ensure_future(store.append(append))
        async with asyncio.timeout(60):
            while not appending.done():
                assert len(await store.read("sess_a", 0, 1_000)) in (0, 600)
                await asyncio.sleep(0)
        await appending
        assert len(await store.read("sess_a", 0, 1_000)) == 600
        assert await store.find_receipt("sess_a", "msg_1", NOON) == append.receipts[0]

    # Fencing

    @pytest.mark.parametrize("next_seqs", [[2], [4], [1], [3, 5], [3, 3]], ids=str)
    async def test_entries_that_do_not_go_on_from_the_head_are_fenced(self, store: journal.Journal, next_seqs: list[int]) -> None:
        await store.append(make_append("sess_a", make_deltas(1, 2)))
        append = make_append("sess_a", [make_delta(seq) for seq in next_seqs])
        append.receipts = [make_receipt("msg_1")]
        with pytest.raises(errors.Fenced):
            await store.append(append)
        assert await read_seqs(store, "sess_a") == [1, 2]
        assert await store.find_receipt("sess_a", "msg_1", NOON) is None

    async def test_an_older_epoch_is_fenced_and_a_newer_one_is_kept(self, store: journal.Journal) -> None:
        await store.append(make_append("sess_a", [make_delta(1)], epoch=3))
        await store.append(make_append("sess_a", [make_delta(2)], epoch=5))
        for epoch in (3, 4):
            with pytest.raises(errors.Fenced):
                await store.append(make_append("sess_a", [make_delta(3)], epoch=epoch))
        await store.append(make_append("sess_a", [make_delta(3)], epoch=5))
        stored = await store.load("sess_a")
        assert stored is not None
        assert stored.epoch == 5
        assert await read_seqs(store, "sess_a") == [1, 2, 3]

    @pytest.mark.parametrize("first_card", [None, make_card("sess_a")], ids=["no card", "card"])
    async def test_a_session_begins_with_seq_1(self, store: journal.Journal, first_card: journal.Card | None) -> None:
        append = make_append("sess_a", [make_delta(2)])
        append.card = first_card
        with pytest.raises(errors.Fenced):
            await store.append(append)
        assert await store.list_cards(limit=10) == []

    async def test_a_session_without_a_card_is_our_own_mistake(self, store: journal.Journal) -> None:
        with pytest.raises(ValueError, match="card"):
            await store.append(journal.Append(session_id="sess_a", epoch=1, entries=[make_delta(1)]))
        assert await store.load("sess_a") is None

    async def test_a_refused_append_leaves_its_neighbours_alone(self, store: journal.Journal) -> None:
        await store.append(make_append("sess_b", [make_delta(1)], epoch=2))
        results = await asyncio.gather(
            store.append(make_append("sess_a", [make_delta(1)])),
            store.append(make_append("sess_b", [make_delta(2)], epoch=1)),
            store.append(make_append("sess_b", [make_delta(7)], epoch=2)),
            store.append(make_append("sess_a", [make_delta(2)])),
            store.append(make_append("sess_b", [make_delta(2)], epoch=2)),
            return_exceptions=True,
        )
        assert [type(result) for result in results] == [type(None), errors.Fenced, errors.Fenced, type(None), type(None)]
        assert await read_seqs(store, "sess_a") == [1, 2]
        assert await read_seqs(store, "sess_b") == [1, 2]

    async def test_many_appenders_at_once_keep_each_log_dense_and_in_order(self, store: journal.Journal) -> None:
        heads = dict.fromkeys([f"sess_{number}" for number in range(8)], 0)

        async def appender(number: int) -> None:
            session_id = f"sess_{number % 8}"
            for _ in range(5):
                first = heads[session_id] + 1
                heads[session_id] += 1 + number % 3
                await store.append(make_append(session_id, make_deltas(first, heads[session_id])))

        async with asyncio.timeout(60):
            await asyncio.gather(*(appender(number) for number in range(64)))
        for session_id, head in heads.items():
            assert await read_seqs(store, session_id) == list(range(1, head + 1))

    # Receipts

    async def test_a_receipt_holds_until_it_expires(self, store: journal.Journal) -> None:
        append = make_append("sess_a", [make_delta(1)])
        append.receipts = [make_receipt("msg_1"), make_receipt("msg_1", "server", run="run_2")]
        await store.append(append)
        assert await store.find_receipt("sess_a", "msg_1", NOON + 999) == append.receipts[0]
        assert await store.find_receipt("server", "msg_1", NOON + 999) == append.receipts[1]
        assert await store.find_receipt("sess_a", "msg_1", NOON + 1_000) is None
        assert await store.find_receipt("sess_a", "msg_2", NOON) is None

    async def test_an_expired_receipt_is_replaced(self, store: journal.Journal) -> None:
        first = make_append("sess_a", [make_delta(1)])
        first.receipts = [make_receipt("msg_1")]
        await store.append(first)
        again = make_append("sess_a", [make_delta(2, NOON + 1_000)])
        again.receipts = [make_receipt("msg_1", expires_at_ms=NOON + 9_000, run="run_2")]
        await store.append(again)
        assert await store.find_receipt("sess_a", "msg_1", NOON + 5_000) == again.receipts[0]

    async def test_of_two_appends_with_one_identity_only_the_first_is_stored(self, store: journal.Journal) -> None:
        first, second = make_append("sess_a", [make_delta(1)]), make_append("sess_b", [make_delta(1)])
        first.receipts = [make_receipt("msg_1", "server", run="run_1")]
        second.receipts = [make_receipt("msg_1", "server", run="run_2")]
        results = await asyncio.gather(store.append(first), store.append(second), return_exceptions=True)
        assert [type(result) for result in results] == [type(None), errors.Fenced]
        assert await store.find_receipt("server", "msg_1", NOON) == first.receipts[0]
        assert await store.load("sess_b") is None

    async def test_a_receipt_may_come_without_entries(self, store: journal.Journal) -> None:
        await store.append(make_append("sess_a", [make_delta(1)]))
        append = make_append("sess_a", [])
        append.receipts = [make_receipt("msg_1")]
        await store.append(append)
        assert await store.find_receipt("sess_a", "msg_1", NOON) == append.receipts[0]
        assert await read_seqs(store, "sess_a") == [1]

    async def test_a_receipt_that_replaces_takes_the_place_of_a_live_one(self, store: journal.Journal) -> None:
        first, second = make_append("sess_a", [make_delta(1)]), make_append("sess_a", [make_delta(2)])
        first.receipts = [msgspec.structs.replace(make_receipt("cmd_1", "pi"), replaces=True)]
        second.receipts = [msgspec.structs.replace(make_receipt("cmd_1", "pi", run="run_2"), replaces=True)]
        await asyncio.gather(store.append(first), store.append(second))
        stored = await store.find_receipt("pi", "cmd_1", NOON)
        assert stored is not None
        assert stored.outcome["runId"] == "run_2"

    async def test_the_newest_receipts_of_a_scope_are_listed_first(self, store: journal.Journal) -> None:
        for seq, key in enumerate(("a", "b", "c", "a"), 1):
            append = make_append("sess_a", [make_delta(seq, NOON + seq)])
            kept = make_receipt(key, "pi", expires_at_ms=NOON + (10 if key == "b" else 9_000), run=f"run_{seq}")
            append.receipts = [msgspec.structs.replace(kept, replaces=True), make_receipt(f"{key}{seq}", "other")]
            await store.append(append)
        assert [listed.key for listed in await store.list_receipts("pi", 10, NOON)] == ["a", "c", "b"]
        assert [listed.key for listed in await store.list_receipts("pi", 10, NOON + 10)] == ["a", "c"]
        assert [listed.outcome["runId"] for listed in await store.list_receipts("pi", 1, NOON)] == ["run_4"]

    # Cards

    async def test_the_sessions_at_hand_are_found_among_all(self, store: journal.Journal) -> None:
        for number in range(4):
            append = make_append(f"sess_{number}", [make_delta(1)])
            assert append.card is not None
            loaded = (None, True, False, True)[number]
            append.card = msgspec.structs.replace(append.card, loaded=loaded, updated_at_ms=NOON + number)
            await store.append(append)
        assert [listed.session_id for listed in await store.list_cards(limit=10, loaded=True)] == ["sess_3", "sess_1"]
        assert [listed.session_id for listed in await store.list_cards(limit=1, loaded=True)] == ["sess_3"]
        unloaded = make_append("sess_3", [make_delta(2)])
        unloaded.card = msgspec.structs.replace(make_card("sess_3"), loaded=False)
        await store.append(unloaded)
        assert [listed.session_id for listed in await store.list_cards(limit=10, loaded=True)] == ["sess_1"]

    async def test_cards_are_listed_most_recently_updated_first(self, store: journal.Journal) -> None:
        for session_id, updated_at_ms in (("sess_a", NOON + 2), ("sess_b", NOON + 3), ("sess_c", NOON + 1)):
            append = make_append(session_id, [make_delta(1)])
            append.card = make_card(session_id, updated_at_ms=updated_at_ms)
            await store.append(append)
        assert [listed.session_id for listed in await store.list_cards(limit=10)] == ["sess_b", "sess_a", "sess_c"]
        assert [listed.session_id for listed in await store.list_cards(limit=2)] == ["sess_b", "sess_a"]
        updated = make_card("sess_c", events.SessionState.RUNNING, NOON + 9)
        await store.append(journal.Append(session_id="sess_c", epoch=1, entries=[make_delta(2)], card=updated))
        assert await store.list_cards(limit=1) == [updated]
        assert await store.list_cards(limit=10, states=(events.SessionState.RUNNING,)) == [updated]
        idle = await store.list_cards(limit=10, states=(events.SessionState.IDLE,))
        assert [listed.session_id for listed in idle] == ["sess_b", "sess_a"]

    async def test_cards_are_found_by_state_and_by_session(self, store: journal.Journal) -> None:
        states = [*events.SessionState, *events.SessionState]
        for number, state in enumerate(states):
            append = make_append(f"sess_{number}", [make_delta(1)])
            append.card = make_card(f"sess_{number}", state, NOON + number)
            await store.append(append)
        busy = (events.SessionState.RUNNING, events.SessionState.AWAITING_APPROVAL)
        expected = [f"sess_{number}" for number in reversed(range(len(states))) if states[number] in busy]
        assert [listed.session_id for listed in await store.list_cards(limit=10, states=busy)] == expected
        assert [listed.session_id for listed in await store.list_cards(limit=3, states=busy)] == expected[:3]
        assert [listed.session_id for listed in await store.list_cards(limit=10, session_id="sess_1")] == ["sess_1"]
        assert await store.list_cards(limit=10, session_id="sess_0", states=busy) == []

    # Deletion

    async def test_a_deleted_session_is_gone_with_all_that_was_of_it(self, store: journal.Journal) -> None:
        for session_id in ("sess_a", "sess_b"):
            append = make_append(session_id, [make_warning(1), *make_deltas(2, 1_500), make_warning(1_501)], snapshot=b"{}")
            append.receipts = [make_receipt("key", session_id)]
            await store.append(append)
        assert await store.delete("sess_a") == 1_501
        assert await store.load("sess_a") is None
        assert await read_seqs(store, "sess_a") == []
        assert await store.find_receipt("sess_a", "key", NOON) is None
        assert [listed.session_id for listed in await store.list_cards(limit=10)] == ["sess_b"]
        assert len(await read_seqs(store, "sess_b")) == 1_501
        assert await store.find_receipt("sess_b", "key", NOON) is not None

    async def test_deleting_what_is_not_there_changes_nothing(self, store: journal.Journal) -> None:
        await store.append(make_append("sess_a", [make_delta(1)]))
        assert await store.delete("sess_none") == 0
        assert await store.delete("sess_a") == 1
        assert await store.delete("sess_a") == 0

    async def test_an_id_can_be_used_again_after_its_session_was_deleted(self, store: journal.Journal) -> None:
        await store.append(make_append("sess_a", make_deltas(1, 5)))
        await store.append(make_append("sess_b", make_deltas(1, 5)))
        await store.delete("sess_b")
        await store.append(make_append("sess_b", [make_warning(1)]))
        await store.append(make_append("sess_c", [make_warning(1), make_warning(2)]))
        assert await read_seqs(store, "sess_a") == [1, 2, 3, 4, 5]
        assert await read_seqs(store, "sess_b") == [1]
        assert await read_seqs(store, "sess_c") == [1, 2]

    async def test_a_session_that_is_about_to_go_is_listed_only_for_who_asks_for_such(self, store: journal.Journal) -> None:
        append = make_append("sess_a", [make_delta(1)])
        append.card = msgspec.structs.replace(make_card("sess_a", events.SessionState.DELETED), loaded=True)
        await store.append(append)
        assert await store.list_cards(limit=10) == []
        assert await store.list_cards(limit=10, loaded=True) == []
        assert await store.list_cards(limit=10, session_id="sess_a") == []
        assert await store.list_cards(limit=10, states=(events.SessionState.DELETED,)) == [append.card]

    async def test_without_a_card_the_listing_stays_as_it_was(self, store: journal.Journal) -> None:
        await store.append(make_append("sess_a", [make_delta(1)]))
        await store.append(make_append("sess_a", [make_delta(2, NOON + 50)], epoch=2))
        assert await store.list_cards(limit=10) == [make_card("sess_a")]

    # Snapshots and retention

    async def test_a_load_starts_from_the_last_snapshot(self, store: journal.Journal) -> None:
        await store.append(make_append("sess_a", make_deltas(1, 3), epoch=4))
        assert await store.load("sess_a") == journal.StoredSession("sess_a", 4, 0, None)
        await store.append(make_append("sess_a", make_deltas(4, 5), epoch=4, snapshot=b"as of 5"))
        await store.append(make_append("sess_a", make_deltas(6, 6), epoch=4))
        assert await store.load("sess_a") == journal.StoredSession("sess_a", 4, 5, b"as of 5")
        await store.append(make_append("sess_a", make_deltas(7, 8), epoch=4, snapshot=b"as of 8"))
        assert await store.load("sess_a") == journal.StoredSession("sess_a", 4, 8, b"as of 8")

    async def test_pruning_by_count_keeps_the_newest_and_all_that_is_not_prunable(self, store: journal.Journal) -> None:
        await store.append(
            make_append("sess_a", [make_warning(1), *make_deltas(2, 5), make_warning(6), *make_deltas(7, 10)], snapshot=b"folded")
        )
        assert await store.prune(journal.Retention(keep_entries=3, keep_ms=0), NOON) == 5
        assert await read_seqs(store, "sess_a") == [1, 6, 8, 9, 10]
        assert await store.prune(journal.Retention(keep_entries=3, keep_ms=0), NOON) == 0

    async def test_pruning_by_age_keeps_what_is_young_enough(self, store: journal.Journal) -> None:
        entries = [
            make_delta(1, NOON),
            make_warning(2, NOON),
            make_delta(3, NOON + 10),
            make_delta(4, NOON + 20),
            make_delta(5, NOON + 30),
        ]
        await store.append(make_append("sess_a", entries, snapshot=b"folded"))
        assert await store.prune(journal.Retention(keep_entries=0, keep_ms=100), NOON + 120) == 2
        assert await read_seqs(store, "sess_a") == [2, 4, 5]

    async def test_either_limit_is_enough_to_prune_and_none_prunes_nothing(self, store: journal.Journal) -> None:
        for session_id in ("sess_old", "sess_long"):
            ts_ms = NOON if session_id == "sess_old" else NOON + 1_000
            await store.append(make_append(session_id, make_deltas(1, 6, ts_ms), snapshot=b"folded"))
        assert await store.prune(journal.Retention(keep_entries=0, keep_ms=0), NOON + 10**9) == 0
        assert await store.prune(journal.Retention(keep_entries=4, keep_ms=500), NOON + 1_000) == 5 + 2
        assert await read_seqs(store, "sess_old") == [6]
        assert await read_seqs(store, "sess_long") == [3, 4, 5, 6]

    async def test_nothing_beyond_the_snapshot_is_pruned(self, store: journal.Journal) -> None:
        await store.append(make_append("sess_a", make_deltas(1, 4)))
        everything = journal.Retention(keep_entries=1, keep_ms=1)
        assert await store.prune(everything, NOON + 100) == 0
        await store.append(make_append("sess_a", make_deltas(5, 6), snapshot=b"as of 6"))
        await store.append(make_append("sess_a", make_deltas(7, 9)))
        assert await store.prune(everything, NOON + 100) == 6
        assert await read_seqs(store, "sess_a") == [7, 8, 9]

    async def test_the_newest_entry_stays_and_the_log_goes_on_after_it(self, store: journal.Journal) -> None:
        await store.append(make_append("sess_a", make_deltas(1, 3), snapshot=b"as of 3"))
        assert await store.prune(journal.Retention(keep_entries=0, keep_ms=1), NOON + 100) == 2
        await store.append(make_append("sess_a", [make_delta(4)]))
        assert await read_seqs(store, "sess_a") == [3, 4]

    async def test_a_cursor_before_what_was_pruned_has_a_gap(self, store: journal.Journal) -> None:
        await store.append(make_append("sess_a", [*make_deltas(1, 4), make_warning(5), *make_deltas(6, 8)], snapshot=b"folded"))
        assert await store.find_gap("sess_a", 0) is None
        await store.prune(journal.Retention(keep_entries=4, keep_ms=0), NOON)
        assert [await store.find_gap("sess_a", cursor) for cursor in (0, 3, 4, 5)] == [4, 4, None, None]
        await store.prune(journal.Retention(keep_entries=2, keep_ms=0), NOON)
        assert [await store.find_gap("sess_a", cursor) for cursor in (0, 4, 5, 6)] == [6, 6, 6, None]

    async def test_one_session_can_be_pruned_alone(self, store: journal.Journal) -> None:
        for session_id in ("sess_a", "sess_b"):
            await store.append(make_append(session_id, make_deltas(1, 4), snapshot=b"folded"))
        assert await store.prune(journal.Retention(keep_entries=1, keep_ms=0), NOON, "sess_b") == 3
        assert await read_seqs(store, "sess_a") == [1, 2, 3, 4]
        assert await read_seqs(store, "sess_b") == [4]

    async def test_what_somebody_still_needs_is_not_pruned(self, store: journal.Journal) -> None:
        for session_id in ("sess_a", "sess_b", "sess_c"):
            await store.append(make_append(session_id, make_deltas(1, 6), snapshot=b"folded"))
        newest = journal.Retention(keep_entries=1, keep_ms=0)
        assert await store.prune(newest, NOON, keep_from={"sess_a": 4, "sess_b": 1, "sess_none": 1}) == 3 + 0 + 5
        assert await read_seqs(store, "sess_a") == [4, 5, 6]
        assert await read_seqs(store, "sess_b") == [1, 2, 3, 4, 5, 6]
        assert await read_seqs(store, "sess_c") == [6]
        assert await store.prune(newest, NOON) == 2 + 5

    async def test_a_long_log_is_pruned_while_appends_go_on(self, store: journal.Journal) -> None:
        await store.append(make_append("sess_a", make_deltas(1, 4_500), snapshot=b"as of 4500"))
        pruning = asyncio.ensure_future(store.prune(journal.Retention(keep_entries=100, keep_ms=0), NOON))
        async with asyncio.timeout(60):
            for seq in range(4_501, 4_521):
                await store.append(make_append("sess_a", [make_delta(seq)]))
            pruned = await pruning
        # The head that counts is the one of the moment when the session's turn came.
        assert 4_400 <= pruned <= 4_420
        assert await read_seqs(store, "sess_a") == list(range(pruned + 1, 4_521))

    async def test_pruning_removes_expired_receipts_and_lets_the_others_be(self, store: journal.Journal) -> None:
        append = make_append("sess_a", [make_delta(1)])
        append.receipts = [make_receipt("msg_1", expires_at_ms=NOON + 10), make_receipt("msg_2", expires_at_ms=NOON + 20)]
        await store.append(append)
        await store.prune(journal.Retention(keep_entries=0, keep_ms=0), NOON + 10)
        # Asked as of a time before its expiry, only a receipt that is gone is not found.
        assert await store.find_receipt("sess_a", "msg_1", NOON) is None
        assert await store.find_receipt("sess_a", "msg_2", NOON) == append.receipts[1]

    # Opening and closing

    async def test_a_journal_opened_again_has_everything(self, make_journal: MakeJournal) -> None:
        before = make_journal()
        await before.open()
        append = make_append("sess_a", make_deltas(1, 5), epoch=2, snapshot=b"as of 5")
        append.receipts = [make_receipt("msg_1")]
        await before.append(append)
        await before.prune(journal.Retention(keep_entries=3, keep_ms=0), NOON)
        await before.close()

        after = make_journal()
        await after.open()
        assert await read_seqs(after, "sess_a") == [3, 4, 5]
        assert await after.load("sess_a") == journal.StoredSession("sess_a", 2, 5, b"as of 5")
        assert await after.find_gap("sess_a", 0) == 2
        assert await after.find_receipt("sess_a", "msg_1", NOON) == append.receipts[0]
        assert await after.list_cards(limit=10) == [append.card]
        with pytest.raises(errors.Fenced):
            await after.append(make_append("sess_a", [make_delta(6)], epoch=1))
        with pytest.raises(errors.Fenced):
            await after.append(make_append("sess_a", [make_delta(7)], epoch=2))
        await after.append(make_append("sess_a", [make_delta(6)], epoch=2))
        await after.append(make_append("sess_b", [make_delta(1)]))
        assert await read_seqs(after, "sess_a") == [3, 4, 5, 6]
        assert await read_seqs(after, "sess_b") == [1]
        await after.close()

    async def test_a_closed_journal_is_unavailable(self, store: journal.Journal) -> None:
        await store.append(make_append("sess_a", [make_delta(1)]))
        await store.close()
        with pytest.raises(errors.JournalUnavailable):
            await store.append(make_append("sess_a", [make_delta(2)]))
        with pytest.raises(errors.JournalUnavailable):
            await store.read("sess_a", 0, 10)
        await store.close()
