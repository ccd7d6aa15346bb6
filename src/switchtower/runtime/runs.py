"""Runs at work: engines start, stop and get their answers here, always because of a committed event, never because of a command.

Recovery needs nothing of its own for that: a `RunStarted` of yesterday starts an engine just as one of this second does.
"""

import asyncio
import contextlib
import logging
from collections.abc import Mapping

import msgspec
from msgspec import Struct, field

from switchtower.core import admission, commands, engine, errors, events, tower, workshop
from switchtower.core.decision import Said
from switchtower.core.session import ERRAND, Run, Session, Usage
from switchtower.runtime.desk import RunDesk
from switchtower.runtime.history import task_of
from switchtower.runtime.lane import Lane, Services

log = logging.getLogger(__name__)

CLOCK_MARGIN = 0.005
MOST_CHILDREN = 16
PARENT_ENDED = "the run that started this session has ended"

Expire = commands.ExpireApproval | commands.ExpireDialog


class Work(Struct):
    """One run that an engine works on."""

    desk: RunDesk
    lane: Lane
    doing: asyncio.Task[commands.FinishRun]
    """The work itself. It may be cancelled at any moment, even before it has begun."""
    keeper: asyncio.Task[None] | None = None
    """Sees the run to its end whatever becomes of the work, and is never cancelled."""
    failure: str | None = None
    """Why it must end now, when nobody asked for that."""
    abandoned: bool = False
    """Its session's home is another node: it ends without a word."""
    children: int = 0
    """How many sessions its processes have started."""
    lent: Usage = field(default_factory=Usage)
    """What those have used, which counts as the run's own."""


