"""The shared PostgreSQL as the monitor and the audit see it: what is in it by state, how large it is, who decided what."""

from collections.abc import Mapping

from switchtower.daemon.nodes.node import Node
from switchtower.stores.postgres_tools.audit import PostgresAudit
from switchtower.stores.postgres_tools.counts import PostgresCounts


class SharedStore:
    def __init__(self, node: Node) -> None:
        self._node = node
        self._counts = PostgresCounts(node.dsn)
        self.decisions = PostgresAudit(node.dsn)
        node.also_close(self._counts.close)
        node.also_close(self.decisions.close)

    def reasons_not_ready(self) -> list[str]:
        return self._node.reasons_not_ready()

    async def count_states(self) -> Mapping[str, int]:
        """Of the whole tower. Raises `JournalUnavailable`."""
        return await self._counts.states()

    async def size(self) -> int:
        return await self._counts.bytes()
