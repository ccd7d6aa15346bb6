"""The engine's side of one run: its events are redacted and queued in the lane, its approvals and dialogs wait for a recorded
decision, and its task is read from the journal, the same after a restart.
"""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

import msgspec

from switchtower.core import commands, conversation, events, ids
from switchtower.core import redact as core_redact
from switchtower.core.ports import engine, journal
from switchtower.core.session import Run, Session, Timeline
from switchtower.runtime.lane import Lane

StepResult = TypeVar("StepResult")


class CancellableSteps:
    def __init__(self) -> None:
        self._doing: dict[str, asyncio.Future[object]] = {}

    async def run(self, step: str, work: Awaitable[StepResult]) -> StepResult:
        """Raises `engine.StepCancelled` when the step was stopped. A cancelled run raises `CancelledError` as usual."""
        task: asyncio.Future[StepResult] = asyncio.ensure_future(work)
        self._doing[step] = task  # type: ignore[assignment]
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError:
            task.cancel()
            await asyncio.wait([task])
            raise
        finally:
            self._doing.pop(step, None)
        if task.cancelled():
            raise engine.StepCancelled(step)
        return task.result()

    def stop(self, step: str) -> None:
        """Does nothing when the step is not active: it has ended by itself."""
        if (task := self._doing.get(step)) is not None:
            task.cancel()


MOST_CHARS = 4 * 1024 * 1024
"""Characters of input that a program has not read yet; beyond that, no further input is accepted."""


class TerminalInputQueue:
    def __init__(self) -> None:
        self._waiting: asyncio.Queue[engine.TypedText | engine.ResizedScreen] = asyncio.Queue()
        self._chars = 0
        self._hurry = asyncio.Event()
        self.exit_code: int | None = None

    @property
    def is_full(self) -> bool:
        return self._chars >= MOST_CHARS

    def put(self, item: engine.TypedText | engine.ResizedScreen) -> None:
        self._waiting.put_nowait(item)
        if isinstance(item, engine.TypedText):
            self._chars += len(item.text)

    async def next(self) -> engine.TypedText | engine.ResizedScreen:
        item = await self._waiting.get()
        if isinstance(item, engine.TypedText):
            self._chars -= len(item.text)
        return item

    def force_end(self) -> None:
        self._hurry.set()

    async def wait_for_force(self) -> None:
        await self._hurry.wait()


class PendingDialogs:
    def __init__(self, lane: Lane, run_id: str) -> None:
        self._lane = lane
        self._run_id = run_id
        self._waiting: dict[str, asyncio.Future[engine.DialogAnswer]] = {}

    async def open(self, dialog: events.Dialog) -> engine.DialogAnswer:
        opened = commands.OpenDialog(session_id=self._lane.session_id, run_id=self._run_id, dialog=dialog)
        dialog_id = str((await self._lane.ask(opened))["dialog_id"])
        return await self._get_future(dialog_id)

    def resolve(self, dialog_id: str, answer: engine.DialogAnswer) -> None:
        """An answer was committed. That may happen before the engine has started to wait for it."""
        future = self._get_future(dialog_id)
        if not future.done():
            future.set_result(answer)

    def _get_future(self, dialog_id: str) -> asyncio.Future[engine.DialogAnswer]:
        return self._waiting.setdefault(dialog_id, asyncio.get_running_loop().create_future())


T = TypeVar("T")

UNCOMMITTED_CHARS = 1024 * 1024
"""Characters of output that may wait for a turn of the lane. The limit on the number of events would allow many times as much."""
SLICE = 4_096
"""Characters of output that are redacted at once; other tasks run between two slices."""


async def _feed_in_slices(output: core_redact.StreamRedactor, text: str) -> str:
    safe = []
    for start in range(0, len(text), SLICE):
        safe.append(output.feed(text[start : start + SLICE]))
        await asyncio.sleep(0)
    return "".join(safe)


