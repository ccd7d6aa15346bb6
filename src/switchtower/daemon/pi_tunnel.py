"""A pi client at one node whose house is at another: its frames travel through the mesh, both ways and as they are.

Frames of pi are JSON objects. One that begins with a NUL is not pi's but the tunnel's own: that a frame was thrown away because
of its size, and how the connection is to be closed. A client cannot send one: its own are told apart on the way in.
"""

import msgspec
from msgspec import Struct

from switchtower.core.access import Access
from switchtower.transports.packet import Packet
from switchtower.transports.stream import Origin, Receiver, Stream

SUBJECT = "pi"
SERVICE_RESTART = 1012
WENT_AWAY = "the node that serves pi has gone; reconnect"

_MARK = b"\0"
_RESPONSE = b'{"type":"response"'
_HELLO = b'{"type":"switchtower_hello"'
_LONGEST_REASON = 120
"""A WebSocket has room for 123 bytes."""
_encode = msgspec.json.Encoder().encode


class Opening(Struct, frozen=True, kw_only=True):
    """Who comes through a tunnel, as the node that let them in vouches for it."""

    access: Access
    transport: str
    address: str = ""
    namespace: str = ""
    lifecycle: bool = True
    cwd: str | None = None

    def encoded(self) -> bytes:
        return _encode(self)


class Closing(Struct, frozen=True, tag="closing"):
    code: int
    reason: str = ""


class Oversized(Struct, frozen=True, tag="oversized"):
    problem: str


_opening = msgspec.json.Decoder(Opening).decode
_word = msgspec.json.Decoder(Closing | Oversized).decode


def read_opening(body: bytes) -> Opening | None:
    """None for what this version does not understand."""
    try:
        return _opening(body)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None


def _spell(word: Closing | Oversized) -> Packet:
    return Packet([_MARK + _encode(word)])


def _read(frame: bytes) -> Closing | Oversized | None:
    try:
        word: Closing | Oversized = _word(frame[1:])
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None  # of a later version: it can be done without
    return word


class FarStream:
    """A client at another node, as its peer here holds it. Implements `stream.Stream`."""

    def __init__(self, tunnel: Stream, opening: Opening) -> None:
        self.origin = Origin(transport=opening.transport, address=opening.address)
        self._tunnel = tunnel
        self._closed = False

    @property
    def writable(self) -> bool:
        return self._tunnel.writable and not self._closed

    @writable.setter
    def writable(self, _: bool) -> None:
        raise AttributeError("the tunnel says whether it is")

    def send(self, packet: Packet) -> None:
        if not self._closed:
            self._tunnel.send(packet)

    def pause_reading(self) -> None:
        self._tunnel.pause_reading()

    def resume_reading(self) -> None:
        self._tunnel.resume_reading()

    def close(self, code: int = 1000, reason: str = "") -> None:
        if not self._closed:
            self._closed = True
            self._tunnel.send(_spell(Closing(code, reason)))
            self._tunnel.close(code, reason)

    def abort(self) -> None:
        self._tunnel.abort()


class FarEnd:
    """The end of a tunnel at the node that serves. Implements `stream.Receiver`; `client` is what serves."""

    def __init__(self, client: Receiver, opening: Opening) -> None:
        self._client = client
        self._opening = opening

    def connected(self, stream: Stream) -> None:
        self._client.connected(FarStream(stream, self._opening))

    def received(self, frames: list[bytes]) -> None:
        plain: list[bytes] = []
        for frame in frames:
            if not frame.startswith(_MARK):
                plain.append(frame)
                continue
            if plain:
                self._client.received(plain)
                plain = []
            if isinstance(word := _read(frame), Oversized):
                self._client.refused(word.problem)
        if plain:
            self._client.received(plain)

    def refused(self, problem: str) -> None:
        self._client.refused(problem)

    def writable_again(self) -> None:
        self._client.writable_again()

    def disconnected(self) -> None:
        self._client.disconnected()


class NearEnd:
    """Both ends at the node where the client is: implements `stream.Receiver` for the tunnel, and what a receiver of the client
    passes on. Whoever of the two does not read makes the other one wait."""

    def __init__(self, client: Stream) -> None:
        self._client: Stream | None = client
        self._tunnel: Stream | None = None
        self._heard = False
        self._unanswered = 0

    # From the client

    def said(self, frames: list[bytes]) -> None:
        if self._tunnel is None:
            return
        # No JSON begins with either; so it is refused as before, and taken for nothing else.
        frames = [b" " + frame if frame.startswith(_MARK) else frame for frame in frames]
        self._unanswered += len(frames)
        if not self._heard and self._client is not None:
            self._heard = True
            # Our own stdio program introduces itself over the owner's socket; that alone is not answered.
            self._unanswered -= self._client.origin.transport == "unix" and frames[0].startswith(_HELLO)
        self._pass_on(Packet(frames))

    def oversized(self, problem: str) -> None:
        self._unanswered += 1
        self._pass_on(_spell(Oversized(problem)))

    def _pass_on(self, packet: Packet) -> None:
        if self._tunnel is not None:
            self._tunnel.send(packet)
            if not self._tunnel.writable and self._client is not None:
                self._client.pause_reading()

    def reads_again(self) -> None:
        if self._tunnel is not None:
            self._tunnel.resume_reading()

    def left(self) -> None:
        self._client = None
        if self._tunnel is not None:
            self._tunnel.close()

    def owes(self) -> bool:
        """Each frame has exactly one response."""
        return self._unanswered > 0

    # From the node that serves it

    def connected(self, stream: Stream) -> None:
        self._tunnel = stream

    def received(self, frames: list[bytes]) -> None:
        closing: Closing | None = None
        if frames[-1].startswith(_MARK):  # it says nothing behind that
            word = _read(frames[-1])
            closing = word if isinstance(word, Closing) else None
            frames = frames[:-1]
        if self._client is None:
            return
        if frames:
            self._unanswered -= sum(frame.startswith(_RESPONSE) for frame in frames)
            self._client.send(Packet(frames))
            if not self._client.writable and self._tunnel is not None:
                self._tunnel.pause_reading()
        if closing is not None:
            self._part(closing.code, closing.reason)

    def refused(self, problem: str) -> None:
        """A frame of the other node's was too large for the tunnel: what it said is lost, and that is no conversation."""
        self._part(SERVICE_RESTART, WENT_AWAY)

    def writable_again(self) -> None:
        if self._client is not None:
            self._client.resume_reading()

    def disconnected(self) -> None:
        self._tunnel = None
        self._part(SERVICE_RESTART, WENT_AWAY)

    def _part(self, code: int, reason: str) -> None:
        client, self._client = self._client, None
        if client is not None:
            client.close(code, reason[:_LONGEST_REASON])
