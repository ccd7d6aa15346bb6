"""The two sides of a connection: a `Stream` carries frames to one client, a `Receiver` handles the client's frames.

A receiver is called on the event loop and must return quickly. A stream never buffers without bound: when the client does not
read, `writable` becomes false, and a sender must stop.

A `Packet` has outgoing frames in the encoding of each transport; each encoding is made once and shared by all clients that get
it. An `Outbox` is for messages that are not in a journal: they are sent at once while the client reads, and kept in order, up to
a limit, while it does not. A client that does not catch up is disconnected, so that it never misses one.

A line ends at its line feed and nowhere else: a carriage return before it stays (JSON treats it as white space), and because
bytes are split, not text, a character may arrive in pieces. Lines without content are skipped.

The errors of a listener that cannot start. The docstring is the message; each error has its subject and a remedy."""

import logging
import struct
from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol, runtime_checkable

from msgspec import Struct


class CannotListen(Exception):
    """Cannot listen."""

    def __init__(self, about: str, *, hint: str) -> None:
        super().__init__(about)
        self.about = about
        self.hint = hint

    @property
    def message(self) -> str:
        return f"{(type(self).__doc__ or '').strip().rstrip('.')}: {self.about}"

    def __str__(self) -> str:
        return f"{self.message}; hint: {self.hint}"


class AddressInUse(CannotListen):
    """Another process already listens there."""


class AddressUnusable(CannotListen):
    """The address cannot be listened on."""


class PathTooLong(CannotListen):
    """The path is too long for a Unix socket."""


class PathTaken(CannotListen):
    """Something that is not a socket stands where the socket should be."""


class FolderNotPrivate(CannotListen):
    """Other users could replace a socket in this folder."""


_TEXT_FRAME = 0x81  # RFC 6455: FIN with opcode 1; a server's frames are not masked, so they are the same for every client


class Packet:
    """One or more whole frames, without their ends."""

    __slots__ = ("_lines", "_websocket", "frames")

    def __init__(self, frames: Sequence[bytes]) -> None:
        self.frames = frames
        self._lines: bytes | None = None
        self._websocket: bytes | None = None

    @property
    def lines(self) -> bytes:
        """The encoding for streams: each frame ends with a line feed."""
        if self._lines is None:
            self._lines = b"\n".join(self.frames) + b"\n"
        return self._lines

    @property
    def websocket(self) -> bytes:
        """The encoding for WebSockets: each frame is one text message, framed."""
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
"""Makes the error message for a client whose frame was discarded, from the frame's size and the limit."""


class ConnectionOrigin(Struct, frozen=True):
    """The origin of a connection, as far as the transport itself can vouch for it."""

    transport: str
    """`unix`, `websocket`, `http`, `stdio`, `mesh` or `memory`."""
    address: str = ""
    reached_at: str = ""
    """Our own end of a TCP connection, spelled as `address` is."""
    token: str | None = None
    """The token that a WebSocket client presented, if any."""

    is_page: bool = False
    """True for a request of a browser's page: it has an `Origin`. Then the uid of the process does not identify the client."""

    client: str = ""
    """The client's address according to a trusted proxy, without a port; empty where the connection is the client's own."""
    pid: int | None = None
    """The process at the other end, where the transport reports it; 0 for one of another PID namespace."""
    pid_started_at: int | None = None
    """Its start time, in the kernel's own ticks: a later process with the same pid has another time."""

    @property
    def machine(self) -> str:
        """The client's address without its port; where a trusted proxy names one, that one; `local` where only a process of this
        machine can be at the other end.
        """
        if self.transport in ("unix", "stdio"):
            return "local"
        return self.client or self.address.rpartition(":")[0].strip("[]") or self.address

    def __repr__(self) -> str:
        """Omits the token: an origin may be logged, a secret may not."""
        return f"Origin(transport={self.transport!r}, address={self.address!r})"


class Stream(Protocol):
    origin: ConnectionOrigin
    writable: bool
    """False from the moment the output buffer is full until it has drained."""

    def send(self, packet: Packet) -> None: ...

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def close(self, code: int = 1000, reason: str = "") -> None:
        """Flushes pending output, then closes. Code and reason are sent where the transport supports them."""
        ...

    def abort(self) -> None: ...


class Receiver(Protocol):
    def on_connected(self, stream: Stream) -> None: ...

    def on_frames(self, frames: list[bytes]) -> None:
        """Handles the whole frames of one read, so that their answers can leave together."""
        ...

    def on_oversized_frame(self, problem: str) -> None:
        """Handles a frame that was discarded because of its size; the connection continues after it."""
        ...

    def on_writable(self) -> None: ...

    def on_disconnected(self) -> None: ...


@runtime_checkable
class RespondingReceiver(Protocol):
    """A receiver that knows whether answers are pending. A client that has stopped writing stays connected as long as they
    are.
    """

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
        """Returns whether a message that is sent now leaves at once."""
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
        """Sends waiting messages, as far as the client accepts them; returns whether all of them were sent."""
        while self._waiting and self._stream.writable:
            packet = self._waiting.popleft()
            self._waiting_bytes -= _measure_packet(packet)
            self._stream.send(packet)
        return self.is_ready


def _measure_packet(packet: Packet) -> int:
    return sum(len(frame) for frame in packet.frames)


_BLANK = (b"", b"\r")


class LineSplitter:
    """Splits one stream. A line of more than `limit` bytes, its end not counted, is discarded; the stream continues after it."""

    __slots__ = ("_discarded", "_discarding", "_limit", "_unfinished", "oversized", "oversizes")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._unfinished = bytearray()
        self._discarding = False
        self._discarded = 0
        self.oversized = 0
        """The number of discarded lines. A line counts as soon as the limit is passed, not when it ends."""
        self.oversizes: list[int] = []
        """The lengths of the discarded lines that have ended. The reader clears both."""

    def feed(self, data: bytes) -> list[bytes]:
        """Returns the lines that end in this piece."""
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
        """Returns the last line when there is no more input: it may lack its line feed."""
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
