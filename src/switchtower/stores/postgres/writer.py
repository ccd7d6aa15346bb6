"""The one task that writes. Whatever was handed over while one commit ran goes into the next, without waiting for more. It is
put together meanwhile, so that the database does not wait for us.

An append that cannot be stored fails alone. A database that is away for a moment is waited for; when it stays away, those
that wait hear of it, and new ones are refused until it is back. What waits is bounded.
"""

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from switchtower.core import errors, journal
from switchtower.stores.postgres import connections
from switchtower.stores.postgres.group import Full, Group
from switchtower.stores.postgres.line import Line
from switchtower.stores.postgres.standings import Standings

MOST_WAITING = 20_000
MOST_WAITING_BYTES = 67_108_864
_ELSEWHERE = "TW002"
_RECEIPT_TAKEN = "TW003"


class _Waiting(NamedTuple):
    append: journal.Append
    size: int
    stored: asyncio.Future[None]

    def settle(self, problem: Exception | None = None) -> None:
        if self.stored.done():  # the task that waited for it was cancelled
            return
        if problem is None:
            self.stored.set_result(None)
        else:
            self.stored.set_exception(problem)


class _Next:
    """What is handed over while a commit runs, put together for the next one."""

    def __init__(self, standings: Standings) -> None:
        self._standings = standings
        self.group = Group(standings)
        self.accepted: list[_Waiting] = []

    def takes(self, item: _Waiting) -> bool:
        """False for whatever is out of the ordinary: that is looked at when the commit is over."""
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


