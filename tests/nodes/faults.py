"""What fails, one thing a round: nodes die, stop and go on, lose their database; the database itself goes and comes back.

What is broken is mended beside the rounds that follow, so faults overlap; at least one node is always left alone.
"""

import asyncio
import os
import random
import signal
import time
from collections.abc import Awaitable, Callable
from typing import Any

from tests.crash.tower_process import DaemonDidNotStart
from tests.nodes.fleet import Look, NodeProcess, ProcessCluster
from tests.nodes.ledger import ClusterOracle

from switchtower.core.ports import cluster
from switchtower.stores.postgres import database

ACKNOWLEDGED_A_ROUND = 4

_AT_WORK = (
    "SELECT node_id, array_agg(homes.session_id) FROM homes JOIN sessions USING (sid) WHERE node_id IS NOT NULL"
    " AND state IN ('running', 'awaiting_approval') GROUP BY node_id ORDER BY count(*) DESC"
)
_TAKER = "SELECT node_id FROM homes WHERE session_id = ANY ($1) AND node_id <> $2 LIMIT 1"


class FaultInjector:
    def __init__(self, process_cluster: ProcessCluster, ledger: ClusterOracle, seed: int, lease: float) -> None:
        self.cluster, self.ledger = process_cluster, ledger
        self.dice = random.Random(seed)
        self.lease = lease
        self.kinds: dict[str, Callable[[], Awaitable[None]]] = {
            "kill": self._kill,
            "pause": self._pause,
            "cut": self._cut,
            "restart of the database": self._restart,
            "kill in a takeover": self._kill_in_takeover,
        }
        self._mending: set[asyncio.Task[None]] = set()
        self._deck: list[str] = []

    async def inject_fault(self) -> str:
        """One fault, and proof that the tower still serves."""
        if not self._deck:
            self._deck = list(self.kinds)
            self.dice.shuffle(self._deck)
        kind = self._deck.pop()
        await self.kinds[kind]()
        self.ledger.seen[kind] += 1
        await self.ledger.wait_for_progress(ACKNOWLEDGED_A_ROUND)
        self._raise_troubles()
        return kind

    async def wait_until_repaired(self) -> None:
        """Returns when all nodes are there again."""
        await asyncio.gather(*self._mending)
        await self.cluster.wait_until(self._retry(self.cluster.wait_until_joined), "all nodes are back")

    async def stop(self) -> None:
        for task in self._mending:
            task.cancel()
        await asyncio.gather(*self._mending, return_exceptions=True)

    def _raise_troubles(self) -> None:
        for task in [task for task in self._mending if task.done()]:
            self._mending.discard(task)
            task.result()

    def _repair(self, node: NodeProcess, work: Awaitable[None]) -> None:
        async def mending() -> None:
            try:
                await work
            finally:
                node.busy = False

        self._mending.add(asyncio.create_task(mending()))

    async def _choose_victim(self) -> NodeProcess:
        """Somebody to whom nothing is happening, and who is not the last such."""
        free = await self._choose_free(2)
        chosen = self.dice.choice(free)
        chosen.busy = True
        return chosen

    async def _choose_all(self) -> list[NodeProcess]:
        """All of them."""
        free = await self._choose_free(len(self.cluster.nodes))
        for node in free:
            node.busy = True
        return free

    async def _choose_free(self, count: int) -> list[NodeProcess]:
        while len(free := [node for node in self.cluster.nodes if not node.busy]) < count:
            await asyncio.wait(self._mending, return_when=asyncio.FIRST_COMPLETED)
            self._raise_troubles()
        return free

    # The faults

    async def _kill(self) -> None:
        """It comes back before it is missed, and inherits what it had; or too late, when others have that."""
        node = await self._choose_victim()
        node.kill()
        self._repair(node, self._start_again(node, after=self.dice.choice([0, self.lease * 1.5])))

    async def _start_again(self, node: NodeProcess, after: float = 0) -> None:
        """As a supervisor does it: again and again, for the database may be away."""
        await asyncio.sleep(after)
        while True:
            try:
                await node.start()
                return
            except DaemonDidNotStart as problem:
                node.kill()
                if "cannot start" not in str(problem):
                    raise

    async def _pause(self) -> None:
        """Beyond the lease, so that others take over meanwhile."""
        node = await self._choose_victim()
        node.pause()
        self._repair(node, self._resume_node(node))

    async def _resume_node(self, node: NodeProcess) -> None:
        try:

            async def is_silent() -> bool:
                return node.name not in await self.cluster.list_alive()

            await self.cluster.wait_until(self._retry(is_silent), f"{node.name} counts as silent")
            await asyncio.sleep(self.dice.uniform(0, self.lease / 2))
        finally:
            node.resume()

        async def is_back() -> bool:
            return node.name in await self.cluster.list_alive()

        await self.cluster.wait_until(self._retry(is_back), f"{node.name} is back after a pause")
        self.ledger.seen["woken"] += 1

    async def _cut(self) -> None:
        node = await self._choose_victim()
        self.dice.choice([node.gate.shut, node.gate.hold])()
        self._repair(node, self._join(node))

    async def _join(self, node: NodeProcess) -> None:
        await asyncio.sleep(self.dice.choice([0, self.lease / 2, self.lease * 2]))
        node.gate.restore()

        async def is_back() -> bool:
            return node.name in await self.cluster.list_alive()

        await self.cluster.wait_until(self._retry(is_back), f"{node.name} has its database again")

    async def _restart(self) -> None:
        server = self.cluster.server
        how = self.dice.choice([server.stop, server.kill, self._stop_at_once])
        how()
        await asyncio.sleep(self.dice.choice([0, 0, self.lease]))
        await asyncio.to_thread(server.start)  # after a crash it first recovers, and clients go on asking meanwhile

    def _stop_at_once(self) -> None:
        """What PostgreSQL calls immediate: it recovers when it starts."""
        server = self.cluster.server
        os.kill(int((server.folder / "data" / "postmaster.pid").read_text().split()[0]), signal.SIGQUIT)
        server.stop()

    async def _kill_in_takeover(self) -> None:
        """One dies, and whoever begins to take its sessions over dies in the middle of it."""
        nodes = await self._choose_all()
        await self.wait_until_repaired()
        by_id = {found.node_id: name for name, found in (await self.cluster.list_alive()).items()}
        connection = await database.connect(self.cluster.dsn)
        try:
            at_work = await connection.fetch(_AT_WORK)
            busiest = next((node_id for node_id, _ in at_work if node_id in by_id), next(iter(by_id)))
            first = next(node for node in nodes if node.name == by_id[busiest])
            orphans = [session_id for node_id, session_ids in at_work if node_id == busiest for session_id in session_ids]
            first.kill()
            second = None
            deadline = time.monotonic() + 4 * self.lease
            while second is None and orphans and time.monotonic() < deadline:
                taker = await connection.fetchval(_TAKER, orphans, busiest)
                second = next((node for node in nodes if node.name == by_id.get(taker)), None)
                await asyncio.sleep(0)
        finally:
            await connection.close()
        if second is not None:
            second.kill()
            self.ledger.seen["killed in a takeover"] += 1
        for node in nodes:
            if node.daemon is None:
                self._repair(node, self._start_again(node))
            else:
                node.busy = False

    def _retry(self, look: Look) -> Look:
        """While the database is away nobody can say."""

        async def patient() -> Any:
            try:
                return await look()
            except cluster.LeasesUnavailable:
                return None

        return patient
