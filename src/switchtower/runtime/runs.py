"""The active runs: engines start, stop and get their answers here, always because of a committed event, never because of a
command.

Recovery therefore needs no separate code path: a `RunStarted` of yesterday starts an engine just as a new one does.

Recovery after a start: every run that was active when the daemon ended is resumed or closed, by the same commands as any
other.

A run that waited for a decision keeps waiting and continues when the decision arrives; so does a flow that waits for people or
agents. Any other run lost its engine in the middle of something with an unknown effect, so it is closed as interrupted and
the processes that it started are killed."""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping

import msgspec
from msgspec import Struct, field

from switchtower.core import commands, errors, events, states
from switchtower.core.ports import engine, host_services, session_service
from switchtower.core.rules import EphemeralInput, admission
from switchtower.core.session import REMOTE_CALL, Run, Session, UsageTotals
from switchtower.runtime.lane import Lane, LaneServices
from switchtower.runtime.run_context import LaneRunContext, load_task

log = logging.getLogger(__name__)

CLOCK_MARGIN = 0.005
MOST_CHILDREN = 16
PARENT_ENDED = "the run that started this session has ended"

ExpireCommand = commands.ExpireApproval | commands.ExpireDialog


class ActiveRun(Struct):
    """One run that an engine works on."""

    context: LaneRunContext
    lane: Lane
    doing: asyncio.Task[commands.FinishRun]
    """The work itself. It may be cancelled at any moment, even before it has started."""
    supervisor: asyncio.Task[None] | None = None
    """Closes the run however the work ends, and is never cancelled."""
    failure: str | None = None
    """The reason why the run must end now, when no client requested that."""
    abandoned: bool = False
    """Another node owns the session now: the run ends here without writing anything."""
    children: int = 0
    """The number of sessions that its processes have started."""
    lent: UsageTotals = field(default_factory=UsageTotals)
    """The usage of those sessions, which counts as the run's own."""


