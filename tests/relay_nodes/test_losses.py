"""Runs of a host count as lost when no node has had it for a while; never while one has it, whoever can speak to whom."""

import asyncio
from pathlib import Path

from tests.protocols.relay.hall import MemoryHost, report_run
from tests.relay_nodes.parts import SOON, RelayCluster, RelayNode, open_cluster
from tests.runtime.parts import ControlledJournal, RecordingSubscriber

from switchtower.core import commands, errors, events
from switchtower.protocols.relay.hub.connected_hosts import ConnectedHosts
from switchtower.protocols.relay.hub.presence import LostRunMarker


async def leave(host: MemoryHost) -> None:
    host.stream.abort()
    await host.is_cut()


async def wait_for_expiry(made: RelayCluster, node: RelayNode, name: str = "clock") -> None:
    """Whatever was to be lost by now is: one that went after all others has been."""
    host = await node.connect_host(name)
    run = await report_run(made.runtime, name, f"run of {name}")
    await leave(host)
    await run.wait_for_event(events.HostLost)


async def keep_talking(host: MemoryHost) -> None:
    while True:
        host.send_message("host.heartbeat")
        await asyncio.sleep(SOON / 10)


def get_outcome(run: RecordingSubscriber) -> list[type[events.Event]]:
    return [type(event) for event in run.told if isinstance(event, events.HostLost | events.HostReturned)]


async def test_a_host_that_is_away_from_all_nodes_is_lost_and_found_when_it_comes_to_any(tmp_path: Path) -> None:
    async with open_cluster(tmp_path, "a", "b", lost_after_s=SOON) as made:
        a, b = made.nodes
        run = await report_run(made.runtime, "h", "run-7")
        await leave(await a.connect_host("h"))
        await run.wait_for_event(events.HostLost)
        await b.connect_host("h")
        await run.wait_for_event(events.HostReturned)
        await wait_for_expiry(made, a)
        assert get_outcome(run) == [events.HostLost, events.HostReturned]


async def test_a_host_that_changes_its_node_in_time_was_never_lost(tmp_path: Path) -> None:
    async with open_cluster(tmp_path, "a", "b", lost_after_s=SOON) as made:
        a, b = made.nodes
        run = await report_run(made.runtime, "h", "run-7")
        await leave(await a.connect_host("h"))
        await b.connect_host("h")
        await wait_for_expiry(made, a)
        await wait_for_expiry(made, b, "another clock")
        assert get_outcome(run) == []


async def test_hosts_of_a_node_that_dies_are_waited_for_and_then_lost(tmp_path: Path) -> None:
    async with open_cluster(tmp_path, "a", "b", "c", lost_after_s=SOON) as made:
        a, b, c = made.nodes
        away, back = await report_run(made.runtime, "away", "run-1"), await report_run(made.runtime, "back", "run-2")
        dead = [await b.connect_host("away"), await b.connect_host("back")]
        for node in (a, c):
            await node.wait_for_host("back")
        # It is dead: nothing of it does anything any more, and its sockets are never closed.
        await b.hub.close()
        await made.join_nodes([a, c], [b])
        await c.connect_host("back")
        await away.wait_for_event(events.HostLost)
        await wait_for_expiry(made, a)
        assert get_outcome(away) == [events.HostLost]
        assert get_outcome(back) == []
        assert not any(host.closed for host in dead)


async def test_a_host_of_a_node_that_cannot_be_spoken_to_is_not_lost_while_it_is_seen(tmp_path: Path) -> None:
    async with open_cluster(tmp_path, "a", "b", lost_after_s=SOON) as made:
        a, b = made.nodes
        run = await report_run(made.runtime, "h", "run-7")
        host = await b.connect_host("h")
        await a.wait_for_host("h")
        talking = asyncio.ensure_future(keep_talking(host))
        await made.join_nodes([a], [b])
        assert not await a.is_host_online("h")
        for number in range(3):
            await wait_for_expiry(made, a, f"clock {number}")
        assert get_outcome(run) == []
        talking.cancel()
        await leave(host)
        await run.wait_for_event(events.HostLost)
        await wait_for_expiry(made, a)
        assert get_outcome(run) == [events.HostLost], "by whichever node it was"


