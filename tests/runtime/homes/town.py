"""Several nodes in one process: runtimes of their own over one journal, one book of leases, and meshes joined in memory."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from tests.runtime.parts import TIMEOUT, RuntimeHarness, Work, finish_at_once

from switchtower.cluster.membership import MembershipTerms, NodeMembership
from switchtower.cluster.ownership import LeasedOwnership
from switchtower.core import errors, events
from switchtower.core.ports import journal
from switchtower.runtime.lane_items import RuntimeLimits
from switchtower.testing.memory.journal import MemoryJournal
from switchtower.testing.memory.leases import MemoryLeases
from switchtower.testing.memory.mesh import MemoryMesh, make_cluster

LEASE_S = 60.0
"""Nobody falls silent by accident."""
LIMITS = RuntimeLimits(owner_timeout=TIMEOUT, follow_interval=0.01, journal_retry=0.01)


class SharedJournal(MemoryJournal):
    """Tells the nodes what was stored, as a database does."""

    def __init__(self) -> None:
        super().__init__()
        self.listeners: list[Callable[[str, int, int], None]] = []
        self.muted = False
        """Notices get lost."""

    async def append(self, append: journal.Append) -> None:
        await super().append(append)
        if append.entries and not self.muted:
            for listener in self.listeners:
                listener(append.session_id, append.entries[0].seq - 1, append.entries[-1].seq)

    async def heads(self) -> dict[str, int]:
        return {session_id: session.head for session_id, session in self._sessions.items()}


class RuntimeNode(RuntimeHarness):
    """One node."""

    def __init__(self, runtime_cluster: "RuntimeCluster", mesh: MemoryMesh, work: Work, **options: Any) -> None:
        self.mesh = mesh
        self.leases = runtime_cluster.leases
        self.homes = LeasedOwnership(runtime_cluster.leases, mesh)
        options.setdefault("limits", LIMITS)
        super().__init__(work, runtime_cluster.journal, homes_=self.homes, **options)
        self.residence = NodeMembership(
            self.runtime, runtime_cluster.leases, self.homes, mesh, MembershipTerms(mesh.address, LEASE_S)
        )
        self.runtime.nodes = self.residence
        runtime_cluster.journal.listeners.append(
            lambda session_id, before, head: self.runtime.apply_remote_heads({session_id: (before, head)})
        )
        self.is_dead = False

    @property
    def node_id(self) -> str:
        return self.mesh.local_peer.node_id

    async def join(self, predecessor: str | None = None) -> None:
        await self.runtime.start()
        await self.residence.open(predecessor)

    async def leave(self) -> None:
        if not self.is_dead:
            self.is_dead = True
            await self.runtime.stop()
            await self.residence.close()
            await self.mesh.close()

    async def kill(self) -> None:
        """As by kill -9: nothing of it is stored or said any more, and its lease runs out."""
        self.is_dead = True
        await self.mesh.close()
        self.journal.gone = True
        for task in tuple(self.residence._tasks):
            task.cancel()
        await self.runtime.stop()
        await self.expire()

    async def expire(self) -> None:
        """Its lease is over, by everybody's clock but its own."""
        await self.leases.renew(self.node_id, 0)

    async def poll_cluster(self) -> None:
        await self.residence._take_over_sessions(notified=True)

    async def find_home(self, session_id: str) -> str | None:
        owner = await self.leases.find_owner(session_id)
        return None if owner is None else owner.node_id

    async def wait_until(self, condition: Callable[[], Awaitable[bool]]) -> None:
        async with asyncio.timeout(TIMEOUT):
            while not await condition():
                await asyncio.sleep(0)


class RuntimeCluster:
    def __init__(self) -> None:
        self.journal = SharedJournal()
        self.leases = MemoryLeases(cards=lambda: [session.card for session in self.journal._sessions.values()])
        self.houses: list[RuntimeNode] = []

    async def build(self, *works: Work, **options: Any) -> list[RuntimeNode]:
        await self.leases.open()
        await self.journal.open()
        meshes = make_cluster(len(works))
        self.houses = [RuntimeNode(self, mesh, work, **options) for mesh, work in zip(meshes, works, strict=True)]
        for house in self.houses:
            await house.join()
        for house in self.houses:
            await house.poll_cluster()  # all know all
        return self.houses

    async def close(self) -> None:
        for house in self.houses:
            house.journal.gate.set()
            await house.leave()
        await self.leases.close()
        await self.journal.close()


__all__ = ["LIMITS", "RuntimeCluster", "RuntimeNode", "errors", "events", "finish_at_once"]
