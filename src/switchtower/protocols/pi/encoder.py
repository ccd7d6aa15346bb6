"""Encodes journal entries as the frames by which pi's clients follow a session. Pure: the state comes in and goes out.

Any way to cut the entries into batches gives the same frames. Clients whose state is the same object can share the frames of a
batch; after each run all clients have the same state.

Encodes the turns of a run and their messages within a batch: one assistant message a turn, with its tool results. Pure.

The end of a turn is known when the last call has its result, or from the next event. A message's usage is reported after it, so
the end of the message is held back until then, or until the run continues."""

from collections.abc import Sequence
from typing import assert_never

import msgspec
from msgspec import UNSET, Raw, Struct

from switchtower.core import codec, events
from switchtower.core.ports import journal
from switchtower.protocols.pi import event_messages, responses, stream_state
from switchtower.protocols.pi.sessions import info, transcript
from switchtower.protocols.pi.stream_state import AssistantInfo, PiStreamState

MAX_END_MESSAGES = 8 * 1024 * 1024
"""Bytes of messages in `agent_end`; the oldest are left out. Each was sent before."""

_encode = msgspec.json.Encoder().encode


class TurnEncoder:
    def __init__(self, state: stream_state.PiStreamState, session: bytes, assistant: stream_state.AssistantInfo) -> None:
        self.frames: list[bytes] = []
        self.streamed = state.streamed and state.streamed.copy()
        self.held = state.held
        self.open = state.turn_open
        self.message = state.turn_message
        self.awaited = state.awaited
        self.results = state.results
        self.said = state.said
        self.said_bytes = state.said_bytes
        self._session = session
        self._assistant = assistant

    def reset(self) -> None:
        self.streamed = self.held = self.message = self.results = self.said = None
        self.open, self.awaited, self.said_bytes = False, 0, 0

    def emit(self, event: Struct) -> None:
        self.frames.append(b"%b%b}" % (self._session, _encode(event)))

    def begin_message(self, ts_ms: int) -> stream_state.StreamedMessage:
        self.flush_held_message()
        self.begin_turn()
        self.streamed = stream_state.StreamedMessage(self._session, self._assistant, ts_ms)
        self.frames.append(self.streamed.encode_start())
        return self.streamed

    def complete_message(self, event: events.MessageCompleted, ts_ms: int) -> None:
        streamed = self.streamed or self.begin_message(ts_ms)
        self.held, self.awaited, self.streamed = streamed.complete(event, self.frames), len(event.calls), None

    def flush_held_message(self, usage: events.UsageReported | None = None) -> None:
        message, self.held = self.held, None
        if message is None:
            return
        if usage is not None:
            message = msgspec.structs.replace(
                message, usage=info.convert_usage(usage), provider=usage.provider, model=usage.model
            )
        self._end_message(_encode(message))
        if self.awaited == 0:
            self._end_turn()

    def discard_message(self, reason: str) -> None:
        """The streamed part of a message does not count: the message ends, and is not part of the conversation."""
        if self.streamed is not None:
            self.streamed.abort(self.frames)
            self.emit(event_messages.MessageEnd(Raw(self.streamed.encode_message("error", reason))))
            self.streamed = None

    def add_user_message(self, text: str, images: tuple[events.Image, ...], ts_ms: int) -> None:
        self.begin_turn()
        self._emit_whole(_encode(event_messages.User(transcript.make_content(text, images), ts_ms)))

    def add_tool_result(self, result: event_messages.ToolResult) -> None:
        encoded = _encode(result)
        self._emit_whole(encoded)
        self.results = (self.results, encoded)
        self.awaited -= 1
        if self.awaited <= 0 and self.message is not None:
            self._end_turn()

    def begin_turn(self) -> None:
        """Starts a turn for what follows, unless the current turn has no message yet."""
        if self.open and self.message is not None:
            self._end_turn()
        if not self.open:
            self.open = True
            self.emit(event_messages.TurnStart())

    def end(self, stopped: event_messages.StopReason, error: str | None, ts_ms: int) -> None:
        """The run has ended, and with it the agent's work."""
        if self.streamed is not None:
            self.streamed.abort(self.frames)
            self._end_message(self.streamed.encode_message(stopped, error))
        elif stopped != "stop" or (self.open and self.message is None):
            # pi's clients learn from a message how a run ended, so there must be one.
            self.begin_turn()
            message = stream_state.make_empty_message(self._assistant, ts_ms, stopped, error)
            self.emit(event_messages.MessageStart(message))
            self._end_message(_encode(message))
        if self.open:
            self._end_turn()
        self.emit(event_messages.AgentEnd([Raw(message) for message in stream_state.take_newest(self.said, MAX_END_MESSAGES)]))

    def _end_turn(self) -> None:
        assert self.message is not None, "a turn ends with its message"
        results = [Raw(result) for result in stream_state.list_chain(self.results)]
        self.emit(event_messages.TurnEnd(Raw(self.message), results))
        self.open, self.message, self.results, self.awaited = False, None, None, 0

    def _end_message(self, message: bytes) -> None:
        self.emit(event_messages.MessageEnd(Raw(message)))
        self._remember(message)
        self.message = message

    def _emit_whole(self, message: bytes) -> None:
        self.emit(event_messages.MessageStart(Raw(message)))
        self.emit(event_messages.MessageEnd(Raw(message)))
        self._remember(message)

    def _remember(self, message: bytes) -> None:
        self.said = (self.said, message)
        self.said_bytes += len(message)
        if self.said_bytes > MAX_END_MESSAGES + MAX_END_MESSAGES // 4:
            kept = stream_state.take_newest(self.said, MAX_END_MESSAGES)
            self.said, self.said_bytes = stream_state.make_chain(kept), sum(map(len, kept))


