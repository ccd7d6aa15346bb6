"""Runs at work: engines start, stop and get their answers here, always because of a committed event, never because of a command.

Recovery needs nothing of its own for that: a `RunStarted` of yesterday starts an engine just as one of this second does.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping

from msgspec import Struct

from switchtower.core import commands, engine, errors, events, redact
from switchtower.core.session import Session
from switchtower.runtime.desk import RunDesk
from switchtower.runtime.history import task_of
from switchtower.runtime.lane import Lane, Services

log = logging.getLogger(__name__)

ENGINE_STOP_GRACE = 10.0
"""How long a cancelled engine may clean up before its run is closed without it."""

CheckCriterion = Callable[[events.Criterion, events.Workspace, str], Awaitable[events.CriterionResult]]


class Work(Struct):
    """One run that an engine works on."""

    desk: RunDesk
    task: asyncio.Task[None]
    failure: str | None = None
    """Why it must end now, when nobody asked for that."""


class Runs:
    def __init__(
        self,
        services: Services,
        engines: Mapping[str, engine.Engine],
        check: CheckCriterion,
        approval_timeout_ms: int,
    ) -> None:
        self._services = services
        self._engines = engines
        self._check = check
        self._approval_timeout_ms = approval_timeout_ms
        self._works: dict[str, Work] = {}
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._stopping = False

    def __len__(self) -> int:
        return len(self._works)

    def react(self, lane: Lane, run_id: str | None, event: events.AnyEvent) -> None:
        """One committed event and its effect, if it has one."""
        match event:
            case events.RunStarted():
                assert run_id is not None, "a run has an id"
                self.start(lane, run_id)
            case events.ApprovalRequested():
                self.arm(lane, event.approval)
            case events.ApprovalDecided():
                self._settle(run_id, event.approval_id, engine.Answer(event.verdict, event.comment))
            case events.ApprovalExpired() | events.ApprovalWithdrawn():
                self._settle(run_id, event.approval_id, engine.Answer(None))
            case events.RunCancelRequested() if run_id in self._works:
                self._works[run_id].task.cancel()
            case _:
                pass

    def start(self, lane: Lane, run_id: str) -> None:
        if self._stopping:
            return  # stays open in the journal; the next start closes it
        redactor: redact.Redactor = self._services.redactor
        desk = RunDesk(lane, run_id, redactor, self._services.mint, self._approval_expiry)
        task = asyncio.get_running_loop().create_task(self._work(lane, run_id, desk), name=f"run {run_id}")
        self._works[run_id] = Work(desk, task)

    def arm(self, lane: Lane, approval: events.Approval) -> None:
        delay = max(0.0, (approval.expires_at_ms - self._services.now_ms()) / 1_000)
        self._timers[approval.id] = asyncio.get_running_loop().call_later(delay, self._expire, lane, approval.id)

    def lost(self, lane: Lane, run_id: str) -> None:
        """Something this run said could not be stored: it ends as failed rather than going on with a hole."""
        work = self._works.get(run_id)
        if work is not None and work.failure is None:
            work.failure = "the journal could not store what the run said"
            work.task.cancel()

    async def stop(self) -> None:
        """Closes what is running with an honest outcome; a run that waits for a decision goes on waiting in the journal."""
        self._stopping = True
        for timer in self._timers.values():
            timer.cancel()
        works = list(self._works.values())
        for work in works:
            work.task.cancel()
        if works:
            await asyncio.wait([work.task for work in works])

    def _approval_expiry(self) -> int:
        return self._services.now_ms() + self._approval_timeout_ms

    def _expire(self, lane: Lane, approval_id: str) -> None:
        expired = commands.ExpireApproval(session_id=lane.session_id, approval_id=approval_id)
        lane.submit(expired, lambda _: None)

    def _settle(self, run_id: str | None, approval_id: str, answer: engine.Answer) -> None:
        if timer := self._timers.pop(approval_id, None):
            timer.cancel()
        if run_id in self._works:
            self._works[run_id].desk.answered(approval_id, answer)

    async def _work(self, lane: Lane, run_id: str, desk: RunDesk) -> None:
        ending: commands.FinishRun | commands.InterruptRun | None
        try:
            try:
                ending = await self._to_the_end(lane, run_id, desk)
            except asyncio.CancelledError:
                ending = self._cut_short(lane, run_id)
            except Exception as bug:
                log.error("run %s failed", run_id, exc_info=bug)
                lane.progress(run_id, events.ErrorRaised(code="INTERNAL_ERROR", message="The run failed inside the daemon"))
                ending = self._finish(lane, run_id, events.Outcome.FAILED, "The run failed inside the daemon; its log says why")
            desk.release()
            if ending is not None:
                await lane.ask(ending)
        except errors.CoreError as refusal:
            log.error("run %s could not be closed", run_id, exc_info=refusal)
        finally:
            self._works.pop(run_id, None)

    async def _to_the_end(self, lane: Lane, run_id: str, desk: RunDesk) -> commands.FinishRun:
        session = lane.session
        assert session is not None, "a run's session is loaded"
        task = await task_of(self._services.journal, session, run_id)
        result = await self._engine_result(session, task, desk)
        acceptance: list[events.CriterionResult] = []
        if result.outcome is events.Outcome.SUCCESS and session.run is not None:
            for criterion in session.run.acceptance:
                await desk.emit(events.PhaseChanged(phase="Checking acceptance", detail=criterion.id))
                acceptance.append(await self._check(criterion, session.workspace, run_id))
        return self._finish(lane, run_id, result.outcome, result.summary, tuple(acceptance))

    async def _engine_result(self, session: Session, task: engine.Task, desk: RunDesk) -> engine.Result:
        working = asyncio.ensure_future(self._engines[session.engine].run(task, desk))
        try:
            return await asyncio.shield(working)
        except asyncio.CancelledError:
            working.cancel()
            _, unfinished = await asyncio.wait([working], timeout=ENGINE_STOP_GRACE)
            if unfinished:
                log.error("the engine of run %s did not stop within %s s", task.run_id, ENGINE_STOP_GRACE)
            raise

    def _cut_short(self, lane: Lane, run_id: str) -> commands.FinishRun | commands.InterruptRun | None:
        failure = self._works[run_id].failure
        if failure is not None:
            return commands.InterruptRun(session_id=lane.session_id, run_id=run_id, reason=failure)
        if not self._stopping:
            return self._finish(lane, run_id, events.Outcome.CANCELLED, "The run was cancelled")
        run = lane.session.run if lane.session else None
        if run is not None and run.pending and not run.cancel_requested:
            return None  # the question survives the stop, and so does the run
        return commands.InterruptRun(session_id=lane.session_id, run_id=run_id, reason="the daemon was stopped")

    def _finish(
        self,
        lane: Lane,
        run_id: str,
        outcome: events.Outcome,
        summary: str,
        acceptance: tuple[events.CriterionResult, ...] = (),
    ) -> commands.FinishRun:
        return commands.FinishRun(
            session_id=lane.session_id, run_id=run_id, outcome=outcome, summary=summary, acceptance=acceptance
        )
