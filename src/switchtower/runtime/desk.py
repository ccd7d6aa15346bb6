"""An engine's side of a run: what it says is redacted and handed to the lane; what it asks waits for a recorded decision."""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

from switchtower.core import commands, engine, events, ids, redact
from switchtower.runtime.dialogs import PendingDialogs
from switchtower.runtime.lane import Lane
from switchtower.runtime.steps import CancellableSteps
from switchtower.runtime.terminal_inbox import TerminalInputQueue

T = TypeVar("T")

UNCOMMITTED_CHARS = 1024 * 1024
"""Output that may wait for a turn of the lane. The number of events alone would allow many times as much."""
SLICE = 4_096
"""Characters of output that are redacted at once; between two slices others have their turn."""


async def _feed_in_slices(output: redact.StreamRedactor, text: str) -> str:
    safe = []
    for start in range(0, len(text), SLICE):
        safe.append(output.feed(text[start : start + SLICE]))
        await asyncio.sleep(0)
    return "".join(safe)


class LaneRunContext:
    """Implements `engine.Desk` for one run."""

    def __init__(
        self,
        lane: Lane,
        run_id: str,
        redactor: redact.Redactor,
        mint: ids.Mint,
        expires_at_ms: Callable[[], int],
        earlier_approvals: Iterable[events.Approval] = (),
        steered: Iterable[events.MessageQueued] = (),
        pausing: Callable[[], bool] = lambda: False,
    ) -> None:
        """`asked_before` are the questions that a restart left open: asked again, they are waited for and not repeated.
        `steered` are the messages that the run had not taken up yet."""
        self.session_id = lane.session_id
        self.mint = mint
        self.is_shutting_down = pausing
        self._lane = lane
        self._run_id = run_id
        self._expires_at_ms = expires_at_ms
        self._text = redactor.open_stream()
        self._thinking = redactor.open_stream()
        self._outputs: dict[str, redact.StreamRedactor] = {}
        """One a tool call that tells of its progress; its pieces are redacted as one text."""
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
        # One await and few calls: each token of each model comes through here.
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
        """Lets go of text that was held back in case it began a secret: whatever follows comes after it."""
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
        # It may have been decided, or have expired, before the engine got here to ask again: the answer is waiting then.
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
        """A decision was committed. It may come before the asker has begun to wait."""
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
