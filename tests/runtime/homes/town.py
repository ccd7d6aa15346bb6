"""Several nodes in one process: runtimes of their own over one journal, one book of leases, and meshes joined in memory."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from tests.runtime.parts import PATIENCE, House, Work, finish_at_once

from switchtower.core import errors, events, journal
from switchtower.runtime.homes.node_homes import NodeHomes
from switchtower.runtime.homes.residence import Residence, Terms
from switchtower.runtime.limits import Limits
from switchtower.stores.leases_memory import MemoryLeases
from switchtower.stores.memory import MemoryJournal
from switchtower.testing.mesh_pair import MemoryMesh, ring

LEASE_S = 60.0
"""Nobody falls silent by accident."""
LIMITS = Limits(home_patience=PATIENCE, following=0.01, journal_retry=0.01)


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


class TownHouse(House):
    """One node."""

    def __init__(self, town: "Town", mesh: MemoryMesh, work: Work, **options: Any) -> None:
        self.mesh = mesh
        self.leases = town.leases
        self.homes = NodeHomes(town.leases, mesh)
        options.setdefault("limits", LIMITS)
        super().__init__(work, town.journal, homes_=self.homes, **options)
        self.residence = Residence(self.runtime, town.leases, self.homes, mesh, Terms(mesh.address, LEASE_S))
        self.runtime.nodes = self.residence
        town.journal.listeners.append(lambda session_id, before, head: self.runtime.heard({session_id: (before, head)}))
        self.is_dead = False

    @property
    def node_id(self) -> str:
        return self.mesh.me.node_id

    async def join(self, predecessor: str | None = None) -> None:
        await self.runtime.start()
        await self.residence.open(predecessor)

    async def leave(self) -> None:
        if not self.is_dead:
            self.is_dead = True
            await self.runtime.stop()
            await self.residence.close()
            await self.mesh.close()

    async def die(self) -> None:
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

    async def look_around(self) -> None:
        await self.residence._look_around(told=True)

    async def home_of(self, session_id: str) -> str | None:
        owner = await self.leases.owner(session_id)
        return None if owner is None else owner.node_id

    async def soon(self, condition: Callable[[], Awaitable[bool]]) -> None:
        async with asyncio.timeout(PATIENCE):
            while not await condition():
                await asyncio.sleep(0)


class Town:
    def __init__(self) -> None:
        self.journal = SharedJournal()
        self.leases = MemoryLeases(cards=lambda: [session.card for session in self.journal._sessions.values()])
        self.houses: list[TownHouse] = []

    async def build(self, *works: Work, **options: Any) -> list[TownHouse]:
        await self.leases.open()
        await self.journal.open()
        meshes = ring(len(works))
        self.houses = [TownHouse(self, mesh, work, **options) for mesh, work in zip(meshes, works, strict=True)]
        for house in self.houses:
            await house.join()
        for house in self.houses:
            await house.look_around()  # all know all
        return self.houses

    async def close(self) -> None:
        for house in self.houses:
            house.journal.gate.set()
            await house.leave()
        await self.leases.close()
        await self.journal.close()


__all__ = ["LIMITS", "Town", "TownHouse", "errors", "events", "finish_at_once"]
