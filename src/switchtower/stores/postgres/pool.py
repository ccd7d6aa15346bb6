"""A few connections that are shared: for reads, and for changes that are not the journal's appends.

A read whose connection goes away is asked again. A change is one transaction, and when the connection goes away during its
commit, the server is asked what became of it, so that the answer is true.

A pool for who may never be asked: its connections are made when somebody first does."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, TypeVar

from switchtower.core import errors
from switchtower.stores.postgres import database
from switchtower.stores.postgres.database import PostgresConnection

Result = TypeVar("Result")
STATEMENT_SECONDS = 30.0
_CLOSE_SECONDS = 2.0
_NO_SUCH_TRANSACTION_YET = "22023"
# A process that is stopped in the middle, or cut off, would hold its rows for as long as its connection seems to be there.
_BEGIN = "BEGIN; SET LOCAL idle_in_transaction_session_timeout = '3s'"


class Pool:
    """Who asks first is served first; with one connection everything happens in the order of asking."""

    def __init__(self, dsn: str, *, most: int, timeout: float, settings: dict[str, str] | None = None) -> None:
        """`patience`: for how many seconds a database that cannot be reached is tried again before an asker hears of it."""
        self._dsn = dsn
        self._settings = settings
        self._timeout = timeout
        self._turns = asyncio.Semaphore(most)
        self._idle: list[PostgresConnection] = []
        self._busy: set[PostgresConnection] = set()
        self._is_open = False

    async def open(self, prepare: Callable[[PostgresConnection], Awaitable[None]]) -> None:
        """With the first connection, on which `prepare` is done before anybody else gets one."""
        connection = await database.connect(self._dsn, self._settings)
        try:
            await prepare(connection)
        except BaseException:
            connection.terminate()
            raise
        self._idle.append(connection)
        self._is_open = True

    async def close(self) -> None:
        """What is under way is cut off: its asker is told so."""
        self._is_open = False
        for connection in self._busy:
            connection.terminate()
        idle, self._idle = self._idle, []
        for connection in idle:
            with contextlib.suppress(Exception):
                await connection.close(timeout=_CLOSE_SECONDS)

    async def fetch(self, query: str, *values: Any) -> list[Any]:
        """The rows of a statement that may be asked twice without harm."""
        return await self._retry_until_timeout(lambda connection: connection.fetch(query, *values, timeout=STATEMENT_SECONDS))

    async def run_transaction(self, work: Callable[[PostgresConnection], Awaitable[Result]]) -> Result:
        """One transaction. `work` may be done again from the beginning, if nothing of it was stored."""
        transaction: list[str | None] = [None]

        async def once(connection: PostgresConnection) -> Result:
            if transaction[0] is not None:
                raise AssertionError("a transaction of unknown outcome is asked about, not repeated")
            async with asyncio.timeout(STATEMENT_SECONDS):
                await connection.execute(_BEGIN)
                try:
                    result = await work(connection)
                    number = await connection.fetchval("SELECT pg_current_xact_id_if_assigned()::text")
                except BaseException:
                    await _roll_back(connection)
                    raise
                transaction[0] = number
                try:
                    await connection.execute("COMMIT")
                except Exception as problem:
                    if number is None or not database.is_lost(problem, connection):
                        transaction[0] = None
                        raise
                    connection.terminate()
                    if not await self._retry_until_timeout(lambda fresh: _is_committed(fresh, number), within=True):
                        transaction[0] = None
                        raise
            return result

        return await self._retry_until_timeout(once)

    async def _retry_until_timeout(
        self, ask: Callable[[PostgresConnection], Awaitable[Result]], *, within: bool = False
    ) -> Result:
        """Asks until the database answers or patience ends. `within`: for somebody who has their turn already."""
        pauses = database.iterate_backoff()
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._timeout
        while True:
            try:
                async with contextlib.nullcontext() if within else self._turns:
                    async with self._borrow_connection() as connection:
                        return await ask(connection)
            except Exception as problem:
                if (
                    isinstance(problem, errors.CoreError)
                    or not _is_transient(problem)
                    or not self._is_open
                    or loop.time() >= deadline
                ):
                    raise
            await asyncio.sleep(next(pauses))

    @contextlib.asynccontextmanager
    async def _borrow_connection(self) -> AsyncIterator[PostgresConnection]:
        if not self._is_open:
            raise errors.JournalUnavailable("it is not open")
        while self._idle and self._idle[-1].is_closed():
            self._idle.pop()
        connection = self._idle.pop() if self._idle else await database.connect(self._dsn, self._settings)
        self._busy.add(connection)
        try:
            yield connection
        except BaseException as problem:
            # Also when its asker left: what the connection is doing then is nobody's.
            if database.get_sqlstate(problem) is None or database.is_lost(problem, connection):
                connection.terminate()
            raise
        finally:
            self._busy.discard(connection)
            if not connection.is_closed():
                if self._is_open:
                    self._idle.append(connection)
                else:
                    connection.terminate()


def _is_transient(problem: Exception) -> bool:
    """Whether it may be over in a moment: the server is away or starting, or another transaction was in the way."""
    state = database.get_sqlstate(problem)
    if state is None:
        return database.is_database_error(problem)
    return state[:2] in ("08", "40", "57") or state in ("25P03", "53300")


async def _roll_back(connection: PostgresConnection) -> None:
    if not connection.is_closed():
        with contextlib.suppress(Exception):
            await connection.execute("ROLLBACK")


async def _is_committed(connection: PostgresConnection, transaction: str) -> bool:
    """What became of a transaction. One that still goes on, without us, is waited for."""
    for pause in database.iterate_backoff():
        try:
            status = await connection.fetchval("SELECT pg_xact_status($1::text::xid8)", transaction)
        except Exception as problem:
            if database.get_sqlstate(problem) != _NO_SUCH_TRANSACTION_YET:
                raise
            return False  # the server has crashed since, and gives the number to another: nothing was stored under it
        if status != "in progress":
            return bool(status == "committed")
        await asyncio.sleep(pause)
    raise AssertionError("the pauses do not end")


class LazyPool:
    def __init__(self, dsn: str, *, most: int, timeout: float) -> None:
        self._dsn = dsn
        self._most = most
        self._timeout = timeout
        self._pool: Pool | None = None

    async def get(self) -> Pool:
        if self._pool is None:
            pool = Pool(self._dsn, most=self._most, timeout=self._timeout)
            await pool.open(database.migrate)
            if self._pool is not None:  # somebody else was quicker
                await pool.close()
            else:
                self._pool = pool
        return self._pool

    async def close(self) -> None:
        pool, self._pool = self._pool, None
        if pool is not None:
            await pool.close()