class LaneRunContext:
    """Implements `engine.RunContext` for one run."""

    def __init__(
        self,
        lane: Lane,
        run_id: str,
        redactor: core_redact.Redactor,
        mint: ids.Mint,
        expires_at_ms: Callable[[], int],
        earlier_approvals: Iterable[events.Approval] = (),
        steered: Iterable[events.MessageQueued] = (),
        pausing: Callable[[], bool] = lambda: False,
    ) -> None:
        """`earlier_approvals` are the approvals that were open before a restart: when the engine requests one again, it waits
        for that one and no new one is created. `steered` are the messages that the run had not taken yet.
        """
        self.session_id = lane.session_id
        self.mint = mint
        self.is_shutting_down = pausing
        self._lane = lane
        self._run_id = run_id
        self._expires_at_ms = expires_at_ms
        self._text = redactor.open_stream()
        self._thinking = redactor.open_stream()
        self._outputs: dict[str, core_redact.StreamRedactor] = {}
        """One redactor per tool call that reports progress; the pieces of a call are redacted as one text."""
        self._uncommitted_chars = 0
        self._redactor = redactor
        self._steered = list(steered)
        self._held = False
        self.dialogs = PendingDialogs(lane, run_id)
        self.terminal = TerminalInputQueue()
        self._steps = CancellableSteps()
        self._waiting: dict[str, asyncio.Future[engine.ApprovalAnswer]] = {}
        self._earlier_approvals = {(approval.call_id, approval.fingerprint): approval.id for approval in earlier_approvals}

    async def emit(self, event: events.AnyEvent) -> None:
        # One await and few calls: each token of each model passes through here.
        if isinstance(event, events.TextDelta):
            self._held = True
            safe = self._text.feed(event.text)
            if not safe:
                return
            crowded = self._lane.add_progress(self._run_id, event if safe is event.text else events.TextDelta(safe))
        elif isinstance(event, events.ThinkingDelta):
            self._held = True
            safe = self._thinking.feed(event.text)
            if not safe:
                return
            crowded = self._lane.add_progress(self._run_id, events.ThinkingDelta(safe))
        elif isinstance(event, events.ToolProgressed):
            output = self._outputs.setdefault(event.call_id, self._redactor.open_stream())
            safe = output.feed(event.text) if len(event.text) <= SLICE else await _feed_in_slices(output, event.text)
            if not safe:
                return
            crowded = self._lane.add_progress(self._run_id, events.ToolProgressed(event.call_id, safe))
            self._uncommitted_chars += len(safe)
            if self._uncommitted_chars >= UNCOMMITTED_CHARS:
                self._uncommitted_chars, crowded = 0, True
        else:
            self.flush_redactors()
            if isinstance(event, events.ToolFinished):
                self._release_output(event.call_id)
            crowded = self._lane.add_progress(self._run_id, event)
        if crowded:
            await self._lane.wait_for_room()

    def flush_redactors(self) -> None:
        """Emits text that was held back because a secret might start in it, so that later events come after it."""
        if self._held:
            self._held = False
            if thinking := self._thinking.close():
                self._lane.add_progress(self._run_id, events.ThinkingDelta(thinking))
            if text := self._text.close():
                self._lane.add_progress(self._run_id, events.TextDelta(text))

    def _release_output(self, call_id: str) -> None:
        output = self._outputs.pop(call_id, None)
        if output is not None and (text := output.close()):
            self._lane.add_progress(self._run_id, events.ToolProgressed(call_id, text))

    async def flush(self) -> None:
        self.flush_redactors()
        await self._lane.flush()

    async def request_approval(self, question: engine.ApprovalQuestion) -> engine.ApprovalAnswer:
        self.flush_redactors()
        fingerprint = hashlib.sha256(question.subject.encode()).hexdigest()
        # The approval may have been decided, or have expired, before the engine requested it again: then the answer is already
        # here.
        approval_id = self._earlier_approvals.pop((question.call_id, fingerprint), None)
        if approval_id is None:
            approval_id = await self._request_decision(question, fingerprint)
        return await self._waiting.setdefault(approval_id, asyncio.get_running_loop().create_future())

    async def _request_decision(self, question: engine.ApprovalQuestion, fingerprint: str) -> str:
        outcome = await self._lane.ask(
            commands.RequestApproval(
                session_id=self._lane.session_id,
                run_id=self._run_id,
                call_id=question.call_id,
                kind=question.kind,
                title=question.title,
                summary=question.summary,
                details=question.details,
                fingerprint=fingerprint,
                expires_at_ms=self._expires_at_ms(),
                rule=question.rule,
                approval_id=question.approval_id,
                options=question.options,
            )
        )
        return str(outcome["approval_id"])

    async def withdraw_approval(self, approval_id: str, reason: str) -> None:
        await self._lane.ask(commands.WithdrawApproval(session_id=self._lane.session_id, approval_id=approval_id, reason=reason))

    async def next_terminal_input(self) -> engine.TypedText | engine.ResizedScreen:
        return await self.terminal.next()

    async def wait_for_force(self) -> None:
        await self.terminal.wait_for_force()

    def report_exit(self, exit_code: int) -> None:
        self.terminal.exit_code = exit_code

    def release_output(self, call_id: str) -> None:
        output = self._outputs.get(call_id)
        if output is not None and (text := output.settle()):
            self._lane.add_progress(self._run_id, events.ToolProgressed(call_id, text))

    def redact(self, text: str) -> str:
        return self._redactor.redact_text(text)

    def resolve_approval(self, approval_id: str, answer: engine.ApprovalAnswer) -> None:
        """A decision was committed. That may happen before the engine has started to wait for it."""
        future = self._waiting.setdefault(approval_id, asyncio.get_running_loop().create_future())
        if not future.done():
            future.set_result(answer)

    async def open_dialog(self, dialog: events.Dialog) -> engine.DialogAnswer:
        self.flush_redactors()
        return await self.dialogs.open(dialog)

    async def run_step(self, step: str, work: Awaitable[T]) -> T:
        return await self._steps.run(step, work)

    def stop_step(self, step: str) -> None:
        self._steps.stop(step)

    def add_steering_message(self, message: events.MessageQueued) -> None:
        """A message for this run was committed."""
        self._steered.append(message)

    def take_steering_messages(self) -> tuple[events.MessageQueued, ...]:
        messages, self._steered = tuple(self._steered), []
        return messages


