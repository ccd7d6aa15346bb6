"""One connection to the hub, from its handshake to its end."""

import asyncio
import logging
from typing import Any, Protocol

import msgspec

from switchtower.protocols.relay import encoder, messages
from switchtower.transports.stream import Outbox, Packet, Stream

log = logging.getLogger(__name__)

_MAX_ERROR_LENGTH = 500
_DECODE_ERRORS = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class _Ack(msgspec.Struct, frozen=True):
    run_id: messages.Id
    last_seq: int


_decode = msgspec.json.Decoder(messages.Envelope).decode
_decode_ack = msgspec.json.Decoder(_Ack).decode


class HubConnectionOwner(Protocol):
    """The receiver of a connection's events."""

    def now_ms(self) -> int: ...

    def on_hub_connected(self, line: "HubConnection") -> None: ...

    def on_hub_writable(self, line: "HubConnection") -> None:
        """The hub takes more again."""
        ...

    def on_hub_disconnected(self, line: "HubConnection") -> None: ...

    def on_acknowledged(self, run_id: str, last_seq: int) -> None: ...

    def on_request(self, envelope: messages.Envelope, line: "HubConnection") -> None: ...


class HubConnection:
    """Implements `stream.Receiver` and `spool.SpoolChannel`. Messages after its end are dropped."""

    def __init__(self, owner: HubConnectionOwner, host_id: str) -> None:
        self.ended = asyncio.Event()
        self.was_useful = False
        """The hub has acknowledged a message on it."""
        self._owner = owner
        self._host_id = host_id
        self._stream: Stream | None = None
        self._outbox: Outbox | None = None
        self._has_logged_error = False

    # The receiver's side

    def on_connected(self, stream: Stream) -> None:
        self._stream = stream
        self._outbox = Outbox(stream)
        self._owner.on_hub_connected(self)

    def on_frames(self, frames: list[bytes]) -> None:
        for frame in frames:
            try:
                self._handle_frame(frame)
            except _DECODE_ERRORS as problem:
                self.send_message("error", {"error": str(problem)[:_MAX_ERROR_LENGTH]})
            except Exception:
                log.exception("a message of the hub could not be taken")
                self.send_message("error", {"error": "internal error"})

    def on_oversized_frame(self, problem: str) -> None:
        self.send_message("error", {"error": problem[:_MAX_ERROR_LENGTH]})

    def on_writable(self) -> None:
        if self._outbox is not None and self._outbox.flush():
            self._owner.on_hub_writable(self)

    def on_disconnected(self) -> None:
        self._stream = self._outbox = None
        self.ended.set()
        self._owner.on_hub_disconnected(self)

    # The spool's side

    @property
    def is_ready(self) -> bool:
        return self._outbox is not None and self._outbox.is_ready

    def send(self, frames: list[bytes]) -> None:
        """Sends events. They do not wait behind answers: a page that was being read when the hub stopped reading is sent with
        it."""
        if self._stream is not None:
            self._stream.send(Packet(frames))

    def send_message(self, type_: str, data: Any, *, run_id: str | None = None) -> None:
        """Sends a message that is not in a journal."""
        if self._outbox is not None:
            frame = encoder.encode_unnumbered(type_, self._owner.now_ms(), data, run_id=run_id, host_id=self._host_id)
            self._outbox.send(Packet([frame]))

    def send_heartbeat(self) -> None:
        if self.is_ready:  # a hub that does not read now learns from later frames that we live
            self.send_message("host.heartbeat", {})

    def close(self) -> None:
        if self._stream is not None:
            self._stream.close(1001, "the host is stopping")

    def abort(self) -> None:
        if self._stream is not None:
            self._stream.abort()

    def _handle_frame(self, frame: bytes) -> None:
        envelope = _decode(frame)
        if envelope.type == "run.ack":
            ack = _decode_ack(envelope.data)
            if ack.last_seq < 0:
                raise msgspec.ValidationError("Expected `last_seq` >= 0")
            self.was_useful = True
            self._owner.on_acknowledged(ack.run_id, ack.last_seq)
        elif envelope.type == "error":
            if not self._has_logged_error:
                self._has_logged_error = True
                log.warning("the hub does not understand something that it was told")
        else:
            self._owner.on_request(envelope, self)
