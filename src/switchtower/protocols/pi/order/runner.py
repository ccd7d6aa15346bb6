"""Takes commands through their lanes: started, dependencies, version, handler, and whatever the handler leaves to do.

Tells `command_started`, and hands every outcome to the settler and then to whoever admitted the command. A handler that
answers at once costs no task and no turn of the event loop.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import NamedTuple

from msgspec import UNSET, Raw

from switchtower.protocols.pi import strings
from switchtower.protocols.pi.order import contracts, dependencies, inbound, lifecycle, metrics, ports, refusals
from switchtower.protocols.pi.order.jobs import Job, Pending, Stage, wait_for
from switchtower.protocols.pi.order.lanes import Lane
from switchtower.protocols.pi.order.limits import Limits
from switchtower.protocols.pi.order.settling import Settler

Finished = Callable[[Job, lifecycle.Outcome], None]


class Unfinished(NamedTuple):
    """What a handler left when it could not answer at once."""

    handled: ports.Handled | Awaitable[ports.Handled] | ports.SessionBusy


class Runner:
    def __init__(
        self,
        handlers: Mapping[str, ports.Handler],
        ledger: ports.Ledger,
        bulletin: ports.Bulletin,
        settler: Settler,
        limits: Limits,
        rejected: metrics.Rejected,
        *,
        find: dependencies.Find,
        finished: Finished,
    ) -> None:
        self._handlers = handlers
        self._ledger = ledger
        self._bulletin = bulletin
        self._settler = settler
        self._limits = limits
        self._rejected = rejected
        self._find = find
        self._finished = finished
        self._lanes: dict[str | None, Lane] = {}
        self._due: deque[Lane | tuple[Job, str]] = deque()
        self._advancing = False
        self._closed = False
        self.executed = 0

    @property
    def lane_count(self) -> int:
        return len(self._lanes)

    def add(self, job: Job) -> None:
        """pi-server 7.3: the lane is the session's when the command names one, else the server's."""
        key = job.session_id
        lane = self._lanes.get(key)
        if lane is None:
            lane = self._lanes[key] = Lane(key)
        lane.add(job, passes=contracts.passes(job.request))
        self._advance(lane)

    def at_once(
        self, request: inbound.Request, client: ports.Client, told: lifecycle.Told
    ) -> lifecycle.Outcome | Unfinished | None:
        """The short way of nearly all reads: the lane is free and the handler has the answer.

        `None`: it has to take its turn like everybody else. `Unfinished`: begun, but there is more to it; see `go_on`.
        """
        if request.depends_on or request.type in contracts.MUTATING or request.session_id in self._lanes:
            return None
        handler = self._handlers.get(request.type)
        if handler is None or request.if_session_version is not None:
            return None
        self.executed += 1
        self._bulletin.lifecycle(lifecycle.started(told))
        try:
            handled = handler(request, client)
            if not isinstance(handled, ports.Handled) or handled.rest is not None or handled.announcements:
                return Unfinished(handled)
            data = UNSET if handled.data is UNSET else Raw(lifecycle.encode(handled.data))
        except ports.SessionBusy as busy:
            return Unfinished(busy)
        except Exception as problem:
            return lifecycle.Outcome(request.type, False, error=refusals.of(problem, request.type))
        return self._settler.with_version(lifecycle.Outcome(request.type, True, data), request.session_id)

    def go_on(self, job: Job, unfinished: Unfinished) -> None:
        """With one that `at_once` has begun: it has its turn."""
        job.stage = Stage.RUNNING
        lane = self._lanes[job.session_id] = Lane(job.session_id)
        lane.add(job, passes=contracts.passes(job.request))
        turn = lane.next()
        assert turn is job, "the lane was free"
        match unfinished.handled:
            case ports.SessionBusy() as busy:
                self._stumbled(job, busy)
            case ports.Handled() as handled:
                self._handled(job, handled)
            case awaitable:
                self._await(job, awaitable)

    def depended_on(self, pending: Pending, outcome: lifecycle.Outcome) -> None:
        """`pending` has its outcome: those that waited for it go on, or fail with it."""
        if not pending.dependents:
            return
        dependents, pending.dependents = pending.dependents, {}
        for job in dependents:
            failed = [id_ for id_, awaited in job.awaited.items() if awaited is pending]
            for id_ in failed:
                del job.awaited[id_]
            if not outcome.success:
                self._advance((job, strings.dependency_failed(failed[0], str(outcome.error))))
            elif not job.awaited:
                job.stop_waiting()
                self._wake(job)

    def close(self) -> None:
        """Nobody takes a turn any more."""
        self._closed = True

    def discard(self, job: Job) -> None:
        """It ends here, without an outcome."""
        job.stage = Stage.FINISHED
        job.stop_clocks()
        self._cancel(job)

    # Turns

    def _advance(self, due: Lane | tuple[Job, str]) -> None:
        """One loop for all lanes: a chain of commands that wake or fail each other must not become a chain of calls."""
        self._due.append(due)
        if self._advancing or self._closed:
            return
        self._advancing = True
        try:
            while self._due:
                due = self._due.popleft()
                if isinstance(due, Lane):
                    self._take_turns(due)
                else:
                    self._fail(*due)
        finally:
            self._advancing = False

    def _take_turns(self, lane: Lane) -> None:
        while (job := lane.next()) is not None:
            self._take_turn(job)
        if lane.empty and self._lanes.get(lane.key) is lane:
            del self._lanes[lane.key]

    def _take_turn(self, job: Job) -> None:
        if job.stage is Stage.QUEUED:
            job.stage = Stage.RUNNING
            self.executed += 1
            self._bulletin.lifecycle(lifecycle.started(job.told))
            if job.request.depends_on and not self._dependencies_met(job):
                return
        job.stage = Stage.RUNNING
        self._execute(job)

    def _release(self, job: Job) -> None:
        lane = job.lane
        if lane is not None:
            lane.release(job)
            self._advance(lane)

    def _wait(self, job: Job) -> None:
        assert job.lane is not None, "only a command that holds its turn can wait"
        self._start_clock(job)
        lane = job.lane
        lane.wait(job)
        self._advance(lane)  # whoever may pass goes on

    def _wake(self, job: Job) -> None:
        if job.stage is Stage.WAITING and job.lane is not None:
            job.lane.wake(job)
            self._advance(job.lane)

    # Dependencies: pi-server 9

    def _dependencies_met(self, job: Job) -> bool:
        error = dependencies.gather(job, self._find)
        if error is not None:
            self._fail(job, error)
            return False
        if not job.awaited:
            return True
        for pending in job.awaited.values():
            pending.dependents[job] = None
        self._wait(job)
        if self._limits.dependency_timeout_s:
            timeout = self._limits.dependency_timeout_s
            job.dependency_timer = asyncio.get_running_loop().call_later(timeout, self._dependency_timed_out, job)
        return False

    def _dependency_timed_out(self, job: Job) -> None:
        id_ = next(iter(job.awaited))
        self._fail(job, strings.dependency_timed_out(id_, self._limits.dependency_timeout_s))

    # The handler

    def _execute(self, job: Job) -> None:
        request = job.request
        if request.if_session_version is not None and (error := self._version_problem(job)) is not None:
            self._fail(job, error)
            return
        handler = self._handlers.get(request.type)
        if handler is None:
            self._fail(job, strings.unknown_type(request.type))
            return
        try:
            handled = handler(request, job.client)
        except Exception as problem:
            self._stumbled(job, problem)
            return
        if isinstance(handled, ports.Handled):
            self._handled(job, handled)
        else:
            self._await(job, handled)

    def _version_problem(self, job: Job) -> str | None:
        """pi-server 10.1. Looked at again after a wait: what matters is the version that the handler meets."""
        session_id, expected = job.session_id, job.request.if_session_version
        assert session_id is not None and expected is not None, "checked on the way in"
        version = self._ledger.version(session_id)
        if version is None:
            return strings.session_not_found(session_id)
        return strings.version_mismatch(expected, version) if version != expected else None

    def _await(self, job: Job, handled: Awaitable[ports.Handled]) -> None:
        self._start_clock(job)
        job.task = asyncio.ensure_future(handled)
        job.task.add_done_callback(partial(self._awaited, job))

    def _awaited(self, job: Job, task: asyncio.Future[ports.Handled]) -> None:
        problem = None if task.cancelled() else task.exception()
        if job.task is not task:
            return  # pi-server 11: the outcome is already another
        job.task = None
        if task.cancelled():
            self._fail(job, strings.CANCELLED)
        elif problem is not None:
            self._stumbled(job, problem)
        else:
            self._handled(job, task.result())

    def _handled(self, job: Job, handled: ports.Handled) -> None:
        if handled.announcements:
            job.announcements += handled.announcements
        if handled.session_id is not None:
            job.made_session_id = handled.session_id
        if handled.rest is not None:
            # Interop, Faults: a run does not occupy its lane.
            if handled.is_run:
                job.is_run = True
                job.stop_clocks()
            self._await(job, handled.rest)
            self._release(job)
            return
        try:
            data = UNSET if handled.data is UNSET else Raw(lifecycle.encode(handled.data))
        except Exception as problem:
            self._stumbled(job, problem)
            return
        self._end(job, lifecycle.Outcome(job.command, True, data), settled=handled.settled)

    def _stumbled(self, job: Job, problem: BaseException) -> None:
        if isinstance(problem, ports.SessionBusy) and job.lane is not None:
            self._wait(job)
            job.until = asyncio.ensure_future(wait_for(problem.until))
            job.until.add_done_callback(partial(self._waited, job))
            return
        if isinstance(problem, ports.BegunBefore):
            self._handled(job, ports.Handled(rest=problem.ended))
            return
        if isinstance(problem, ports.SessionLimit):
            self._rejected.sessionLimit += 1
        self._fail(job, refusals.of(problem, job.command))

    def _waited(self, job: Job, until: asyncio.Future[None]) -> None:
        if not until.cancelled():
            until.exception()  # the handler will see for itself
        if job.until is until:
            job.until = None
            self._wake(job)

    # The end

    def _start_clock(self, job: Job) -> None:
        """Called in the same breath as `command_started`, or later with the clock already running."""
        timeout = self._limits.timeout_of(job.command)
        if timeout and job.timer is None and not job.is_run:
            job.waited_before = self._waited_for_people(job)
            job.timer = asyncio.get_running_loop().call_later(timeout, self._timed_out, job, timeout)

    def _waited_for_people(self, job: Job) -> float:
        return 0.0 if job.session_id is None else self._ledger.waited_for_people(job.session_id)

    def _timed_out(self, job: Job, timeout: float) -> None:
        waited = self._waited_for_people(job) - job.waited_before
        if waited > job.waited:
            # The time that a person takes for an answer is not the command's.
            more, job.waited = waited - job.waited, waited
            job.timer = asyncio.get_running_loop().call_later(more, self._timed_out, job, timeout)
            return
        error = strings.timed_out(job.command, timeout)
        self._end(job, lifecycle.Outcome(job.command, False, error=error, timedOut=True))

    def _fail(self, job: Job, error: str) -> None:
        self._end(job, lifecycle.Outcome(job.command, False, error=error))

    def _end(self, job: Job, outcome: lifecycle.Outcome, *, settled: bool = False) -> None:
        if job.stage in (Stage.SETTLING, Stage.FINISHED):
            return
        job.stage = Stage.SETTLING
        job.stop_clocks()
        self._cancel(job)
        session_id = contracts.subject(job.command, job.session_id, job.made_session_id)
        if settled:
            self._settled(job, self._settler.with_version(outcome, session_id))
        else:
            self._settler.settle(job, session_id, outcome, partial(self._settled, job))

    def _settled(self, job: Job, outcome: lifecycle.Outcome) -> None:
        if job.stage is Stage.FINISHED:
            return
        job.stage = Stage.FINISHED
        self._finished(job, outcome)
        self._release(job)

    def _cancel(self, job: Job) -> None:
        task, job.task = job.task, None
        if task is not None:
            task.cancel()
