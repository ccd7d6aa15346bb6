"""A few shared connections: for reads, and for changes that are not the journal's appends. `LazyPool` opens them at the first
use.

A read whose connection is lost is repeated. A change is one transaction, and when the connection is lost during its commit,
the server is queried for its outcome, so that the result is reliable.

Notifications between nodes: after a batch, a node reports which sessions changed, from which seq to which. There is one
NOTIFY per batch, and one listening connection per node, however many clients follow a session.

A notice is a hint. It may be lost, and it may name no session: then any session may have changed. Readers page from their
cursor. A dead connection is detected by a regular query. After every new connection, and after anything that may have been
missed, the notice names no session."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from switchtower.core import errors
from switchtower.stores.postgres import database
from switchtower.stores.postgres.database import PostgresConnection

CHANNEL = "tower_moved"
_MOST_BYTES = 7_500  # the server's limit is just below 8,000


class HeadsNotice(Struct, frozen=True):
    node_id: str
    heads: dict[str, tuple[int, int]] | None
    """Each session's last seq before the batch, and after it. None: the receiver must check every session that it follows."""


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(HeadsNotice).decode


def encode_notice(node_id: str, heads: dict[str, tuple[int, int]]) -> str:
    notice = _encode(HeadsNotice(node_id, heads))
    if len(notice) > _MOST_BYTES:
        notice = _encode(HeadsNotice(node_id, None))
    return notice.decode()


def decode_notice(payload: str) -> HeadsNotice:
    """A payload that cannot be decoded means that something changed; so does a notice of the previous version, which has no
    starting seq.
    """
    try:
        return _decode(payload)
    except (msgspec.DecodeError, UnicodeEncodeError):
        return HeadsNotice("", None)


log = logging.getLogger(__name__)
_PULSE = 5.0


class NotificationListener:
    def __init__(self, dsn: str, node_id: str, on_notice: Callable[[HeadsNotice], None], *, pulse: float = _PULSE) -> None:
        """`on_notice` is called for each notice of another node. It must not raise, and not take long. The connection is
        checked every `pulse` seconds, with the same time to respond.
        """
        self._dsn = dsn
        self._node_id = node_id
        self._on_notice = on_notice
        self._pulse = pulse
        self._task: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Returns when it listens: it gets notices of everything that is committed from now on."""
        try:
            connection = await self._connect()
        except Exception as problem:
            raise database.translate_error(problem) from problem
        self._task = asyncio.create_task(self._listen(connection), name="journal-listener")

    async def close(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    async def _connect(self) -> PostgresConnection:
        connection = await database.connect(self._dsn)
        try:
            await database.migrate(connection)
            await connection.add_listener(CHANNEL, self._on_notification)
        except BaseException:
            connection.terminate()
            raise
        return connection

    def _on_notification(self, _connection: object, _pid: int, _channel: str, payload: str) -> None:
        moved = decode_notice(payload)
        if moved.node_id != self._node_id:
            self._on_notice(moved)

    async def _listen(self, connection: PostgresConnection) -> None:
        while True:
            try:
                while True:
                    await asyncio.sleep(self._pulse)
                    await connection.fetchval("SELECT 1", timeout=self._pulse)
            except Exception as problem:
                log.warning("the connection that hears of other nodes was lost: %s", database.summarize_error(problem))
            finally:
                connection.terminate()
            connection = await self._reconnect()
            self._on_notice(HeadsNotice("", None))

    async def _reconnect(self) -> PostgresConnection:
        for pause in database.iterate_backoff():
            with contextlib.suppress(Exception):
                return await self._connect()
            await asyncio.sleep(pause)
        raise errors.JournalUnavailable("the pauses do not end")


Result = TypeVar("Result")
STATEMENT_SECONDS = 30.0
_CLOSE_SECONDS = 2.0
_NO_SUCH_TRANSACTION_YET = "22023"
# A process that is suspended or disconnected in the middle would hold its rows for as long as its connection seems to be alive.
_BEGIN = "BEGIN; SET LOCAL idle_in_transaction_session_timeout = '3s'"


class Pool:
    """Callers are served in order; with one connection everything happens in the order of the calls."""

    def __init__(self, dsn: str, *, most: int, timeout: float, settings: dict[str, str] | None = None) -> None:
        """`timeout`: the number of seconds for which an unreachable database is retried before the caller gets an error."""
        self._dsn = dsn
        self._settings = settings
        self._timeout = timeout
        self._turns = asyncio.Semaphore(most)
        self._idle: list[PostgresConnection] = []
        self._busy: set[PostgresConnection] = set()
        self._is_open = False

    async def open(self, prepare: Callable[[PostgresConnection], Awaitable[None]]) -> None:
        """Opens the first connection, and runs `prepare` on it before any caller gets one."""
        connection = await database.connect(self._dsn, self._settings)
        try:
            await prepare(connection)
        except BaseException:
            connection.terminate()
            raise
        self._idle.append(connection)
        self._is_open = True

    async def close(self) -> None:
        """Active statements are cut off: their callers get an error."""
        self._is_open = False
        for connection in self._busy:
            connection.terminate()
        idle, self._idle = self._idle, []
        for connection in idle:
            with contextlib.suppress(Exception):
                await connection.close(timeout=_CLOSE_SECONDS)

    async def fetch(self, query: str, *values: Any) -> list[Any]:
        """Returns the rows of a statement that can safely be repeated."""
        return await self._retry_until_timeout(lambda connection: connection.fetch(query, *values, timeout=STATEMENT_SECONDS))

    async def run_transaction(self, work: Callable[[PostgresConnection], Awaitable[Result]]) -> Result:
        """Runs one transaction. `work` may be repeated from the start, if nothing of it was stored."""
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
        """Retries until the database responds or the timeout ends. `within`: the caller already has its turn."""
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
            # This also happens when the caller was cancelled: the connection's state is then unknown.
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
    """Returns whether the problem may pass in a moment: the server is down or starting, or another transaction was in the way."""
    state = database.get_sqlstate(problem)
    if state is None:
        return database.is_database_error(problem)
    return state[:2] in ("08", "40", "57") or state in ("25P03", "53300")


async def _roll_back(connection: PostgresConnection) -> None:
    if not connection.is_closed():
        with contextlib.suppress(Exception):
            await connection.execute("ROLLBACK")


async def _is_committed(connection: PostgresConnection, transaction: str) -> bool:
    """Returns the outcome of a transaction. Waits for one that is still in progress on the server."""
    for pause in database.iterate_backoff():
        try:
            status = await connection.fetchval("SELECT pg_xact_status($1::text::xid8)", transaction)
        except Exception as problem:
            if database.get_sqlstate(problem) != _NO_SUCH_TRANSACTION_YET:
                raise
            return False  # the server has crashed since, and assigns the number again: nothing was stored under it
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
            if self._pool is not None:  # another task was quicker
                await pool.close()
            else:
                self._pool = pool
        return self._pool

    async def close(self) -> None:
        pool, self._pool = self._pool, None
        if pool is not None:
            await pool.close()