OUTPUT_WHOLE_UP_TO = 4_096
"""Characters of a tool's output up to which an update shows all of it."""
OUTPUT_TAIL = 2_048
MAX_ARGS_LENGTH = 1_024
"""Bytes of arguments that every update repeats."""


MOVES_ON = (
    events.RunStarted,
    events.MessageDelivered,
    events.PhaseChanged,
    events.MessageCompleted,
    events.ToolCalled,
    events.ToolFinished,
    events.RetryScheduled,
    events.RetryEnded,
    events.CompactionStarted,
    events.ApprovalRequested,
    events.DialogOpened,
    events.RunCompleted,
)
"""The events of an engine after a message; once one arrives, no usage of that message will follow."""


class PiEventEncoder:
    def __init__(self, state: stream_state.PiStreamState, session_id: str, assistant: stream_state.AssistantInfo) -> None:
        self._state = state
        self._session = state.session or b'{"type":"event","sessionId":%b,"event":' % _encode(session_id)
        self._turns = TurnEncoder(state, self._session, assistant)
        self._tell = self._turns.emit
        self._touched = False
        self._running = state.running
        self._chore = state.chore
        self._calls = state.calls
        self._questions = state.questions
        self._compacting = state.compacting
        self._failure = state.failure

    @property
    def frames(self) -> list[bytes]:
        return self._turns.frames

    def build_state(self) -> stream_state.PiStreamState:
        """Returns the state after the batch: the same object as before when nothing has changed."""
        if not self._touched:
            return self._state
        if not self._running:
            return stream_state.PiStreamState.empty()
        turns = self._turns
        if turns.streamed is not None:
            turns.streamed.seal()
        return stream_state.PiStreamState(
            session=self._session,
            running=True,
            chore=self._chore,
            streamed=turns.streamed,
            held=turns.held,
            turn_open=turns.open,
            turn_message=turns.message,
            awaited=turns.awaited,
            results=turns.results,
            said=turns.said,
            said_bytes=turns.said_bytes,
            calls=self._calls,
            questions=self._questions,
            compacting=self._compacting,
            failure=self._failure,
        )

    def add_piece(self, field: str, ts_ms: int, data: bytes) -> None:
        """Adds one stored piece of a message that is being streamed."""
        self._ensure_run()
        streamed = self._turns.streamed or self._turns.begin_message(ts_ms)
        streamed.add(field, data, self._turns.frames)

    def add(self, seq: int, ts_ms: int, event: events.AnyEvent) -> None:
        turns = self._turns
        if turns.held is not None and isinstance(event, MOVES_ON):
            self._ensure_run()
            turns.flush_held_message()
        match event:
            case events.RunStarted():
                self._start_run(event, ts_ms)
            case events.RunCompleted():
                self._complete_run(event, ts_ms)
            case events.MessageDelivered():
                self._ensure_run()
                turns.add_user_message(event.text, event.images, ts_ms)
            case events.PhaseChanged():
                if event.phase == "Thinking" and self._chore is None:
                    self._ensure_run()
                    turns.begin_turn()
            case events.TextDelta() | events.ThinkingDelta():
                self.add_piece(stream_state.FIELDS[event.kind], ts_ms, _encode(event))
            case events.MessageCompleted(cut_short=True):
                if turns.streamed is None:  # its pieces were pruned
                    self.add_piece("text", ts_ms, _encode(events.TextDelta(event.text)))
                # The end of its run ends the message.
            case events.MessageCompleted():
                self._ensure_run()
                turns.complete_message(event, ts_ms)
            case events.UsageReported():
                if turns.held is not None:
                    self._ensure_run()
                    turns.flush_held_message(event)
            case events.ToolCalled():
                self._ensure_run()
                self._calls = (*self._calls, stream_state.OpenCall(event.call_id, event.tool, _encode(event.args)))
                self._tell(event_messages.ToolExecutionStart(event.call_id, event.tool, event.args))
            case events.ToolProgressed():
                self._add_progress(event)
            case events.ToolFinished():
                self._finish_call(event, ts_ms)
            case events.RetryScheduled():
                self._ensure_run()
                turns.discard_message(event.reason)
                # We count calls of the model, pi counts calls after the first. A paused provider was not called even once.
                attempt = max(1, event.attempt - 1)
                self._tell(event_messages.AutoRetryStart(attempt, event.max_attempts - 1, event.delay_ms, event.reason))
            case events.RetryEnded():
                attempt = max(1, event.attempt - 1)
                self._tell(event_messages.AutoRetryEnd(event.success, attempt, UNSET if event.success else event.reason or ""))
            case events.CompactionStarted():
                self._ensure_run()
                turns.discard_message("the context is made smaller, and the message begins again")
                self._compacting = event.reason
                is_requested = event.reason == "requested"
                self._tell(
                    event_messages.CompactionStart("manual") if is_requested else event_messages.AutoCompactionStart(event.reason)
                )
            case events.ContextCompacted():
                result = event_messages.CompactionResult(event.summary, f"e{seq}", event.tokens_before)
                self._end_compaction(event.reason, result)
            case events.CompactionFailed():
                reason = self._compacting or ("threshold" if self._chore is None else "requested")
                self._end_compaction(reason, None, aborted=event.aborted, error=event.reason)
            case events.ApprovalRequested():
                self._open_ui_request(event.approval, ts_ms)
            case events.DialogOpened():
                self._open_ui_request(event.dialog, ts_ms)
            case events.ApprovalDecided():
                self._close_ui_request(event.approval_id, responses.CLOSED_BY_VERDICT[event.verdict])
            case events.ApprovalExpired():
                self._close_ui_request(event.approval_id, "expired")
            case events.ApprovalWithdrawn():
                self._close_ui_request(event.approval_id, "withdrawn")
            case events.DialogAnswered():
                self._close_ui_request(event.dialog_id, "answered")
            case events.DialogClosed():
                self._close_ui_request(event.dialog_id, event.reason)
            case events.ShellStarted():
                self._tell(event_messages.BashStart(event.command))
            case events.ShellFinished():
                self._tell(event_messages.BashEnd(event.exit_code, event.text, event.cancelled))
            case events.SessionConfigured():
                self._tell(_make_info_changed(event))
            case events.PromptShown():
                self._tell(
                    event_messages.Notice("info", "AWAITING_INPUT", event.prompt or "The program waits for input", event.reason)
                )
            case events.HostLost():
                self._tell(event_messages.Notice("warning", "HOST_LOST", f"{event.host} has not been heard of"))
            case events.HostReturned():
                self._tell(event_messages.Notice("info", "HOST_RETURNED", f"{event.host} is back"))
            case events.WarningRaised():
                self._tell(event_messages.Notice("warning", event.code, event.message, event.detail or UNSET))
            case events.ErrorRaised():
                if self._running:
                    self._ensure_run()
                    self._failure = event
                self._tell(event_messages.Notice("error", event.code, event.message, event.detail or UNSET))
            case (
                events.SessionStarted()
                | events.SessionLoaded()
                | events.SessionUnloaded()
                | events.SessionDeleted()
                | events.VersionAdvanced()
                | events.SessionResumed()
                | events.MessageQueued()
                | events.MessageWithdrawn()
                | events.PromptExpanded()
                | events.ConversationCleared()
                | events.MessageImported()
                | events.CheckpointTaken()
                | events.WorkspaceRestored()
                | events.TerminalTyped()
                | events.TerminalKeysTyped()
                | events.TerminalResized()
                | events.TerminalEchoChanged()
                | events.PromptCleared()
                | events.ScreenCaptured()
                | events.RemoteCallStarted()
                | events.RemoteCallFinished()
                | events.HostEventReceived()
                | events.StepStopped()
                | events.ShellCancelRequested()
                | events.RunCancelRequested()
            ):
                pass  # pi has no event for it, or reports it otherwise
            case _:
                assert_never(event)

    def _ensure_run(self) -> None:
        """There is state to keep, so a run is active; its start may have been missed."""
        self._touched = True
        self._running = True

    def _start_run(self, event: events.RunStarted, ts_ms: int) -> None:
        self._reset()
        self._ensure_run()
        if event.purpose is not events.Purpose.WORK:
            self._chore = event.purpose.value
            self._tell(event_messages.Notice("info", f"{self._chore.upper()}_STARTED", f"{self._chore.capitalize()} started"))
            return
        self._tell(event_messages.AgentStart())
        self._turns.add_user_message(event.text, event.images, ts_ms)

    def _complete_run(self, event: events.RunCompleted, ts_ms: int) -> None:
        self._ensure_run()
        for asked in self._questions:
            self._tell(event_messages.ExtensionUiClosed(asked.question.id, "the run has ended"))
        for call in self._calls:  # the call was announced, so clients wait for its end
            ended = event_messages.ToolContent((event_messages.Text("the run had ended"),))
            self._tell(event_messages.ToolExecutionEnd(call.call_id, call.tool, ended, True))
        if self._chore is not None:
            level = "info" if event.outcome is events.Outcome.SUCCESS else "warning"
            self._tell(event_messages.Notice(level, f"{self._chore.upper()}_FINISHED", event.summary))
        else:
            stopped = transcript.get_stop_reason(event.outcome, self._failure)
            reason = self._failure.message if self._failure is not None else event.summary
            self._turns.end(stopped, None if stopped == "stop" else reason, ts_ms)
        self._reset()

    def _reset(self) -> None:
        self._turns.reset()
        self._running = False
        self._chore = self._compacting = self._failure = None
        self._calls, self._questions = (), ()

    def _add_progress(self, event: events.ToolProgressed) -> None:
        self._ensure_run()
        call = next((call for call in self._calls if call.call_id == event.call_id), None)
        call = call or stream_state.OpenCall(event.call_id, "", b"{}")
        tail = call.tail + event.text
        is_cut = call.is_cut or len(tail) > OUTPUT_WHOLE_UP_TO
        call = msgspec.structs.replace(call, tail=tail[-OUTPUT_TAIL:] if is_cut else tail, is_cut=is_cut)
        self._calls = tuple(call if other.call_id == call.call_id else other for other in self._calls)
        shown = event_messages.ToolContent((event_messages.Text(f"…{call.tail}" if is_cut else call.tail),), is_cut or UNSET)
        args = Raw(call.args if len(call.args) <= MAX_ARGS_LENGTH else b"{}")
        self._tell(event_messages.ToolExecutionUpdate(call.call_id, call.tool, args, shown, event.text))

    def _finish_call(self, event: events.ToolFinished, ts_ms: int) -> None:
        self._ensure_run()
        self._calls = tuple(call for call in self._calls if call.call_id != event.call_id)
        content = (event_messages.Text(event.text),)
        self._tell(
            event_messages.ToolExecutionEnd(event.call_id, event.tool, event_messages.ToolContent(content), event.is_error)
        )
        self._turns.add_tool_result(event_messages.ToolResult(event.call_id, event.tool, content, event.is_error, ts_ms))

    def _end_compaction(
        self, reason: str, result: event_messages.CompactionResult | None, *, aborted: bool = False, error: str | None = None
    ) -> None:
        if self._compacting is not None:
            self._ensure_run()
            self._compacting = None
        told = UNSET if error is None or aborted else error
        if reason == "requested":
            self._tell(event_messages.CompactionEnd("manual", UNSET if result is None else result, aborted, False, told))
        else:
            will_retry = reason == "overflow" and result is not None
            self._tell(event_messages.AutoCompactionEnd(result, aborted, will_retry, told))

    def _open_ui_request(self, question: events.Approval | events.Dialog, ts_ms: int) -> None:
        self._ensure_run()
        self._questions = (*self._questions, stream_state.OpenUiRequest(ts_ms, question))
        self._tell(responses.make_ui_request(question, ts_ms))

    def _close_ui_request(self, request_id: str, reason: str) -> None:
        left = tuple(asked for asked in self._questions if asked.question.id != request_id)
        if len(left) != len(self._questions):
            self._ensure_run()
            self._questions = left
        self._tell(event_messages.ExtensionUiClosed(request_id, reason))


