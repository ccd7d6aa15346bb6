"""What every store of leases must do, as tests. A store's own test file subclasses `LeaseContract` and says how to make one,
and how a session begins in the journal beside it.

    class TestMyLeases(LeaseContract):
        @pytest.fixture
        def make_leases(self, tmp_path):
            return lambda: MyLeases(tmp_path / "leases")

        @pytest.fixture
        def begin_session(self, tmp_path):
            async def begin(card):
                ...
            return begin

The tests are coroutines: run them with pytest-asyncio's `asyncio_mode = "auto"`. A node falls silent by a lease of no length.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from msgspec import structs

from switchtower.core import events, states
from switchtower.core.events import SessionState
from switchtower.core.ports import cluster, journal
from switchtower.core.ports.cluster import Renewal

MakeLeases = Callable[[], cluster.Leases]
BeginSession = Callable[[journal.Card], Awaitable[None]]
LONG_MS = 600_000


def make_card(
    session_id: str, state: SessionState = SessionState.RUNNING, *, shells: int = 0, host: str | None = None
) -> journal.Card:
    return journal.Card(
        session_id=session_id,
        state=state,
        created_at_ms=1,
        updated_at_ms=1,
        workspace=events.Workspace(root="/work"),
        provider="demo",
        engine="agent",
        shells=shells,
        host=host,
    )


class LeaseContract:
    @pytest.fixture
    def make_leases(self) -> MakeLeases:
        """Makes unopened leases; each call gives those of the same store."""
        raise NotImplementedError

    @pytest.fixture
    def begin_session(self) -> BeginSession:
        """Puts a session with this card into the journal. Nobody has it yet."""
        raise NotImplementedError

    @pytest.fixture
    async def store(self, make_leases: MakeLeases) -> AsyncIterator[cluster.Leases]:
        """With two nodes."""
        store = make_leases()
        await store.open()
        await store.join("node_a", "10.0.0.1:9000", LONG_MS)
        await store.join("node_b", "10.0.0.2:9000", LONG_MS)
        yield store
        await store.close()

    # Nodes

    async def test_nodes_are_listed_with_the_sessions_that_began_there(
        self, store: cluster.Leases, begin_session: BeginSession
    ) -> None:
        for number, node_id in enumerate(("node_b", "node_b", None)):
            await begin_session(make_card(f"sess_{number}"))
            if node_id:
                await store.acquire(f"sess_{number}", node_id)
        await store.acquire("seat:pi", "node_b")
        await store.acquire("sess_not_begun", "node_a")
        await store.renew("node_a", 0)
        first, second = await store.list_nodes()
        assert (first.node_id, first.address, first.is_alive, first.sessions) == ("node_a", "10.0.0.1:9000", False, 0)
        assert (second.node_id, second.address, second.is_alive, second.sessions) == ("node_b", "10.0.0.2:9000", True, 2)
        assert second.expires_at_ms - second.joined_at_ms >= LONG_MS

    async def test_a_node_has_a_name_and_a_version_which_it_may_tell_anew(self, store: cluster.Leases) -> None:
        (first, _) = await store.list_nodes()
        assert (first.name, first.version, first.draining) == ("", "", False)
        for name, version in (("west", "1.2"), ("eåst \x00", "1.3")):
            await store.join("node_a", "10.0.0.1:9000", LONG_MS, name=name, version=version)
            (first, _) = await store.list_nodes()
            assert (first.name, first.version) == (name, version)

    async def test_a_renewal_in_time_keeps_everything(self, store: cluster.Leases) -> None:
        lease = await store.acquire("sess_1", "node_a")
        assert lease is not None
        assert await store.renew("node_a", 2 * LONG_MS) is Renewal.KEPT
        renewed = await store.find_owner("sess_1")
        assert renewed is not None
        assert renewed.epoch == lease.epoch
        assert renewed.expires_at_ms > lease.expires_at_ms, "one renewal is for all of the node's sessions"

    async def test_a_late_renewal_says_so_and_keeps_what_nobody_took(self, store: cluster.Leases) -> None:
        await store.acquire("sess_1", "node_a")
        await store.acquire("sess_2", "node_a")
        await store.renew("node_a", 0)
        assert await store.acquire("sess_1", "node_b") is not None
        assert await store.renew("node_a", LONG_MS) is Renewal.LATE
        assert await store.renew("node_a", LONG_MS) is Renewal.KEPT
        assert [lease.session_id for lease in await store.list_owned("node_a", limit=10)] == ["sess_2"]

    async def test_a_node_that_never_joined_is_unknown_and_gets_nothing(self, store: cluster.Leases) -> None:
        assert await store.renew("node_x", LONG_MS) is Renewal.UNKNOWN
        assert await store.acquire("sess_1", "node_x") is None
        assert await store.take_over("node_x", 10) == []
        assert await store.leave("node_x") == 0
        assert await store.find_owner("sess_1") is None

    async def test_a_node_that_joins_again_keeps_its_sessions_at_a_new_address(self, store: cluster.Leases) -> None:
        lease = await store.acquire("sess_1", "node_a")
        await store.join("node_a", "10.0.0.9:9000", LONG_MS)
        assert (await store.list_nodes())[0].address == "10.0.0.9:9000"
        again = await store.acquire("sess_1", "node_a")
        assert lease is not None
        assert again is not None
        assert again.epoch == lease.epoch

    async def test_a_node_that_leaves_frees_its_sessions(self, store: cluster.Leases) -> None:
        for number in range(3):
            await store.acquire(f"sess_{number}", "node_a")
        await store.acquire("sess_9", "node_b")
        assert await store.leave("node_a") == 3
        assert [node.node_id for node in await store.list_nodes()] == ["node_b"]
        assert await store.find_owner("sess_1") is None
        assert await store.find_owner("sess_9") is not None
        assert await store.acquire("sess_1", "node_b") is not None

    async def test_only_silent_nodes_without_sessions_are_forgotten(self, store: cluster.Leases) -> None:
        await store.join("node_c", "", LONG_MS)
        await store.acquire("sess_1", "node_a")
        for silent in ("node_a", "node_b"):
            await store.renew(silent, 0)
        assert await store.forget_nodes(LONG_MS) == 0
        assert await store.forget_nodes(0) == 1
        assert [node.node_id for node in await store.list_nodes()] == ["node_a", "node_c"]

    # Draining

    async def test_a_draining_node_gives_up_everything_and_gets_nothing(
        self, store: cluster.Leases, begin_session: BeginSession
    ) -> None:
        await begin_session(make_card("sess_1"))
        held = [await store.acquire(session_id, "node_a") for session_id in ("sess_1", "sess_2", "seat:pi")]
        others = await store.acquire("sess_3", "node_b")
        assert await store.drain("node_a") == 3
        assert await store.list_owned("node_a", limit=10) == []
        assert await store.acquire("sess_1", "node_a") is None
        assert await store.take_over("node_a", 10) == []
        assert others is not None
        assert await store.hand_over(others, "node_a") is None
        for lease in held:
            assert lease is not None
            assert not await store.release(lease)
            taken = await store.acquire(lease.session_id, "node_b")
            assert taken is not None
            assert taken.epoch > lease.epoch

    async def test_a_draining_node_stays_and_stays_empty(self, store: cluster.Leases) -> None:
        await store.acquire("sess_1", "node_a")
        assert [await store.drain("node_a") for _ in range(2)] == [1, 0]
        assert await store.renew("node_a", LONG_MS) is Renewal.KEPT
        await store.join("node_a", "10.0.0.9:9000", LONG_MS)
        first, second = await store.list_nodes()
        assert (first.is_alive, first.draining, second.draining) == (True, True, False)
        assert await store.acquire("sess_2", "node_a") is None
        assert await store.leave("node_a") == 0

    async def test_a_node_that_never_joined_has_nothing_to_drain(self, store: cluster.Leases) -> None:
        assert await store.drain("node_x") == 0
        assert [node.draining for node in await store.list_nodes()] == [False, False]

    async def test_nothing_is_left_to_a_node_that_drains_while_others_give_to_it(
        self, make_leases: MakeLeases, store: cluster.Leases
    ) -> None:
        other = make_leases()
        await other.open()
        for turn in range(10):
            await store.join(f"node_{turn}", "", LONG_MS)
            tries = [other.acquire(f"sess_{turn}_{number}", f"node_{turn}") for number in range(8)]
            await asyncio.gather(*tries[:4], store.drain(f"node_{turn}"), *tries[4:])
            assert await store.list_owned(f"node_{turn}", limit=10) == []
        await other.close()

    # One home

    async def test_a_free_session_gets_a_home_and_the_same_one_when_asked_again(self, store: cluster.Leases) -> None:
        lease = await store.acquire("sess_1", "node_a")
        assert lease is not None
        assert (lease.session_id, lease.node_id) == ("sess_1", "node_a")
        assert await store.acquire("sess_1", "node_a") == lease
        assert await store.find_owner("sess_1") == lease
        assert await store.find_owner("sess_2") is None

    async def test_nobody_gets_the_session_of_a_node_that_is_alive(self, store: cluster.Leases) -> None:
        lease = await store.acquire("sess_1", "node_a")
        assert await store.acquire("sess_1", "node_b") is None
        assert await store.find_owner("sess_1") == lease

    async def test_the_session_of_a_silent_node_goes_to_who_asks_in_a_new_epoch(self, store: cluster.Leases) -> None:
        lease = await store.acquire("sess_1", "node_a")
        await store.renew("node_a", 0)
        taken = await store.acquire("sess_1", "node_b")
        assert lease is not None
        assert taken is not None
        assert taken.node_id == "node_b"
        assert taken.epoch > lease.epoch

    async def test_a_silent_node_acquires_nothing(self, store: cluster.Leases) -> None:
        await store.renew("node_a", 0)
        assert await store.acquire("sess_1", "node_a") is None

    async def test_of_many_nodes_that_ask_at_once_one_gets_it(self, make_leases: MakeLeases, store: cluster.Leases) -> None:
        for number in range(8):
            await store.join(f"racer_{number}", "", LONG_MS)
        for turn in range(5):
            answers = await asyncio.gather(*(store.acquire(f"sess_{turn}", f"racer_{number}") for number in range(8)))
            (winner,) = [lease for lease in answers if lease is not None]
            assert await store.find_owner(f"sess_{turn}") == winner

    async def test_a_released_session_is_free_and_its_next_epoch_is_new(self, store: cluster.Leases) -> None:
        lease = await store.acquire("sess_1", "node_a")
        assert lease is not None
        assert await store.release(lease)
        assert not await store.release(lease)
        assert await store.find_owner("sess_1") is None
        again = await store.acquire("sess_1", "node_b")
        assert again is not None
        assert again.epoch > lease.epoch

    async def test_only_the_lease_that_holds_can_be_released_or_handed_over(self, store: cluster.Leases) -> None:
        old = await store.acquire("sess_1", "node_a")
        await store.renew("node_a", 0)
        held = await store.acquire("sess_1", "node_b")
        await store.renew("node_a", LONG_MS)
        assert old is not None
        assert not await store.release(old)
        assert await store.hand_over(old, "node_a") is None
        assert await store.find_owner("sess_1") == held

    async def test_a_session_is_handed_over_without_being_free_in_between(self, store: cluster.Leases) -> None:
        lease = await store.acquire("sess_1", "node_a")
        assert lease is not None
        given = await store.hand_over(lease, "node_b")
        assert given is not None
        assert (given.node_id, given.epoch > lease.epoch) == ("node_b", True)
        assert await store.find_owner("sess_1") == given
        await store.renew("node_a", 0)
        assert await store.hand_over(given, "node_a") is None
        assert await store.hand_over(given, "node_x") is None

    # Takeover

    async def test_what_is_under_way_on_silent_nodes_is_taken_over_piece_by_piece(
        self, store: cluster.Leases, begin_session: BeginSession
    ) -> None:
        for number in (*range(5), 9):
            await begin_session(make_card(f"sess_{number}"))
        before = [await store.acquire(f"sess_{number}", "node_a") for number in range(5)]
        await store.acquire("sess_9", "node_b")
        assert await store.take_over("node_b", 10) == []
        await store.renew("node_a", 0)
        first = await store.take_over("node_b", 3)
        second = await store.take_over("node_b", 3)
        assert [lease.session_id for lease in first + second] == [f"sess_{number}" for number in range(5)]
        for old, new in zip(before, first + second, strict=True):
            assert old is not None
            assert new.node_id == "node_b"
            assert new.epoch > old.epoch
            assert await store.find_owner(new.session_id) == new
        assert await store.take_over("node_b", 3) == []

    async def test_what_is_under_way_and_has_no_home_is_taken_over_too(
        self, store: cluster.Leases, begin_session: BeginSession
    ) -> None:
        for session_id in ("sess_left", "sess_new"):
            await begin_session(make_card(session_id))
        left = await store.acquire("sess_left", "node_a")
        assert left is not None
        await store.release(left)
        taken = await store.take_over("node_b", 10)
        assert [lease.session_id for lease in taken] == ["sess_left", "sess_new"]
        assert taken[0].epoch > left.epoch

    @pytest.mark.parametrize("state", SessionState)
    async def test_only_what_is_under_way_here_is_taken_over(
        self, store: cluster.Leases, begin_session: BeginSession, state: SessionState
    ) -> None:
        nasty = '","shells":7,"host":"h","x":"'  # as a card's text it is no field
        sessions = [
            make_card("sess_0", state),
            make_card("sess_1", state, shells=1),
            make_card("sess_2", state, shells=20),
            make_card("sess_3", state, host="host_1"),
            make_card("sess_4", state, shells=1, host=""),
            structs.replace(make_card("sess_5", state), title=nasty, accepted={"shells": True, "host": False}),
            structs.replace(make_card("sess_6", state, shells=1), title=nasty.replace("7", "0"), accepted={"shells": False}),
        ]
        for begun in sessions:
            await begin_session(begun)
            assert await store.acquire(begun.session_id, "node_a")
        await store.acquire("seat:pi", "node_a")
        await store.acquire("sess_not_begun", "node_a")
        await store.renew("node_a", 0)
        wanted = [one.session_id for one in sessions if one.host is None and (one.shells or state in states.ACTIVE)]
        assert [lease.session_id for lease in await store.take_over("node_b", 20)] == wanted
        rest = sorted({"seat:pi", "sess_not_begun", *(one.session_id for one in sessions)} - set(wanted))
        assert [lease.session_id for lease in await store.list_owned("node_a", limit=20)] == rest

    async def test_nodes_that_take_over_at_once_share_the_sessions(
        self, make_leases: MakeLeases, store: cluster.Leases, begin_session: BeginSession
    ) -> None:
        other = make_leases()
        await other.open()
        await store.join("node_c", "", LONG_MS)
        wanted = {f"sess_{number:03d}" for number in range(120)}
        for session_id in wanted:
            await begin_session(make_card(session_id))
            await store.acquire(session_id, "node_a")
        await store.renew("node_a", 0)

        async def all_of(leases_: cluster.Leases, node_id: str) -> list[str]:
            taken: list[str] = []
            while orphans := await leases_.take_over(node_id, 7):
                taken += [lease.session_id for lease in orphans]
            return taken

        # Who finds all of them locked by the other comes back with nothing, and leaves the rest to the other.
        here, there = await asyncio.gather(all_of(store, "node_b"), all_of(other, "node_c"))
        taken = here + there + await all_of(store, "node_b")
        assert sorted(taken) == sorted(wanted)
        await other.close()

    async def test_a_silent_node_takes_nothing_over(self, store: cluster.Leases, begin_session: BeginSession) -> None:
        await begin_session(make_card("sess_1"))
        await store.acquire("sess_1", "node_a")
        for silent in ("node_a", "node_b"):
            await store.renew(silent, 0)
        assert await store.take_over("node_b", 10) == []

    async def test_everything_else_of_silent_nodes_is_freed_piece_by_piece(
        self, store: cluster.Leases, begin_session: BeginSession
    ) -> None:
        for begun in (make_card("sess_0"), make_card("sess_1", SessionState.IDLE), make_card("sess_2", host="host_1")):
            await begin_session(begun)
        freed = ("seat:pi", "sess_1", "sess_2", "sess_not_begun")
        held = {session_id: await store.acquire(session_id, "node_a") for session_id in ("sess_0", *freed)}
        await store.acquire("sess_9", "node_b")
        assert await store.release_silent(10) == 0
        await store.renew("node_a", 0)
        assert [await store.release_silent(3) for _ in range(3)] == [3, 1, 0]
        assert await store.find_owner("sess_0") is not None, "it is for who takes over"
        assert await store.find_owner("sess_9") is not None
        for session_id in freed:
            assert await store.find_owner(session_id) is None
            old, new = held[session_id], await store.acquire(session_id, "node_b")
            assert old is not None
            assert new is not None
            assert new.epoch > old.epoch

    async def test_nodes_that_free_at_once_free_each_session_once(self, make_leases: MakeLeases, store: cluster.Leases) -> None:
        other = make_leases()
        await other.open()
        for number in range(40):
            await store.acquire(f"sess_{number}", "node_a")
        await store.renew("node_a", 0)
        freed = sum(await asyncio.gather(*(one.release_silent(7) for one in (store, other) for _ in range(3))))
        while more := await store.release_silent(7):
            freed += more
        assert freed == 40
        assert await store.forget_nodes(0) == 1, "nothing holds a node that owns nothing"
        await other.close()

    # Listing

    async def test_what_a_node_owns_is_listed_page_by_page(self, store: cluster.Leases) -> None:
        for number in range(7):
            await store.acquire(f"sess_{number}", "node_a" if number != 3 else "node_b")
        pages, after = [], ""
        while page := await store.list_owned("node_a", limit=4, after=after):
            pages.append([lease.session_id for lease in page])
            after = page[-1].session_id
        assert pages == [["sess_0", "sess_1", "sess_2", "sess_4"], ["sess_5", "sess_6"]]

    async def test_any_text_is_an_id(self, store: cluster.Leases) -> None:
        nasty = "'; DROP TABLE homes; -- \x00 \\0 é \U0001f389"
        await store.join(nasty, nasty, LONG_MS)
        lease = await store.acquire(nasty, nasty)
        assert lease is not None
        assert (lease.session_id, lease.node_id) == (nasty, nasty)
        assert await store.find_owner(nasty) == lease
        assert await store.list_owned(nasty, limit=5) == [lease]

    # Opening and closing

    async def test_what_one_opened_another_sees(self, make_leases: MakeLeases, store: cluster.Leases) -> None:
        lease = await store.acquire("sess_1", "node_a")
        other = make_leases()
        await other.open()
        assert await other.find_owner("sess_1") == lease
        await other.close()

    async def test_leases_that_are_not_open_say_so(self, store: cluster.Leases) -> None:
        await store.close()
        with pytest.raises(cluster.LeasesUnavailable, match="not open"):
            await store.acquire("sess_1", "node_a")
        await store.close()
