"""What two nodes say to each other on one connection, and how it is framed. Knows nothing of what the bodies mean.

A frame is its length in four bytes, then one envelope. Envelopes are arrays in MessagePack: a later version may add fields at
their ends, and who does not know them skips them. What cannot be read that way needs another `PROTOCOL`.
"""

from struct import Struct as Layout

import msgspec
from msgspec import Struct

from switchtower.cluster.mesh.ports import MeshPeer

PROTOCOL = 1
MOST_FRAME_BYTES = 32 * 1024 * 1024
MOST_HELLO_BYTES = 64 * 1024
"""Before a node has said who it is, nobody keeps much for it."""

_LENGTH = Layout(">I")


class MeshHello(Struct, kw_only=True):
    """The first frame of both sides, as a map: it must be readable in every protocol."""

    protocol: int
    peer: MeshPeer
    window: int
    """How many bytes of a tunnel may be under way to who says this."""


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
    """It is one piece of a frame, and more of that follows."""


class TunnelCredit(Struct, array_like=True, tag=7, gc=False):
    """So many more bytes may come."""

    tunnel: int
    count: int


class TunnelEnd(Struct, array_like=True, tag=8, gc=False):
    tunnel: int
    code: int | None
    """None: not closed but cut off."""
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
    """What came is not of this protocol."""


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
    """Bytes as they come → whole frames. Keeps at most one unfinished frame, and that only up to `limit`."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._parts: list[bytes] = []
        self._have = 0
        self._need = _LENGTH.size

    def feed(self, data: bytes) -> list[memoryview]:
        """Raises `Unreadable` for a frame that is too long, as soon as its length is known."""
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
