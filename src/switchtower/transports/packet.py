"""Frames on their way out, in the spelling of each transport. Each spelling is made once and shared by all who are sent it."""

import struct
from collections.abc import Sequence

_TEXT_FRAME = 0x81  # RFC 6455: FIN with opcode 1; what a server sends is not masked, so it is the same for every client


class Packet:
    """One or more whole frames, without their ends."""

    __slots__ = ("_lines", "_websocket", "frames")

    def __init__(self, frames: Sequence[bytes]) -> None:
        self.frames = frames
        self._lines: bytes | None = None
        self._websocket: bytes | None = None

    @property
    def lines(self) -> bytes:
        """For streams: each frame ends with a line feed."""
        if self._lines is None:
            self._lines = b"\n".join(self.frames) + b"\n"
        return self._lines

    @property
    def websocket(self) -> bytes:
        """For WebSockets: each frame is one text message, framed."""
        if self._websocket is None:
            self._websocket = b"".join([_encode_header(len(frame)) + frame for frame in self.frames])
        return self._websocket


_SHORT = [bytes((_TEXT_FRAME, length)) for length in range(126)]
_MEDIUM = struct.Struct(">BBH")
_LONG = struct.Struct(">BBQ")


def _encode_header(length: int) -> bytes:
    if length < 126:
        return _SHORT[length]
    if length < 65_536:
        return _MEDIUM.pack(_TEXT_FRAME, 126, length)
    return _LONG.pack(_TEXT_FRAME, 127, length)
