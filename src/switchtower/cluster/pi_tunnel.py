"""Tunnels between a pi client on one node and the pi server on another: frames travel through the mesh, both ways and
unchanged.

Frames of pi are JSON objects. A frame that starts with a NUL is the tunnel's own: it reports that a frame was discarded
because of its size, or how the connection must be closed. A client cannot send one: such frames are escaped on the way in.
"""

import msgspec
from msgspec import Struct

from switchtower.core.roles import Access
from switchtower.transports.stream import ConnectionOrigin, Packet, Receiver, Stream

SUBJECT = "pi"
SERVICE_RESTART = 1012
WENT_AWAY = "the node that serves pi has gone; reconnect"

_MARK = b"\0"
_RESPONSE = b'{"type":"response"'
_HELLO = b'{"type":"switchtower_hello"'
_MAX_REASON_LENGTH = 120
"""A WebSocket close frame has space for 123 bytes."""
_encode = msgspec.json.Encoder().encode


class PiTunnelHeader(Struct, frozen=True, kw_only=True):
    """The identity of a tunnelled client, as the node that accepted it vouches for it."""

    access: Access
    transport: str
    address: str = ""
    namespace: str = ""
    lifecycle: bool = True
    cwd: str | None = None

    def encode(self) -> bytes:
        return _encode(self)


class PiTunnelClose(Struct, frozen=True, tag="closing"):
    code: int
    reason: str = ""


class PiTunnelOversized(Struct, frozen=True, tag="oversized"):
    problem: str


_decode_opening = msgspec.json.Decoder(PiTunnelHeader).decode
_decode_control_frame = msgspec.json.Decoder(PiTunnelClose | PiTunnelOversized).decode


def decode_header(body: bytes) -> PiTunnelHeader | None:
    """None: this version does not understand the header."""
    try:
        return _decode_opening(body)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None


def _encode_control(word: PiTunnelClose | PiTunnelOversized) -> Packet:
    return Packet([_MARK + _encode(word)])


def _decode_control(frame: bytes) -> PiTunnelClose | PiTunnelOversized | None:
    try:
        word: PiTunnelClose | PiTunnelOversized = _decode_control_frame(frame[1:])
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None  # a message of a later version can be ignored
    return word


class TunnelStream:
    """A client on another node, as its connection here sees it. Implements `stream.Stream`."""

    def __init__(self, tunnel: Stream, opening: PiTunnelHeader) -> None:
        self.origin = ConnectionOrigin(transport=opening.transport, address=opening.address)
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
            self._tunnel.send(_encode_control(PiTunnelClose(code, reason)))
            self._tunnel.close(code, reason)

    def abort(self) -> None:
        self._tunnel.abort()


class TunnelServerEnd:
    """The end of a tunnel on the serving node. Implements `stream.Receiver`; `client` is the receiver that serves."""

    def __init__(self, client: Receiver, opening: PiTunnelHeader) -> None:
        self._client = client
        self._opening = opening

    def on_connected(self, stream: Stream) -> None:
        self._client.on_connected(TunnelStream(stream, self._opening))

    def on_frames(self, frames: list[bytes]) -> None:
        plain: list[bytes] = []
        for frame in frames:
            if not frame.startswith(_MARK):
                plain.append(frame)
                continue
            if plain:
                self._client.on_frames(plain)
                plain = []
            if isinstance(word := _decode_control(frame), PiTunnelOversized):
                self._client.on_oversized_frame(word.problem)
        if plain:
            self._client.on_frames(plain)

    def on_oversized_frame(self, problem: str) -> None:
        self._client.on_oversized_frame(problem)

    def on_writable(self) -> None:
        self._client.on_writable()

    def on_disconnected(self) -> None:
        self._client.on_disconnected()


class TunnelClientEnd:
    """The end of a tunnel on the client's node: implements `stream.Receiver` for the tunnel, and forwards the calls of the
    client's receiver. When one of the two does not read, the other one waits.
    """

    def __init__(self, client: Stream) -> None:
        self._client: Stream | None = client
        self._tunnel: Stream | None = None
        self._heard = False
        self._unanswered = 0

    # Calls from the client

    def forward_frames(self, frames: list[bytes]) -> None:
        if self._tunnel is None:
            return
        # No JSON starts with either character; so the frame is refused as before, and not mistaken for a control frame.
        frames = [b" " + frame if frame.startswith(_MARK) else frame for frame in frames]
        self._unanswered += len(frames)
        if not self._heard and self._client is not None:
            self._heard = True
            # Our own stdio program introduces itself over the owner's socket; only that frame gets no response.
            self._unanswered -= self._client.origin.transport == "unix" and frames[0].startswith(_HELLO)
        self._forward(Packet(frames))

    def forward_oversized(self, problem: str) -> None:
        self._unanswered += 1
        self._forward(_encode_control(PiTunnelOversized(problem)))

    def _forward(self, packet: Packet) -> None:
        if self._tunnel is not None:
            self._tunnel.send(packet)
            if not self._tunnel.writable and self._client is not None:
                self._client.pause_reading()

    def resume(self) -> None:
        if self._tunnel is not None:
            self._tunnel.resume_reading()

    def close(self) -> None:
        self._client = None
        if self._tunnel is not None:
            self._tunnel.close()

    def has_pending_responses(self) -> bool:
        """Each frame has exactly one response."""
        return self._unanswered > 0

    # Calls from the serving node

    def on_connected(self, stream: Stream) -> None:
        self._tunnel = stream

    def on_frames(self, frames: list[bytes]) -> None:
        closing: PiTunnelClose | None = None
        if frames[-1].startswith(_MARK):  # nothing follows a control frame
            word = _decode_control(frames[-1])
            closing = word if isinstance(word, PiTunnelClose) else None
            frames = frames[:-1]
        if self._client is None:
            return
        if frames:
            self._unanswered -= sum(frame.startswith(_RESPONSE) for frame in frames)
            self._client.send(Packet(frames))
            if not self._client.writable and self._tunnel is not None:
                self._tunnel.pause_reading()
        if closing is not None:
            self._close_client(closing.code, closing.reason)

    def on_oversized_frame(self, problem: str) -> None:
        """A frame of the other node was too large for the tunnel: its content is lost, so the conversation cannot continue."""
        self._close_client(SERVICE_RESTART, WENT_AWAY)

    def on_writable(self) -> None:
        if self._client is not None:
            self._client.resume_reading()

    def on_disconnected(self) -> None:
        self._tunnel = None
        self._close_client(SERVICE_RESTART, WENT_AWAY)

    def _close_client(self, code: int, reason: str) -> None:
        client, self._client = self._client, None
        if client is not None:
            client.close(code, reason[:_MAX_REASON_LENGTH])
