"""How many sessions there are in each state, and how much room they take. For who asks every few seconds."""

from switchtower.stores.postgres import connections
from switchtower.stores.postgres.connections import SCHEMA
from switchtower.stores.postgres.late_pool import LazyPool

RETRY_TIMEOUT = 2.0
"""Seconds: who counts can do without for a while."""


class PostgresCounts:
    """Opens by itself when it is first used."""

    def __init__(self, dsn: str, *, timeout: float = RETRY_TIMEOUT) -> None:
        self._pool = LazyPool(dsn, most=1, timeout=timeout)

    async def count_states(self) -> dict[str, int]:
        """Raises `errors.JournalUnavailable`."""
        with connections.translate_errors():
            rows = await (await self._pool.get()).fetch("SELECT state, count(*) FROM sessions GROUP BY state")
        return dict(rows)

    async def measure_size(self) -> int:
        """Of all our tables with their indices. Raises `errors.JournalUnavailable`."""
        with connections.translate_errors():
            rows = await (await self._pool.get()).fetch(
                "SELECT coalesce(sum(pg_total_relation_size(pg_class.oid)), 0)::bigint FROM pg_class"
                " JOIN pg_namespace ON pg_namespace.oid = relnamespace WHERE nspname = $1 AND relkind = 'r'",
                SCHEMA,
            )
        return int(rows[0][0])

    async def close(self) -> None:
        await self._pool.close()
