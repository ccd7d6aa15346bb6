"""How many sessions there are in each state, and how much room they take. For who asks every few seconds."""

from switchtower.stores.postgres import connections, schema
from switchtower.stores.postgres.connections import SCHEMA
from switchtower.stores.postgres.pool import Pool

PATIENCE = 2.0
"""Seconds: who counts can do without for a while."""


class PostgresCounts:
    """Opens by itself when it is first used."""

    def __init__(self, dsn: str, *, patience: float = PATIENCE) -> None:
        self._dsn = dsn
        self._patience = patience
        self._pool: Pool | None = None

    async def states(self) -> dict[str, int]:
        """Raises `errors.JournalUnavailable`."""
        with connections.telling():
            rows = await (await self._opened()).fetch("SELECT state, count(*) FROM sessions GROUP BY state")
        return dict(rows)

    async def bytes(self) -> int:
        """Of all our tables with their indices. Raises `errors.JournalUnavailable`."""
        with connections.telling():
            rows = await (await self._opened()).fetch(
                "SELECT coalesce(sum(pg_total_relation_size(pg_class.oid)), 0)::bigint FROM pg_class"
                " JOIN pg_namespace ON pg_namespace.oid = relnamespace WHERE nspname = $1 AND relkind = 'r'",
                SCHEMA,
            )
        return int(rows[0][0])

    async def close(self) -> None:
        pool, self._pool = self._pool, None
        if pool is not None:
            await pool.close()

    async def _opened(self) -> Pool:
        if self._pool is None:
            pool = Pool(self._dsn, most=1, patience=self._patience)
            await pool.open(schema.migrate)
            if self._pool is not None:  # somebody else was quicker
                await pool.close()
            else:
                self._pool = pool
        return self._pool
