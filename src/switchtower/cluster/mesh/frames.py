"""The frames between two nodes, and their encoding. Knows nothing of the meaning of the bodies.

A frame is its length in four bytes, then one envelope. Envelopes are arrays in MessagePack: a later version may add fields at
their ends, and a node that does not know them skips them. A change that cannot be decoded that way needs another `PROTOCOL`.
"""

from struct import Struct as Layout

import msgspec
from msgspec import Struct

from switchtower.cluster.mesh.ports import MeshPeer

PROTOCOL = 1
MOST_FRAME_BYTES = 32 * 1024 * 1024
MOST_HELLO_BYTES = 64 * 1024
"""The limit before the other node has identified itself, so that an unknown peer cannot use much memory."""

_LENGTH = Layout(">I")


class MeshHello(Struct, kw_only=True):
    """The first frame of both sides, as a map: it must be readable in every protocol."""

    protocol: int
    peer: MeshPeer
    window: int
    """The number of bytes of a tunnel that may be in flight to the sender of this frame."""


class _MeshGreeting(Struct):
    protocol: int


class RequestFrame(Struct, array_like=True, tag=1, gc=False):
    number: int
    subject: str
    body: bytes


class NotificationFrame(Struct, array_like=True, tag=2, gc=False):
    subject: str
    body: bytes


class ResponseFrame(Struct, array_like=True, tag=3, gc=False):
    number: int
    body: bytes


class FailureFrame(Struct, array_like=True, tag=4, gc=False):
    number: int
    reason: str


class TunnelOpen(Struct, array_like=True, tag=5, gc=False):
    tunnel: int
    subject: str
    opening: bytes


class TunnelData(Struct, array_like=True, tag=6, gc=False):
    tunnel: int
    frames: list[bytes]
    unfinished: bool = False
    """It is one piece of a frame, and more of it follows."""


class TunnelCredit(Struct, array_like=True, tag=7, gc=False):
    """The receiver may be sent this many more bytes."""

    tunnel: int
    count: int


class TunnelEnd(Struct, array_like=True, tag=8, gc=False):
    tunnel: int
    code: int | None
    """None: the tunnel was aborted, not closed."""
    reason: str


class MeshPing(Struct, array_like=True, tag=9, gc=False): ...


class MeshPong(Struct, array_like=True, tag=10, gc=False): ...


Envelope = (
    RequestFrame
    | NotificationFrame
    | ResponseFrame
    | FailureFrame
    | TunnelOpen
    | TunnelData
    | TunnelCredit
    | TunnelEnd
    | MeshPing
    | MeshPong
)

_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[Envelope] = msgspec.msgpack.Decoder(Envelope)
encode = _encoder.encode


class MeshProtocolError(Exception):
    """The received data does not follow this protocol."""


class MeshVersionMismatch(MeshProtocolError):
    def __init__(self, protocol: int) -> None:
        super().__init__(f"it speaks protocol {protocol} and this node {PROTOCOL}")


def add_length_prefix(encoded: bytes) -> bytes:
    return _LENGTH.pack(len(encoded)) + encoded


def encode_length(encoded: bytes) -> bytes:
    return _LENGTH.pack(len(encoded))


def decode(frame: memoryview) -> Envelope:
    try:
        return _decoder.decode(frame)
    except (msgspec.MsgspecError, ValueError, RecursionError) as problem:
        raise MeshProtocolError("a frame is not an envelope") from problem


def decode_hello(frame: memoryview) -> MeshHello:
    try:
        protocol = msgspec.msgpack.decode(frame, type=_MeshGreeting).protocol
        if protocol != PROTOCOL:
            raise MeshVersionMismatch(protocol)
        return msgspec.msgpack.decode(frame, type=MeshHello)
    except (msgspec.MsgspecError, ValueError, RecursionError) as problem:
        raise MeshProtocolError("the first frame is not a hello") from problem


class FrameSplitter:
    """Splits incoming bytes into whole frames. Keeps at most one unfinished frame, and that only up to `limit`."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._parts: list[bytes] = []
        self._have = 0
        self._need = _LENGTH.size

    def feed(self, data: bytes) -> list[memoryview]:
        """Raises `MeshProtocolError` for a frame that is too long, as soon as its length is known."""
        if self._parts:
            self._parts.append(data)
            self._have += len(data)
            if self._have < self._need:
                return []
            data = b"".join(self._parts)
            self._parts.clear()
        view = memoryview(data)
        frames: list[memoryview] = []
        position, end = 0, len(data)
        self._need = _LENGTH.size
        while end - position >= _LENGTH.size:
            size: int = _LENGTH.unpack_from(data, position)[0]
            if size > self.limit:
                raise MeshProtocolError(f"a frame of {size} bytes is longer than {self.limit}")
            body = position + _LENGTH.size
            if end - body < size:
                self._need = _LENGTH.size + size
                break
            position = body + size
            frames.append(view[body:position])
        if position < end:
            self._parts.append(data[position:])
            self._have = end - position
        return frames