async def test_a_node_that_starts_waits_for_hosts_that_are_away_and_not_for_those_that_others_have(tmp_path: Path) -> None:
    async with open_cluster(tmp_path, "a", "b", lost_after_s=SOON) as made:
        a, b = made.nodes
        away, there = await report_run(made.runtime, "away", "run-1"), await report_run(made.runtime, "there", "run-2")
        host = await b.connect_host("there")
        await a.wait_for_host("there")
        talking = asyncio.ensure_future(keep_talking(host))
        await a.hub._presence.start()
        await away.wait_for_event(events.HostLost)
        await wait_for_expiry(made, a)
        assert get_outcome(there) == []
        talking.cancel()


async def test_only_what_holds_at_that_moment_is_marked(tmp_path: Path) -> None:
    async with open_cluster(tmp_path, "a", "b", lost_after_s=SOON) as made:
        a, b = made.nodes
        near, far = await report_run(made.runtime, "near", "run-1"), await report_run(made.runtime, "far", "run-2")
        gone = await report_run(made.runtime, "gone", "run-3")
        await a.connect_host("near"), await b.connect_host("far")
        await a.wait_for_host("far")
        losses = LostRunMarker(made.runtime.runtime, a.hub._presence.connected_hosts)
        for host_id in ("near", "far", "gone"):
            losses.mark(host_id, lost=True)
        await gone.wait_for_event(events.HostLost)
        losses.mark("gone", lost=False)
        await made.wait_until(lambda: losses._task is None)
        assert (get_outcome(near), get_outcome(far), get_outcome(gone)) == ([], [], [events.HostLost])


# What cannot be stored now


class UnsteadyStore:
    """A tower whose first answers are refusals."""

    def __init__(self, made: RelayCluster, refusals: list[errors.CoreError]) -> None:
        self._runtime = made.runtime.runtime
        self.list_cards = made.runtime.runtime.list_cards
        self.refusals = refusals

    async def ask(self, command: commands.AnyCommand) -> object:
        if self.refusals:
            raise self.refusals.pop(0)
        return await self._runtime.ask(command)


async def test_a_mark_that_cannot_be_stored_is_tried_again_and_one_that_makes_no_sense_is_not(tmp_path: Path) -> None:
    async with open_cluster(tmp_path, "a") as made:
        run = await report_run(made.runtime, "h", "run-7")
        refusals = [errors.Fenced(), errors.JournalUnavailable("gone"), errors.HostUnreachable("h")]
        losses = LostRunMarker(UnsteadyStore(made, refusals), ConnectedHosts(), retry_s=0.001)  # type: ignore[arg-type]
        losses.mark("h", lost=True)
        await run.wait_for_event(events.HostLost)
        assert refusals == []
        senseless = UnsteadyStore(made, [errors.InvalidCommand("no")])
        losses = LostRunMarker(senseless, ConnectedHosts(), retry_s=0.001)  # type: ignore[arg-type]
        later = await report_run(made.runtime, "h", "run-8")
        losses.mark("h", lost=True)
        await made.wait_until(lambda: losses._task is None)
        assert senseless.refusals == []
        assert get_outcome(later) == []


async def test_a_journal_that_cannot_be_read_is_asked_again(tmp_path: Path) -> None:
    async with open_cluster(tmp_path, "a") as made:
        run = await report_run(made.runtime, "h", "run-7")
        losses = LostRunMarker(made.runtime.runtime, ConnectedHosts(), retry_s=0.001)
        inner = made.runtime.journal.inner
        await inner.close()
        losses.mark("h", lost=True)
        await made.run_network_turn()
        await inner.open()
        await run.wait_for_event(events.HostLost)
        assert isinstance(made.runtime.journal, ControlledJournal)
        await losses.close()
