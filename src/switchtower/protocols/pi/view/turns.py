"""The turns of a run and the messages in them, while a batch is told: one assistant message a turn, with its tool results. Pure.

That a turn has ended shows when the last call is answered, or by what comes next. A message's usage is reported behind it,
so its end is held back until then, or until the run moves on.
"""

import msgspec
from msgspec import Raw, Struct

from switchtower.core import events
from switchtower.protocols.pi.view import footage, shapes, stats, streaming, transcript

MOST_TOLD_AT_END = 8 * 1024 * 1024
"""Bytes of messages in `agent_end`; the oldest are left out. Each was told before."""

_encode = msgspec.json.Encoder().encode


class Turns:
    def __init__(self, reel: footage.Reel, session: bytes, cast: streaming.Cast) -> None:
        self.frames: list[bytes] = []
        self.streamed = reel.streamed and reel.streamed.copied()
        self.held = reel.held
        self.open = reel.turn_open
        self.message = reel.turn_message
        self.awaited = reel.awaited
        self.results = reel.results
        self.said = reel.said
        self.said_bytes = reel.said_bytes
        self._session = session
        self._cast = cast

    def forget(self) -> None:
        self.streamed = self.held = self.message = self.results = self.said = None
        self.open, self.awaited, self.said_bytes = False, 0, 0

    def tell(self, event: Struct) -> None:
        self.frames.append(b"%b%b}" % (self._session, _encode(event)))

    def begin_message(self, ts_ms: int) -> streaming.Streamed:
        self.end_held()
        self.next_turn()
        self.streamed = streaming.Streamed(self._session, self._cast, ts_ms)
        self.frames.append(self.streamed.started())
        return self.streamed

    def complete_message(self, event: events.MessageCompleted, ts_ms: int) -> None:
        streamed = self.streamed or self.begin_message(ts_ms)
        self.held, self.awaited, self.streamed = streamed.complete(event, self.frames), len(event.calls), None

    def end_held(self, usage: events.UsageReported | None = None) -> None:
        message, self.held = self.held, None
        if message is None:
            return
        if usage is not None:
            message = msgspec.structs.replace(message, usage=stats.usage_of(usage), provider=usage.provider, model=usage.model)
        self._end_message(_encode(message))
        if self.awaited == 0:
            self._end_turn()

    def void(self, reason: str) -> None:
        """What was streamed of a message does not count. It ends, and is no part of the conversation."""
        if self.streamed is not None:
            self.streamed.break_off(self.frames)
            self.tell(shapes.MessageEnd(Raw(self.streamed.so_far("error", reason))))
            self.streamed = None

    def say_user(self, text: str, images: tuple[events.Image, ...], ts_ms: int) -> None:
        self.next_turn()
        self._say_whole(_encode(shapes.User(transcript.content_of(text, images), ts_ms)))

    def say_result(self, result: shapes.ToolResult) -> None:
        encoded = _encode(result)
        self._say_whole(encoded)
        self.results = (self.results, encoded)
        self.awaited -= 1
        if self.awaited <= 0 and self.message is not None:
            self._end_turn()

    def next_turn(self) -> None:
        """Whatever comes now belongs to a turn that has no message yet."""
        if self.open and self.message is not None:
            self._end_turn()
        if not self.open:
            self.open = True
            self.tell(shapes.TurnStart())

    def end(self, stopped: shapes.StopReason, error: str | None, ts_ms: int) -> None:
        """The run has ended, and with it the agent's work."""
        if self.streamed is not None:
            self.streamed.break_off(self.frames)
            self._end_message(self.streamed.so_far(stopped, error))
        elif stopped != "stop" or (self.open and self.message is None):
            # pi's clients learn from a message how a run ended, so there has to be one.
            self.next_turn()
            message = streaming.blank(self._cast, ts_ms, stopped, error)
            self.tell(shapes.MessageStart(message))
            self._end_message(_encode(message))
        if self.open:
            self._end_turn()
        self.tell(shapes.AgentEnd([Raw(message) for message in footage.newest(self.said, MOST_TOLD_AT_END)]))

    def _end_turn(self) -> None:
        assert self.message is not None, "a turn ends with its message"
        results = [Raw(result) for result in footage.unrolled(self.results)]
        self.tell(shapes.TurnEnd(Raw(self.message), results))
        self.open, self.message, self.results, self.awaited = False, None, None, 0

    def _end_message(self, message: bytes) -> None:
        self.tell(shapes.MessageEnd(Raw(message)))
        self._say(message)
        self.message = message

    def _say_whole(self, message: bytes) -> None:
        self.tell(shapes.MessageStart(Raw(message)))
        self.tell(shapes.MessageEnd(Raw(message)))
        self._say(message)

    def _say(self, message: bytes) -> None:
        self.said = (self.said, message)
        self.said_bytes += len(message)
        if self.said_bytes > MOST_TOLD_AT_END + MOST_TOLD_AT_END // 4:
            kept = footage.newest(self.said, MOST_TOLD_AT_END)
            self.said, self.said_bytes = footage.chained(kept), sum(map(len, kept))
