"""Encodes journal entries as the frames by which MiniCodex clients follow a session. Pure: the state comes in and goes out.

Any way to cut the entries into batches gives the same frames. The state is an immutable value, so that clients can share it:
clients whose state is the same object can share the frames of a batch, and after each run all clients have the same state. It
holds what is open in a run. Between runs there is nothing to remember, and the value is one shared object.

The part of a message that a failed model call had streamed is void. `RetryScheduled` becomes an `error` with the code `RETRY`: a
client drops the part of the message that it was sent before it, as a snapshot does.
"""

from collections.abc import Sequence
from itertools import chain
from typing import assert_never

import msgspec
from msgspec import Struct

from switchtower.core import codec, events
from switchtower.core.ports import journal
from switchtower.protocols.minicodex import frame_writer, messages
from switchtower.protocols.minicodex.frame_writer import PIECES, RETRY, STORED_OPEN, FrameWriter, parse_event_id


class RequestedCall(Struct, frozen=True):
    """A tool call that was requested; `args` is JSON."""

    call_id: str
    tool: str
    args: bytes


class OpenApproval(Struct, frozen=True):
    approval_id: str
    call: RequestedCall


class MiniCodexStreamState(Struct, frozen=True, kw_only=True):
    run_id: str | None = None
    """The active run; everything else is about it."""
    started_ms: int = 0
    seq: int = 0
    """The last entry that was encoded."""
    starting: bool = False
    """`running` has not been sent yet."""
    aborting: bool = False
    text_sent: bool = False
    """Pieces of the current message were sent, so that its end need not repeat it."""
    reasoning_sent: bool = False
    torn: bool = False
    """Entries were missing since that message started: retention has removed pieces of it."""
    has_output: bool = False
    is_explained: bool = False
    """An `error` has reported the failure."""
    requested: tuple[RequestedCall, ...] = ()
    """The calls that the last message requests."""
    open_calls: tuple[RequestedCall, ...] = ()
    """Calls that were sent and have no output yet."""
    open_approvals: tuple[OpenApproval, ...] = ()

    @classmethod
    def make_empty(cls) -> "MiniCodexStreamState":
        """Returns always the same object."""
        return _EMPTY


_EMPTY = MiniCodexStreamState()


_DECISIONS: dict[events.Verdict, messages.Decision] = {
    events.Verdict.APPROVE: "approve",
    events.Verdict.DENY_CONTINUE: "deny_continue",
    events.Verdict.DENY_STOP: "deny_abort",
}

_encode = msgspec.json.Encoder().encode


WARNING_CODES = frozenset({"ANSWER_CUT", "BUDGET_OVERRUN", "MODEL_STALLED"})
"""Warnings that a client of this protocol is sent, as errors that end nothing: without them its output would seem complete."""


