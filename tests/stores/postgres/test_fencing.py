"""A node that lost its lease stores nothing any more, however it comes to try."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from tests.contracts.leases import LONG_MS

from switchtower.core import errors, events
from switchtower.core.ports import cluster, journal
from switchtower.stores.postgres.journal import PostgresJournal
from switchtower.stores.postgres.leases import PostgresLeases
from switchtower.testing.session_driver import NOON, make_append, make_card, make_delta, make_receipt, read_seqs


class FencedNodes:
    """Two nodes on one database, each with its own journal."""

    def __init__(self, dsn: str) -> None:
        self.leases = PostgresLeases(dsn)
        self.journals = {node_id: PostgresJournal(dsn, node_id=node_id) for node_id in ("node_a", "node_b")}

    async def open(self) -> None:
        await self.leases.open()
        for node_id, store in self.journals.items():
            await store.open()
            await self.leases.join(node_id, "", LONG_MS)

    async def close(self) -> None:
        for store in self.journals.values():
            await store.close()
        await self.leases.close()

    async def acquire_lease(self, session_id: str, node_id: str) -> cluster.Lease:
        lease = await self.leases.acquire(session_id, node_id)
        assert lease is not None
        return lease

    async def append(self, lease: cluster.Lease, *seqs_: int) -> None:
        """With a run under way from the beginning on."""
        append = make_append(lease.session_id, [make_stamped_entry(seq, lease) for seq in seqs_], epoch=lease.epoch)
        if append.card is not None:
            append.card = make_card(lease.session_id, events.SessionState.RUNNING)
        await self.journals[lease.node_id].append(append)

    async def expire_node(self, node_id: str) -> None:
        await self.leases.renew(node_id, 0)


def make_stamped_entry(seq: int, lease: cluster.Lease) -> journal.Entry:
    """An entry that tells in which epoch it was written."""
    return make_delta(seq)._replace(run_id=f"{lease.node_id} {lease.epoch}")


@pytest.fixture
async def nodes(dsn: str) -> AsyncIterator[FencedNodes]:
    nodes = FencedNodes(dsn)
    await nodes.open()
    yield nodes
    await nodes.close()


async def test_after_a_takeover_the_old_home_is_fenced_and_the_new_one_goes_on(nodes: FencedNodes) -> None:
    old = await nodes.acquire_lease("sess_a", "node_a")
    await nodes.append(old, 1, 2)
    await nodes.expire_node("node_a")
    (new,) = await nodes.leases.take_over("node_b", 10)
    with pytest.raises(errors.Fenced):
        await nodes.append(old, 3)
    await nodes.append(new, 3)
    with pytest.raises(errors.Fenced):
        await nodes.append(old, 4)
    assert await read_seqs(nodes.journals["node_a"], "sess_a") == [1, 2, 3]
    stored = await nodes.journals["node_a"].load("sess_a")
    assert stored is not None
    assert stored.epoch == new.epoch


async def test_a_fenced_node_cannot_begin_a_session_either(nodes: FencedNodes) -> None:
    old = await nodes.acquire_lease("sess_a", "node_a")
    await nodes.expire_node("node_a")
    new = await nodes.acquire_lease("sess_a", "node_b")
    with pytest.raises(errors.Fenced):
        await nodes.append(old, 1)
    assert await nodes.journals["node_a"].load("sess_a") is None
    await nodes.append(new, 1)


async def test_nobody_writes_in_an_epoch_that_nobody_was_given(nodes: FencedNodes) -> None:
    lease = await nodes.acquire_lease("sess_a", "node_a")
    await nodes.append(lease, 1)
    for epoch in (lease.epoch - 1, lease.epoch + 1, lease.epoch + 100):
        with pytest.raises(errors.Fenced):
            await nodes.journals["node_b"].append(make_append("sess_a", [make_delta(2)], epoch=epoch))
    assert await read_seqs(nodes.journals["node_b"], "sess_a") == [1]


async def test_what_is_on_the_way_when_a_session_is_released_or_handed_over_is_refused(nodes: FencedNodes) -> None:
    first = await nodes.acquire_lease("sess_a", "node_a")
    await nodes.append(first, 1)
    assert await nodes.leases.release(first)
    with pytest.raises(errors.Fenced):
        await nodes.append(first, 2)
    second = await nodes.acquire_lease("sess_a", "node_a")
    given = await nodes.leases.hand_over(second, "node_b")
    assert given is not None
    with pytest.raises(errors.Fenced):
        await nodes.append(second, 2)
    await nodes.append(given, 2)


async def test_a_session_that_comes_back_home_goes_on_where_the_other_left_it(nodes: FencedNodes) -> None:
    """What a node remembers of a session from before does not mislead it."""
    lease = await nodes.acquire_lease("sess_a", "node_a")
    await nodes.append(lease, 1)
    for turn in range(6):
        other = await nodes.leases.hand_over(lease, "node_b" if turn % 2 == 0 else "node_a")
        assert other is not None
        lease = other
        await nodes.append(lease, 2 * turn + 2, 2 * turn + 3)
    assert await read_seqs(nodes.journals["node_a"], "sess_a") == list(range(1, 14))


async def test_a_fenced_append_leaves_neither_receipt_nor_card_nor_snapshot(nodes: FencedNodes) -> None:
    old = await nodes.acquire_lease("sess_a", "node_a")
    await nodes.append(old, 1)
    await nodes.expire_node("node_a")
    await nodes.acquire_lease("sess_a", "node_b")
    before = await nodes.journals["node_b"].list_cards(limit=1)
    for entries in ([make_stamped_entry(2, old)], []):
        append = make_append("sess_a", entries, epoch=old.epoch, snapshot=b"stale")
        append.receipts = [make_receipt("msg_1")]
        with pytest.raises(errors.Fenced):
            await nodes.journals["node_a"].append(append)
    assert await nodes.journals["node_b"].find_receipt("sess_a", "msg_1", NOON) is None
    assert await nodes.journals["node_b"].list_cards(limit=1) == before
    stored = await nodes.journals["node_b"].load("sess_a")
    assert stored is not None
    assert stored.snapshot is None


async def test_one_lost_session_among_many_fails_alone(nodes: FencedNodes) -> None:
    held = [await nodes.acquire_lease(f"sess_{number:02d}", "node_a") for number in range(40)]
    await asyncio.gather(*(nodes.append(lease, 1) for lease in held))
    assert await nodes.leases.hand_over(held[17], "node_b") is not None
    results = await asyncio.gather(*(nodes.append(lease, 2) for lease in held), return_exceptions=True)
    assert [number for number, result in enumerate(results) if isinstance(result, errors.Fenced)] == [17]
    assert [result for number, result in enumerate(results) if number != 17] == [None] * 39


async def test_under_load_no_entry_is_written_in_an_epoch_that_is_over(nodes: FencedNodes) -> None:
    """Sessions go to and fro while both nodes write as fast as they can, each believing that it is the home until it is told."""
    rounds, session_ids = 60, [f"sess_{number}" for number in range(6)]
    acknowledged: dict[str, list[journal.Entry]] = {session_id: [] for session_id in session_ids}
    refused = 0

    async def zombie(lease: cluster.Lease, head: int) -> None:
        """Writes until it is fenced: nobody tells it otherwise."""
        nonlocal refused
        while True:
            entry = make_stamped_entry(head + 1, lease)
            try:
                await nodes.journals[lease.node_id].append(make_append(lease.session_id, [entry], epoch=lease.epoch))
            except errors.Fenced:
                refused += 1
                return
            acknowledged[lease.session_id].append(entry)
            head += 1

    async with asyncio.timeout(180):
        held = {session_id: await nodes.acquire_lease(session_id, "node_a") for session_id in session_ids}
        writing = [asyncio.create_task(zombie(lease, 0)) for lease in held.values()]
        for turn in range(rounds):
            session_id = session_ids[turn % len(session_ids)]
            before = len(acknowledged[session_id])
            while len(acknowledged[session_id]) < before + 2:
                await asyncio.sleep(0)
            silent, other = held[session_id].node_id, "node_b" if held[session_id].node_id == "node_a" else "node_a"
            await nodes.expire_node(silent)
            taken = await nodes.leases.acquire(session_id, other)
            assert taken is not None
            await nodes.leases.renew(silent, LONG_MS)
            # From here on the old home must not store one more.
            head = len(await read_seqs(nodes.journals[other], session_id))
            held[session_id] = taken
            writing.append(asyncio.create_task(zombie(taken, head)))
        for lease in held.values():
            assert await nodes.leases.release(lease)
        await asyncio.gather(*writing)
    assert refused == rounds + len(session_ids)
    for session_id in session_ids:
        entries = await nodes.journals["node_a"].read(session_id, 0, 100_000)
        assert [entry.seq for entry in entries] == list(range(1, len(entries) + 1))
        epochs = [int((entry.run_id or "").partition(" ")[2]) for entry in entries]
        assert epochs == sorted(epochs), "no entry of an older epoch follows one of a newer"
        assert entries == sorted(acknowledged[session_id])


async def test_nodes_that_begin_the_same_session_at_once_leave_one_beginning(nodes: FencedNodes) -> None:
    for turn in range(10):
        appends = [make_append(f"sess_{turn}", [make_delta(1, NOON + number)]) for number in range(2)]
        results = await asyncio.gather(
            *(store.append(append) for store, append in zip(nodes.journals.values(), appends, strict=True)),
            return_exceptions=True,
        )
        assert sorted(str(type(result)) for result in results) == sorted([str(type(None)), str(errors.Fenced)])
        winner = results.index(None)
        assert await nodes.journals["node_a"].read(f"sess_{turn}", 0, 10) == appends[winner].entries


async def test_one_identity_on_two_nodes_at_once_has_one_outcome(nodes: FencedNodes) -> None:
    for turn in range(10):
        appends = [make_append(f"sess_{turn}_{number}", [make_delta(1)]) for number in range(2)]
        for number, append in enumerate(appends):
            append.receipts = [make_receipt(f"msg_{turn}", "server", run=f"run_{number}")]
        results = await asyncio.gather(
            *(store.append(append) for store, append in zip(nodes.journals.values(), appends, strict=True)),
            return_exceptions=True,
        )
        assert sorted(str(type(result)) for result in results) == sorted([str(type(None)), str(errors.Fenced)])
        stored = await nodes.journals["node_a"].find_receipt("server", f"msg_{turn}", NOON)
        assert stored == appends[results.index(None)].receipts[0]
        assert await nodes.journals["node_b"].load(appends[1 - results.index(None)].session_id) is None
