"""Connections that break at any point of an append: what was stored is answered as stored, once, and nothing else is there."""

import asyncio
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.contracts.registry import make_user
from tests.stores.postgres.wire import PostgresProxy

from switchtower.core import codec, errors, events
from switchtower.core.ports import cluster, journal, registry
from switchtower.stores.postgres.journal import PostgresJournal
from switchtower.stores.postgres.leases import PostgresLeases
from switchtower.stores.postgres.registry import PostgresRegistry
from switchtower.testing.postgres_server import PostgresServer
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


@pytest.fixture
async def postgres_proxy(shared_server: PostgresServer) -> AsyncIterator[PostgresProxy]:
    with tempfile.TemporaryDirectory(prefix="tower-wire-") as folder:
        wire = PostgresProxy(Path(folder), shared_server.folder / ".s.PGSQL.5432")
        await wire.open()
        yield wire
        await wire.close()


@pytest.fixture
async def store(postgres_proxy: PostgresProxy, dsn: str) -> AsyncIterator[PostgresJournal]:
    store = PostgresJournal(postgres_proxy.make_dsn(get_database_name(dsn)), node_id="node_a", timeout=20)
    await store.open()
    await store.append(make_append_with_receipt(1))
    yield store
    await store.close()


def get_database_name(dsn: str) -> str:
    return dsn.rpartition("/")[0].rpartition("/")[2] if "?" not in dsn else dsn.partition("?")[0].rpartition("/")[2]


def make_append_with_receipt(seq: int) -> journal.Append:
    append = make_append("sess_a", [make_delta(seq)], snapshot=b"%d" % seq)
    append.receipts = [make_receipt(f"msg_{seq}")]
    append.card = make_card("sess_a", updated_at_ms=NOON + seq)
    return append


async def check_whole(dsn: str, head: int) -> None:
    """As another node sees it."""
    other = PostgresJournal(dsn)
    await other.open()
    assert await read_seqs(other, "sess_a") == list(range(1, head + 1))
    assert await other.load("sess_a") == journal.StoredSession("sess_a", 1, head, b"%d" % head)
    for seq in range(1, head + 1):
        assert await other.find_receipt("sess_a", f"msg_{seq}", NOON) == make_receipt(f"msg_{seq}")
    await other.close()


async def test_an_append_whose_answer_was_lost_is_found_stored(
    postgres_proxy: PostgresProxy, store: PostgresJournal, dsn: str
) -> None:
    postgres_proxy.swallows_answers = True
    async with asyncio.timeout(60):
        appending = asyncio.ensure_future(store.append(make_append_with_receipt(2)))
        await postgres_proxy.swallowed.wait()
        await wait_until_stored(dsn, 2)
        postgres_proxy.swallows_answers = False
        postgres_proxy.cut()
        await appending
        await store.append(make_append_with_receipt(3))
    await check_whole(dsn, 3)


async def wait_until_stored(dsn: str, head: int) -> None:
    other = PostgresJournal(dsn)
    await other.open()
    while len(await read_seqs(other, "sess_a")) < head:
        await asyncio.sleep(0.005)
    await other.close()


async def test_an_append_that_never_arrived_is_sent_again(
    postgres_proxy: PostgresProxy, store: PostgresJournal, dsn: str
) -> None:
    postgres_proxy.holds_requests = True
    async with asyncio.timeout(60):
        appending = asyncio.ensure_future(store.append(make_append_with_receipt(2)))
        await postgres_proxy.holding.wait()
        postgres_proxy.holds_requests = False
        postgres_proxy.cut()
        await appending
    await check_whole(dsn, 2)


async def test_an_append_that_arrives_after_its_answer_was_given_is_refused(
    postgres_proxy: PostgresProxy, store: PostgresJournal, dsn: str
) -> None:
    """A straggler without entries would otherwise be stored twice and nobody could tell: it only sets what it set before."""
    postgres_proxy.holds_requests = True
    async with asyncio.timeout(60):
        held = make_append("sess_a", [])
        held.card = make_card("sess_a", updated_at_ms=NOON + 100)
        appending = asyncio.ensure_future(store.append(held))
        await postgres_proxy.holding.wait()
        postgres_proxy.holds_requests = False
        late = postgres_proxy.cut_clients()
        await appending
        newer = make_append("sess_a", [])
        newer.card = make_card("sess_a", updated_at_ms=NOON + 200)
        await store.append(newer)
        await postgres_proxy.deliver(late)
        # The server closes a connection when it is through with it; only then is the wire's other end gone.
        while any(not link.server.transport.is_closing() for link in late if link.held):
            await asyncio.sleep(0.005)
        assert [listed.updated_at_ms for listed in await store.list_cards(limit=1)] == [NOON + 200]
        await store.append(make_append_with_receipt(2))
    await check_whole(dsn, 2)


