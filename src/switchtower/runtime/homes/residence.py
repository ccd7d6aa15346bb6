"""This node's life among the others: it joins, says again and again that it is there, takes up what a dead one had, and leaves.

A node that cannot say so in time has lost its leases before anybody else can take them: it stops what it does for its
sessions by its own clock, which began before the database's.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from msgspec import Struct

from switchtower.core import errors, events, leases, nodes, states
from switchtower.runtime.homes.node_homes import NodeHomes
from switchtower.runtime.runtime import Runtime
from switchtower.transports.mesh import ports

log = logging.getLogger(__name__)

FREED = "homes.freed"
CERTAIN = 0.85
"""The part of a lease that a node counts on: what it ends when it could not renew is to be over when others take over."""
TAKEN_AT_ONCE = 50
FREED_AT_ONCE = 1_000
LOOK_EVERY = 1.0
SEARCH_EVERY = 10.0
"""Seconds between two searches for sessions without a home while no node is silent and none has left: a search looks at all
that is under way anywhere, and whoever leaves says so."""
FORGOTTEN_AFTER_MS = 3_600_000
MOST_OWNED = 10_000
ENDS = (events.RunCompleted, events.ShellFinished, events.ApprovalRequested)
"""After these there may be less that would be cut short."""


class Terms(Struct, frozen=True):
    """How this node presents itself, and for how long a silence is forgiven."""

    address: str
    lease_s: float

    @property
    def lease_ms(self) -> int:
        return round(self.lease_s * 1_000)


class Residence:
    """Implements `nodes.Nodes`."""

    def __init__(self, runtime: Runtime, leases_: leases.Leases, homes: NodeHomes, mesh: ports.Mesh, terms: Terms) -> None:
        self._runtime = runtime
        self._leases = leases_
        self._homes = homes
        self._mesh = mesh
        self._terms = terms
        self._tasks: set[asyncio.Task[None]] = set()
        self._good_until = 0.0
        self._lapse_timer: asyncio.TimerHandle | None = None
        self._look = asyncio.Event()
        self._searched_at = float("-inf")
        self._draining: asyncio.Task[nodes.Drained] | None = None
        self.takeovers = 0
        self.database_answers = True
        """As of the last time that this node had to say that it is there."""
        self.lapsed: Callable[[], None] = lambda: None
        """Called when this node has lost what it held, or may have."""
        self.leave_seats: Callable[[], Coroutine[Any, Any, None]] | None = None
        """Ends what only one node may do at a time, before another can begin with it."""
        self.let_go: Callable[[], Coroutine[Any, Any, None]] | None = None
        """Lets the clients go, with a hint to come back to another node."""
        homes.take = lambda command, done: runtime.submit(command, done, hop=True)
        mesh.hears(FREED, lambda _node, _body: self._look.set())

    @property
    def node_id(self) -> str:
        return self._mesh.me.node_id

    @property
    def is_draining(self) -> bool:
        return self._draining is not None

    @property
    def holds_its_leases(self) -> bool:
        return asyncio.get_running_loop().time() < self._good_until

    async def open(self, predecessor: str | None = None) -> None:
        """`predecessor` is the node that this machine was before, and that is certainly dead: what it had goes on here."""
        me = self._mesh.me
        started = asyncio.get_running_loop().time()
        await self._leases.join(me.node_id, self._terms.address, self._terms.lease_ms, name=me.name, version=me.version)
        self._renewed(started)
        self._start(self._keep_alive(), "node renews")
        if predecessor is not None and await self._leases.inherit(predecessor, me.node_id):
            await self._see_what_is_left()
        await self._look_around()
        self._start(self._keep_looking(), "node looks around")

    def _start(self, work: Coroutine[Any, Any, None], name: str) -> None:
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """What it held is free, and the others hear of that at once."""
        if self._draining is not None:
            self._draining.cancel()
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._lapse_timer is not None:
            self._lapse_timer.cancel()
        self._homes.takes_up = self._homes.keeps = False
        with contextlib.suppress(leases.LeasesUnavailable):  # then it falls silent instead, and is missed in time
            await self._leases.leave(self.node_id)
            self._tell_of_free_ones()

    # Staying alive

    async def _keep_alive(self) -> None:
        while True:
            await asyncio.sleep(self._terms.lease_s / 4)
            started = asyncio.get_running_loop().time()
            try:
                renewal = await self._leases.renew(self.node_id, self._terms.lease_ms)
                if renewal is leases.Renewal.UNKNOWN:
                    await self._join_again()
                had_lapsed = not self._homes.keeps and not self.is_draining
                if renewal is not leases.Renewal.KEPT or had_lapsed:
                    self._lapse()
                    self._renewed(started)
                    self._start(self._see_what_is_left(), "node takes up what is left")
                else:
                    self._renewed(started)
                self.database_answers = True
            except leases.LeasesUnavailable as problem:
                self.database_answers = False
                log.warning("this node could not say that it is there: %s", problem)
            except Exception:
                log.exception("this node could not say that it is there")

    async def _join_again(self) -> None:
        me = self._mesh.me
        await self._leases.join(me.node_id, self._terms.address, self._terms.lease_ms, name=me.name, version=me.version)
        if self.is_draining:
            await self._leases.drain(self.node_id)

    def _renewed(self, started: float) -> None:
        self._good_until = started + self._terms.lease_s * CERTAIN
        if self._lapse_timer is not None:
            self._lapse_timer.cancel()
        self._lapse_timer = asyncio.get_running_loop().call_at(self._good_until, self._too_late)
        if not self.is_draining:  # what that has given up stays given up
            self._homes.takes_up = self._homes.keeps = True

    def _too_late(self) -> None:
        log.error("this node could not renew its leases of %g s in time: it gives its sessions up", self._terms.lease_s)
        self._lapse()

    def _lapse(self) -> None:
        self._homes.takes_up = self._homes.keeps = False
        for lane in self._runtime.at_home():
            assert lane.afar is not None, "a node's lanes know of others"
            lane.afar.leave_home()
        self.lapsed()

    async def _see_what_is_left(self) -> None:
        """After a silence: what nobody has taken meanwhile is taken up as after any other interruption. Nobody else does it while
        this node lives, so it is tried until it could be done, or the leases are lost again."""
        while self._homes.keeps:
            try:
                left = [lease for lease in await self._owned() if await self._is_under_way(lease.session_id)]
                await self._adopt_all(left, lost=None)
                return
            except (leases.LeasesUnavailable, errors.JournalUnavailable) as problem:
                log.warning("what this node has left cannot be taken up yet: %s", problem)
            except Exception:
                log.exception("what this node has left could not be taken up")
            await asyncio.sleep(self._terms.lease_s / 4)

    async def _owned(self) -> list[leases.Lease]:
        found: list[leases.Lease] = []
        while page := await self._leases.owned(self.node_id, limit=MOST_OWNED, after=found[-1].session_id if found else ""):
            found += page
        return found

    # Taking over

    async def _keep_looking(self) -> None:
        every = min(LOOK_EVERY, self._terms.lease_s / 8)
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(every):
                    await self._look.wait()
            told = self._look.is_set()
            self._look.clear()
            try:
                await self._look_around(told=told)
            except leases.LeasesUnavailable as problem:
                log.warning("this node cannot see the others: %s", problem)
            except Exception:
                log.exception("this node cannot see the others")

    async def _look_around(self, *, told: bool = False) -> None:
        """`told`: a node has said that it left sessions behind."""
        seen = await self._leases.nodes(counted=False)
        others = [node for node in seen if node.node_id != self.node_id]
        self._mesh.meet([(node.node_id, node.address) for node in others if node.is_alive])
        self._homes.takers = tuple(node.node_id for node in others if node.is_alive and not node.draining)
        loop = asyncio.get_running_loop()
        silent = ", ".join(node.name or node.node_id for node in others if not node.is_alive)
        if not self._homes.takes_up or not (silent or told or loop.time() - self._searched_at >= SEARCH_EVERY):
            return
        self._searched_at = loop.time()
        while taken := await self._leases.take_over(self.node_id, TAKEN_AT_ONCE):
            self.takeovers += len(taken)
            log.warning("%d sessions of %s have their home here now", len(taken), silent or "a node that left")
            await self._adopt_all(taken, lost=silent or "another node")
            if len(taken) < TAKEN_AT_ONCE:
                break
        if silent:
            await self._leases.free(FREED_AT_ONCE)
            await self._leases.forget_nodes(FORGOTTEN_AFTER_MS)

    async def _adopt_all(self, taken: Sequence[leases.Lease], *, lost: str | None) -> None:
        for first in range(0, len(taken), TAKEN_AT_ONCE):
            await asyncio.gather(*(self._adopt(lease, lost) for lease in taken[first : first + TAKEN_AT_ONCE]))

    async def _adopt(self, lease: leases.Lease, lost: str | None) -> None:
        try:
            await self._runtime.adopt(lease.session_id, lease.epoch, lost=lost)
        except Exception:
            # One session that cannot be read must not keep the others from being served.
            log.exception("%s could not be taken up", lease.session_id)

    async def _is_under_way(self, session_id: str) -> bool:
        card = await self._runtime.card(session_id)
        return card is not None and card.host is None and (card.state in states.ACTIVE or card.shells > 0)

    # Leaving

    async def all(self) -> list[leases.Node]:
        return await self._leases.nodes()

    async def drain(self, wait_s: float) -> nodes.Drained:
        if self._draining is None:
            self._homes.takes_up = False
            self._draining = asyncio.create_task(self._drain(wait_s), name="node drains")
        return await asyncio.shield(self._draining)

    async def _drain(self, wait_s: float) -> nodes.Drained:
        log.info("draining: runs have %g s to end", wait_s)
        await self._leases.begin_drain(self.node_id)
        await self._until_idle(asyncio.get_running_loop().time() + wait_s)
        self._homes.keeps = False
        interrupted = self._working()
        leaving = self._runtime.at_home()
        for lane in leaving:
            lane.hold()  # what is asked from now on, the next home decides
        await self._runtime.shells.stop()
        await self._runtime.runs.stop()
        for lane in leaving:
            with contextlib.suppress(errors.CoreError):
                await lane.flush()
            assert lane.afar is not None, "a node's lanes know of others"
            lane.afar.leave_home()
            lane.release()
        if self.leave_seats is not None:
            await self.leave_seats()
        freed = await self._leases.drain(self.node_id)
        self._tell_of_free_ones()
        if self.let_go is not None:
            await self.let_go()
        log.info("drained: %d sessions are free, %d runs were interrupted", freed, interrupted)
        return nodes.Drained(freed, interrupted)

    async def _until_idle(self, deadline: float) -> None:
        ended = asyncio.Event()
        unwatch = self._runtime.watch(lambda _session, event: ended.set() if isinstance(event, ENDS) else None, at_home=True)
        try:
            async with asyncio.timeout_at(deadline):
                while self._working():
                    ended.clear()
                    await ended.wait()
        except TimeoutError:
            pass
        finally:
            unwatch()

    def _working(self) -> int:
        """Runs and commands that would be cut short now."""
        return sum(
            len(lane.session.shells) + (lane.session.run is not None and not lane.session.outlives_its_daemon)
            for lane in self._runtime.at_home()
            if lane.session is not None
        )

    def _tell_of_free_ones(self) -> None:
        for node_id in self._mesh.peers:
            self._mesh.tell(node_id, FREED, b"")
