"""Runs of a host count as lost when no node has had it for a while; never while one has it, whoever can speak to whom."""

import asyncio
from pathlib import Path

from tests.protocols.relay.hall import FarHost, told_of
from tests.relay_nodes.parts import SOON, City, Node, city
from tests.runtime.parts import Outlet, SteeredJournal

from switchtower.core import commands, errors, events
from switchtower.protocols.relay.hub.losses import Losses
from switchtower.protocols.relay.hub.roster import Roster


async def leave(host: FarHost) -> None:
    host.stream.abort()
    await host.is_cut()


async def enough_time_has_passed(made: City, node: Node, name: str = "clock") -> None:
    """Whatever was to be lost by now is: one that went after all others has been."""
    host = await node.host(name)
    run = await told_of(made.house, name, f"run of {name}")
    await leave(host)
    await run.next_of(events.HostLost)


async def keep_talking(host: FarHost) -> None:
    while True:
        host.say("host.heartbeat")
        await asyncio.sleep(SOON / 10)


def fate(run: Outlet) -> list[type[events.Event]]:
    return [type(event) for event in run.told if isinstance(event, events.HostLost | events.HostReturned)]


async def test_a_host_that_is_away_from_all_nodes_is_lost_and_found_when_it_comes_to_any(tmp_path: Path) -> None:
    async with city(tmp_path, "a", "b", lost_after_s=SOON) as made:
        a, b = made.nodes
        run = await told_of(made.house, "h", "run-7")
        await leave(await a.host("h"))
        await run.next_of(events.HostLost)
        await b.host("h")
        await run.next_of(events.HostReturned)
        await enough_time_has_passed(made, a)
        assert fate(run) == [events.HostLost, events.HostReturned]


async def test_a_host_that_changes_its_node_in_time_was_never_lost(tmp_path: Path) -> None:
    async with city(tmp_path, "a", "b", lost_after_s=SOON) as made:
        a, b = made.nodes
        run = await told_of(made.house, "h", "run-7")
        await leave(await a.host("h"))
        await b.host("h")
        await enough_time_has_passed(made, a)
        await enough_time_has_passed(made, b, "another clock")
        assert fate(run) == []


async def test_hosts_of_a_node_that_dies_are_waited_for_and_then_lost(tmp_path: Path) -> None:
    async with city(tmp_path, "a", "b", "c", lost_after_s=SOON) as made:
        a, b, c = made.nodes
        away, back = await told_of(made.house, "away", "run-1"), await told_of(made.house, "back", "run-2")
        dead = [await b.host("away"), await b.host("back")]
        for node in (a, c):
            await node.until_it_sees("back")
        # It is dead: nothing of it does anything any more, and its sockets are never closed.
        await b.hub.close()
        await made.joined([a, c], [b])
        await c.host("back")
        await away.next_of(events.HostLost)
        await enough_time_has_passed(made, a)
        assert fate(away) == [events.HostLost]
        assert fate(back) == []
        assert not any(host.closed for host in dead)


async def test_a_host_of_a_node_that_cannot_be_spoken_to_is_not_lost_while_it_is_seen(tmp_path: Path) -> None:
    async with city(tmp_path, "a", "b", lost_after_s=SOON) as made:
        a, b = made.nodes
        run = await told_of(made.house, "h", "run-7")
        host = await b.host("h")
        await a.until_it_sees("h")
        talking = asyncio.ensure_future(keep_talking(host))
        await made.joined([a], [b])
        assert not await a.sees("h")
        for number in range(3):
            await enough_time_has_passed(made, a, f"clock {number}")
        assert fate(run) == []
        talking.cancel()
        await leave(host)
        await run.next_of(events.HostLost)
        await enough_time_has_passed(made, a)
        assert fate(run) == [events.HostLost], "by whichever node it was"


async def test_a_node_that_starts_waits_for_hosts_that_are_away_and_not_for_those_that_others_have(tmp_path: Path) -> None:
    async with city(tmp_path, "a", "b", lost_after_s=SOON) as made:
        a, b = made.nodes
        away, there = await told_of(made.house, "away", "run-1"), await told_of(made.house, "there", "run-2")
        host = await b.host("there")
        await a.until_it_sees("there")
        talking = asyncio.ensure_future(keep_talking(host))
        await a.hub._presence.start()
        await away.next_of(events.HostLost)
        await enough_time_has_passed(made, a)
        assert fate(there) == []
        talking.cancel()


async def test_only_what_holds_at_that_moment_is_marked(tmp_path: Path) -> None:
    async with city(tmp_path, "a", "b", lost_after_s=SOON) as made:
        a, b = made.nodes
        near, far = await told_of(made.house, "near", "run-1"), await told_of(made.house, "far", "run-2")
        gone = await told_of(made.house, "gone", "run-3")
        await a.host("near"), await b.host("far")
        await a.until_it_sees("far")
        losses = Losses(made.house.runtime, a.hub._presence.roster)
        for host_id in ("near", "far", "gone"):
            losses.mark(host_id, lost=True)
        await gone.next_of(events.HostLost)
        losses.mark("gone", lost=False)
        await made.until(lambda: losses._task is None)
        assert (fate(near), fate(far), fate(gone)) == ([], [], [events.HostLost])


# What cannot be stored now


class Unsteady:
    """A tower whose first answers are refusals."""

    def __init__(self, made: City, refusals: list[errors.CoreError]) -> None:
        self._runtime = made.house.runtime
        self.cards = made.house.runtime.cards
        self.refusals = refusals

    async def ask(self, command: commands.AnyCommand) -> object:
        if self.refusals:
            raise self.refusals.pop(0)
        return await self._runtime.ask(command)


async def test_a_mark_that_cannot_be_stored_is_tried_again_and_one_that_makes_no_sense_is_not(tmp_path: Path) -> None:
    async with city(tmp_path, "a") as made:
        run = await told_of(made.house, "h", "run-7")
        refusals = [errors.Fenced(), errors.JournalUnavailable("gone"), errors.HostUnreachable("h")]
        losses = Losses(Unsteady(made, refusals), Roster(), retry_s=0.001)  # type: ignore[arg-type]
        losses.mark("h", lost=True)
        await run.next_of(events.HostLost)
        assert refusals == []
        senseless = Unsteady(made, [errors.InvalidCommand("no")])
        losses = Losses(senseless, Roster(), retry_s=0.001)  # type: ignore[arg-type]
        later = await told_of(made.house, "h", "run-8")
        losses.mark("h", lost=True)
        await made.until(lambda: losses._task is None)
        assert senseless.refusals == []
        assert fate(later) == []


async def test_a_journal_that_cannot_be_read_is_asked_again(tmp_path: Path) -> None:
    async with city(tmp_path, "a") as made:
        run = await told_of(made.house, "h", "run-7")
        losses = Losses(made.house.runtime, Roster(), retry_s=0.001)
        inner = made.house.journal.inner
        await inner.close()
        losses.mark("h", lost=True)
        await made.turn()
        await inner.open()
        await run.next_of(events.HostLost)
        assert isinstance(made.house.journal, SteeredJournal)
        await losses.close()