def _make_info_changed(event: events.SessionConfigured) -> event_messages.SessionInfoChanged:
    return event_messages.SessionInfoChanged(
        sessionName=event.title or UNSET,
        provider=event.provider or UNSET,
        model=event.model or UNSET,
        thinkingLevel=event.thinking or UNSET,
        policy=event.policy or UNSET,
        autoCompaction=UNSET if event.auto_compact is None else event.auto_compact,
        autoRetry=UNSET if event.auto_retry is None else event.auto_retry,
    )


_encode_frame = msgspec.json.Encoder().encode


def encode_batch(
    state: PiStreamState, session_id: str, entries: Sequence[journal.Entry], assistant: AssistantInfo
) -> tuple[list[bytes], PiStreamState]:
    """Returns the frames for these entries, and the state for the next ones."""
    fields = stream_state.FIELDS
    # Pieces of text are nearly all of the traffic: they are not decoded into events, and change nothing but their message.
    if state.streamed is not None and fields.keys() >= {entry.kind for entry in entries}:
        return _encode_pieces(state, state.streamed.copy(), entries)
    cutter = PiEventEncoder(state, session_id, assistant)
    for seq, ts_ms, _, kind, data in entries:
        if kind in fields:
            cutter.add_piece(fields[kind], ts_ms, data)
        else:
            cutter.add(seq, ts_ms, codec.decode(kind, data))
    return cutter.frames, cutter.build_state()