class RunManager:
    def __init__(
        self,
        services: LaneServices,
        engines: Mapping[str, engine.Engine],
        host_services_: host_services.HostServices,
        approval_timeout_ms: int,
    ) -> None:
        self._services = services
        self._engines = engines
        self._host_services = host_services_
        self._approval_timeout_ms = approval_timeout_ms
        self._active_runs: dict[str, ActiveRun] = {}
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._stopping = asyncio.Event()

    def __len__(self) -> int:
        return len(self._active_runs)

    def apply(self, lane: Lane, run_id: str | None, event: events.AnyEvent, ephemeral_input: EphemeralInput = None) -> None:
        """Applies the effect of one committed event, if it has one."""
        if lane.session is not None and lane.session.host is not None:
            return  # it happened on another host, and its effects happen there
        match event:
            case events.RunStarted():
                assert run_id is not None, "a run has an id"
                self.start(lane, run_id, None if isinstance(ephemeral_input, str) else ephemeral_input)
            case events.TerminalTyped() | events.TerminalKeysTyped():
                # Input that the engine wrote itself is not handed to it again: then there is no ephemeral input.
                if (
                    isinstance(ephemeral_input, str)
                    and run_id is not None
                    and (work := self._active_runs.get(run_id)) is not None
                ):
                    work.context.terminal.put(engine.TypedText(ephemeral_input))
            case events.TerminalResized():
                if run_id is not None and (work := self._active_runs.get(run_id)) is not None:
                    work.context.terminal.put(engine.ResizedScreen(event.cols, event.rows))
            case events.ApprovalRequested():
                self.schedule_expiry(lane, event.approval)
            case events.ApprovalDecided():
                self._resolve_approval(
                    run_id, event.approval_id, engine.ApprovalAnswer(event.verdict, event.comment, event.rule, event.by)
                )
            case events.ApprovalExpired() | events.ApprovalWithdrawn():
                self._resolve_approval(run_id, event.approval_id, engine.ApprovalAnswer(None))
            case events.DialogOpened():
                expire = commands.ExpireDialog(session_id=lane.session_id, dialog_id=event.dialog.id)
                self._schedule_expiry(lane, event.dialog.id, event.dialog.expires_at_ms, expire)
            case events.DialogAnswered():
                self._resolve_dialog(run_id, event.dialog_id, engine.DialogAnswer(event.response))
            case events.DialogClosed():
                self._resolve_dialog(run_id, event.dialog_id, engine.DialogAnswer(None, event.reason))
            case events.StepStopped():
                if run_id is not None and (work := self._active_runs.get(run_id)) is not None:
                    work.context.stop_step(event.step)
            case events.MessageQueued(delivery=events.Delivery.STEER):
                if run_id is not None and (work := self._active_runs.get(run_id)) is not None:
                    work.context.add_steering_message(event)
            case events.UsageReported():
                self._charge(lane, run_id, event)
            case events.RunCancelRequested():
                assert run_id is not None, "a run has an id"
                if event.force and (work := self._active_runs.get(run_id)) is not None:
                    work.context.terminal.force_end()
                self._cancel(lane, run_id)
            case _:
                pass

    def can_take_input(self, lane: Lane) -> bool:
        """False while a program leaves too much of its input unread."""
        run = lane.session.run if lane.session else None
        work = self._active_runs.get(run.id) if run else None
        return work is None or not work.context.terminal.is_full

    def start(self, lane: Lane, run_id: str, requested: events.Program | events.Flow | None = None) -> None:
        if self._stopping.is_set():
            return  # the run stays open in the journal; the next start closes it
        session = lane.session
        assert session is not None and session.run is not None and session.run.id == run_id, "a run starts in its session"
        if session.parent_run is not None and session.parent_run not in self._active_runs:
            ended = commands.InterruptRun(session_id=session.id, run_id=run_id, reason=PARENT_ENDED)
            lane.submit(ended, lambda _: None, is_internal=True)
            return
        asked_before = tuple(approval for approval in session.run.pending.values() if approval.kind != REMOTE_CALL)
        steered = [queued for queued in session.queue.values() if queued.delivery is events.Delivery.STEER]
        desk = LaneRunContext(
            lane,
            run_id,
            lane.redactor,
            self._services.mint,
            self._compute_approval_expiry,
            asked_before,
            steered,
            pausing=self._stopping.is_set,
        )
        loop = asyncio.get_running_loop()
        doing = self._run_to_completion(lane, session, session.run, next(iter(asked_before), None), desk, requested)
        work = self._active_runs[run_id] = ActiveRun(desk, lane, loop.create_task(doing, name=f"run {run_id}"))
        work.supervisor = loop.create_task(self._supervise(lane, run_id, work), name=f"keeper of {run_id}")

    # Sessions that a run has started

    def find_session(self, run_id: str) -> Session | None:
        """Returns the session whose active run on this node has this id."""
        work = self._active_runs.get(run_id)
        session = work.lane.session if work is not None else None
        return session if session is not None and session.run is not None and session.run.id == run_id else None

    def get_lent_usage(self, run_id: str) -> UsageTotals:
        return self._active_runs[run_id].lent if run_id in self._active_runs else UsageTotals()

    def count_child(self, run_id: str) -> None:
        """Raises `Overloaded` when the run has started too many sessions."""
        work = self._active_runs[run_id]
        if work.children >= MOST_CHILDREN:
            raise errors.Overloaded(f"one run starts at most {MOST_CHILDREN} sessions")
        work.children += 1

    def _charge(self, lane: Lane, run_id: str | None, usage: events.UsageReported) -> None:
        """Charges a child's usage to the run that started it, and to that run's parent in turn; a run without budget left
        ends.
        """
        work, session = self._active_runs.get(run_id or ""), lane.session
        while work is not None and session is not None:
            if work.children and admission.is_spent(session, work.lent) and work.failure is None:
                work.failure = "the run and the sessions that it started have used up its budget"
                work.doing.cancel()
            work = self._active_runs.get(session.parent_run or "")
            if work is not None:
                work.lent.add(usage)
                session = work.lane.session

    def _end_children(self, run_id: str) -> None:
        for work in list(self._active_runs.values()):
            session = work.lane.session
            if session is not None and session.parent_run == run_id and session.run is not None:
                cancel = commands.CancelRun(session_id=session.id, run_id=session.run.id, reason=PARENT_ENDED)
                work.lane.submit(cancel, lambda _: None, is_internal=True)

    def schedule_expiry(self, lane: Lane, approval: events.Approval) -> None:
        expire = commands.ExpireApproval(session_id=lane.session_id, approval_id=approval.id)
        self._schedule_expiry(lane, approval.id, approval.expires_at_ms, expire)

    def _schedule_expiry(self, lane: Lane, question_id: str, expires_at_ms: int, expire: ExpireCommand) -> None:
        # A little late rather than early: the event loop's clock differs from the clock that the expiry is given in.
        delay = max(0.0, (expires_at_ms - self._services.now_ms()) / 1_000) + CLOCK_MARGIN
        self._timers[question_id] = asyncio.get_running_loop().call_later(delay, self._expire, lane, question_id, expire)

    def fail_unstored(self, lane: Lane, run_id: str) -> None:
        """An event of this run could not be stored: the run fails rather than continue with a gap."""
        work = self._active_runs.get(run_id)
        if work is not None and work.failure is None:
            work.failure = "the journal could not store what the run said"
            work.doing.cancel()

    def abandon(self, lane: Lane) -> None:
        """Another node owns the session now and recovers or closes its run: nothing of it may continue here."""
        for work in self._active_runs.values():
            if work.context.session_id == lane.session_id:
                work.abandoned = True
                work.doing.cancel()

    async def wait_until_idle(self, session_id: str) -> None:
        """Returns when nothing works on the session on this node."""
        if keepers := [
            work.supervisor for work in self._active_runs.values() if work.context.session_id == session_id and work.supervisor
        ]:
            await asyncio.wait(keepers)

    async def stop(self) -> None:
        """Closes active runs with an accurate outcome; a run that waits for a decision stays open in the journal."""
        self._stopping.set()
        for timer in self._timers.values():
            timer.cancel()
        for work in self._active_runs.values():
            work.doing.cancel()
        if keepers := [work.supervisor for work in self._active_runs.values() if work.supervisor is not None]:
            await asyncio.wait(keepers)

    def _compute_approval_expiry(self) -> int:
        return self._services.now_ms() + self._approval_timeout_ms

    def _expire(self, lane: Lane, question_id: str, expire: ExpireCommand) -> None:
        def done(outcome: session_service.SubmitOutcome | errors.CoreError) -> None:
            if isinstance(outcome, errors.Fenced):
                return  # the session's new owner has its own timers
            if isinstance(outcome, errors.CoreError) and outcome.retryable and not self._stopping.is_set():
                retry = self._services.limits.journal_retry
                self._timers[question_id] = asyncio.get_running_loop().call_later(retry, self._expire, lane, question_id, expire)

        lane.submit(expire, done, is_internal=True)

    def _cancel(self, lane: Lane, run_id: str) -> None:
        if work := self._active_runs.get(run_id):
            work.doing.cancel()
        else:
            # No engine works on the run, because its recovery failed: there is none to wait for.
            unattended = commands.InterruptRun(session_id=lane.session_id, run_id=run_id, reason="nobody was working on it")
            lane.submit(unattended, lambda _: None, is_internal=True)

    def _resolve_approval(self, run_id: str | None, approval_id: str, answer: engine.ApprovalAnswer) -> None:
        self._cancel_expiry(approval_id)
        if run_id in self._active_runs:
            self._active_runs[run_id].context.resolve_approval(approval_id, answer)

    def _resolve_dialog(self, run_id: str | None, dialog_id: str, answer: engine.DialogAnswer) -> None:
        self._cancel_expiry(dialog_id)
        if run_id in self._active_runs:
            self._active_runs[run_id].context.dialogs.resolve(dialog_id, answer)

    def _cancel_expiry(self, question_id: str) -> None:
        if timer := self._timers.pop(question_id, None):
            timer.cancel()

    async def _supervise(self, lane: Lane, run_id: str, work: ActiveRun) -> None:
        ending: commands.FinishRun | commands.InterruptRun | None
        try:
            try:
                ending = await work.doing
            except asyncio.CancelledError:
                ending = await self._close_cancelled(lane, run_id, work)
            except Exception as bug:
                log.error("run %s failed", run_id, exc_info=bug)
                lane.add_progress(run_id, events.ErrorRaised(code="INTERNAL_ERROR", message="The run failed inside the daemon"))
                ending = self._finish(lane, run_id, events.Outcome.FAILED, "The run failed inside the daemon; its log says why")
            work.context.flush_redactors()
            if ending is not None:
                await self._close(lane, run_id, work, ending)
        except (errors.Fenced, errors.NoActiveRun):
            log.warning("run %s was closed by another node, or is that one's to close", run_id)
        except errors.CoreError as refusal:
            log.error("run %s could not be closed", run_id, exc_info=refusal)
        finally:
            if self._active_runs.get(run_id) is work:
                del self._active_runs[run_id]
                self._end_children(run_id)

    async def _close(self, lane: Lane, run_id: str, work: ActiveRun, ending: commands.FinishRun | commands.InterruptRun) -> None:
        """A run is open until its end is stored. A disk that is full now may have space in a moment."""
        while True:
            try:
                await lane.ask(ending)
                return
            except errors.JournalUnavailable:
                if self._stopping.is_set():
                    raise
            if work.failure is not None:
                # The last events of the run were lost together with its end: the journal does not have everything that it did.
                ending = commands.InterruptRun(session_id=lane.session_id, run_id=run_id, reason=work.failure)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._services.limits.journal_retry):
                    await self._stopping.wait()

    async def _run_to_completion(
        self,
        lane: Lane,
        session: Session,
        run: Run,
        pending_approval: events.Approval | None,
        context: LaneRunContext,
        requested: events.Program | events.Flow | None,
    ) -> commands.FinishRun:
        task = await load_task(self._services.journal, session, run, pending_approval)
        if isinstance(requested, events.Program):
            task = msgspec.structs.replace(task, program=requested)
        elif requested is not None:
            task = msgspec.structs.replace(task, flow=requested)
        result = await self._run_engine(session, task, context)
        acceptance: list[events.CriterionResult] = []
        if result.outcome is events.Outcome.SUCCESS:
            for criterion in run.acceptance:
                await context.emit(events.PhaseChanged(phase="Checking acceptance", detail=criterion.id))
                acceptance.append(
                    await self._host_services.check_criterion(criterion, session.workspace, session.sandbox, run.id)
                )
        return self._finish(lane, run.id, result.outcome, result.summary, tuple(acceptance), result.exit_code)

    async def _run_engine(self, session: Session, task: engine.Task, context: LaneRunContext) -> engine.RunResult:
        working = asyncio.ensure_future(self._engines[session.engine].run(task, context))
        try:
            return await asyncio.shield(working)
        except asyncio.CancelledError:
            working.cancel()
            loop = asyncio.get_running_loop()
            deadline = loop.time() + self._services.limits.stop_grace
            while not working.done() and (left := deadline - loop.time()) > 0:
                # A second cancellation does not shorten the time for cleaning up.
                with contextlib.suppress(asyncio.CancelledError):
                    await asyncio.wait([working], timeout=left)
            if not working.done():
                log.error("the engine of run %s did not stop within %s s", task.run_id, self._services.limits.stop_grace)
            raise

    async def _close_cancelled(
        self, lane: Lane, run_id: str, work: ActiveRun
    ) -> commands.FinishRun | commands.InterruptRun | None:
        if work.abandoned:
            return None
        if work.failure is not None:
            return commands.InterruptRun(session_id=lane.session_id, run_id=run_id, reason=work.failure)
        if not self._stopping.is_set():
            return self._finish(
                lane, run_id, events.Outcome.CANCELLED, "The run was cancelled", exit_code=work.context.terminal.exit_code
            )
        await lane.flush()
        if lane.session is not None and lane.session.can_resume_after_restart:
            return None  # it continues from this point when a daemon runs again
        return commands.InterruptRun(session_id=lane.session_id, run_id=run_id, reason="the daemon was stopped")

    def _finish(
        self,
        lane: Lane,
        run_id: str,
        outcome: events.Outcome,
        summary: str,
        acceptance: tuple[events.CriterionResult, ...] = (),
        exit_code: int | None = None,
    ) -> commands.FinishRun:
        return commands.FinishRun(
            session_id=lane.session_id,
            run_id=run_id,
            outcome=outcome,
            summary=summary,
            acceptance=acceptance,
            exit_code=exit_code,
        )


