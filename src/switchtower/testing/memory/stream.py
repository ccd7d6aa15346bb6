"""Two streams joined in memory: the frames that one sends go to the other's receiver, for tests of a receiver without a
socket.

As over a socket, frames arrive in a later turn of the event loop, those of one turn together; a side that does not read makes
the other's `writable` false; frames that were sent before the end still arrive, and then both sides are notified of the end.
"""

import asyncio
from collections import deque
from collections.abc import Callable

from switchtower.transports.stream import ConnectionOrigin, Packet, Receiver, Stream


class MemoryStream:
    """One side's `Stream`."""

    def __init__(self, receiver: Receiver, origin: ConnectionOrigin, output_limit_bytes: int) -> None:
        self.origin = origin
        self.writable = True
        self.closed_with: tuple[int, str] | None = None
        """The code and the reason with which this side closed."""
        self._receiver = receiver
        self._limit = output_limit_bytes
        self._other: MemoryStream
        self._inbox: list[bytes] = []
        self._open = True
        self._ended = False
        self._reading = True
        self._scheduled = False

    def send(self, packet: Packet) -> None:
        if self._open and self._other._open:
            self._other._inbox.extend(packet.frames)
            if sum(map(len, self._other._inbox)) > self._limit:
                self.writable = False
            self._other._schedule_delivery()

    def pause_reading(self) -> None:
        self._reading = False

    def resume_reading(self) -> None:
        self._reading = True
        self._schedule_delivery()

    def close(self, code: int = 1000, reason: str = "") -> None:
        if self._open:
            self.closed_with = (code, reason)
            self._end()

    def abort(self) -> None:
        if self._open:
            self._other._inbox.clear()
            self._end()

    def block(self) -> None:
        """The other side stops reading, and this side's buffer is full at once."""
        self._other.pause_reading()
        self.writable = False

    def unblock(self) -> None:
        """The other side reads again."""
        self._other.resume_reading()

    def _end(self) -> None:
        self._open = self.writable = False
        self._schedule_delivery()
        self._other._schedule_delivery()

    def _schedule_delivery(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._deliver)

    def _deliver(self) -> None:
        self._scheduled = False
        other = self._other
        if self._open and self._reading:
            if self._inbox:
                frames, self._inbox = self._inbox, []
                self._receiver.on_frames(frames)
            if other._open and not other.writable and not self._inbox:
                other.writable = True
                other._receiver.on_writable()
        if (not self._open or (not other._open and not self._inbox)) and not self._ended:
            self._ended = True
            self._open = self.writable = False
            self._receiver.on_disconnected()


def join_receivers(
    one: Receiver, other: Receiver, *, origin: ConnectionOrigin | None = None, output_limit_bytes: int = 65_536
) -> tuple[MemoryStream, MemoryStream]:
    """Joins two receivers. The first stream is the one that `one` holds."""
    origin = origin or ConnectionOrigin(transport="memory")
    left, right = (MemoryStream(receiver, origin, output_limit_bytes) for receiver in (one, other))
    left._other, right._other = right, left
    one.on_connected(left)
    other.on_connected(right)
    return left, right


class RecordingReceiver:
    """A receiver that records its frames and can be awaited."""

    stream: Stream

    def __init__(self) -> None:
        self.frames: deque[bytes] = deque()
        self.refusals: list[str] = []
        self.closed = False
        self._changed = asyncio.Event()

    def on_connected(self, stream: Stream) -> None:
        self.stream = stream
        self._changed.set()

    def on_frames(self, frames: list[bytes]) -> None:
        self.frames.extend(frames)
        self._changed.set()

    def on_oversized_frame(self, problem: str) -> None:
        self.refusals.append(problem)
        self._changed.set()

    def on_writable(self) -> None:
        self._changed.set()

    def on_disconnected(self) -> None:
        self.closed = True
        self._changed.set()

    def send(self, *frames: bytes) -> None:
        self.stream.send(Packet(frames))

    async def next_frame(self) -> bytes:
        """Returns the next frame, once it has arrived. Raises `EOFError` when none will come."""
        await self.wait_until(lambda: bool(self.frames) or self.closed)
        if not self.frames:
            raise EOFError("the stream has ended")
        return self.frames.popleft()

    async def wait_until(self, condition: Callable[[], bool]) -> None:
        """Checks the condition again after every change of this side."""
        while not condition():
            self._changed.clear()
            await self._changed.wait()
