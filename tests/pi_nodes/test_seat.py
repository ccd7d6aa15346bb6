"""Of several nodes one has the seat: taken when somebody asks, given up, and lost."""

import asyncio

import pytest
from tests.pi_nodes.stage import LONG_MS

from switchtower.core import leases
from switchtower.daemon.pi_seat import Seat
from switchtower.stores.leases_memory import MemoryLeases


class Tried(MemoryLeases):
    """Counts what it is asked, and waits in an acquisition while the gate is shut."""

    def __init__(self) -> None:
        super().__init__()
        self.acquisitions = 0
        self.gate = asyncio.Event()
        self.gate.set()

    async def acquire(self, session_id: str, node_id: str) -> leases.Lease | None:
        self.acquisitions += 1
        lease = await super().acquire(session_id, node_id)
        await self.gate.wait()
        return lease


@pytest.fixture
async def store() -> Tried:
    store = Tried()
    await store.open()
    for node_id in ("node_1", "node_2"):
        await store.join(node_id, "somewhere", LONG_MS)
    return store


async def test_the_first_who_asks_has_it_and_the_others_are_told_who(store: Tried) -> None:
    first, second = Seat(store, "node_1"), Seat(store, "node_2")
    assert await first.holder() == "node_1"
    assert await second.holder() == "node_1"
    assert (first.held, second.held) == (True, False)


async def test_who_has_it_does_not_ask_again(store: Tried) -> None:
    seat = Seat(store, "node_1")
    await seat.holder()
    for _ in range(10):
        assert await seat.holder() == "node_1"
    assert store.acquisitions == 1


async def test_many_who_ask_at_once_share_one_question(store: Tried) -> None:
    seat = Seat(store, "node_2")
    assert await asyncio.gather(*(seat.holder() for _ in range(100))) == ["node_2"] * 100
    assert store.acquisitions == 1


async def test_one_who_stops_asking_does_not_stop_the_others(store: Tried) -> None:
    seat = Seat(store, "node_1")
    store.gate.clear()
    impatient, patient = (asyncio.ensure_future(seat.holder()) for _ in range(2))
    await asyncio.sleep(0)
    impatient.cancel()
    await asyncio.wait([impatient])
    store.gate.set()
    assert await patient == "node_1"


async def test_the_seat_of_a_silent_node_is_taken(store: Tried) -> None:
    first, second = Seat(store, "node_1"), Seat(store, "node_2")
    await first.holder()
    await store.renew("node_1", 0)
    assert await second.holder() == "node_2"


async def test_a_seat_that_is_given_up_is_free_at_once(store: Tried) -> None:
    first, second = Seat(store, "node_1"), Seat(store, "node_2")
    await first.holder()
    await first.release()
    assert first.held is False
    assert await second.holder() == "node_2"
    assert await first.holder() == "node_2"


async def test_who_retires_does_not_take_it_again_and_still_tells_who_has_it(store: Tried) -> None:
    first, second = Seat(store, "node_1"), Seat(store, "node_2")
    await first.holder()
    _, holder = await asyncio.gather(first.retire(), first.holder())
    assert holder is None
    assert await first.holder() is None
    assert await second.holder() == "node_2"
    assert await first.holder() == "node_2"


async def test_giving_it_up_and_asking_at_once_never_leaves_a_seat_that_is_not_ones_own(store: Tried) -> None:
    seat, other = Seat(store, "node_1"), Seat(store, "node_2")
    await seat.holder()
    _, holder = await asyncio.gather(seat.release(), seat.holder())
    owner = await store.owner("seat:pi")
    assert holder == "node_1"
    assert seat.held is (owner is not None and owner.node_id == "node_1") is True
    assert await other.holder() == "node_1"


async def test_a_node_that_lost_its_lease_asks_anew(store: Tried) -> None:
    first, second = Seat(store, "node_1"), Seat(store, "node_2")
    await first.holder()
    await store.renew("node_1", 0)
    await second.holder()
    assert first.held is True, "it does not know yet"
    assert first.lost() is True
    assert first.held is False
    await store.renew("node_1", LONG_MS)
    assert await first.holder() == "node_2"
    assert first.lost() is False


async def test_what_was_acquired_before_a_loss_is_not_taken_for_ones_own(store: Tried) -> None:
    seat = Seat(store, "node_1")
    store.gate.clear()
    asked = asyncio.ensure_future(seat.holder())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert store.acquisitions == 1
    seat.lost()
    store.gate.set()
    assert await asked is None
    assert seat.held is False
    assert await seat.holder() == "node_1"


async def test_a_seat_that_is_given_up_while_it_is_asked_for_is_taken(store: Tried) -> None:
    first, second = Seat(store, "node_1"), Seat(store, "node_2")
    await first.holder()
    store.gate.clear()
    asked = asyncio.ensure_future(second.holder())
    while store.acquisitions < 2:
        await asyncio.sleep(0)
    await first.release()  # after the other was refused, and before it looks whose it is
    store.gate.set()
    assert await asked == "node_2"
    assert second.held is True


async def test_a_draining_node_is_told_that_nobody_has_it(store: Tried) -> None:
    await store.drain("node_1")
    assert await Seat(store, "node_1").holder() is None


async def test_a_database_that_is_away_is_told_and_leaves_nothing_behind(store: Tried) -> None:
    seat = Seat(store, "node_1")
    await store.close()
    with pytest.raises(leases.LeasesUnavailable):
        await seat.holder()
    await store.open()
    assert await seat.holder() == "node_1"


async def test_giving_it_up_while_the_database_is_away_is_no_failure(store: Tried) -> None:
    seat = Seat(store, "node_1")
    await seat.holder()
    await store.close()
    await seat.release()
    assert seat.held is False
