"""One connection to the hub, from its handshake to its end."""

import asyncio
import logging
from typing import Any, Protocol

import msgspec

from switchtower.protocols.relay import messages, outbound
from switchtower.transports.outbox import Outbox
from switchtower.transports.packet import Packet
from switchtower.transports.stream import Stream

log = logging.getLogger(__name__)

_LONGEST_PROBLEM = 500
_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class _Ack(msgspec.Struct, frozen=True):
    run_id: messages.Id
    last_seq: int


_decode = msgspec.json.Decoder(messages.Envelope).decode
_decode_ack = msgspec.json.Decoder(_Ack).decode


class Owner(Protocol):
    """Who is told what comes over a line."""

    def now_ms(self) -> int: ...

    def line_is_up(self, line: "HubLine") -> None: ...

    def line_is_free(self, line: "HubLine") -> None:
        """The hub takes more again."""
        ...

    def line_is_down(self, line: "HubLine") -> None: ...

    def acknowledged(self, run_id: str, last_seq: int) -> None: ...

    def ordered(self, envelope: messages.Envelope, line: "HubLine") -> None: ...


class HubLine:
    """Implements `stream.Receiver` and `spool.Line`. What is said after its end is dropped."""

    def __init__(self, owner: Owner, host_id: str) -> None:
        self.ended = asyncio.Event()
        self.was_useful = False
        """The hub has acknowledged something on it."""
        self._owner = owner
        self._host_id = host_id
        self._stream: Stream | None = None
        self._outbox: Outbox | None = None
        self._has_complained = False

    # The receiver's side

    def connected(self, stream: Stream) -> None:
        self._stream = stream
        self._outbox = Outbox(stream)
        self._owner.line_is_up(self)

    def received(self, frames: list[bytes]) -> None:
        for frame in frames:
            try:
                self._take(frame)
            except _UNREADABLE as problem:
                self.say("error", {"error": str(problem)[:_LONGEST_PROBLEM]})
            except Exception:
                log.exception("a message of the hub could not be taken")
                self.say("error", {"error": "internal error"})

    def refused(self, problem: str) -> None:
        self.say("error", {"error": problem[:_LONGEST_PROBLEM]})

    def writable_again(self) -> None:
        if self._outbox is not None and self._outbox.flush():
            self._owner.line_is_free(self)

    def disconnected(self) -> None:
        self._stream = self._outbox = None
        self.ended.set()
        self._owner.line_is_down(self)

    # The spool's side

    @property
    def ready(self) -> bool:
        return self._outbox is not None and self._outbox.ready

    def send(self, frames: list[bytes]) -> None:
        """Events. They do not wait behind answers: a page that was being read when the hub stopped reading goes out with it."""
        if self._stream is not None:
            self._stream.send(Packet(frames))

    def say(self, type_: str, data: Any, *, run_id: str | None = None) -> None:
        """What is in no journal."""
        if self._outbox is not None:
            frame = outbound.unnumbered(type_, self._owner.now_ms(), data, run_id=run_id, host_id=self._host_id)
            self._outbox.send(Packet([frame]))

    def beat(self) -> None:
        if self.ready:  # who does not read now sees by what comes later that we live
            self.say("host.heartbeat", {})

    def close(self) -> None:
        if self._stream is not None:
            self._stream.close(1001, "the host is stopping")

    def abort(self) -> None:
        if self._stream is not None:
            self._stream.abort()

    def _take(self, frame: bytes) -> None:
        envelope = _decode(frame)
        if envelope.type == "run.ack":
            ack = _decode_ack(envelope.data)
            if ack.last_seq < 0:
                raise msgspec.ValidationError("Expected `last_seq` >= 0")
            self.was_useful = True
            self._owner.acknowledged(ack.run_id, ack.last_seq)
        elif envelope.type == "error":
            if not self._has_complained:
                self._has_complained = True
                log.warning("the hub does not understand something that it was told")
        else:
            self._owner.ordered(envelope, self)
