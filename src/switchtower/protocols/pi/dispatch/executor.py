"""Takes commands through their lanes: started, dependencies (section 9 of the document), version, handler, and the work that the
handler leaves to do.

It sends `command_started`, and hands every outcome to the settler and then to the dispatcher. A handler that answers at once
costs no task and no turn of the event loop.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import NamedTuple

from msgspec import UNSET, Raw

from switchtower.protocols.pi import errors, inbound, responses
from switchtower.protocols.pi.dispatch import limits, ports
from switchtower.protocols.pi.dispatch.lanes import CommandJob, CommandLane, CommandStage, PendingCommand, wait_without_cancelling
from switchtower.protocols.pi.dispatch.limits import DispatchLimits
from switchtower.protocols.pi.dispatch.receipts import OutcomeSettler
from switchtower.protocols.pi.errors import SessionBusy, SessionLimitReached

Find = Callable[[CommandJob, str], PendingCommand | responses.CommandOutcome | None]
"""Finds a command by id, among the clients that share ids with the client of this job."""


def collect_dependencies(job: CommandJob, find: Find) -> str | None:
    """Returns the error that makes waiting pointless, or None; then `job.awaited` holds the dependencies that have yet to end."""
    wanted = dict.fromkeys(job.request.depends_on)
    if job.request.id in wanted:
        return errors.format_self_dependency(job.request.id)
    for id_ in wanted:
        known = find(job, id_)
        if known is None:
            return errors.format_dependency_unknown(id_)
        if isinstance(known, responses.CommandOutcome):
            if not known.success:
                return errors.format_dependency_failed(id_, str(known.error))
        elif known is job:
            return errors.format_self_dependency(id_)
        elif known.lane is not None and known.lane is job.lane:
            # pi-server 9.2: that command cannot get its turn while this one waits. One that has released its lane can be awaited.
            return errors.format_dependency_in_lane(id_)
        else:
            job.awaited[id_] = known
    return None


Finished = Callable[[CommandJob, responses.CommandOutcome], None]


class PendingHandler(NamedTuple):
    """The state of a handler that could not answer at once."""

    handled: ports.HandlerResult | Awaitable[ports.HandlerResult] | SessionBusy


class CommandExecutor:
    def __init__(
        self,
        handlers: Mapping[str, ports.Handler],
        ledger: ports.OutcomeLedger,
        broadcaster: ports.BroadcastPort,
        settler: OutcomeSettler,
        limits: DispatchLimits,
        rejected: limits.RejectionCounts,
        *,
        find: Find,
        finished: Finished,
    ) -> None:
        self._handlers = handlers
        self._ledger = ledger
        self._broadcaster = broadcaster
        self._settler = settler
        self._limits = limits
        self._rejected = rejected
        self._find = find
        self._finished = finished
        self._lanes: dict[str | None, CommandLane] = {}
        self._due: deque[CommandLane | tuple[CommandJob, str]] = deque()
        self._advancing = False
        self._closed = False
        self.executed = 0

    @property
    def lane_count(self) -> int:
        return len(self._lanes)

    def add(self, job: CommandJob) -> None:
        """pi-server 7.3: the lane is the session's when the command names one, else the server's."""
        key = job.session_id
        lane = self._lanes.get(key)
        if lane is None:
            lane = self._lanes[key] = CommandLane(key)
        lane.add(job, passes=limits.can_overtake(job.request))
        self._advance(lane)

    def try_immediate(
        self, request: inbound.PiRequest, client: ports.DispatchClient, told: responses.LifecycleData
    ) -> responses.CommandOutcome | PendingHandler | None:
        """The short path of nearly all reads: the lane is free and the handler has the answer.

        Returns None when the command has to take its turn, and a `PendingHandler` when its handler has started and has more to
        do; see `continue_handler`.
        """
        if request.depends_on or request.type in limits.MUTATING or request.session_id in self._lanes:
            return None
        handler = self._handlers.get(request.type)
        if handler is None or request.if_session_version is not None:
            return None
        self.executed += 1
        self._broadcaster.broadcast_lifecycle(responses.encode_started(told))
        try:
            handled = handler(request, client)
            if not isinstance(handled, ports.HandlerResult) or handled.rest is not None or handled.announcements:
                return PendingHandler(handled)
            data = UNSET if handled.data is UNSET else Raw(responses.encode(handled.data))
        except SessionBusy as busy:
            return PendingHandler(busy)
        except Exception as problem:
            return responses.CommandOutcome(request.type, False, error=errors.describe_failure(problem, request.type))
        return self._settler.apply_version(responses.CommandOutcome(request.type, True, data), request.session_id)

    def continue_handler(self, job: CommandJob, unfinished: PendingHandler) -> None:
        """Continues a command whose handler `try_immediate` has started: it holds the turn of its lane."""
        job.stage = CommandStage.RUNNING
        lane = self._lanes[job.session_id] = CommandLane(job.session_id)
        lane.add(job, passes=limits.can_overtake(job.request))
        turn = lane.take_next()
        assert turn is job, "the lane was free"
        match unfinished.handled:
            case SessionBusy() as busy:
                self._on_handler_error(job, busy)
            case ports.HandlerResult() as handled:
                self._on_handled(job, handled)
            case awaitable:
                self._await_handler(job, awaitable)

    def release_dependents(self, pending: PendingCommand, outcome: responses.CommandOutcome) -> None:
        """`pending` has its outcome: the commands that waited for it continue, or fail with it."""
        if not pending.dependents:
            return
        dependents, pending.dependents = pending.dependents, {}
        for job in dependents:
            failed = [id_ for id_, awaited in job.awaited.items() if awaited is pending]
            for id_ in failed:
                del job.awaited[id_]
            if not outcome.success:
                self._advance((job, errors.format_dependency_failed(failed[0], str(outcome.error))))
            elif not job.awaited:
                job.stop_waiting()
                self._wake(job)

    def close(self) -> None:
        """No command gets a turn any more."""
        self._closed = True

    def discard(self, job: CommandJob) -> None:
        """Ends the command without an outcome."""
        job.stage = CommandStage.FINISHED
        job.cancel_timers()
        self._cancel(job)

    # Turns

    def _advance(self, due: CommandLane | tuple[CommandJob, str]) -> None:
        """One loop for all lanes: a chain of commands that wake or fail each other must not become a chain of calls."""
        self._due.append(due)
        if self._advancing or self._closed:
            return
        self._advancing = True
        try:
            while self._due:
                due = self._due.popleft()
                if isinstance(due, CommandLane):
                    self._take_turns(due)
                else:
                    self._fail(*due)
        finally:
            self._advancing = False

    def _take_turns(self, lane: CommandLane) -> None:
        while (job := lane.take_next()) is not None:
            self._take_turn(job)
        if lane.is_empty and self._lanes.get(lane.key) is lane:
            del self._lanes[lane.key]

    def _take_turn(self, job: CommandJob) -> None:
        if job.stage is CommandStage.QUEUED:
            job.stage = CommandStage.RUNNING
            self.executed += 1
            self._broadcaster.broadcast_lifecycle(responses.encode_started(job.told))
            if job.request.depends_on and not self._are_dependencies_met(job):
                return
        job.stage = CommandStage.RUNNING
        self._execute(job)

    def _release(self, job: CommandJob) -> None:
        lane = job.lane
        if lane is not None:
            lane.release(job)
            self._advance(lane)

    def _wait(self, job: CommandJob) -> None:
        assert job.lane is not None, "only a command that holds its turn can wait"
        self._start_timeout(job)
        lane = job.lane
        lane.wait(job)
        self._advance(lane)  # commands that may overtake this one continue

    def _wake(self, job: CommandJob) -> None:
        if job.stage is CommandStage.WAITING and job.lane is not None:
            job.lane.wake(job)
            self._advance(job.lane)

    # Dependencies: pi-server 9

    def _are_dependencies_met(self, job: CommandJob) -> bool:
        error = collect_dependencies(job, self._find)
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
            job.dependency_timer = asyncio.get_running_loop().call_later(timeout, self._on_dependency_timeout, job)
        return False

    def _on_dependency_timeout(self, job: CommandJob) -> None:
        id_ = next(iter(job.awaited))
        self._fail(job, errors.format_dependency_timeout(id_, self._limits.dependency_timeout_s))

    # The handler

    def _execute(self, job: CommandJob) -> None:
        request = job.request
        if request.if_session_version is not None and (error := self._find_version_problem(job)) is not None:
            self._fail(job, error)
            return
        handler = self._handlers.get(request.type)
        if handler is None:
            self._fail(job, errors.format_unknown_type(request.type))
            return
        try:
            handled = handler(request, job.client)
        except Exception as problem:
            self._on_handler_error(job, problem)
            return
        if isinstance(handled, ports.HandlerResult):
            self._on_handled(job, handled)
        else:
            self._await_handler(job, handled)

    def _find_version_problem(self, job: CommandJob) -> str | None:
        """pi-server 10.1. The version is checked again after a wait: the one that the handler meets is the one that counts."""
        session_id, expected = job.session_id, job.request.if_session_version
        assert session_id is not None and expected is not None, "checked on the way in"
        version = self._ledger.get_version(session_id)
        if version is None:
            return errors.format_session_not_found(session_id)
        return errors.format_version_mismatch(expected, version) if version != expected else None

    def _await_handler(self, job: CommandJob, handled: Awaitable[ports.HandlerResult]) -> None:
        self._start_timeout(job)
        job.task = asyncio.ensure_future(handled)
        job.task.add_done_callback(partial(self._on_handler_done, job))

    def _on_handler_done(self, job: CommandJob, task: asyncio.Future[ports.HandlerResult]) -> None:
        problem = None if task.cancelled() else task.exception()
        if job.task is not task:
            return  # pi-server 11: the outcome is already another
        job.task = None
        if task.cancelled():
            self._fail(job, errors.CANCELLED)
        elif problem is not None:
            self._on_handler_error(job, problem)
        else:
            self._on_handled(job, task.result())

    def _on_handled(self, job: CommandJob, handled: ports.HandlerResult) -> None:
        if handled.announcements:
            job.announcements += handled.announcements
        if handled.session_id is not None:
            job.made_session_id = handled.session_id
        if handled.rest is not None:
            # Interop, Faults: a run does not occupy its lane.
            if handled.is_run:
                job.is_run = True
                job.cancel_timers()
            self._await_handler(job, handled.rest)
            self._release(job)
            return
        try:
            data = UNSET if handled.data is UNSET else Raw(responses.encode(handled.data))
        except Exception as problem:
            self._on_handler_error(job, problem)
            return
        self._end(job, responses.CommandOutcome(job.command, True, data), settled=handled.settled)

    def _on_handler_error(self, job: CommandJob, problem: BaseException) -> None:
        if isinstance(problem, SessionBusy) and job.lane is not None:
            self._wait(job)
            job.until = asyncio.ensure_future(wait_without_cancelling(problem.until))
            job.until.add_done_callback(partial(self._on_wait_done, job))
            return
        if isinstance(problem, ports.CommandAlreadyStarted):
            self._on_handled(job, ports.HandlerResult(rest=problem.ended))
            return
        if isinstance(problem, SessionLimitReached):
            self._rejected.sessionLimit += 1
        self._fail(job, errors.describe_failure(problem, job.command))

    def _on_wait_done(self, job: CommandJob, until: asyncio.Future[None]) -> None:
        if not until.cancelled():
            until.exception()  # the handler checks the state itself
        if job.until is until:
            job.until = None
            self._wake(job)

    # The end

    def _start_timeout(self, job: CommandJob) -> None:
        """The caller sends `command_started` in the same turn, or has sent it earlier with the clock already running."""
        timeout = self._limits.get_timeout(job.command)
        if timeout and job.timer is None and not job.is_run:
            job.waited_before = self._measure_user_wait(job)
            job.timer = asyncio.get_running_loop().call_later(timeout, self._on_timeout, job, timeout)

    def _measure_user_wait(self, job: CommandJob) -> float:
        return 0.0 if job.session_id is None else self._ledger.measure_user_wait(job.session_id)

    def _on_timeout(self, job: CommandJob, timeout: float) -> None:
        waited = self._measure_user_wait(job) - job.waited_before
        if waited > job.waited:
            # The time that a user takes for an answer does not count as the command's.
            more, job.waited = waited - job.waited, waited
            job.timer = asyncio.get_running_loop().call_later(more, self._on_timeout, job, timeout)
            return
        error = errors.format_timeout(job.command, timeout)
        self._end(job, responses.CommandOutcome(job.command, False, error=error, timedOut=True))

    def _fail(self, job: CommandJob, error: str) -> None:
        self._end(job, responses.CommandOutcome(job.command, False, error=error))

    def _end(self, job: CommandJob, outcome: responses.CommandOutcome, *, settled: bool = False) -> None:
        if job.stage in (CommandStage.SETTLING, CommandStage.FINISHED):
            return
        job.stage = CommandStage.SETTLING
        job.cancel_timers()
        self._cancel(job)
        session_id = limits.get_versioned_session(job.command, job.session_id, job.made_session_id)
        if settled:
            self._on_settled(job, self._settler.apply_version(outcome, session_id, last_known=job.version))
        else:
            self._settler.settle(job, session_id, outcome, partial(self._on_settled, job))

    def _on_settled(self, job: CommandJob, outcome: responses.CommandOutcome) -> None:
        if job.stage is CommandStage.FINISHED:
            return
        job.stage = CommandStage.FINISHED
        self._finished(job, outcome)
        self._release(job)

    def _cancel(self, job: CommandJob) -> None:
        task, job.task = job.task, None
        if task is not None:
            task.cancel()
