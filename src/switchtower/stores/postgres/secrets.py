"""What all nodes must know and nobody else: made by the node that needs it first, and read by the others.

A value is never logged, and no error quotes it. Whoever can read the database can read it.
"""

from collections.abc import Callable

from switchtower.core import errors
from switchtower.stores.postgres import connections, names, schema
from switchtower.stores.postgres.connections import Connection
from switchtower.stores.postgres.pool import Pool

PATIENCE = 5.0


class PostgresSecrets:
    """Raises `errors.JournalUnavailable` when the database fails it."""

    def __init__(self, dsn: str, *, patience: float = PATIENCE) -> None:
        self._dsn = dsn
        self._patience = patience
        self._pool: Pool | None = None

    async def open(self) -> None:
        pool = Pool(self._dsn, most=1, patience=self._patience)
        with connections.telling():
            await pool.open(schema.migrate)
        self._pool = pool

    async def close(self) -> None:
        pool, self._pool = self._pool, None
        if pool is not None:
            await pool.close()

    async def read(self, name: str) -> bytes | None:
        with connections.telling():
            rows = await self._ready().fetch("SELECT value FROM secrets WHERE name = $1", names.put(name))
        return rows[0][0] or None if rows else None

    async def change(self, name: str, update: Callable[[bytes | None], bytes]) -> None:
        """Nobody else changes it between what `update` is given and what it gives. That may be asked for more than once."""

        async def work(connection: Connection) -> None:
            # A row to be locked, also for the first: an empty one is as none.
            await connection.execute(
                "INSERT INTO secrets VALUES ($1, $2, now()) ON CONFLICT (name) DO NOTHING", names.put(name), b""
            )
            kept = await connection.fetchval("SELECT value FROM secrets WHERE name = $1 FOR UPDATE", names.put(name))
            await connection.execute("UPDATE secrets SET value = $2 WHERE name = $1", names.put(name), update(kept or None))

        with connections.telling():
            await self._ready().change(work)

    def _ready(self) -> Pool:
        if self._pool is None:
            raise errors.JournalUnavailable("it is not open")
        return self._pool

    async def made_once(self, name: str, make: Callable[[], bytes]) -> bytes:
        """The value of this name. Of nodes that make one at once, the first one's is everybody's."""
        pool = self._ready()

        async def work(connection: Connection) -> bytes:
            value: bytes | None = await connection.fetchval("SELECT value FROM secrets WHERE name = $1", names.put(name))
            if value is not None:
                return value
            made = make()
            if not isinstance(made, bytes):  # the library's own words would quote it
                raise TypeError(f"the secret `{name}` was not made as bytes")
            await connection.execute(
                "INSERT INTO secrets VALUES ($1, $2, now()) ON CONFLICT (name) DO NOTHING", names.put(name), made
            )
            value = await connection.fetchval("SELECT value FROM secrets WHERE name = $1", names.put(name))
            assert value is not None, "nobody takes a secret back"
            return value

        with connections.telling():
            return await pool.change(work)