def _encode_pieces(
    state: PiStreamState, streamed: stream_state.StreamedMessage, entries: Sequence[journal.Entry]
) -> tuple[list[bytes], PiStreamState]:
    frames: list[bytes] = []
    fields = stream_state.FIELDS
    for entry in entries:
        streamed.add(fields[entry.kind], entry.data, frames)
    streamed.seal()
    return frames, msgspec.structs.replace(state, streamed=streamed) if frames else state


def encode_catch_up(state: PiStreamState, *, now_ms: int | None = None) -> list[bytes]:
    """The frames for a client that attaches in the middle of a run: the streaming message with all its text so far, the running
    tools and the open questions. `now_ms` sets the remaining time of the questions; without it they have their original time."""
    told: list[msgspec.Struct] = []
    if state.held is not None:
        told.append(event_messages.MessageStart(state.held))
    if state.streamed is not None:
        told.append(event_messages.MessageStart(Raw(state.streamed.encode_message())))
    told += [event_messages.ToolExecutionStart(call.call_id, call.tool, msgspec.json.decode(call.args)) for call in state.calls]
    told += [
        responses.make_ui_request(asked.question, asked.asked_at_ms if now_ms is None else now_ms) for asked in state.questions
    ]
    return [b"%b%b}" % (state.session, _encode_frame(event)) for event in told]
