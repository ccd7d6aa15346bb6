"""A pool for who may never be asked: its connections are made when somebody first does."""

from switchtower.stores.postgres import schema
from switchtower.stores.postgres.pool import Pool


class LazyPool:
    def __init__(self, dsn: str, *, most: int, timeout: float) -> None:
        self._dsn = dsn
        self._most = most
        self._timeout = timeout
        self._pool: Pool | None = None

    async def get(self) -> Pool:
        if self._pool is None:
            pool = Pool(self._dsn, most=self._most, timeout=self._timeout)
            await pool.open(schema.migrate)
            if self._pool is not None:  # somebody else was quicker
                await pool.close()
            else:
                self._pool = pool
        return self._pool

    async def close(self) -> None:
        pool, self._pool = self._pool, None
        if pool is not None:
            await pool.close()
