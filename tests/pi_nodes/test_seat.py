"""Of several nodes one has the seat: taken when somebody asks, given up, and lost."""

import asyncio

import pytest
from tests.pi_nodes.stage import LONG_MS

from switchtower.cluster.pi_router import SingletonLease
from switchtower.core.ports import cluster
from switchtower.testing.memory.leases import MemoryLeases


class CountingLeases(MemoryLeases):
    """Counts what it is asked, and waits in an acquisition while the gate is shut."""

    def __init__(self) -> None:
        super().__init__()
        self.acquisitions = 0
        self.gate = asyncio.Event()
        self.gate.set()

    async def acquire(self, session_id: str, node_id: str) -> cluster.Lease | None:
        self.acquisitions += 1
        lease = await super().acquire(session_id, node_id)
        await self.gate.wait()
        return lease


@pytest.fixture
async def store() -> CountingLeases:
    store = CountingLeases()
    await store.open()
    for node_id in ("node_1", "node_2"):
        await store.join(node_id, "somewhere", LONG_MS)
    return store


async def test_the_first_who_asks_has_it_and_the_others_are_told_who(store: CountingLeases) -> None:
    first, second = SingletonLease(store, "node_1"), SingletonLease(store, "node_2")
    assert await first.find_or_acquire_holder() == "node_1"
    assert await second.find_or_acquire_holder() == "node_1"
    assert (first.is_held, second.is_held) == (True, False)


async def test_who_has_it_does_not_ask_again(store: CountingLeases) -> None:
    seat = SingletonLease(store, "node_1")
    await seat.find_or_acquire_holder()
    for _ in range(10):
        assert await seat.find_or_acquire_holder() == "node_1"
    assert store.acquisitions == 1


async def test_many_who_ask_at_once_share_one_question(store: CountingLeases) -> None:
    seat = SingletonLease(store, "node_2")
    assert await asyncio.gather(*(seat.find_or_acquire_holder() for _ in range(100))) == ["node_2"] * 100
    assert store.acquisitions == 1


async def test_one_who_stops_asking_does_not_stop_the_others(store: CountingLeases) -> None:
    seat = SingletonLease(store, "node_1")
    store.gate.clear()
    impatient, patient = (asyncio.ensure_future(seat.find_or_acquire_holder()) for _ in range(2))
    await asyncio.sleep(0)
    impatient.cancel()
    await asyncio.wait([impatient])
    store.gate.set()
    assert await patient == "node_1"


async def test_the_seat_of_a_silent_node_is_taken(store: CountingLeases) -> None:
    first, second = SingletonLease(store, "node_1"), SingletonLease(store, "node_2")
    await first.find_or_acquire_holder()
    await store.renew("node_1", 0)
    assert await second.find_or_acquire_holder() == "node_2"


async def test_a_seat_that_is_given_up_is_free_at_once(store: CountingLeases) -> None:
    first, second = SingletonLease(store, "node_1"), SingletonLease(store, "node_2")
    await first.find_or_acquire_holder()
    await first.release()
    assert first.is_held is False
    assert await second.find_or_acquire_holder() == "node_2"
    assert await first.find_or_acquire_holder() == "node_2"


async def test_who_retires_does_not_take_it_again_and_still_tells_who_has_it(store: CountingLeases) -> None:
    first, second = SingletonLease(store, "node_1"), SingletonLease(store, "node_2")
    await first.find_or_acquire_holder()
    _, holder = await asyncio.gather(first.retire(), first.find_or_acquire_holder())
    assert holder is None
    assert await first.find_or_acquire_holder() is None
    assert await second.find_or_acquire_holder() == "node_2"
    assert await first.find_or_acquire_holder() == "node_2"


async def test_giving_it_up_and_asking_at_once_never_leaves_a_seat_that_is_not_ones_own(store: CountingLeases) -> None:
    seat, other = SingletonLease(store, "node_1"), SingletonLease(store, "node_2")
    await seat.find_or_acquire_holder()
    _, holder = await asyncio.gather(seat.release(), seat.find_or_acquire_holder())
    owner = await store.find_owner("seat:pi")
    assert holder == "node_1"
    assert seat.is_held is (owner is not None and owner.node_id == "node_1") is True
    assert await other.find_or_acquire_holder() == "node_1"


async def test_a_node_that_lost_its_lease_asks_anew(store: CountingLeases) -> None:
    first, second = SingletonLease(store, "node_1"), SingletonLease(store, "node_2")
    await first.find_or_acquire_holder()
    await store.renew("node_1", 0)
    await second.find_or_acquire_holder()
    assert first.is_held is True, "it does not know yet"
    assert first.mark_lost() is True
    assert first.is_held is False
    await store.renew("node_1", LONG_MS)
    assert await first.find_or_acquire_holder() == "node_2"
    assert first.mark_lost() is False


async def test_what_was_acquired_before_a_loss_is_not_taken_for_ones_own(store: CountingLeases) -> None:
    seat = SingletonLease(store, "node_1")
    store.gate.clear()
    asked = asyncio.ensure_future(seat.find_or_acquire_holder())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert store.acquisitions == 1
    seat.mark_lost()
    store.gate.set()
    assert await asked is None
    assert seat.is_held is False
    assert await seat.find_or_acquire_holder() == "node_1"


async def test_a_seat_that_is_given_up_while_it_is_asked_for_is_taken(store: CountingLeases) -> None:
    first, second = SingletonLease(store, "node_1"), SingletonLease(store, "node_2")
    await first.find_or_acquire_holder()
    store.gate.clear()
    asked = asyncio.ensure_future(second.find_or_acquire_holder())
    while store.acquisitions < 2:
        await asyncio.sleep(0)
    await first.release()  # after the other was refused, and before it looks whose it is
    store.gate.set()
    assert await asked == "node_2"
    assert second.is_held is True


async def test_a_draining_node_is_told_that_nobody_has_it(store: CountingLeases) -> None:
    await store.drain("node_1")
    assert await SingletonLease(store, "node_1").find_or_acquire_holder() is None


async def test_a_database_that_is_away_is_told_and_leaves_nothing_behind(store: CountingLeases) -> None:
    seat = SingletonLease(store, "node_1")
    await store.close()
    with pytest.raises(cluster.LeasesUnavailable):
        await seat.find_or_acquire_holder()
    await store.open()
    assert await seat.find_or_acquire_holder() == "node_1"


async def test_giving_it_up_while_the_database_is_away_is_no_failure(store: CountingLeases) -> None:
    seat = SingletonLease(store, "node_1")
    await seat.find_or_acquire_holder()
    await store.close()
    await seat.release()
    assert seat.is_held is False
