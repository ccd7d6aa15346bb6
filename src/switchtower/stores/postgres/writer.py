"""The single writer of the PostgreSQL journal: one task and one connection that all appends go through. Appends that arrive
while one commit runs are collected for the next, without waiting for more, and encoded meanwhile, so that the database does
not wait for us.

Each batch has a number, which the database records in the batch's own transaction. A new connection raises the writer's
generation there and reads the last number. From then on nothing that the broken connection had sent can still be stored, so
the answer is final: that batch is stored, or it is not.

An append that cannot be stored fails alone. The writer waits for a database that is unavailable for a moment; when it stays
unavailable, waiting appends fail, and new ones are refused until it is available again. The queue is bounded.
"""

import asyncio
import contextlib
import secrets
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from switchtower.core import errors
from switchtower.core.ports import journal
from switchtower.stores.postgres import batch, database
from switchtower.stores.postgres.batch import BatchFull, PostgresBatch, PostgresSessionHeadsCache
from switchtower.stores.postgres.database import PostgresConnection

_STATEMENT_SECONDS = 30.0
_CLOSE_SECONDS = 2.0
_CROSSINGS = 5
_SUPERSEDED = "TW001"
_READ_ONLY = "25006"


class WriterConnection:
    def __init__(self, dsn: str, timeout: float, *, on_lost: Callable[[errors.JournalUnavailable | None], None]) -> None:
        """`on_lost` is called when the database is unavailable for longer than `timeout`, and with None when it is available
        again.
        """
        self._dsn = dsn
        self._timeout = timeout
        self._on_lost = on_lost
        self._writer = f"wrt_{secrets.token_hex(12)}"
        self._connection: PostgresConnection | None = None
        self._generation = 0
        self._batch = 0
        self._stopping = asyncio.Event()

    async def connect(self) -> None:
        """Connects for the first time: errors are raised at once."""
        await self._renew()

    async def get_connection(self) -> PostgresConnection:
        """Returns a connection for reads. Waits for an unavailable database until the timeout."""
        if self._connection is None or self._connection.is_closed():
            await self._reconnect(for_good=False)
        assert self._connection is not None, "reconnecting ends in a connection or raises"
        return self._connection

    async def write(self, arguments: list[Any]) -> None:
        """Returns when the batch is stored. Whatever it raises, nothing of the batch is stored."""
        connection = await self.get_connection()
        tries_left = _CROSSINGS
        while True:
            self._batch += 1
            try:
                await connection.execute(
                    batch.CALL, self._writer, self._generation, self._batch, *arguments, timeout=_STATEMENT_SECONDS
                )
                return
            except Exception as problem:
                state = database.get_sqlstate(problem) or ""
                if state.startswith("40") and tries_left:  # another transaction was in the way, and this one was rolled back
                    tries_left -= 1
                    continue
                if state == _READ_ONLY:
                    connection.terminate()  # the server became a standby; the next connection may find the primary
                    raise
                # The row of a writer may be removed after a month; it is created again like a connection.
                if state != _SUPERSEDED and not database.is_lost(problem, connection):
                    raise
            connection.terminate()
            if await self._reconnect(for_good=True) >= self._batch:
                return
            connection = await self.get_connection()

    def stop(self) -> None:
        """Stops waiting for an unavailable database."""
        self._stopping.set()

    async def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None and not connection.is_closed():
            with contextlib.suppress(Exception):
                await connection.execute("DELETE FROM writers WHERE writer = $1", self._writer, timeout=_CLOSE_SECONDS)
                await connection.close(timeout=_CLOSE_SECONDS)
            connection.terminate()

    async def _renew(self) -> int:
        connection = await database.connect(self._dsn, database.BY_INDEX)
        try:
            row = await connection.fetchrow(
                "INSERT INTO writers AS known VALUES ($1, 1, 0, now())"
                " ON CONFLICT (writer) DO UPDATE SET generation = known.generation + 1 RETURNING generation, batch",
                self._writer,
                timeout=_STATEMENT_SECONDS,
            )
        except BaseException:
            connection.terminate()
            raise
        self._connection = connection
        self._generation, last_batch = row
        return int(last_batch)

    async def _reconnect(self, *, for_good: bool) -> int:
        """Returns the number of the last batch that was stored. `for_good`: the outcome of a batch is needed, so it retries
        for as long as it takes.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._timeout
        was_told = False
        for pause in database.iterate_backoff():
            try:
                last_batch = await self._renew()
            except Exception as problem:
                reason = database.translate_error(problem)
                if not isinstance(reason, errors.JournalUnavailable):
                    raise
                if loop.time() >= deadline:
                    if not for_good:
                        raise reason from problem
                    if not was_told:
                        was_told = True
                        self._on_lost(reason)
            else:
                if was_told:
                    self._on_lost(None)
                return last_batch
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), pause)
                raise errors.JournalUnavailable(
                    "the database went away, and whether this was stored is not known" if for_good else "it is closing"
                )
        raise AssertionError("the pauses do not end")


MOST_WAITING = 20_000
MOST_WAITING_BYTES = 67_108_864
_ELSEWHERE = "TW002"
_RECEIPT_TAKEN = "TW003"


class _PendingAppend(NamedTuple):
    append: journal.Append
    size: int
    stored: asyncio.Future[None]

    def resolve(self, problem: Exception | None = None) -> None:
        if self.stored.done():  # the task that waited for it was cancelled
            return
        if problem is None:
            self.stored.set_result(None)
        else:
            self.stored.set_exception(problem)


class _NextBatch:
    """The appends that arrive while a commit runs, prepared for the next one."""

    def __init__(self, standings: PostgresSessionHeadsCache) -> None:
        self._standings = standings
        self.group = PostgresBatch(standings)
        self.accepted: list[_PendingAppend] = []

    def try_add(self, item: _PendingAppend) -> bool:
        """False for an unusual append: it is handled when the commit is over."""
        append = item.append
        begins = bool(append.entries) and append.entries[0].seq == 1
        if append.session_id not in self._standings and not begins:
            return False
        try:
            self.group.add(append, item.size)
        except Exception:
            return False
        self.accepted.append(item)
        return True


class PostgresWriter:
    def __init__(self, dsn: str, node_id: str | None, timeout: float) -> None:
        self._node_id = node_id
        self._loop = asyncio.get_running_loop()
        self._writer_connection = WriterConnection(dsn, timeout, on_lost=self._on_database_lost)
        self._heads = PostgresSessionHeadsCache()
        self._queue: deque[_PendingAppend] = deque()
        self._bytes = 0
        self._next: _NextBatch | None = None
        """It is older than the queue. It exists while a commit runs, and until it is written itself."""
        self._unavailable: errors.JournalUnavailable | None = None
        self._wake = asyncio.Event()
        self._stopping = False
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        await self._writer_connection.connect()
        self._task = asyncio.create_task(self._serve(), name="journal-writer")

    async def stop(self) -> None:
        """Returns when every submitted append is stored or refused, and the connection is closed."""
        self._stopping = True
        self._writer_connection.stop()
        self._wake.set()
        if self._task is not None:
            await asyncio.shield(self._task)

    def submit(self, append: journal.Append) -> asyncio.Future[None]:
        stored: asyncio.Future[None] = self._loop.create_future()
        size = sum([len(entry[4]) for entry in append.entries]) + len(append.snapshot or b"") + 256
        waiting = _PendingAppend(append, size, stored)
        if self._unavailable is not None:
            waiting.resolve(_copy_error(self._unavailable))
        elif self._queue and (len(self._queue) >= MOST_WAITING or self._bytes + size > MOST_WAITING_BYTES):
            waiting.resolve(errors.Overloaded("appends wait for the database", hint="try again in a moment"))
        elif self._next is not None and not self._queue and self._next.try_add(waiting):
            self._wake.set()
        else:
            self._queue.append(waiting)
            self._bytes += size
            self._wake.set()
        return stored

    def forget_session(self, session_id: str) -> None:
        """The session is no longer in the database."""
        self._heads.forget([session_id])

    def _on_database_lost(self, reason: errors.JournalUnavailable | None) -> None:
        self._unavailable = reason
        if reason is not None:
            self._requeue_next()
            for waiting in self._take_queue():
                waiting.resolve(_copy_error(reason))

    def _requeue_next(self) -> None:
        """The prepared batch builds on appends that turned out not to be stored."""
        waiting, self._next = self._next, None
        if waiting is not None:
            self._heads.forget(waiting.group.session_ids)
            self._queue.extendleft(reversed(waiting.accepted))
            self._bytes += sum([item.size for item in waiting.accepted])

    def _take_queue(self) -> list[_PendingAppend]:
        taken = list(self._queue)
        self._queue.clear()
        self._bytes = 0
        return taken

    async def _serve(self) -> None:
        while not (self._stopping and not self._queue):
            await self._wake.wait()
            self._wake.clear()
            while self._queue or self._next is not None:
                if (ready := self._next) is not None:
                    self._next = None
                    if ready.accepted:
                        await self._store_ready(ready)
                else:
                    await self._store_all(self._take_queue())
                self._heads.trim()
            if self._stopping:
                self._wake.set()
        await self._writer_connection.close()

    async def _store_ready(self, ready: _NextBatch) -> None:
        try:
            await self._write(ready.group, ready.accepted, fresh=False)
        except Exception as problem:
            for item in ready.accepted:
                item.resolve(_translate_failure(problem))

    async def _store_all(self, waiting: Sequence[_PendingAppend]) -> None:
        rest = deque(waiting)
        try:
            while rest:
                await self._store(rest, fresh=False)
        except Exception as problem:
            # The database is unavailable, or this is a bug: either way nothing of what is left was stored.
            for item in rest:
                item.resolve(_translate_failure(problem))

    async def _store(self, rest: deque[_PendingAppend], *, fresh: bool) -> None:
        """Takes one batch from the front and completes it. `fresh`: the heads of its sessions are read from the database."""
        await self._look_up([item.append for item in rest], reload=fresh)
        group, accepted = PostgresBatch(self._heads), list[_PendingAppend]()
        doubtful: list[_PendingAppend] = []
        doubted: set[str] = set()
        while rest:
            item = rest[0]
            try:
                if item.append.session_id in doubted:
                    doubtful.append(item)
                else:
                    group.add(item.append, item.size)
                    accepted.append(item)
            except BatchFull:
                break
            except errors.Fenced as refusal:
                if fresh:
                    item.resolve(refusal)
                else:
                    # The cached head may be stale. The later appends of this session keep their order behind it.
                    doubted.add(item.append.session_id)
                    doubtful.append(item)
            except Exception as refusal:
                item.resolve(refusal)
            rest.popleft()
        try:
            if accepted:
                await self._write(group, accepted, fresh=fresh)
        except Exception as problem:
            for item in [*accepted, *doubtful]:
                item.resolve(_translate_failure(problem))
            raise
        await self._store_doubtful(deque(doubtful))

    async def _store_doubtful(self, doubtful: deque[_PendingAppend]) -> None:
        try:
            while doubtful:
                await self._store(doubtful, fresh=True)
        except Exception as problem:
            for item in doubtful:
                item.resolve(_translate_failure(problem))
            raise

    async def _look_up(self, appends: list[journal.Append], *, reload: bool) -> None:
        """A session that starts counts as new: the database checks that itself."""
        wanted = {
            append.session_id
            for append in appends
            if reload or (append.session_id not in self._heads and not (append.entries and append.entries[0].seq == 1))
        }
        if wanted:
            await self._heads.load(await self._writer_connection.get_connection(), wanted)

    async def _write(self, group: PostgresBatch, accepted: list[_PendingAppend], *, fresh: bool) -> None:
        if self._next is None and not fresh:
            self._next = _NextBatch(self._heads)
        try:
            await self._writer_connection.write(group.build_arguments(self._node_id))
        except Exception as problem:
            self._requeue_next()
            self._heads.forget(group.session_ids)
            if database.is_database_error(problem) or isinstance(problem, errors.CoreError):
                raise
            await self._divide(accepted, problem, fresh=fresh)
        else:
            for item in accepted:
                item.resolve()

    async def _divide(self, accepted: list[_PendingAppend], problem: Exception, *, fresh: bool) -> None:
        """One of the appends is at fault, or another node changed a session: the heads are read again, and then the batch is
        halved until the append is found.
        """
        state = database.get_sqlstate(problem)
        if not fresh and state == _ELSEWHERE:
            await self._store_doubtful(deque(accepted))
        elif len(accepted) == 1:
            accepted[0].resolve(_make_refusal(state, accepted[0].append, problem))
        else:
            middle = len(accepted) // 2
            await self._store_doubtful(deque(accepted[:middle]))
            await self._store_doubtful(deque(accepted[middle:]))


def _copy_error(reason: errors.JournalUnavailable) -> errors.JournalUnavailable:
    """Makes one error for each append: an exception that several tasks raise collects all their tracebacks."""
    return errors.JournalUnavailable(reason.detail, hint=reason.hint)


def _translate_failure(problem: Exception) -> Exception:
    told = database.translate_error(problem)
    return _copy_error(told) if isinstance(told, errors.JournalUnavailable) else told


def _make_refusal(state: str | None, append: journal.Append, problem: Exception) -> Exception:
    if state == _ELSEWHERE:
        return errors.Fenced(f"`{append.session_id}` was moved on by another node")
    if state == _RECEIPT_TAKEN:
        return errors.Fenced("a receipt with the same identity is there already")
    if state is not None and state.startswith("22"):  # its message quotes the value
        return ValueError(f"an append to `{append.session_id}` has a value that the database cannot hold")
    return problem
