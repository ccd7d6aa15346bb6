"""Frames on their way out, in the spelling of each transport. Each spelling is made once and shared by all who are sent it.

The two sides of a connection: a `Stream` carries frames to one client, a `Receiver` is told what comes from it.

A receiver is called on the event loop and must return quickly. A stream never buffers without bound: when the client does
not read, `writable` turns false, and whoever goes on sending regardless is the one who breaks the promise.

What is said to one client that may be slow: sent at once while it reads, kept in order while it does not, and only so much.

For what is not in a journal. Whoever does not take it in the end is cut off rather than told with a hole.

Bytes in, whole lines out. Pure: no I/O, and never more than one unfinished line in memory.

A line ends at its line feed and nowhere else: a carriage return before it stays (JSON takes it for white space), and
because bytes are split, not text, a character may arrive in pieces. Lines without content are skipped."""

import logging
import struct
from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol, runtime_checkable

from msgspec import Struct

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


OversizedMessage = Callable[[int, int], str]
"""What a client is told of a frame that was thrown away, from the frame's size and the limit."""


class ConnectionOrigin(Struct, frozen=True):
    """Where a connection comes from, as far as the transport itself can vouch for it."""

    transport: str
    """`unix`, `websocket`, `http`, `stdio`, `mesh` or `memory`."""
    address: str = ""
    reached_at: str = ""
    """Our own end of a TCP connection, spelled as `address` is."""
    token: str | None = None
    """The token that a WebSocket came with, if any."""

    is_page: bool = False
    """A browser's page asks: the request has an `Origin`. Then the uid of the process says nothing about who asks."""

    client: str = ""
    """The client's address by the word of a trusted proxy, without a port; empty where the connection is the client's own."""
    pid: int | None = None
    """The process at the other end, where the transport tells; 0 for one of another PID namespace."""
    pid_started_at: int | None = None
    """When it was started, in the kernel's own ticks: a later process with the same pid has another time."""

    @property
    def machine(self) -> str:
        """The client's address without its port, where a trusted proxy names it that one; `local` where only a process of this
        machine can be at the other end."""
        if self.transport in ("unix", "stdio"):
            return "local"
        return self.client or self.address.rpartition(":")[0].strip("[]") or self.address

    def __repr__(self) -> str:
        """Without the token: an origin may be logged, a secret may not."""
        return f"Origin(transport={self.transport!r}, address={self.address!r})"


class Stream(Protocol):
    origin: ConnectionOrigin
    writable: bool
    """False from the moment the output buffer is full until it has drained."""

    def send(self, packet: Packet) -> None: ...

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def close(self, code: int = 1000, reason: str = "") -> None:
        """Flushes what was sent, then closes. Code and reason are told where the transport has words for them."""
        ...

    def abort(self) -> None: ...


class Receiver(Protocol):
    def on_connected(self, stream: Stream) -> None: ...

    def on_frames(self, frames: list[bytes]) -> None:
        """The whole frames of one read, so that their answers can leave together."""
        ...

    def on_oversized_frame(self, problem: str) -> None:
        """A frame was thrown away because of its size; the connection goes on after it."""
        ...

    def on_writable(self) -> None: ...

    def on_disconnected(self) -> None: ...


@runtime_checkable
class RespondingReceiver(Protocol):
    """A receiver that knows whether it still owes answers. A client that has stopped writing is kept as long as it does."""

    def has_pending_responses(self) -> bool: ...


TRY_AGAIN_LATER = 1013
MOST_WAITING_BYTES = 32 * 1024 * 1024

log = logging.getLogger(__name__)


class Outbox:
    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._waiting: deque[Packet] = deque()
        self._waiting_bytes = 0
        self._cut_off = False

    @property
    def is_ready(self) -> bool:
        """Whether what is sent now leaves now."""
        return self._stream.writable and not self._waiting and not self._cut_off

    def __len__(self) -> int:
        return len(self._waiting)

    def send(self, packet: Packet) -> None:
        if self._cut_off:
            return
        if self._stream.writable and not self._waiting:
            self._stream.send(packet)
            return
        self._waiting.append(packet)
        self._waiting_bytes += _measure_packet(packet)
        if self._waiting_bytes > MOST_WAITING_BYTES:
            log.warning("a client does not read what it is told: it is cut off")
            self._cut_off = True
            self._waiting.clear()
            self._stream.close(TRY_AGAIN_LATER, "too slow")

    def flush(self) -> bool:
        """Sends what has waited, as far as the client takes it. Whether all of it has left."""
        while self._waiting and self._stream.writable:
            packet = self._waiting.popleft()
            self._waiting_bytes -= _measure_packet(packet)
            self._stream.send(packet)
        return self.is_ready


def _measure_packet(packet: Packet) -> int:
    return sum(len(frame) for frame in packet.frames)


_BLANK = (b"", b"\r")


class LineSplitter:
    """Splits one stream. A line of more than `limit` bytes, its end not counted, is thrown away; the stream goes on after it."""

    __slots__ = ("_discarded", "_discarding", "_limit", "_unfinished", "oversized", "oversizes")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._unfinished = bytearray()
        self._discarding = False
        self._discarded = 0
        self.oversized = 0
        """How many lines were thrown away. Counts as soon as the limit is passed, not when the line ends."""
        self.oversizes: list[int] = []
        """How long they were, of those that have ended. Both are for the reader to clear."""

    def feed(self, data: bytes) -> list[bytes]:
        """The lines that end in this piece."""
        size = len(data)
        if data.find(b"\n") == size - 1 and not self._unfinished and not self._discarding and 2 < size <= self._limit:
            return [data[:-1]]  # one whole line in one read, as from a client that waits for each answer

        lines = data.split(b"\n")
        rest = lines.pop()
        if lines:
            if self._discarding:
                self._end_discarded(len(lines[0]))
                del lines[0]
            elif self._unfinished:
                lines[0] = b"".join((self._unfinished, lines[0]))
            if size + len(self._unfinished) > self._limit or b"" in lines or b"\r" in lines:
                lines = self._drop_oversized(lines)
            self._unfinished.clear()

        if self._discarding:
            self._discarded += len(rest)
        elif rest:
            self._unfinished += rest
            if len(self._unfinished) > self._limit:
                self._discarding, self._discarded = True, len(self._unfinished)
                self._unfinished.clear()
                self.oversized += 1
        return lines

    def finish(self) -> list[bytes]:
        """The last line when nothing more will come: it may lack its line feed."""
        if self._discarding:
            self._end_discarded(0)
        last = [bytes(self._unfinished)]
        self._unfinished.clear()
        return self._drop_oversized(last)

    def _drop_oversized(self, lines: list[bytes]) -> list[bytes]:
        limit = self._limit
        usable = [line for line in lines if len(line) <= limit and line not in _BLANK]
        if len(usable) != len(lines):
            oversizes = [len(line) for line in lines if len(line) > limit]
            self.oversized += len(oversizes)
            self.oversizes += oversizes
        return usable

    def _end_discarded(self, last_bytes: int) -> None:
        self._discarding = False
        self.oversizes.append(self._discarded + last_bytes)
