"""Encodes the turns of a run and their messages within a batch: one assistant message a turn, with its tool results. Pure.

The end of a turn is known when the last call has its result, or from the next event. A message's usage is reported after it, so
the end of the message is held back until then, or until the run continues.
"""

import msgspec
from msgspec import Raw, Struct

from switchtower.core import events
from switchtower.protocols.pi import event_messages, stream_state
from switchtower.protocols.pi.sessions import info, transcript

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