class Writer:
    def __init__(self, dsn: str, node_id: str | None, patience: float) -> None:
        self._node_id = node_id
        self._loop = asyncio.get_running_loop()
        self._line = Line(dsn, patience, went=self._database_went)
        self._standings = Standings()
        self._queue: deque[_Waiting] = deque()
        self._bytes = 0
        self._next: _Next | None = None
        """Older than what is queued. There is one while a commit runs, and until it is written itself."""
        self._away: errors.JournalUnavailable | None = None
        self._wake = asyncio.Event()
        self._stopping = False
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        await self._line.connect()
        self._task = asyncio.create_task(self._serve(), name="journal-writer")

    async def stop(self) -> None:
        """Returns when everything handed over is stored or refused, and the connection is closed."""
        self._stopping = True
        self._line.stop()
        self._wake.set()
        if self._task is not None:
            await asyncio.shield(self._task)

    def submit(self, append: journal.Append) -> asyncio.Future[None]:
        stored: asyncio.Future[None] = self._loop.create_future()
        size = sum([len(entry[4]) for entry in append.entries]) + len(append.snapshot or b"") + 256
        waiting = _Waiting(append, size, stored)
        if self._away is not None:
            waiting.settle(_again(self._away))
        elif self._queue and (len(self._queue) >= MOST_WAITING or self._bytes + size > MOST_WAITING_BYTES):
            waiting.settle(errors.Overloaded("appends wait for the database", hint="try again in a moment"))
        elif self._next is not None and not self._queue and self._next.takes(waiting):
            self._wake.set()
        else:
            self._queue.append(waiting)
            self._bytes += size
            self._wake.set()
        return stored

    def drop(self, session_id: str) -> None:
        """It is not in the database any more."""
        self._standings.forget([session_id])

    def _database_went(self, reason: errors.JournalUnavailable | None) -> None:
        self._away = reason
        if reason is not None:
            self._take_apart()
            for waiting in self._take():
                waiting.settle(_again(reason))

    def _take_apart(self) -> None:
        """What was put together stands on what turned out not to be stored."""
        waiting, self._next = self._next, None
        if waiting is not None:
            self._standings.forget(waiting.group.session_ids)
            self._queue.extendleft(reversed(waiting.accepted))
            self._bytes += sum([item.size for item in waiting.accepted])

    def _take(self) -> list[_Waiting]:
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
                    await self._store_all(self._take())
                self._standings.trim()
            if self._stopping:
                self._wake.set()
        await self._line.close()

    async def _store_ready(self, ready: _Next) -> None:
        try:
            await self._write(ready.group, ready.accepted, fresh=False)
        except Exception as problem:
            for item in ready.accepted:
                item.settle(_told(problem))

    async def _store_all(self, waiting: Sequence[_Waiting]) -> None:
        rest = deque(waiting)
        try:
            while rest:
                await self._store(rest, fresh=False)
        except Exception as problem:
            # The database is away, or we have a bug: either way nothing of what is left was stored.
            for item in rest:
                item.settle(_told(problem))

    async def _store(self, rest: deque[_Waiting], *, fresh: bool) -> None:
        """Takes one group from the front, and settles it. `fresh`: the database is asked where its sessions stand."""
        await self._look_up([item.append for item in rest], anew=fresh)
        group, accepted = Group(self._standings), list[_Waiting]()
        doubtful: list[_Waiting] = []
        doubted: set[str] = set()
        while rest:
            item = rest[0]
            try:
                if item.append.session_id in doubted:
                    doubtful.append(item)
                else:
                    group.add(item.append, item.size)
                    accepted.append(item)
            except Full:
                break
            except errors.Fenced as refusal:
                if fresh:
                    item.settle(refusal)
                else:
                    # What is remembered may be old. The later ones of this session keep their order behind it.
                    doubted.add(item.append.session_id)
                    doubtful.append(item)
            except Exception as refusal:
                item.settle(refusal)
            rest.popleft()
        try:
            if accepted:
                await self._write(group, accepted, fresh=fresh)
        except Exception as problem:
            for item in [*accepted, *doubtful]:
                item.settle(_told(problem))
            raise
        await self._store_doubtful(deque(doubtful))

    async def _store_doubtful(self, doubtful: deque[_Waiting]) -> None:
        try:
            while doubtful:
                await self._store(doubtful, fresh=True)
        except Exception as problem:
            for item in doubtful:
                item.settle(_told(problem))
            raise

    async def _look_up(self, appends: list[journal.Append], *, anew: bool) -> None:
        """One that begins is taken for new: that it is, the database finds out itself."""
        wanted = {
            append.session_id
            for append in appends
            if anew or (append.session_id not in self._standings and not (append.entries and append.entries[0].seq == 1))
        }
        if wanted:
            await self._standings.look_up(await self._line.connection(), wanted)

    async def _write(self, group: Group, accepted: list[_Waiting], *, fresh: bool) -> None:
        if self._next is None and not fresh:
            self._next = _Next(self._standings)
        try:
            await self._line.write(group.arguments(self._node_id))
        except Exception as problem:
            self._take_apart()
            self._standings.forget(group.session_ids)
            if connections.is_of_the_database(problem) or isinstance(problem, errors.CoreError):
                raise
            await self._divide(accepted, problem, fresh=fresh)
        else:
            for item in accepted:
                item.settle()

    async def _divide(self, accepted: list[_Waiting], problem: Exception, *, fresh: bool) -> None:
        """One of them is at fault, or another node moved a session on: asked anew, and then in halves until it is found."""
        state = connections.sqlstate(problem)
        if not fresh and state == _ELSEWHERE:
            await self._store_doubtful(deque(accepted))
        elif len(accepted) == 1:
            accepted[0].settle(_refusal(state, accepted[0].append, problem))
        else:
            middle = len(accepted) // 2
            await self._store_doubtful(deque(accepted[:middle]))
            await self._store_doubtful(deque(accepted[middle:]))


def _again(reason: errors.JournalUnavailable) -> errors.JournalUnavailable:
    """One for each: an exception that several tasks raise collects all their tracebacks."""
    return errors.JournalUnavailable(reason.detail, hint=reason.hint)


def _told(problem: Exception) -> Exception:
    told = connections.told(problem)
    return _again(told) if isinstance(told, errors.JournalUnavailable) else told


def _refusal(state: str | None, append: journal.Append, problem: Exception) -> Exception:
    if state == _ELSEWHERE:
        return errors.Fenced(f"`{append.session_id}` was moved on by another node")
    if state == _RECEIPT_TAKEN:
        return errors.Fenced("a receipt with the same identity is there already")
    if state is not None and state.startswith("22"):  # its text quotes the value
        return ValueError(f"an append to `{append.session_id}` has a value that the database cannot hold")
    return problem