SHELL_INTERRUPTED = "the daemon ended while the command was running"
INTERRUPTED = "the daemon ended while the run was working"
REMOTE_CALL_INTERRUPTED = "the daemon ended before it was done"


async def recover(lane: Lane, runs: RunManager, kill_processes: Callable[[str], int], *, lost: str | None = None) -> None:
    """`lost` is the machine that is no longer reachable, when the run was not on this one."""
    await lane.flush()  # loads the session
    session = lane.session
    if session is None:
        return
    for shell_id in list(session.shells):
        kill_processes(shell_id)
        finish = commands.FinishShell(
            session_id=session.id, shell_id=shell_id, exit_code=None, text=SHELL_INTERRUPTED, cancelled=True
        )
        await lane.ask(finish)
    for errand_id in list(session.errands):
        ended = commands.FinishRemoteCall(
            session_id=session.id, errand_id=errand_id, ok=False, duration_ms=0, error=REMOTE_CALL_INTERRUPTED
        )
        await lane.ask(ended)
    if session.run is None:
        return
    run = session.run
    for approval in [approval for approval in run.pending.values() if approval.kind == REMOTE_CALL]:
        await lane.ask(commands.WithdrawApproval(session_id=session.id, approval_id=approval.id, reason=REMOTE_CALL_INTERRUPTED))
    killed = kill_processes(run.id)
    if killed:
        log.warning("killed %d processes that run %s had left behind", killed, run.id)
    if session.can_resume_after_restart:
        assert session.state in states.ACTIVE, "a run that goes on is active"
        runs.start(lane, run.id)
        for approval in run.pending.values():
            runs.schedule_expiry(lane, approval)
    else:
        gone = lost if session.terminal is not None else None
        await lane.ask(commands.InterruptRun(session_id=session.id, run_id=run.id, reason=INTERRUPTED, lost=gone))