async def test_many_appends_over_a_wire_that_is_cut_again_and_again_are_each_there_once(
    postgres_proxy: PostgresProxy, store: PostgresJournal, dsn: str
) -> None:
    heads = dict.fromkeys([f"sess_{number}" for number in range(1, 9)], 0)
    enough = False

    async def appender(session_id: str) -> None:
        while not enough:
            await store.append(make_append(session_id, [make_delta(heads[session_id] + 1)]))
            heads[session_id] += 1

    async with asyncio.timeout(120):
        appending = asyncio.gather(*map(appender, heads))
        for turn in range(40):
            postgres_proxy.swallows_answers = turn % 3 == 1
            postgres_proxy.holds_requests = turn % 3 == 2
            for _ in range(turn % 7):
                await asyncio.sleep(0.001)
            postgres_proxy.cut()
            postgres_proxy.swallows_answers = postgres_proxy.holds_requests = False
            # On until something has got through again: a wire that is always cut carries nothing.
            before = sum(heads.values())
            while sum(heads.values()) == before:
                await asyncio.sleep(0.001)
        enough = True
        await appending
    for session_id, head in heads.items():
        assert await store.read(session_id, 0, 100_000) == make_deltas(1, head)


async def test_while_the_database_is_away_appends_fail_and_afterwards_they_do_not(
    postgres_proxy: PostgresProxy, dsn: str
) -> None:
    store = PostgresJournal(postgres_proxy.make_dsn(get_database_name(dsn)), timeout=0.2)
    await store.open()
    await store.append(make_append_with_receipt(1))
    postgres_proxy.is_down = True
    postgres_proxy.cut()
    async with asyncio.timeout(60):
        with pytest.raises(errors.JournalUnavailable):
            await store.read("sess_a", 0, 10)
        with pytest.raises(errors.JournalUnavailable):
            await store.append(make_append_with_receipt(2))
        postgres_proxy.is_down = False
        await store.append(make_append_with_receipt(2))
        assert await read_seqs(store, "sess_a") == [1, 2]
    await store.close()
    await check_whole(dsn, 2)


async def test_those_behind_an_append_of_unknown_outcome_fail_and_that_one_waits_for_the_truth(
    postgres_proxy: PostgresProxy, dsn: str
) -> None:
    store = PostgresJournal(postgres_proxy.make_dsn(get_database_name(dsn)), timeout=0.2)
    await store.open()
    await store.append(make_append_with_receipt(1))
    postgres_proxy.swallows_answers = True
    async with asyncio.timeout(60):
        unknown = asyncio.ensure_future(store.append(make_append_with_receipt(2)))
        await postgres_proxy.swallowed.wait()
        await wait_until_stored(dsn, 2)
        behind = asyncio.ensure_future(store.append(make_append_with_receipt(3)))
        postgres_proxy.is_down = True
        postgres_proxy.swallows_answers = False
        postgres_proxy.cut()
        with pytest.raises(errors.JournalUnavailable):
            await behind
        with pytest.raises(errors.JournalUnavailable):
            await store.append(make_append_with_receipt(3))
        assert not unknown.done()
        postgres_proxy.is_down = False
        await unknown
        await store.append(make_append_with_receipt(3))
    await store.close()
    await check_whole(dsn, 3)


async def test_closing_without_a_database_ends_and_tells_that_an_outcome_is_not_known(
    postgres_proxy: PostgresProxy, dsn: str
) -> None:
    store = PostgresJournal(postgres_proxy.make_dsn(get_database_name(dsn)), timeout=0.1)
    await store.open()
    await store.append(make_append_with_receipt(1))
    postgres_proxy.swallows_answers = True
    async with asyncio.timeout(60):
        unknown = asyncio.ensure_future(store.append(make_append_with_receipt(2)))
        await postgres_proxy.swallowed.wait()
        postgres_proxy.is_down = True
        postgres_proxy.cut()
        await store.close()
        with pytest.raises(errors.JournalUnavailable, match="not known"):
            await unknown


async def test_appends_that_were_handed_over_are_stored_before_it_closes(postgres_proxy: PostgresProxy, dsn: str) -> None:
    store = PostgresJournal(postgres_proxy.make_dsn(get_database_name(dsn)))
    await store.open()
    appending = [store.append(make_append_with_receipt(seq)) for seq in range(1, 31)]
    async with asyncio.timeout(60):
        await store.close()
        await asyncio.gather(*appending)
    await check_whole(dsn, 30)


async def test_an_append_whose_asker_left_is_stored_and_holds_nobody_up(
    postgres_proxy: PostgresProxy, store: PostgresJournal, dsn: str
) -> None:
    async with asyncio.timeout(60):
        leaving = asyncio.ensure_future(store.append(make_append_with_receipt(2)))
        staying = asyncio.ensure_future(store.append(make_append_with_receipt(3)))
        await asyncio.sleep(0)
        leaving.cancel()
        await staying
    await check_whole(dsn, 3)


