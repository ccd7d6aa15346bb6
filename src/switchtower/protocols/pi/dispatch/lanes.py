"""A command under way, with all that hangs on it. Holds state; the conductor and the runner move it.

One lane: the order in which the commands of one session, or of the server, take their turns. Runs nothing itself.

Strictly first in, first out, with one exception: while whoever is at the head only waits, the passers behind it go on, in
their own order. One command at a time is at work."""

import asyncio
import enum
import heapq
import sys
from bisect import bisect_left, insort
from collections import deque
from collections.abc import Awaitable
from typing import NamedTuple

from msgspec import Struct

from switchtower.protocols.pi import inbound, responses
from switchtower.protocols.pi.dispatch import ports


class CommandStage(enum.Enum):
    QUEUED = enum.auto()
    """In its lane, not begun."""
    WAITING = enum.auto()
    """Begun, and at the head of its lane until something else has happened."""
    RUNNING = enum.auto()
    """With its handler, or with what the handler left to do."""
    SETTLING = enum.auto()
    """Decided; the outcome is being stored. Nothing can change it any more."""
    FINISHED = enum.auto()


class DuplicateRequest(NamedTuple):
    """The same command asked again while the first is under way."""

    id: str | None
    client: ports.DispatchClient
    told: responses.LifecycleData


class PendingCommand(Struct, eq=False, kw_only=True):
    """Something that will have an outcome. Commands of this process, and begun ones of the process before."""

    command: str
    namespace: str
    session_id: str | None
    fingerprint: inbound.Fingerprint | None
    """`None`: it has no identity."""
    ids: list[str] = []
    keys: list[str] = []
    lane: "CommandLane | None" = None
    """While it holds a place there."""
    followers: list[DuplicateRequest] = []
    dependents: dict["CommandJob", None] = {}
    stage: CommandStage = CommandStage.QUEUED


class CommandJob(PendingCommand, eq=False, kw_only=True):
    request: inbound.PiRequest
    client: ports.DispatchClient
    told: responses.LifecycleData
    number: int = 0
    """Its place in the lane's order."""
    awaited: dict[str, PendingCommand] = {}
    """By id: the dependencies that have no outcome yet."""
    task: asyncio.Future[ports.HandlerResult] | None = None
    until: asyncio.Future[None] | None = None
    timer: asyncio.TimerHandle | None = None
    is_run: bool = False
    """It has started a run, which its timeout does not cover."""
    waited_before: float = 0.0
    """For how long people had been waited for in its session when its clock started."""
    waited: float = 0.0
    """For how long since then, as far as the clock has taken it into account."""
    dependency_timer: asyncio.TimerHandle | None = None
    made_session_id: str | None = None
    announcements: tuple[bytes, ...] = ()

    def cancel_timers(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None
        self.stop_waiting()

    def stop_waiting(self) -> None:
        if self.dependency_timer is not None:
            self.dependency_timer.cancel()
            self.dependency_timer = None
        if self.awaited:
            for pending in self.awaited.values():
                pending.dependents.pop(self, None)
            self.awaited = {}
        if self.until is not None:
            # What it waited for is another's; the wait is ours.
            self.until.cancel()
            self.until = None


async def wait_without_cancelling(until: Awaitable[None]) -> None:
    """Cancelling this wait leaves a future that others wait for alone."""
    if asyncio.isfuture(until):
        await asyncio.wait([until])
        if not until.cancelled():
            until.exception()  # how it ended is for others to see
    else:
        await until


NO_NUMBER = sys.maxsize
"""A place in the order behind everybody's."""


class CommandLane:
    __slots__ = ("_added", "_others", "_passers", "_ready", "_waiting", "key", "running")

    def __init__(self, key: str | None) -> None:
        self.key = key
        """The session's id; `None`: the server's lane."""
        self.running: CommandJob | None = None
        self._added = 0
        self._passers: deque[CommandJob] = deque()
        self._others: deque[CommandJob] = deque()
        self._waiting: list[int] = []
        """The numbers of those that wait, the head's first. Behind it are passers that had something to wait for too."""
        self._ready: list[tuple[int, CommandJob]] = []
        """A heap of those that have waited long enough."""

    @property
    def is_empty(self) -> bool:
        return self.running is None and not (self._waiting or self._ready or self._passers or self._others)

    def add(self, job: CommandJob, *, passes: bool) -> None:
        self._added += 1
        job.number = self._added
        job.lane = self
        (self._passers if passes else self._others).append(job)

    def take_next(self) -> CommandJob | None:
        """Takes the one whose turn it is, if it is anybody's, and gives it the turn."""
        if self.running is not None:
            return None
        while self._ready and self._ready[0][1].stage is not CommandStage.WAITING:
            heapq.heappop(self._ready)  # has ended without its turn
        ready = self._ready[0][0] if self._ready else NO_NUMBER
        passer = self._passers[0].number if self._passers else NO_NUMBER
        other = self._others[0].number if self._others else NO_NUMBER
        if self._waiting and self._waiting[0] < other:
            other = NO_NUMBER
        if passer < other and passer < ready:
            self.running = self._passers.popleft()
        elif other < ready:
            self.running = self._others.popleft()
        elif self._ready:
            self.running = heapq.heappop(self._ready)[1]
        return self.running

    def wait(self, job: CommandJob) -> None:
        """The one at work has to wait, at the place in the order that it came from."""
        assert self.running is job, "only who has its turn can wait"
        self.running = None
        job.stage = CommandStage.WAITING
        insort(self._waiting, job.number)

    def wake(self, job: CommandJob) -> None:
        """What it waited for has happened: it takes its turn when it is free."""
        if self._stop_waiting(job):
            heapq.heappush(self._ready, (job.number, job))

    def release(self, job: CommandJob) -> None:
        """It needs no turn any more."""
        if self.running is job:
            self.running = None
        else:
            self._stop_waiting(job)
        job.lane = None

    def _stop_waiting(self, job: CommandJob) -> bool:
        place = bisect_left(self._waiting, job.number)
        if place == len(self._waiting) or self._waiting[place] != job.number:
            return False
        del self._waiting[place]
        return True
