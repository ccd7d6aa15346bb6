"""This node's membership in the cluster: it joins, renews its lease, takes over the sessions of dead nodes, and leaves.

A node that cannot renew in time gives up its leases before any other node can take them: it stops its work for its sessions by
its own clock, which started before the database's.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from msgspec import Struct

from switchtower.cluster.mesh import ports
from switchtower.cluster.ownership import LeasedOwnership
from switchtower.core import errors, events, states
from switchtower.core.ports import cluster
from switchtower.runtime.runtime import Runtime

log = logging.getLogger(__name__)

RELEASED_SUBJECT = "homes.freed"
SAFE_LEASE_FRACTION = 0.85
"""The part of a lease that a node relies on: when it could not renew, its work must have ended before other nodes take over."""
TAKEN_AT_ONCE = 50
FREED_AT_ONCE = 1_000
CHECK_INTERVAL = 1.0
SEARCH_INTERVAL = 10.0
"""Seconds between two searches for sessions without an owner while no node is silent and none has left: a search reads
everything that is active anywhere, and a node that leaves announces it.
"""
FORGOTTEN_AFTER_MS = 3_600_000
MOST_OWNED = 10_000
ENDS = (events.RunCompleted, events.ShellFinished, events.ApprovalRequested)
"""The events after which there may be less work that a drain would interrupt."""


class MembershipTerms(Struct, frozen=True):
    """The address and lease time with which this node joins."""

    address: str
    lease_s: float

    @property
    def lease_ms(self) -> int:
        return round(self.lease_s * 1_000)


class NodeMembership:
    """Implements `ClusterNodes`."""

    def __init__(
        self, runtime: Runtime, leases_: cluster.Leases, ownership: LeasedOwnership, mesh: ports.Mesh, terms: MembershipTerms
    ) -> None:
        self._runtime = runtime
        self._leases = leases_
        self._ownership = ownership
        self._mesh = mesh
        self._terms = terms
        self._tasks: set[asyncio.Task[None]] = set()
        self._good_until = 0.0
        self._lapse_timer: asyncio.TimerHandle | None = None
        self._check_requested = asyncio.Event()
        self._searched_at = float("-inf")
        self._draining: asyncio.Task[cluster.DrainResult] | None = None
        self.takeovers = 0
        self.database_answers = True
        """True when the last renewal reached the database."""
        self.lapsed: Callable[[], None] = lambda: None
        """The membership calls it when this node has lost its leases, or may have."""
        self.release_singletons: Callable[[], Coroutine[Any, Any, None]] | None = None
        """Stops the services that only one node may run at a time, before another node can start them."""
        self.drain_clients: Callable[[], Coroutine[Any, Any, None]] | None = None
        """Disconnects the clients, with a hint to reconnect to another node."""
        ownership.take = lambda command, done: runtime.submit(command, done, is_forwarded=True)
        mesh.handle_notifications(RELEASED_SUBJECT, lambda _node, _body: self._check_requested.set())

    @property
    def node_id(self) -> str:
        return self._mesh.local_peer.node_id

    @property
    def is_draining(self) -> bool:
        return self._draining is not None

    @property
    def has_valid_leases(self) -> bool:
        return asyncio.get_running_loop().time() < self._good_until

    async def open(self, predecessor: str | None = None) -> None:
        """`predecessor` is the previous node of this machine, which is certainly dead: its sessions continue here."""
        me = self._mesh.local_peer
        started = asyncio.get_running_loop().time()
        await self._leases.join(me.node_id, self._terms.address, self._terms.lease_ms, name=me.name, version=me.version)
        self._record_renewal(started)
        self._start(self._keep_alive(), "node renews")
        if predecessor is not None and await self._leases.inherit(predecessor, me.node_id):
            await self._check_owned_sessions()
        await self._take_over_sessions()
        self._start(self._watch_cluster(), "node looks around")

    def _start(self, work: Coroutine[Any, Any, None], name: str) -> None:
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """Frees everything that this node owns, and notifies the other nodes at once."""
        if self._draining is not None:
            self._draining.cancel()
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._lapse_timer is not None:
            self._lapse_timer.cancel()
        self._ownership.takes_up = self._ownership.keeps = False
        # otherwise the node falls silent, and the others notice that in time
        with contextlib.suppress(cluster.LeasesUnavailable):
            await self._leases.leave(self.node_id)
            self._announce_released()

    # Renewal

    async def _keep_alive(self) -> None:
        while True:
            await asyncio.sleep(self._terms.lease_s / 4)
            started = asyncio.get_running_loop().time()
            try:
                renewal = await self._leases.renew(self.node_id, self._terms.lease_ms)
                if renewal is cluster.Renewal.UNKNOWN:
                    await self._join_again()
                had_lapsed = not self._ownership.keeps and not self.is_draining
                if renewal is not cluster.Renewal.KEPT or had_lapsed:
                    self._lapse()
                    self._record_renewal(started)
                    self._start(self._check_owned_sessions(), "node takes up what is left")
                else:
                    self._record_renewal(started)
                self.database_answers = True
            except cluster.LeasesUnavailable as problem:
                self.database_answers = False
                log.warning("this node could not say that it is there: %s", problem)
            except Exception:
                log.exception("this node could not say that it is there")

    async def _join_again(self) -> None:
        me = self._mesh.local_peer
        await self._leases.join(me.node_id, self._terms.address, self._terms.lease_ms, name=me.name, version=me.version)
        if self.is_draining:
            await self._leases.drain(self.node_id)

    def _record_renewal(self, started: float) -> None:
        self._good_until = started + self._terms.lease_s * SAFE_LEASE_FRACTION
        if self._lapse_timer is not None:
            self._lapse_timer.cancel()
        self._lapse_timer = asyncio.get_running_loop().call_at(self._good_until, self._on_lease_expired)
        if not self.is_draining:  # what a drain has given up stays given up
            self._ownership.takes_up = self._ownership.keeps = True

    def _on_lease_expired(self) -> None:
        log.error("this node could not renew its leases of %g s in time: it gives its sessions up", self._terms.lease_s)
        self._lapse()

    def _lapse(self) -> None:
        self._ownership.takes_up = self._ownership.keeps = False
        for lane in self._runtime.owned_lanes():
            assert lane.remote is not None, "a node's lanes know of others"
            lane.remote.lose_ownership()
        self.lapsed()

    async def _check_owned_sessions(self) -> None:
        """After a silence: recovers the sessions that no other node has taken meanwhile, as after any other interruption. No
        other node does it while this node lives, so it is retried until it succeeds or the leases are lost again.
        """
        while self._ownership.keeps:
            try:
                left = [lease for lease in await self._list_owned() if await self._has_active_work(lease.session_id)]
                await self._adopt_all(left, lost=None)
                return
            except (cluster.LeasesUnavailable, errors.JournalUnavailable) as problem:
                log.warning("what this node has left cannot be taken up yet: %s", problem)
            except Exception:
                log.exception("what this node has left could not be taken up")
            await asyncio.sleep(self._terms.lease_s / 4)

    async def _list_owned(self) -> list[cluster.Lease]:
        found: list[cluster.Lease] = []
        while page := await self._leases.list_owned(self.node_id, limit=MOST_OWNED, after=found[-1].session_id if found else ""):
            found += page
        return found

    # Takeover

    async def _watch_cluster(self) -> None:
        every = min(CHECK_INTERVAL, self._terms.lease_s / 8)
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(every):
                    await self._check_requested.wait()
            told = self._check_requested.is_set()
            self._check_requested.clear()
            try:
                await self._take_over_sessions(notified=told)
            except cluster.LeasesUnavailable as problem:
                log.warning("this node cannot see the others: %s", problem)
            except Exception:
                log.exception("this node cannot see the others")

    async def _take_over_sessions(self, *, notified: bool = False) -> None:
        """`notified`: a node has announced that it released sessions."""
        seen = await self._leases.list_nodes(counted=False)
        others = [node for node in seen if node.node_id != self.node_id]
        self._mesh.update_nodes([(node.node_id, node.address) for node in others if node.is_alive])
        self._ownership.takers = tuple(node.node_id for node in others if node.is_alive and not node.draining)
        loop = asyncio.get_running_loop()
        silent = ", ".join(node.name or node.node_id for node in others if not node.is_alive)
        if not self._ownership.takes_up or not (silent or notified or loop.time() - self._searched_at >= SEARCH_INTERVAL):
            return
        self._searched_at = loop.time()
        while taken := await self._leases.take_over(self.node_id, TAKEN_AT_ONCE):
            self.takeovers += len(taken)
            log.warning("%d sessions of %s have their home here now", len(taken), silent or "a node that left")
            await self._adopt_all(taken, lost=silent or "another node")
            if len(taken) < TAKEN_AT_ONCE:
                break
        if silent:
            await self._leases.release_silent(FREED_AT_ONCE)
            await self._leases.forget_nodes(FORGOTTEN_AFTER_MS)

    async def _adopt_all(self, taken: Sequence[cluster.Lease], *, lost: str | None) -> None:
        for first in range(0, len(taken), TAKEN_AT_ONCE):
            await asyncio.gather(*(self._adopt(lease, lost) for lease in taken[first : first + TAKEN_AT_ONCE]))

    async def _adopt(self, lease: cluster.Lease, lost: str | None) -> None:
        try:
            await self._runtime.take_ownership(lease.session_id, lease.epoch, lost=lost)
        except Exception:
            # One session that cannot be read must not keep the others from being served.
            log.exception("%s could not be taken up", lease.session_id)

    async def _has_active_work(self, session_id: str) -> bool:
        card = await self._runtime.find_card(session_id)
        return card is not None and card.host is None and (card.state in states.ACTIVE or card.shells > 0)

    # Drain

    async def list_nodes(self) -> list[cluster.Node]:
        return await self._leases.list_nodes()

    async def drain(self, wait_s: float) -> cluster.DrainResult:
        if self._draining is None:
            self._ownership.takes_up = False
            self._draining = asyncio.create_task(self._drain(wait_s), name="node drains")
        return await asyncio.shield(self._draining)

    async def _drain(self, wait_s: float) -> cluster.DrainResult:
        log.info("draining: runs have %g s to end", wait_s)
        await self._leases.begin_drain(self.node_id)
        await self._wait_until_idle(asyncio.get_running_loop().time() + wait_s)
        self._ownership.keeps = False
        interrupted = self._count_working()
        leaving = self._runtime.owned_lanes()
        for lane in leaving:
            lane.hold_commands()  # the next owner decides the commands that arrive from now on
        await self._runtime.shells.stop()
        await self._runtime.runs.stop()
        for lane in leaving:
            with contextlib.suppress(errors.CoreError):
                await lane.flush()
            assert lane.remote is not None, "a node's lanes know of others"
            lane.remote.lose_ownership()
            lane.release_commands()
        if self.release_singletons is not None:
            await self.release_singletons()
        freed = await self._leases.drain(self.node_id)
        self._announce_released()
        if self.drain_clients is not None:
            await self.drain_clients()
        log.info("drained: %d sessions are free, %d runs were interrupted", freed, interrupted)
        return cluster.DrainResult(freed, interrupted)

    async def _wait_until_idle(self, deadline: float) -> None:
        ended = asyncio.Event()
        unwatch = self._runtime.watch(lambda _session, event: ended.set() if isinstance(event, ENDS) else None, owned_only=True)
        try:
            async with asyncio.timeout_at(deadline):
                while self._count_working():
                    ended.clear()
                    await ended.wait()
        except TimeoutError:
            pass
        finally:
            unwatch()

    def _count_working(self) -> int:
        """Returns the number of runs and commands that would be interrupted now."""
        return sum(
            len(lane.session.shells) + (lane.session.run is not None and not lane.session.can_resume_after_restart)
            for lane in self._runtime.owned_lanes()
            if lane.session is not None
        )

    def _announce_released(self) -> None:
        for node_id in self._mesh.peers:
            self._mesh.notify(node_id, RELEASED_SUBJECT, b"")
