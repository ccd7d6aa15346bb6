"""The journal's contract on PostgreSQL, and what only a database can suffer: odd text, large values, other nodes' pruning."""

import asyncio
import random
import subprocess
import sys
from collections.abc import AsyncIterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs
from tests.contracts import journal as contracts_journal

from switchtower.core import codec, errors, events
from switchtower.core.ports import journal
from switchtower.stores.postgres import database
from switchtower.stores.postgres.journal import PostgresJournal
from switchtower.stores.postgres.leases import PostgresLeases
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


class TestPostgresJournal(contracts_journal.JournalContract):
    @pytest.fixture
    def make_journal(self, dsn: str) -> contracts_journal.MakeJournal:
        return lambda: PostgresJournal(dsn, node_id="node_a")


@pytest.fixture
async def store(dsn: str) -> AsyncIterator[PostgresJournal]:
    store = PostgresJournal(dsn, node_id="node_a")
    await store.open()
    yield store
    await store.close()


NASTY = "\x00 \\0 \\ ' \" ; DROP TABLE events; -- é \u2028 \U0001f389 %s $1 {}"


async def test_any_text_is_kept_as_it_is(store: PostgresJournal) -> None:
    session_id = f"sess_{NASTY}"
    said = journal.Entry(1, NOON, f"run_{NASTY}", "text.delta", codec.encode(events.TextDelta(text=NASTY)))
    raw = journal.Entry(
        2, NOON, "run", events.WarningRaised.kind, b'{"code":"\\u0000","message":"' + bytes(range(32, 256)) + b'"}'
    )
    kept = journal.Receipt(scope=NASTY, key=NASTY, fingerprint=NASTY, outcome={NASTY: NASTY}, expires_at_ms=NOON + 9)
    append = journal.Append(session_id, 1, [said, raw], [kept], make_card(session_id), snapshot=bytes(range(256)))
    await store.append(append)
    assert await store.read(session_id, 0, 10) == [said, raw]
    assert await store.read_back(session_id, 9, 10) == [said, raw]
    assert await store.find_receipt(NASTY, NASTY, NOON) == kept
    assert await store.list_receipts(NASTY, 5, NOON) == [kept]
    assert await store.list_cards(limit=5) == [append.card]
    assert await store.list_cards(limit=5, session_id=session_id) == [append.card]
    assert await store.load(session_id) == journal.StoredSession(session_id, 1, 2, bytes(range(256)))
    assert await store.delete(session_id) == 2
    assert await store.find_receipt(NASTY, NASTY, NOON) == kept, "its scope is not the session"


@given(name=st.text(), other=st.text())
def test_names_come_back_as_they_were_and_no_two_are_one(name: str, other: str) -> None:
    assert "\0" not in database.escape_nul(name)
    assert database.unescape_nul(database.escape_nul(name)) == name
    assert (database.escape_nul(name) == database.escape_nul(other)) == (name == other)


async def test_text_that_is_none_fails_alone(store: PostgresJournal) -> None:
    broken = make_append("sess_\ud800", [make_delta(1)])
    results = await asyncio.gather(
        *(
            store.append(append)
            for append in (make_append("sess_a", [make_delta(1)]), broken, make_append("sess_b", [make_delta(1)]))
        ),
        return_exceptions=True,
    )
    assert [type(result) for result in results][::2] == [type(None)] * 2
    assert isinstance(results[1], ValueError)
    assert await read_seqs(store, "sess_b") == [1]


async def test_numbers_and_bytes_of_the_wrong_kind_fail_alone(store: PostgresJournal) -> None:
    wrong = [
        make_append("sess_x", [make_delta(1)._replace(ts_ms=2**70)]),
        make_append("sess_x", [make_warning(1)._replace(data="text")]),  # type: ignore[arg-type]
        make_append("sess_x", [make_delta(1)], epoch=2**70),
        make_append("sess_x", [make_delta(1)], snapshot="text"),  # type: ignore[arg-type]
    ]
    for append in wrong:
        results = await asyncio.gather(
            *(store.append(one) for one in (make_append(f"sess_{id(append)}", [make_delta(1)]), append)), return_exceptions=True
        )
        assert results[0] is None
        assert isinstance(results[1], Exception)
        assert not isinstance(results[1], errors.CoreError), "that is our own bug"
        assert "text" not in str(results[1]), "what was to be stored is in no error"
        assert await store.load("sess_x") is None
    await store.append(make_append("sess_x", [make_delta(1)]))


async def test_a_key_of_any_length_is_an_identity(store: PostgresJournal) -> None:
    noise = random.Random(1)
    long_key = "".join(chr(noise.randrange(32, 0xD000)) for _ in range(50_000))
    append = make_append("sess_a", [make_delta(1)])
    append.receipts = [make_receipt(long_key), make_receipt(long_key[:-1])]
    await store.append(append)
    assert await store.find_receipt("sess_a", long_key, NOON) == append.receipts[0]
    again = make_append("sess_a", [make_delta(2)])
    again.receipts = [make_receipt(long_key)]
    with pytest.raises(errors.Fenced):
        await store.append(again)


async def test_a_large_event_is_kept_and_read_in_a_page_of_its_own(store: PostgresJournal) -> None:
    large = codec.encode(events.WarningRaised(code="CODE", message="x" * 24_000_000))
    entries = [make_warning(1), make_warning(2)._replace(data=large), make_warning(3)]
    await store.append(make_append("sess_a", entries))
    pages, cursor = [], 0
    while page := await store.read("sess_a", cursor, 100):
        pages.append([entry.seq for entry in page])
        assert page == entries[cursor : cursor + len(page)]
        cursor = page[-1].seq
    assert pages == [[1, 2], [3]]


