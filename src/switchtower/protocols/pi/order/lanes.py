"""One lane: the order in which the commands of one session, or of the server, take their turns. Runs nothing itself.

Strictly first in, first out, with one exception: while whoever is at the head only waits, the passers behind it go on, in
their own order. One command at a time is at work.
"""

import heapq
import sys
from bisect import bisect_left, insort
from collections import deque

from switchtower.protocols.pi.order.jobs import CommandJob, CommandStage

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