class Runs:
    def __init__(
        self,
        services: Services,
        engines: Mapping[str, engine.Engine],
        workshop_: workshop.Workshop,
        approval_timeout_ms: int,
    ) -> None:
        self._services = services
        self._engines = engines
        self._workshop = workshop_
        self._approval_timeout_ms = approval_timeout_ms
        self._works: dict[str, Work] = {}
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._stopping = asyncio.Event()

    def __len__(self) -> int:
        return len(self._works)

    def react(self, lane: Lane, run_id: str | None, event: events.AnyEvent, said: Said = None) -> None:
        """One committed event and its effect, if it has one."""
        if lane.session is not None and lane.session.host is not None:
            return  # it happened elsewhere, and so does what comes of it
        match event:
            case events.RunStarted():
                assert run_id is not None, "a run has an id"
                self.start(lane, run_id, None if isinstance(said, str) else said)
            case events.TerminalTyped() | events.TerminalKeys():
                # What the engine wrote itself is not handed to it again: then there is nothing said.
                if isinstance(said, str) and run_id is not None and (work := self._works.get(run_id)) is not None:
                    work.desk.terminal.take(engine.Typed(said))
            case events.TerminalResized():
                if run_id is not None and (work := self._works.get(run_id)) is not None:
                    work.desk.terminal.take(engine.Resized(event.cols, event.rows))
            case events.ApprovalRequested():
                self.arm(lane, event.approval)
            case events.ApprovalDecided():
                self._settle(run_id, event.approval_id, engine.Answer(event.verdict, event.comment, event.rule, event.by))
            case events.ApprovalExpired() | events.ApprovalWithdrawn():
                self._settle(run_id, event.approval_id, engine.Answer(None))
            case events.DialogOpened():
                expire = commands.ExpireDialog(session_id=lane.session_id, dialog_id=event.dialog.id)
                self._arm(lane, event.dialog.id, event.dialog.expires_at_ms, expire)
            case events.DialogAnswered():
                self._settle_dialog(run_id, event.dialog_id, engine.DialogAnswer(event.response))
            case events.DialogClosed():
                self._settle_dialog(run_id, event.dialog_id, engine.DialogAnswer(None, event.reason))
            case events.StepStopped():
                if run_id is not None and (work := self._works.get(run_id)) is not None:
                    work.desk.stop_step(event.step)
            case events.MessageQueued(delivery=events.Delivery.STEER):
                if run_id is not None and (work := self._works.get(run_id)) is not None:
                    work.desk.steer(event)
            case events.UsageReported():
                self._charge(lane, run_id, event)
            case events.RunCancelRequested():
                assert run_id is not None, "a run has an id"
                if event.force and (work := self._works.get(run_id)) is not None:
                    work.desk.terminal.hurry()
                self._cancel(lane, run_id)
            case _:
                pass

    def takes_typing(self, lane: Lane) -> bool:
        """False while a program leaves too much of what was typed unread."""
        run = lane.session.run if lane.session else None
        work = self._works.get(run.id) if run else None
        return work is None or not work.desk.terminal.is_full

    def start(self, lane: Lane, run_id: str, asked_for: events.Program | events.Flow | None = None) -> None:
        if self._stopping.is_set():
            return  # stays open in the journal; the next start closes it
        session = lane.session
        assert session is not None and session.run is not None and session.run.id == run_id, "a run starts in its session"
        if session.parent_run is not None and session.parent_run not in self._works:
            ended = commands.InterruptRun(session_id=session.id, run_id=run_id, reason=PARENT_ENDED)
            lane.submit(ended, lambda _: None, ours=True)
            return
        asked_before = tuple(approval for approval in session.run.pending.values() if approval.kind != ERRAND)
        steered = [queued for queued in session.queue.values() if queued.delivery is events.Delivery.STEER]
        desk = RunDesk(
            lane,
            run_id,
            lane.redactor,
            self._services.mint,
            self._approval_expiry,
            asked_before,
            steered,
            pausing=self._stopping.is_set,
        )
        loop = asyncio.get_running_loop()
        doing = self._to_the_end(lane, session, session.run, next(iter(asked_before), None), desk, asked_for)
        work = self._works[run_id] = Work(desk, lane, loop.create_task(doing, name=f"run {run_id}"))
        work.keeper = loop.create_task(self._keep(lane, run_id, work), name=f"keeper of {run_id}")

    # Sessions that a run has started

    def session_of(self, run_id: str) -> Session | None:
        """The session whose run is active here."""
        work = self._works.get(run_id)
        session = work.lane.session if work is not None else None
        return session if session is not None and session.run is not None and session.run.id == run_id else None

    def lent(self, run_id: str) -> Usage:
        return self._works[run_id].lent if run_id in self._works else Usage()

    def count_child(self, run_id: str) -> None:
        """Raises `Overloaded` when the run has started too many sessions."""
        work = self._works[run_id]
        if work.children >= MOST_CHILDREN:
            raise errors.Overloaded(f"one run starts at most {MOST_CHILDREN} sessions")
        work.children += 1

    def _charge(self, lane: Lane, run_id: str | None, usage: events.UsageReported) -> None:
        """What a child uses counts for the run that started it, and for that one's parent; what has no budget left ends."""
        work, session = self._works.get(run_id or ""), lane.session
        while work is not None and session is not None:
            if work.children and admission.is_spent(session, work.lent) and work.failure is None:
                work.failure = "the run and the sessions that it started have used up its budget"
                work.doing.cancel()
            work = self._works.get(session.parent_run or "")
            if work is not None:
                work.lent.add(usage)
                session = work.lane.session

    def _end_children(self, run_id: str) -> None:
        for work in list(self._works.values()):
            session = work.lane.session
            if session is not None and session.parent_run == run_id and session.run is not None:
                cancel = commands.CancelRun(session_id=session.id, run_id=session.run.id, reason=PARENT_ENDED)
                work.lane.submit(cancel, lambda _: None, ours=True)

    def arm(self, lane: Lane, approval: events.Approval) -> None:
        expire = commands.ExpireApproval(session_id=lane.session_id, approval_id=approval.id)
        self._arm(lane, approval.id, approval.expires_at_ms, expire)

    def _arm(self, lane: Lane, question_id: str, expires_at_ms: int, expire: Expire) -> None:
        # A little late rather than early: the loop's clock and the one that the expiry was told in are not the same.
        delay = max(0.0, (expires_at_ms - self._services.now_ms()) / 1_000) + CLOCK_MARGIN
        self._timers[question_id] = asyncio.get_running_loop().call_later(delay, self._expire, lane, question_id, expire)

    def lost(self, lane: Lane, run_id: str) -> None:
        """Something this run said could not be stored: it ends as failed rather than going on with a hole."""
        work = self._works.get(run_id)
        if work is not None and work.failure is None:
            work.failure = "the journal could not store what the run said"
            work.doing.cancel()

    def abandon(self, lane: Lane) -> None:
        """The session's home is another node now, which takes its run up or closes it: nothing of it may go on here."""
        for work in self._works.values():
            if work.desk.session_id == lane.session_id:
                work.abandoned = True
                work.doing.cancel()

    async def ended(self, session_id: str) -> None:
        """Returns when nothing works on the session here."""
        if keepers := [work.keeper for work in self._works.values() if work.desk.session_id == session_id and work.keeper]:
            await asyncio.wait(keepers)

    async def stop(self) -> None:
        """Closes what is running with an honest outcome; a run that waits for a decision goes on waiting in the journal."""
        self._stopping.set()
        for timer in self._timers.values():
            timer.cancel()
        for work in self._works.values():
            work.doing.cancel()
        if keepers := [work.keeper for work in self._works.values() if work.keeper is not None]:
            await asyncio.wait(keepers)

    def _approval_expiry(self) -> int:
        return self._services.now_ms() + self._approval_timeout_ms

    def _expire(self, lane: Lane, question_id: str, expire: Expire) -> None:
        def done(outcome: tower.Outcome | errors.CoreError) -> None:
            if isinstance(outcome, errors.Fenced):
                return  # the session's new home has its own timers
            if isinstance(outcome, errors.CoreError) and outcome.retryable and not self._stopping.is_set():
                retry = self._services.limits.journal_retry
                self._timers[question_id] = asyncio.get_running_loop().call_later(retry, self._expire, lane, question_id, expire)

        lane.submit(expire, done, ours=True)

    def _cancel(self, lane: Lane, run_id: str) -> None:
        if work := self._works.get(run_id):
            work.doing.cancel()
        else:
            # Nobody works on it, because its recovery failed: there is no engine to wait for.
            unattended = commands.InterruptRun(session_id=lane.session_id, run_id=run_id, reason="nobody was working on it")
            lane.submit(unattended, lambda _: None, ours=True)

    def _settle(self, run_id: str | None, approval_id: str, answer: engine.Answer) -> None:
        self._disarm(approval_id)
        if run_id in self._works:
            self._works[run_id].desk.answered(approval_id, answer)

    def _settle_dialog(self, run_id: str | None, dialog_id: str, answer: engine.DialogAnswer) -> None:
        self._disarm(dialog_id)
        if run_id in self._works:
            self._works[run_id].desk.dialogs.answered(dialog_id, answer)

    def _disarm(self, question_id: str) -> None:
        if timer := self._timers.pop(question_id, None):
            timer.cancel()

    async def _keep(self, lane: Lane, run_id: str, work: Work) -> None:
        ending: commands.FinishRun | commands.InterruptRun | None
        try:
            try:
                ending = await work.doing
            except asyncio.CancelledError:
                ending = await self._cut_short(lane, run_id, work)
            except Exception as bug:
                log.error("run %s failed", run_id, exc_info=bug)
                lane.progress(run_id, events.ErrorRaised(code="INTERNAL_ERROR", message="The run failed inside the daemon"))
                ending = self._finish(lane, run_id, events.Outcome.FAILED, "The run failed inside the daemon; its log says why")
            work.desk.release()
            if ending is not None:
                await self._close(lane, run_id, work, ending)
        except (errors.Fenced, errors.NoActiveRun):
            log.warning("run %s was closed by another node, or is that one's to close", run_id)
        except errors.CoreError as refusal:
            log.error("run %s could not be closed", run_id, exc_info=refusal)
        finally:
            if self._works.get(run_id) is work:
                del self._works[run_id]
                self._end_children(run_id)

    async def _close(self, lane: Lane, run_id: str, work: Work, ending: commands.FinishRun | commands.InterruptRun) -> None:
        """Until its end is stored a run is open. A disk that is full now may have room in a moment."""
        while True:
            try:
                await lane.ask(ending)
                return
            except errors.JournalUnavailable:
                if self._stopping.is_set():
                    raise
            if work.failure is not None:
                # Its last words were lost together with its end: what it did is no longer all there to be read.
                ending = commands.InterruptRun(session_id=lane.session_id, run_id=run_id, reason=work.failure)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._services.limits.journal_retry):
                    await self._stopping.wait()

    async def _to_the_end(
        self,
        lane: Lane,
        session: Session,
        run: Run,
        pending_approval: events.Approval | None,
        desk: RunDesk,
        asked_for: events.Program | events.Flow | None,
    ) -> commands.FinishRun:
        task = await task_of(self._services.journal, session, run, pending_approval)
        if isinstance(asked_for, events.Program):
            task = msgspec.structs.replace(task, program=asked_for)
        elif asked_for is not None:
            task = msgspec.structs.replace(task, flow=asked_for)
        result = await self._engine_result(session, task, desk)
        acceptance: list[events.CriterionResult] = []
        if result.outcome is events.Outcome.SUCCESS:
            for criterion in run.acceptance:
                await desk.emit(events.PhaseChanged(phase="Checking acceptance", detail=criterion.id))
                acceptance.append(await self._workshop.check_criterion(criterion, session.workspace, session.sandbox, run.id))
        return self._finish(lane, run.id, result.outcome, result.summary, tuple(acceptance), result.exit_code)

    async def _engine_result(self, session: Session, task: engine.Task, desk: RunDesk) -> engine.Result:
        working = asyncio.ensure_future(self._engines[session.engine].run(task, desk))
        try:
            return await asyncio.shield(working)
        except asyncio.CancelledError:
            working.cancel()
            loop = asyncio.get_running_loop()
            deadline = loop.time() + self._services.limits.stop_grace
            while not working.done() and (left := deadline - loop.time()) > 0:
                # To be told a second time does not shorten the cleaning up.
                with contextlib.suppress(asyncio.CancelledError):
                    await asyncio.wait([working], timeout=left)
            if not working.done():
                log.error("the engine of run %s did not stop within %s s", task.run_id, self._services.limits.stop_grace)
            raise

    async def _cut_short(self, lane: Lane, run_id: str, work: Work) -> commands.FinishRun | commands.InterruptRun | None:
        if work.abandoned:
            return None
        if work.failure is not None:
            return commands.InterruptRun(session_id=lane.session_id, run_id=run_id, reason=work.failure)
        if not self._stopping.is_set():
            return self._finish(
                lane, run_id, events.Outcome.CANCELLED, "The run was cancelled", exit_code=work.desk.terminal.exit_code
            )
        await lane.flush()
        if lane.session is not None and lane.session.outlives_its_daemon:
            return None  # it goes on where it is now when there is a daemon again
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