class MiniCodexEventEncoder:
    def __init__(self, state: MiniCodexStreamState, session_id: str) -> None:
        self._writer = FrameWriter(session_id)
        self._initial_state = state
        self._is_changed = False
        self._restore_state(state)

    def _restore_state(self, state: MiniCodexStreamState) -> None:
        """Copies the state into fields that the batch can change."""
        self._run_id = state.run_id
        self._started_ms = state.started_ms
        self._seq = state.seq
        self._starting = state.starting
        self._aborting = state.aborting
        self._text_sent = state.text_sent
        self._reasoning_sent = state.reasoning_sent
        self._torn = state.torn
        self._has_output = state.has_output
        self._is_explained = state.is_explained
        self._requested = state.requested
        self._open_calls = state.open_calls
        self._open_approvals = state.open_approvals

    @property
    def frames(self) -> list[bytes]:
        return self._writer.frames

    def build_state(self) -> MiniCodexStreamState:
        """Returns the state after the batch: the same object as before when nothing has changed."""
        if not self._is_changed:
            return self._initial_state
        if self._run_id is None:
            return MiniCodexStreamState.make_empty()
        return MiniCodexStreamState(
            run_id=self._run_id,
            started_ms=self._started_ms,
            seq=self._seq,
            starting=self._starting,
            aborting=self._aborting,
            text_sent=self._text_sent,
            reasoning_sent=self._reasoning_sent,
            torn=self._torn,
            has_output=self._has_output,
            is_explained=self._is_explained,
            requested=self._requested,
            open_calls=self._open_calls,
            open_approvals=self._open_approvals,
        )

    def add(self, entry: journal.Entry) -> None:
        seq, ts_ms, run_id, kind, data = entry
        piece = PIECES.get(kind)
        if self._run_id is not None:
            self._is_changed = True
            if seq != self._seq + 1:
                self._torn = True
            self._seq = seq
            if piece is not None and not self._starting and run_id is not None and data.startswith(STORED_OPEN):
                if piece == b"reasoning":
                    self._reasoning_sent = True
                else:
                    self._text_sent = True
                self._writer.write_piece(entry)
                return
        self._writer.begin_entry(seq, ts_ms, run_id)
        if self._starting and run_id == self._run_id:
            self._starting = False
            self._write_status()
        self._add(codec.decode(kind, data), run_id, ts_ms, seq)
        if self._run_id is None:
            self._restore_state(MiniCodexStreamState.make_empty())

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
                    self._write_status()
            case events.MessageDelivered():
                self._torn = False  # it comes between two messages
                self._writer.write_item(messages.UserText(event.text))
            case events.TextDelta():
                self._text_sent = True
                self._writer.write_item(messages.AssistantText(event.text))
            case events.ThinkingDelta():
                self._reasoning_sent = True
                self._writer.write_item(messages.ReasoningChunk(event.text))
            case events.MessageCompleted():
                self._complete_message(event)
            case events.MessageImported():
                self._write_imported(event)
            case events.ToolCalled():
                self._write_call(RequestedCall(event.call_id, event.tool, _encode(event.args)))
            case events.ToolFinished():
                self._finish_call(event)
            case events.RetryScheduled():
                self._restart_message()
                self._writer.write_error(RETRY, f"{event.notice} ({event.reason})", _make_retry_details(event))
            case events.CompactionStarted():
                self._restart_message()
            case events.ApprovalRequested():
                if self._run_id is not None:
                    self._open_approval(event.approval)
            case events.ApprovalDecided():
                self._close_approval(event.approval_id, _DECISIONS[event.verdict])
            case events.ApprovalExpired():
                self._close_approval(event.approval_id, "deny_abort")
            case events.ApprovalWithdrawn():
                # minicodex, Approvals: each question has its decision, and the document has no value for one that is void.
                self._close_approval(event.approval_id, "deny_abort" if self._aborting else "deny_continue")
            case events.WarningRaised():
                if event.code in WARNING_CODES:
                    self._writer.write_error(event.code, event.message)
            case events.ErrorRaised():
                self._is_explained = True
                details: messages.JsonObject = {"retryable": event.retryable}
                if event.detail is not None:
                    details["detail"] = event.detail
                self._writer.write_error(event.code, event.message, details)
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
                | events.TerminalKeysTyped()
                | events.TerminalResized()
                | events.TerminalEchoChanged()
                | events.PromptShown()
                | events.PromptCleared()
                | events.ScreenCaptured()
                | events.RemoteCallStarted()
                | events.RemoteCallFinished()
                | events.HostLost()
                | events.HostReturned()
                | events.HostEventReceived()
                | events.StepStopped()
                | events.DialogOpened()
                | events.DialogAnswered()
                | events.DialogClosed()
            ):
                pass  # MiniCodex has no message for it
            case _:
                assert_never(event)

    # Runs

    def _start_run(self, event: events.RunStarted, run_id: str | None, ts_ms: int, seq: int) -> None:
        assert run_id is not None, "a run has an id"
        self._is_changed = True
        self._restore_state(MiniCodexStreamState(run_id=run_id, started_ms=ts_ms, seq=seq, starting=True))
        self._write_status()
        if event.purpose in (events.Purpose.WORK, events.Purpose.PROGRAM, events.Purpose.FLOW):
            self._writer.write_item(messages.UserText(event.text))

    def _complete_run(self, event: events.RunCompleted) -> None:
        # The core ends every call that it knows of; a call that only an approval named is ended here.
        for call in self._open_calls[: frame_writer.FRAMES_PER_ENTRY // 2]:
            self._write_output(call.call_id, _make_call_result("Not finished: the run has ended", is_error=True))
        self._open_calls, self._open_approvals = (), ()
        status: messages.RunStatus = "finished"
        match event.outcome:
            case events.Outcome.CANCELLED | events.Outcome.DENIED:
                # minicodex, interop: an abort ends as `finished`, with `aborting` and the error `ABORTED` before it.
                if not self._aborting:
                    self._aborting = True
                    self._write_status()
                self._writer.write_error("ABORTED", event.summary)
            case events.Outcome.FAILED:
                status = "error"
                if not self._is_explained:
                    self._writer.write_error("RUN_FAILED", event.summary)
            case events.Outcome.SUCCESS:
                pass
            case _:
                assert_never(event.outcome)
        self._write_status(status)
        # minicodex, Run completion: `turn_done` when there were no outputs from which a client could see the end.
        if not self._has_output:
            self._writer.write_message(messages.TurnDone())
        self._run_id = None

    def _compute_status(self) -> messages.RunStatus:
        if self._aborting:
            return "aborting"
        if self._open_approvals:
            return "awaiting_approval"
        return "starting" if self._starting else "running"

    def _write_status(self, ended_as: messages.RunStatus | None = None) -> None:
        assert self._run_id is not None, "a status is a run's"
        pending = [
            b'{"call_id":%b,"tool_key":%b,"args":%b}' % (_encode(asked.call.call_id), _encode(asked.call.tool), asked.call.args)
            for asked in self._open_approvals
        ]
        status = ended_as or self._compute_status()
        self._writer.write_status(self._run_id, status, self._started_ms, pending, ended=ended_as is not None)

    # Messages

    def _complete_message(self, event: events.MessageCompleted) -> None:
        if event.thinking and not self._reasoning_sent:
            self._writer.write_item(messages.ReasoningChunk(event.thinking))
        if event.text and not self._text_sent:
            self._writer.write_item(messages.AssistantText(event.text))
        self._restart_message()
        self._requested = tuple(RequestedCall(call.call_id, call.tool, _encode(call.args)) for call in event.calls)

    def _restart_message(self) -> None:
        self._text_sent = self._reasoning_sent = self._torn = False

    def _write_imported(self, event: events.MessageImported) -> None:
        match event.role:
            case "user":
                if event.text or event.images:  # otherwise it is for the clients of another protocol alone
                    self._writer.write_item(messages.UserText(event.text))
            case "assistant":
                if event.thinking:
                    self._writer.write_item(messages.ReasoningChunk(event.thinking))
                if event.text:
                    self._writer.write_item(messages.AssistantText(event.text))
                for call in event.calls[: frame_writer.FRAMES_PER_ENTRY // 2]:
                    self._writer.write_item(messages.ToolCall(call.tool, call.args, call.call_id))
            case _:
                result = _make_call_result(event.text, is_error=event.is_error)
                self._writer.write_item(messages.FunctionCallOutput(event.call_id or "", result))

    # Calls and questions

    def _write_call(self, call: RequestedCall) -> None:
        """Writes each call once, whichever event names it first: so it also has one output."""
        self._torn = False  # calls follow their message
        if any(open_call.call_id == call.call_id for open_call in self._open_calls):
            return
        if self._run_id is not None:
            self._open_calls = (*self._open_calls, call)
        self._writer.write_tool_call(call.tool, call.args, call.call_id)

    def _finish_call(self, event: events.ToolFinished) -> None:
        self._write_call(self._find_call(event.call_id) or RequestedCall(event.call_id, event.tool, b"{}"))
        self._open_calls = tuple(call for call in self._open_calls if call.call_id != event.call_id)
        self._write_output(event.call_id, event.result or _make_call_result(event.text, is_error=event.is_error))

    def _write_output(self, call_id: str, result: messages.JsonObject) -> None:
        self._has_output = True
        self._writer.write_item(messages.FunctionCallOutput(call_id, result))

    def _find_call(self, call_id: str) -> RequestedCall | None:
        return next((call for call in chain(self._open_calls, self._requested) if call.call_id == call_id), None)

    def _open_approval(self, approval: events.Approval) -> None:
        call = self._find_call(approval.call_id) or RequestedCall(approval.call_id, approval.kind, _encode(approval.details))
        self._write_call(call)
        self._open_approvals = (*self._open_approvals, OpenApproval(approval.id, call))
        self._writer.write_message(
            messages.ApprovalPendingEvt(call_id=call.call_id, tool_key=call.tool, args_json=call.args.decode())
        )
        self._write_status()

    def _close_approval(self, approval_id: str, decision: messages.Decision) -> None:
        closed = next((asked for asked in self._open_approvals if asked.approval_id == approval_id), None)
        if closed is None:
            return
        self._open_approvals = tuple(asked for asked in self._open_approvals if asked is not closed)
        self._writer.write_message(messages.ApprovalDecisionEvt(call_id=closed.call.call_id, decision=decision))
        if not self._aborting:  # it is sent once, and only the run's end follows it
            self._write_status()


def _make_call_result(text: str, *, is_error: bool) -> messages.JsonObject:
    """An MCP CallToolResult."""
    return {"content": [{"type": "text", "text": text}], "isError": is_error}


def _make_retry_details(event: events.RetryScheduled) -> messages.JsonObject:
    return {"attempt": event.attempt, "max_attempts": event.max_attempts, "delay_ms": event.delay_ms}


SMALL_BATCH = 8
"""A batch of up to this many pieces is encoded without copying the state, which would cost more than the pieces do."""
TEXT, THINKING = events.TextDelta.kind, events.ThinkingDelta.kind


def encode_batch(
    state: MiniCodexStreamState, session_id: str, entries: Sequence[journal.Entry]
) -> tuple[list[bytes], MiniCodexStreamState]:
    """Returns the frames for these entries, and the state for the next ones."""
    if len(entries) <= SMALL_BATCH and _is_plain_continuation(state, entries):
        frames = [frame_writer.encode_piece(entry) for entry in entries]
        return frames, msgspec.structs.replace(state, seq=entries[-1].seq)
    teller = MiniCodexEventEncoder(state, session_id)
    add = teller.add
    for entry in entries:
        add(entry)
    return teller.frames, teller.build_state()


def _is_plain_continuation(state: MiniCodexStreamState, entries: Sequence[journal.Entry]) -> bool:
    """The entries are further pieces of the streamed message, and none is missing: only the place in the journal changes."""
    seq = state.seq
    for entry in entries:
        seq += 1
        is_told = state.text_sent if entry.kind == TEXT else state.reasoning_sent if entry.kind == THINKING else False
        if not is_told or entry.seq != seq or entry.run_id is None or not entry.data.startswith(frame_writer.STORED_OPEN):
            return False
    return bool(entries)


def encode_rest_of_entry(
    before: MiniCodexStreamState, session_id: str, entry: journal.Entry | None, last_seen_event_id: int
) -> tuple[list[bytes], MiniCodexStreamState]:
    """Returns the frames that a client has not seen of the entry that it saw last, and its state for the next entries.

    `before` is the state after the earlier entries, as far as the journal still has them. `entry` is None when retention has
    removed it. The missing entries were pieces and phases: with them the client was sent that the run is running, and the current
    message as far as it had been streamed.
    """
    seq, place = parse_event_id(last_seen_event_id)
    frames, state = encode_batch(_advance_to(before, seq - 1), session_id, [] if entry is None else [entry])
    state = _advance_to(state, seq)
    if state.torn:
        state = msgspec.structs.replace(state, text_sent=True, reasoning_sent=True)
    return frames[place + 1 :], state


def _advance_to(state: MiniCodexStreamState, seq: int) -> MiniCodexStreamState:
    """Returns the state after `seq` when no entry is left in between."""
    if state.run_id is None or state.seq >= seq:
        return state
    # An engine's first event in a run is a phase: no message has started.
    is_phase = state.starting and state.seq + 1 == seq
    return msgspec.structs.replace(state, seq=seq, starting=False, torn=state.torn or not is_phase)