HISTORY_PAGE = 1_000


async def load_task(
    journal_: journal.Journal, session: Session, run: Run, pending_approval: events.Approval | None
) -> engine.Task:
    # The state of the session is read before the first await: it may change while the journal is read.
    task = _make_task(session, run, pending_approval)
    told = conversation.Conversation()
    after_seq, head = 0, session.seq
    while after_seq < head:
        entries = await journal_.read(session.id, after_seq, HISTORY_PAGE)
        if not entries:
            break
        after_seq = entries[-1].seq
        await asyncio.sleep(0)  # a long history is read one page per turn of the event loop, so that other tasks run in between
        for entry in entries:
            told.add_entry(entry)
    return _add_conversation(task, told)


def _make_task(session: Session, run: Run, pending_approval: events.Approval | None) -> engine.Task:
    return engine.Task(
        session_id=session.id,
        run_id=run.id,
        workspace=session.workspace,
        provider=session.provider,
        model=session.model,
        sandbox=session.sandbox,
        headless=run.headless,
        messages=(),
        pending_approval=pending_approval,
        purpose=run.purpose,
        instructions=run.instructions,
        force=run.force,
        policy=session.policy,
        rules=tuple(session.rules),
        run_rules=run.rules,
        thinking=session.thinking,
        budget=session.budget,
        started_at_ms=run.started_at_ms,
        turns_taken=run.usage.calls,
        tokens_used=run.usage.tokens,
        cost=run.usage.cost,
        context_tokens=session.context_tokens,
        checkpoint=run.checkpoint,
        timeline=Timeline(tuple(session.done), tuple(session.undone)),
        auto_compact=session.auto_compact,
        auto_retry=session.auto_retry,
        preset=session.preset,
    )


def _add_conversation(task: engine.Task, history: conversation.Conversation) -> engine.Task:
    return msgspec.structs.replace(
        task,
        messages=tuple(history.messages),
        open_calls=tuple(history.open_calls.values()),
        called=frozenset(history.called & history.open_calls.keys()),
        flow=history.flow,
        steps=tuple(history.steps),
    )
