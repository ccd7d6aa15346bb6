"""The single thread that writes. Appends that arrive while one commit runs are collected for the next, without waiting for
more.

The event loop is notified of a whole batch at once, after its commit returned. An append that cannot be stored fails alone; a
failing disk fails the whole batch, and the thread continues with the next.
"""

import asyncio
import contextlib
import sqlite3
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import Any

from switchtower.core import errors
from switchtower.core.ports import journal
from switchtower.stores.sqlite import database, inspection, retention
from switchtower.stores.sqlite.batch import SessionHeadsCache, SqliteBatch

WriterJob = Callable[[sqlite3.Connection], Generator[None, None, int]]
"""Maintenance in steps short enough for commits to run between them. A step leaves no transaction open."""

_QueuedAppend = tuple[journal.Append, asyncio.Future[None]]
_FailedAppends = list[tuple[asyncio.Future[Any], Exception]]

# A thread that waits for the interpreter lock never gets it from a busy event loop that releases it for microseconds at a time:
# by the time the thread is awake, the loop has it back. So the loop pauses for a moment when an append has waited longer than a
# commit takes.
_LOCK_TIMEOUT = 0.002
_PAUSE = 0.000_05


class SqliteWriter:
    _connection: sqlite3.Connection
    _heads: SessionHeadsCache

    def __init__(self, path: Path) -> None:
        self._path = path
        self._loop = asyncio.get_running_loop()
        self._queue: SimpleQueue[_QueuedAppend | None] = SimpleQueue()  # None only wakes the thread
        self._chores: deque[tuple[Generator[None, None, int], asyncio.Future[int]]] = deque()
        self._stopping = False
        self._newest: asyncio.Future[None] | None = None
        self._watching = False
        self._started: asyncio.Future[None] = self._loop.create_future()
        self._stopped: asyncio.Future[None] = self._loop.create_future()
        self._thread = Thread(target=self._run, name="journal-writer", daemon=True)

    async def start(self) -> None:
        self._thread.start()
        await self._started

    async def stop(self) -> None:
        """Returns when every submitted append is stored and the file is closed. Unfinished chores are abandoned."""
        self._stopping = True
        self._queue.put(None)
        await asyncio.shield(self._stopped)
        self._thread.join()

    def submit(self, append: journal.Append) -> asyncio.Future[None]:
        future: asyncio.Future[None] = self._loop.create_future()
        self._queue.put((append, future))
        self._newest = future
        if not self._watching:
            self._watching = True
            self._loop.call_later(_LOCK_TIMEOUT, self._watch, future)
        return future

    def _watch(self, watched: asyncio.Future[None]) -> None:
        if not watched.done():
            time.sleep(_PAUSE)
            self._loop.call_later(_LOCK_TIMEOUT, self._watch, watched)
        elif self._newest is not None and not self._newest.done():
            self._loop.call_later(_LOCK_TIMEOUT, self._watch, self._newest)
        else:
            self._watching = False

    def run_chore(self, chore: WriterJob) -> asyncio.Future[int]:
        future: asyncio.Future[int] = self._loop.create_future()
        self._chores.append((chore(self._connection), future))
        self._queue.put(None)
        return future

    def delete_session(self, session_id: str) -> asyncio.Future[int]:
        def chore(connection: sqlite3.Connection) -> Generator[None, None, int]:
            removed = yield from retention.delete_session(connection, session_id)
            self._heads.drop(session_id)
            return removed

        return self.run_chore(chore)

    # Everything below runs in the thread.

    def _run(self) -> None:
        try:
            with contextlib.closing(database.open_for_writing(self._path)) as connection:
                database.migrate(connection)
                inspection.adopt_past_decisions(connection)
                self._connection = connection
                self._heads = SessionHeadsCache(connection)
                self._call_in_loop(_resolve_all, [self._started], [])
                self._serve()
            # Closing the file's last connection has checkpointed and removed the log.
        except Exception as problem:
            self._call_in_loop(_resolve_all, [], [(self._started, database.translate_error(problem))])
        self._call_in_loop(_resolve_all, [self._stopped], [])

    def _serve(self) -> None:
        while not (self._stopping and self._queue.empty()):
            if waiting := self._take_queue(block=not self._chores):
                self._store(waiting)
                self._heads.trim()
            if self._chores:
                self._run_chore_step()
        self._call_in_loop(_resolve_all, [], [(future, errors.JournalUnavailable("it is closing")) for _, future in self._chores])

    def _take_queue(self, *, block: bool) -> list[_QueuedAppend]:
        taken = [self._queue.get()] if block else []
        # Only this thread takes from the queue, so the counted items are available.
        taken += [self._queue.get_nowait() for _ in range(self._queue.qsize())]
        return [item for item in taken if item is not None]

    def _store(self, waiting: Iterable[_QueuedAppend], *, alone: bool = False) -> None:
        group = SqliteBatch(self._heads, look_up_new=alone)
        accepted: list[_QueuedAppend] = []
        failed: _FailedAppends = []
        for item in waiting:
            try:
                group.add(item[0])
                accepted.append(item)
            except Exception as refusal:
                failed.append((item[1], database.translate_error(refusal)))
        try:
            group.write(self._connection)
        except Exception as problem:
            self._undo()
            if not alone and not database.is_disk_error(problem):
                # One of them is at fault, or another process changed a session: each is stored by itself, and the file is read
                # again.
                for item in accepted:
                    self._store([item], alone=True)
            else:
                failed += [(future, database.translate_error(problem)) for _, future in accepted]
            accepted = []
        self._call_in_loop(_resolve_all, [future for _, future in accepted], failed)

    def _undo(self) -> None:
        self._heads.forget()
        if self._connection.in_transaction:
            with contextlib.suppress(sqlite3.Error):
                self._connection.execute("ROLLBACK")

    def _run_chore_step(self) -> None:
        steps, future = self._chores[0]
        try:
            next(steps)
            return
        except StopIteration as end:
            self._call_in_loop(_resolve, future, end.value)
        except Exception as problem:
            self._undo()
            self._call_in_loop(_resolve_all, [], [(future, database.translate_error(problem))])
        self._chores.popleft()

    def _call_in_loop(self, callback: Callable[..., None], *arguments: Any) -> None:
        # A closed event loop has no waiting tasks.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(callback, *arguments)


# A future is done already when the task that waited for it was cancelled.


def _resolve_all(stored: list[asyncio.Future[None]], failed: _FailedAppends) -> None:
    for future in stored:
        if not future.done():
            future.set_result(None)
    for future, problem in failed:
        if not future.done():
            future.set_exception(problem)


def _resolve(future: asyncio.Future[int], result: int) -> None:
    if not future.done():
        future.set_result(result)
