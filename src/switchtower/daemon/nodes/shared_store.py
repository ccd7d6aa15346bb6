"""The shared PostgreSQL as the monitor and the audit see it: what is in it by state, how large it is, who decided what."""

from collections.abc import Mapping

from switchtower.daemon.nodes.node import LocalNode
from switchtower.stores.postgres_tools.audit import PostgresAudit
from switchtower.stores.postgres_tools.counts import PostgresCounts


class PostgresStoreStatus:
    def __init__(self, node: LocalNode) -> None:
        self._node = node
        self._counts = PostgresCounts(node.dsn)
        self.decisions = PostgresAudit(node.dsn)
        node.add_close_callback(self._counts.close)
        node.add_close_callback(self.decisions.close)

    def list_unready_reasons(self) -> list[str]:
        return self._node.list_unready_reasons()

    async def count_states(self) -> Mapping[str, int]:
        """Of the whole tower. Raises `JournalUnavailable`."""
        return await self._counts.count_states()

    async def measure_size(self) -> int:
        return await self._counts.measure_size()