async def test_a_reader_who_leaves_in_the_middle_holds_no_connection(store: PostgresJournal) -> None:
    async with asyncio.timeout(60):
        for _ in range(10):
            reading = asyncio.ensure_future(store.read("sess_a", 0, 10))
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)
        assert await read_seqs(store, "sess_a") == [1]


async def test_more_than_can_wait_is_refused_at_once(postgres_proxy: PostgresProxy, store: PostgresJournal) -> None:
    large = journal.Entry(2, NOON, None, events.WarningRaised.kind, b'{"code":"C","message":"' + b"x" * 8_000_000 + b'"}')
    postgres_proxy.holds_requests = True
    async with asyncio.timeout(60):
        first = asyncio.ensure_future(store.append(make_append_with_receipt(2)))
        await postgres_proxy.holding.wait()
        waiting = [store.append(make_append("sess_b", [large._replace(seq=seq)])) for seq in range(2, 12)]
        refused = [one for one in waiting if one.done()]
        for one in refused:
            with pytest.raises(errors.Overloaded):
                await one
        assert 1 <= len(refused) <= 4
        postgres_proxy.holds_requests = False
        postgres_proxy.cut()
        await first
        for one in waiting:
            with pytest.raises((errors.Fenced, errors.Overloaded)):  # `sess_b` does not begin with seq 1
                await one


# What is not the journal


@pytest.mark.parametrize("was_stored", [True, False])
async def test_a_change_whose_commit_was_not_answered_is_told_as_it_was(
    postgres_proxy: PostgresProxy, dsn: str, *, was_stored: bool
) -> None:
    store = PostgresRegistry(postgres_proxy.make_dsn(get_database_name(dsn)), timeout=20)
    await store.open()
    async with asyncio.timeout(60):
        if was_stored:
            postgres_proxy.swallows_after = b"COMMIT"
        else:
            postgres_proxy.holds_from = b"COMMIT"
        adding = asyncio.ensure_future(store.add_user(make_user()))
        await (postgres_proxy.swallowed if was_stored else postgres_proxy.holding).wait()
        postgres_proxy.swallows_after = postgres_proxy.holds_from = b""
        postgres_proxy.swallows_answers = False
        postgres_proxy.cut()
        assert await adding, "nobody else added this user"
        assert not await store.add_user(make_user())
    await store.close()


async def test_a_change_that_is_cut_off_anywhere_is_made_once(postgres_proxy: PostgresProxy, dsn: str) -> None:
    store = PostgresRegistry(postgres_proxy.make_dsn(get_database_name(dsn)), timeout=20)
    await store.open()
    async with asyncio.timeout(60):
        for number in range(12):
            adding = asyncio.ensure_future(store.add_user(make_user(f"user_{number}")))
            for _ in range(number):
                await asyncio.sleep(0.001)
            postgres_proxy.cut()
            assert await adding, "nobody else added this user"
    assert len(await store.list_users()) == 12
    await store.close()


async def test_no_more_than_a_page_comes_over_the_wire_however_much_there_is(
    postgres_proxy: PostgresProxy, store: PostgresJournal
) -> None:
    data = codec.encode(events.WarningRaised(code="CODE", message="x" * 100_000))
    await store.append(make_append("sess_b", [make_warning(seq)._replace(data=data) for seq in range(1, 101)]))
    before = postgres_proxy.answered_bytes
    assert await store.read("sess_b", 0, 100_000)
    assert await store.read_back("sess_b", 2**62, 100_000)
    assert 2 * 2_000_000 < postgres_proxy.answered_bytes - before < 2 * 2_500_000


async def test_a_database_that_is_away_is_told_in_the_words_of_each_port(postgres_proxy: PostgresProxy, dsn: str) -> None:
    address = postgres_proxy.make_dsn(get_database_name(dsn))
    users, homes = PostgresRegistry(address, timeout=0.1), PostgresLeases(address, timeout=0.1)
    await users.open()
    await homes.open()
    postgres_proxy.is_down = True
    postgres_proxy.cut()
    async with asyncio.timeout(60):
        with pytest.raises(registry.RegistryUnavailable):
            await users.list_users()
        with pytest.raises(cluster.LeasesUnavailable):
            await homes.list_nodes()
        postgres_proxy.is_down = False
        assert await users.list_users() == []
        assert await homes.list_nodes() == []
    await users.close()
    await homes.close()


async def test_an_address_that_leads_nowhere_is_told_without_its_password(tmp_path: Path) -> None:
    for address in (f"postgresql://ann:s3cret@/db?host={tmp_path}", "postgresql://ann:s3cret@[::1/db", "mysql://ann:s3cret@x/db"):
        with pytest.raises(errors.JournalUnavailable) as refused:
            await PostgresJournal(address).open()
        assert "s3cret" not in str(refused.value)
        with pytest.raises(registry.RegistryUnavailable) as refused_too:
            await PostgresRegistry(address).open()
        assert "s3cret" not in str(refused_too.value)