async def test_a_page_is_bounded_in_bytes_on_the_server_s_side(store: PostgresJournal) -> None:
    data = codec.encode(events.WarningRaised(code="CODE", message="x" * 100_000))
    await store.append(make_append("sess_a", [make_warning(seq)._replace(data=data) for seq in range(1, 101)]))
    page = await store.read("sess_a", 0, 100_000)
    assert 15 <= len(page) <= 25
    assert 15 <= len(await store.read_back("sess_a", 2**62, 100_000)) <= 25


@pytest.mark.parametrize("seq", [-(2**70), -1, 0, 2**62, 2**63 - 1, 2**70])
async def test_a_cursor_of_any_size_is_answered(store: PostgresJournal, seq: int) -> None:
    await store.append(make_append("sess_a", make_deltas(1, 3)))
    assert [entry.seq for entry in await store.read("sess_a", seq, 10)] == ([1, 2, 3] if seq <= 0 else [])
    assert [entry.seq for entry in await store.read_back("sess_a", seq, 10)] == ([1, 2, 3] if seq > 3 else [])
    assert await store.find_gap("sess_a", seq) is None


async def test_cards_tell_the_home_that_their_session_has_now(store: PostgresJournal, dsn: str) -> None:
    homes = PostgresLeases(dsn)
    await homes.open()
    await homes.join("node_\\ \x00", "", 600_000)
    told = structs.replace(make_card("sess_a", events.SessionState.RUNNING), loaded=True, home="node_of_old")
    await store.append(journal.Append("sess_a", 1, [make_delta(1)], card=told))
    await store.append(make_append("sess_b", [make_delta(1)]))
    ways = ({}, {"session_id": "sess_a"}, {"loaded": True}, {"states": [events.SessionState.RUNNING]})

    async def home_of_a() -> set[str | None]:
        listings = [await store.list_cards(limit=10, **way) for way in ways]  # type: ignore[arg-type]
        return {listed.home for cards in listings for listed in cards if listed.session_id == "sess_a"}

    assert await home_of_a() == {None}, "what a card said of it is not stored"
    lease = await homes.acquire("sess_a", "node_\\ \x00")
    assert lease is not None
    assert await home_of_a() == {"node_\\ \x00"}
    assert [other.home for other in await store.list_cards(limit=1, session_id="sess_b")] == [None]
    await homes.release(lease)
    assert await home_of_a() == {None}
    await homes.close()


async def test_how_far_many_sessions_are_is_told_at_once(store: PostgresJournal) -> None:
    for number in range(1, 4):
        await store.append(make_append(f"sess_{number} \0", make_deltas(1, number * 10)))
    asked = ["sess_1 \0", "sess_3 \0", "sess_none"]
    assert await store.read_heads(asked) == {"sess_1 \0": 10, "sess_3 \0": 30}
    assert await store.read_heads([]) == {}


def test_the_library_is_loaded_only_when_a_database_is_reached() -> None:
    rooms = ", ".join(f"switchtower.stores.postgres.{room}" for room in ("journal", "registry", "leases", "search", "pool"))
    program = f"import sys, {rooms}; sys.exit('asyncpg' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], timeout=60).returncode == 0


async def test_nodes_that_prune_one_session_at_once_remove_everything_once(store: PostgresJournal, dsn: str) -> None:
    entries = [entry for first in range(1, 4_000, 8) for entry in (*make_deltas(first, first + 6), make_warning(first + 7))]
    await store.append(make_append("sess_a", entries, snapshot=b"folded"))
    others = [PostgresJournal(dsn) for _ in range(3)]
    await asyncio.gather(*(other.open() for other in others))
    keep = journal.Retention(keep_entries=1_003, keep_ms=0)
    pruned = await asyncio.gather(*(node.prune(keep, NOON) for node in [store, *others]))
    kept = [entry for entry in entries if entry.kind == events.WarningRaised.kind or entry.seq > 4_000 - 1_003]
    assert await store.read("sess_a", 0, 10_000) == kept
    assert sum(pruned) == 4_000 - len(kept)
    await asyncio.gather(*(other.close() for other in others))


async def test_a_session_is_written_while_another_node_deletes_its_neighbour(store: PostgresJournal, dsn: str) -> None:
    other = PostgresJournal(dsn)
    await other.open()
    await store.append(make_append("sess_a", [make_delta(1)]))
    await store.append(make_append("sess_b", [make_warning(seq) for seq in range(1, 5_001)]))
    deleting = asyncio.ensure_future(other.delete("sess_b"))
    for seq in range(2, 30):
        await store.append(make_append("sess_a", [make_delta(seq)]))
    assert await deleting == 5_000
    assert await read_seqs(store, "sess_a") == list(range(1, 30))
    with pytest.raises(errors.Fenced):
        await store.append(make_append("sess_b", [make_delta(5_001)]))
    await store.append(make_append("sess_b", [make_delta(1)]))  # the id is free again, also for who remembered it
    await other.close()


async def test_an_open_journal_outlives_the_loss_of_its_writer_s_row(store: PostgresJournal, dsn: str) -> None:
    """It is removed after a month, whoever still uses it."""
    await store.append(make_append("sess_a", [make_delta(1)]))
    connection = await database.connect(dsn)
    await connection.execute("DELETE FROM writers")
    await store.append(make_append("sess_a", [make_delta(2)]))
    assert await read_seqs(store, "sess_a") == [1, 2]
    await connection.close()
