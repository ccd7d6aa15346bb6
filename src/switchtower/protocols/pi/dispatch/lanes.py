"""A pending command with its state, and the lane that orders the commands of one session, or of the server. A lane runs nothing
itself: the dispatcher and the executor change the state.

A lane is strictly first in, first out, with one exception: while the command at the head only waits, the commands behind it that
may overtake continue, in their own order. One command at a time runs.
"""

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
    """The command is in its lane and has not started."""
    WAITING = enum.auto()
    """The command has started, and stays at the head of its lane until the event that it waits for."""
    RUNNING = enum.auto()
    """The handler runs, or the work that the handler left to do."""
    SETTLING = enum.auto()
    """The outcome is decided and is being stored. Nothing can change it any more."""
    FINISHED = enum.auto()


class DuplicateRequest(NamedTuple):
    """A repetition of a command that is still running."""

    id: str | None
    client: ports.DispatchClient
    told: responses.LifecycleData


class PendingCommand(Struct, eq=False, kw_only=True):
    """A command that will have an outcome: one of this process, or one that the previous process had started."""

    command: str
    namespace: str
    session_id: str | None
    fingerprint: inbound.Fingerprint | None
    """None: the command has no identity."""
    version: int | None = None
    """The session's version at the command's admission, for a response after the session's deletion."""
    ids: list[str] = []
    keys: list[str] = []
    lane: "CommandLane | None" = None
    """The lane in which the command holds a place."""
    followers: list[DuplicateRequest] = []
    dependents: dict["CommandJob", None] = {}
    stage: CommandStage = CommandStage.QUEUED


class CommandJob(PendingCommand, eq=False, kw_only=True):
    request: inbound.PiRequest
    client: ports.DispatchClient
    told: responses.LifecycleData
    number: int = 0
    """The command's place in the lane's order."""
    awaited: dict[str, PendingCommand] = {}
    """The dependencies that have no outcome yet, by id."""
    task: asyncio.Future[ports.HandlerResult] | None = None
    until: asyncio.Future[None] | None = None
    timer: asyncio.TimerHandle | None = None
    is_run: bool = False
    """The command has started a run, which its timeout does not cover."""
    waited_before: float = 0.0
    """Seconds that the session had already waited for users when the command's clock started."""
    waited: float = 0.0
    """Seconds waited for users since then, as far as the clock has taken them into account."""
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
            # Others may wait for the same future: only our own wait is cancelled.
            self.until.cancel()
            self.until = None


async def wait_without_cancelling(until: Awaitable[None]) -> None:
    """Cancelling this wait does not cancel the future, for which others may wait."""
    if asyncio.isfuture(until):
        await asyncio.wait([until])
        if not until.cancelled():
            until.exception()  # its outcome is read by others
    else:
        await until


NO_NUMBER = sys.maxsize
"""A place in the order after all others."""


class CommandLane:
    __slots__ = ("_added", "_others", "_passers", "_ready", "_waiting", "key", "running")

    def __init__(self, key: str | None) -> None:
        self.key = key
        """The session's id; None for the server's lane."""
        self.running: CommandJob | None = None
        self._added = 0
        self._passers: deque[CommandJob] = deque()
        self._others: deque[CommandJob] = deque()
        self._waiting: list[int] = []
        """The numbers of the waiting commands, the head's first. After it are overtaking commands that had to wait too."""
        self._ready: list[tuple[int, CommandJob]] = []
        """A heap of the commands whose wait is over."""

    @property
    def is_empty(self) -> bool:
        return self.running is None and not (self._waiting or self._ready or self._passers or self._others)

    def add(self, job: CommandJob, *, passes: bool) -> None:
        self._added += 1
        job.number = self._added
        job.lane = self
        (self._passers if passes else self._others).append(job)

    def take_next(self) -> CommandJob | None:
        """Gives the turn to the next command, if one is ready and the turn is free, and returns it."""
        if self.running is not None:
            return None
        while self._ready and self._ready[0][1].stage is not CommandStage.WAITING:
            heapq.heappop(self._ready)  # it ended without its turn
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
        """The running command has to wait, at its previous place in the order."""
        assert self.running is job, "only who has its turn can wait"
        self.running = None
        job.stage = CommandStage.WAITING
        insort(self._waiting, job.number)

    def wake(self, job: CommandJob) -> None:
        """The command's wait is over: it takes its turn when the turn is free."""
        if self._stop_waiting(job):
            heapq.heappush(self._ready, (job.number, job))

    def release(self, job: CommandJob) -> None:
        """The command needs no turn any more."""
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
