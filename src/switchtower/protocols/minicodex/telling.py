"""One batch of entries, told in MiniCodex's words: a `Story` taken apart, added to, and put together again. Pure."""

from itertools import chain
from typing import assert_never

import msgspec

from switchtower.core import codec, events, journal
from switchtower.protocols.minicodex import messages, stamps
from switchtower.protocols.minicodex.plot import Call, Question, Story
from switchtower.protocols.minicodex.scribe import PIECES, RETRY, STORED_OPEN, Scribe

_DECISIONS: dict[events.Verdict, messages.Decision] = {
    events.Verdict.APPROVE: "approve",
    events.Verdict.DENY_CONTINUE: "deny_continue",
    events.Verdict.DENY_STOP: "deny_abort",
}

_encode = msgspec.json.Encoder().encode


WARNED_OF = frozenset({"ANSWER_CUT", "BUDGET_OVERRUN", "MODEL_STALLED"})
"""Warnings that a client of this protocol is sent, as errors that end nothing: what it shows would look whole without them."""


class Teller:
    def __init__(self, story: Story, session_id: str) -> None:
        self._scribe = Scribe(session_id)
        self._began_as = story
        self._is_touched = False
        self._take(story)

    def _take(self, story: Story) -> None:
        """The story, taken apart."""
        self._run_id = story.run_id
        self._started_ms = story.started_ms
        self._seq = story.seq
        self._starting = story.starting
        self._aborting = story.aborting
        self._text_told = story.text_told
        self._reasoning_told = story.reasoning_told
        self._torn = story.torn
        self._has_output = story.has_output
        self._is_explained = story.is_explained
        self._requested = story.requested
        self._open_calls = story.open_calls
        self._questions = story.questions

    @property
    def frames(self) -> list[bytes]:
        return self._scribe.frames

    def story(self) -> Story:
        """The state after the batch: the very object that it was before when nothing has changed."""
        if not self._is_touched:
            return self._began_as
        if self._run_id is None:
            return Story.empty()
        return Story(
            run_id=self._run_id,
            started_ms=self._started_ms,
            seq=self._seq,
            starting=self._starting,
            aborting=self._aborting,
            text_told=self._text_told,
            reasoning_told=self._reasoning_told,
            torn=self._torn,
            has_output=self._has_output,
            is_explained=self._is_explained,
            requested=self._requested,
            open_calls=self._open_calls,
            questions=self._questions,
        )

    def add(self, entry: journal.Entry) -> None:
        seq, ts_ms, run_id, kind, data = entry
        piece = PIECES.get(kind)
        if self._run_id is not None:
            self._is_touched = True
            if seq != self._seq + 1:
                self._torn = True
            self._seq = seq
            if piece is not None and not self._starting and run_id is not None and data.startswith(STORED_OPEN):
                if piece == b"reasoning":
                    self._reasoning_told = True
                else:
                    self._text_told = True
                self._scribe.piece(entry)
                return
        self._scribe.begin(seq, ts_ms, run_id)
        if self._starting and run_id == self._run_id:
            self._starting = False
            self._tell_status()
        self._add(codec.decode(kind, data), run_id, ts_ms, seq)
        if self._run_id is None:
            self._take(Story.empty())

    def _add(self, event: events.AnyEvent, run_id: str | None, ts_ms: int, seq: int) -> None:
        match event:
            case events.RunStarted():
                self._start_run(event, run_id, ts_ms, seq)
            case events.RunCompleted():
                if self._run_id is not None:
                    self._complete_run(event)
            case events.RunCancelRequested():
                if self._run_id is not None and not self._aborting:
                    self._aborting = True
                    self._tell_status()
            case events.MessageDelivered():
                self._torn = False  # it comes between two messages
                self._scribe.item(messages.UserText(event.text))
            case events.TextDelta():
                self._text_told = True
                self._scribe.item(messages.AssistantText(event.text))
            case events.ThinkingDelta():
                self._reasoning_told = True
                self._scribe.item(messages.ReasoningChunk(event.text))
            case events.MessageCompleted():
                self._complete_message(event)
            case events.MessageImported():
                self._tell_imported(event)
            case events.ToolCalled():
                self._tell_call(Call(event.call_id, event.tool, _encode(event.args)))
            case events.ToolFinished():
                self._finish_call(event)
            case events.RetryScheduled():
                self._begin_message_again()
                self._scribe.error(RETRY, f"{event.notice} ({event.reason})", _retry(event))
            case events.CompactionStarted():
                self._begin_message_again()
            case events.ApprovalRequested():
                if self._run_id is not None:
                    self._ask(event.approval)
            case events.ApprovalDecided():
                self._close(event.approval_id, _DECISIONS[event.verdict])
            case events.ApprovalExpired():
                self._close(event.approval_id, "deny_abort")
            case events.ApprovalWithdrawn():
                # minicodex, Approvals: each question has its decision, and the document has no word for one that is void
                self._close(event.approval_id, "deny_abort" if self._aborting else "deny_continue")
            case events.WarningRaised():
                if event.code in WARNED_OF:
                    self._scribe.error(event.code, event.message)
            case events.ErrorRaised():
                self._is_explained = True
                details: messages.JsonObject = {"retryable": event.retryable}
                if event.detail is not None:
                    details["detail"] = event.detail
                self._scribe.error(event.code, event.message, details)
            case (
                events.SessionStarted()
                | events.SessionLoaded()
                | events.SessionUnloaded()
                | events.SessionDeleted()
                | events.VersionAdvanced()
                | events.SessionResumed()
                | events.SessionConfigured()
                | events.MessageQueued()
                | events.MessageWithdrawn()
                | events.PromptExpanded()
                | events.ConversationCleared()
                | events.ShellStarted()
                | events.ShellCancelRequested()
                | events.ShellFinished()
                | events.PhaseChanged()
                | events.ToolProgressed()
                | events.UsageReported()
                | events.RetryEnded()
                | events.ContextCompacted()
                | events.CompactionFailed()
                | events.CheckpointTaken()
                | events.WorkspaceRestored()
                | events.TerminalTyped()
                | events.TerminalKeys()
                | events.TerminalResized()
                | events.TerminalEchoed()
                | events.PromptShown()
                | events.PromptGone()
                | events.ScreenTaken()
                | events.ErrandStarted()
                | events.ErrandFinished()
                | events.HostLost()
                | events.HostReturned()
                | events.HostSaid()
                | events.StepStopped()
                | events.DialogOpened()
                | events.DialogAnswered()
                | events.DialogClosed()
            ):
                pass  # MiniCodex has no word for it
            case _:
                assert_never(event)

    # Runs

    def _start_run(self, event: events.RunStarted, run_id: str | None, ts_ms: int, seq: int) -> None:
        assert run_id is not None, "a run has an id"
        self._is_touched = True
        self._take(Story(run_id=run_id, started_ms=ts_ms, seq=seq, starting=True))
        self._tell_status()
        if event.purpose in (events.Purpose.WORK, events.Purpose.PROGRAM, events.Purpose.FLOW):
            self._scribe.item(messages.UserText(event.text))

    def _complete_run(self, event: events.RunCompleted) -> None:
        # Core ends every call it was told of; a call that only a question named is ended here.
        for call in self._open_calls[: stamps.PLACES // 2]:
            self._tell_output(call.call_id, _result("Not finished: the run has ended", is_error=True))
        self._open_calls, self._questions = (), ()
        status: messages.RunStatus = "finished"
        match event.outcome:
            case events.Outcome.CANCELLED | events.Outcome.DENIED:
                # minicodex, interop: an abort ends as `finished`, with `aborting` and the error `ABORTED` before it
                if not self._aborting:
                    self._aborting = True
                    self._tell_status()
                self._scribe.error("ABORTED", event.summary)
            case events.Outcome.FAILED:
                status = "error"
                if not self._is_explained:
                    self._scribe.error("RUN_FAILED", event.summary)
            case events.Outcome.SUCCESS:
                pass
            case _:
                assert_never(event.outcome)
        self._tell_status(status)
        # minicodex, Run completion: `turn_done` when there were no outputs by which a client could tell
        if not self._has_output:
            self._scribe.message(messages.TurnDone())
        self._run_id = None

    def _status(self) -> messages.RunStatus:
        if self._aborting:
            return "aborting"
        if self._questions:
            return "awaiting_approval"
        return "starting" if self._starting else "running"

    def _tell_status(self, ended_as: messages.RunStatus | None = None) -> None:
        assert self._run_id is not None, "a status is a run's"
        pending = [
            b'{"call_id":%b,"tool_key":%b,"args":%b}' % (_encode(asked.call.call_id), _encode(asked.call.tool), asked.call.args)
            for asked in self._questions
        ]
        status = ended_as or self._status()
        self._scribe.status(self._run_id, status, self._started_ms, pending, ended=ended_as is not None)

    # Messages

    def _complete_message(self, event: events.MessageCompleted) -> None:
        if event.thinking and not self._reasoning_told:
            self._scribe.item(messages.ReasoningChunk(event.thinking))
        if event.text and not self._text_told:
            self._scribe.item(messages.AssistantText(event.text))
        self._begin_message_again()
        self._requested = tuple(Call(call.call_id, call.tool, _encode(call.args)) for call in event.calls)

    def _begin_message_again(self) -> None:
        self._text_told = self._reasoning_told = self._torn = False

    def _tell_imported(self, event: events.MessageImported) -> None:
        match event.role:
            case "user":
                if event.text or event.images:  # else it is for the clients of another protocol alone
                    self._scribe.item(messages.UserText(event.text))
            case "assistant":
                if event.thinking:
                    self._scribe.item(messages.ReasoningChunk(event.thinking))
                if event.text:
                    self._scribe.item(messages.AssistantText(event.text))
                for call in event.calls[: stamps.PLACES // 2]:
                    self._scribe.item(messages.ToolCall(call.tool, call.args, call.call_id))
            case _:
                result = _result(event.text, is_error=event.is_error)
                self._scribe.item(messages.FunctionCallOutput(event.call_id or "", result))

    # Calls and questions

    def _tell_call(self, call: Call) -> None:
        """Once for each call, whichever event names it first: so it has one output, too."""
        self._torn = False  # calls come behind their message
        if any(open_call.call_id == call.call_id for open_call in self._open_calls):
            return
        if self._run_id is not None:
            self._open_calls = (*self._open_calls, call)
        self._scribe.tool_call(call.tool, call.args, call.call_id)

    def _finish_call(self, event: events.ToolFinished) -> None:
        self._tell_call(self._known(event.call_id) or Call(event.call_id, event.tool, b"{}"))
        self._open_calls = tuple(call for call in self._open_calls if call.call_id != event.call_id)
        self._tell_output(event.call_id, event.result or _result(event.text, is_error=event.is_error))

    def _tell_output(self, call_id: str, result: messages.JsonObject) -> None:
        self._has_output = True
        self._scribe.item(messages.FunctionCallOutput(call_id, result))

    def _known(self, call_id: str) -> Call | None:
        return next((call for call in chain(self._open_calls, self._requested) if call.call_id == call_id), None)

    def _ask(self, approval: events.Approval) -> None:
        call = self._known(approval.call_id) or Call(approval.call_id, approval.kind, _encode(approval.details))
        self._tell_call(call)
        self._questions = (*self._questions, Question(approval.id, call))
        self._scribe.message(messages.ApprovalPendingEvt(call_id=call.call_id, tool_key=call.tool, args_json=call.args.decode()))
        self._tell_status()

    def _close(self, approval_id: str, decision: messages.Decision) -> None:
        closed = next((asked for asked in self._questions if asked.approval_id == approval_id), None)
        if closed is None:
            return
        self._questions = tuple(asked for asked in self._questions if asked is not closed)
        self._scribe.message(messages.ApprovalDecisionEvt(call_id=closed.call.call_id, decision=decision))
        if not self._aborting:  # it is sent once, and only the run's end follows it
            self._tell_status()


def _result(text: str, *, is_error: bool) -> messages.JsonObject:
    """An MCP CallToolResult."""
    return {"content": [{"type": "text", "text": text}], "isError": is_error}


def _retry(event: events.RetryScheduled) -> messages.JsonObject:
    return {"attempt": event.attempt, "max_attempts": event.max_attempts, "delay_ms": event.delay_ms}
