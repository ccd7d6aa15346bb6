"""Secrets that all nodes share: the node that needs one first creates it, and the others read it.

A value is never logged, and no error quotes it. Every user that can read the database can read it.
"""

from collections.abc import Callable

from switchtower.core import errors
from switchtower.stores.postgres import database
from switchtower.stores.postgres.database import PostgresConnection
from switchtower.stores.postgres.pool import Pool

RETRY_TIMEOUT = 5.0


class PostgresSecrets:
    """Raises `errors.JournalUnavailable` when the database fails."""

    def __init__(self, dsn: str, *, timeout: float = RETRY_TIMEOUT) -> None:
        self._dsn = dsn
        self._timeout = timeout
        self._pool: Pool | None = None

    async def open(self) -> None:
        pool = Pool(self._dsn, most=1, timeout=self._timeout)
        with database.translate_errors():
            await pool.open(database.migrate)
        self._pool = pool

    async def close(self) -> None:
        pool, self._pool = self._pool, None
        if pool is not None:
            await pool.close()

    async def read(self, name: str) -> bytes | None:
        with database.translate_errors():
            rows = await self._get_pool().fetch("SELECT value FROM secrets WHERE name = $1", database.escape_nul(name))
        return rows[0][0] or None if rows else None

    async def update(self, name: str, update: Callable[[bytes | None], bytes]) -> None:
        """Changes a value atomically: no other node changes it between the argument and the result of `update`, which may be
        called more than once.
        """

        async def work(connection: PostgresConnection) -> None:
            # Creates a row to lock, also for the first change: an empty value counts as none.
            await connection.execute(
                "INSERT INTO secrets VALUES ($1, $2, now()) ON CONFLICT (name) DO NOTHING", database.escape_nul(name), b""
            )
            kept = await connection.fetchval("SELECT value FROM secrets WHERE name = $1 FOR UPDATE", database.escape_nul(name))
            await connection.execute(
                "UPDATE secrets SET value = $2 WHERE name = $1", database.escape_nul(name), update(kept or None)
            )

        with database.translate_errors():
            await self._get_pool().run_transaction(work)

    def _get_pool(self) -> Pool:
        if self._pool is None:
            raise errors.JournalUnavailable("it is not open")
        return self._pool

    async def get_or_create(self, name: str, make: Callable[[], bytes]) -> bytes:
        """Returns the value of this name. When nodes create one at once, all get the first one's."""
        pool = self._get_pool()

        async def work(connection: PostgresConnection) -> bytes:
            value: bytes | None = await connection.fetchval(
                "SELECT value FROM secrets WHERE name = $1", database.escape_nul(name)
            )
            if value is not None:
                return value
            made = make()
            if not isinstance(made, bytes):  # the library's own message would quote it
                raise TypeError(f"the secret `{name}` was not made as bytes")
            await connection.execute(
                "INSERT INTO secrets VALUES ($1, $2, now()) ON CONFLICT (name) DO NOTHING", database.escape_nul(name), made
            )
            value = await connection.fetchval("SELECT value FROM secrets WHERE name = $1", database.escape_nul(name))
            assert value is not None, "nobody takes a secret back"
            return value

        with database.translate_errors():
            return await pool.run_transaction(work)
