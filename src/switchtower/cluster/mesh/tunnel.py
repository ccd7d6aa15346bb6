"""One end of a tunnel: a `Stream` among many on one connection, with its own window. It never writes to the connection itself.

The sender may have as many bytes in flight as the receiver has given it credit for, and the receiver gives more only when data
was taken. A receiver that does not read thus slows down the sender of this tunnel, and no other.
"""

import asyncio
import logging
from collections import deque
from typing import Protocol

from switchtower.cluster.mesh import frames as mesh_frames
from switchtower.transports.stream import ConnectionOrigin, Packet, Receiver

_log = logging.getLogger(__name__)

WINDOW_BYTES = 256 * 1024
PIECE_BYTES = 64 * 1024
"""Longer frames are sent in pieces, so that other tunnels get their turn in between."""
FRAME_COST = 16
"""The cost of a frame beside its bytes, so that empty ones are not free."""
FULL_BYTES = 64 * 1024
MOST_QUEUED_BYTES = 2 * mesh_frames.MOST_FRAME_BYTES
FLUSH_SECONDS = 5.0
"""Seconds that a closed tunnel may take to drain before it is aborted."""
ABNORMAL = 1011


class TunnelCarrier(Protocol):
    """The connection as its tunnels see it."""

    def queue_tunnel(self, tunnel: "Tunnel") -> None:
        """The tunnel has something to send: the carrier calls `send_next` when it is its turn."""

    def send(self, envelope: mesh_frames.Envelope) -> bool: ...

    def remove_tunnel(self, tunnel: "Tunnel") -> None: ...


class WindowViolation(mesh_frames.MeshProtocolError):
    """The other side does not keep to the window."""


class Tunnel:
    def __init__(self, number: int, node_id: str, carrier: TunnelCarrier, *, credit: int, window: int) -> None:
        self.number = number
        self.origin = ConnectionOrigin(transport="mesh", address=node_id)
        self.writable = True
        self.closed_by_other: tuple[int, str] | None = None
        """The code and the reason with which the other side closed; known when the receiver's `on_disconnected` is called."""
        self._receiver: Receiver
        self._carrier = carrier
        self._loop = asyncio.get_running_loop()
        self._open = True
        self._ended = False
        self._closing: tuple[int | None, str] | None = None
        self._other_closed = False
        self._flush_timer: asyncio.TimerHandle | None = None
        # Outbound.
        self._credit = credit
        self._queue: deque[bytes] = deque()
        self._queued = 0
        self._position = 0
        """The number of bytes of the first frame that were already sent."""
        # Inbound.
        self._window = window
        self._reading = True
        self._pieces: list[bytes] = []
        self._pieces_bytes = 0
        self._inbox: list[bytes] = []
        self._untaken = 0
        self._ungranted = 0
        self._scheduled = False

    # Methods for the holder of the stream.

    def send(self, packet: Packet) -> None:
        if not self._open:
            return
        for frame in packet.frames:
            self._queue.append(frame)
            self._queued += len(frame) + FRAME_COST
            if len(frame) > mesh_frames.MOST_FRAME_BYTES or self._queued > MOST_QUEUED_BYTES:
                _log.warning("a tunnel to node %s was given more than it can hold: it is cut off", self.origin.address)
                self.abort()
                return
        if self._queued >= FULL_BYTES:
            self.writable = False
        self._carrier.queue_tunnel(self)

    def pause_reading(self) -> None:
        self._reading = False

    def resume_reading(self) -> None:
        self._reading = True
        self._schedule_delivery()

    def close(self, code: int = 1000, reason: str = "") -> None:
        if self._open:
            self._stop((code, reason))
            self._flush_timer = self._loop.call_later(FLUSH_SECONDS, self.abort)
            self._carrier.queue_tunnel(self)

    def abort(self) -> None:
        if not self._ended and not (self._closing is not None and self._closing[0] is None):
            self._queue.clear()
            self._stop((None, ""))
            self._carrier.queue_tunnel(self)

    def _stop(self, closing: tuple[int | None, str]) -> None:
        self._open = self.writable = False
        self._closing = closing
        self._inbox.clear()
        self._pieces.clear()

    # Methods for the connection.

    def begin(self, receiver: Receiver) -> None:
        self._receiver = receiver
        receiver.on_connected(self)

    def send_next(self) -> bool:
        """Sends the next piece, as far as there is credit. Returns whether there is more to send right now."""
        if self._ended:
            return False
        if self._queue and self._credit > 0:
            self._carrier.send(self._take_next())
            if not self.writable and self._open and self._queued <= FULL_BYTES // 4:
                self.writable = True
                self._call_guarded(self._receiver.on_writable)
        if self._queue:
            return self._credit > 0
        if self._closing is not None:
            if not self._other_closed:
                self._carrier.send(mesh_frames.TunnelEnd(self.number, *self._closing))
            self.finish()
        return False

    def _take_next(self) -> mesh_frames.TunnelData:
        frames: list[bytes] = []
        room = PIECE_BYTES
        while self._queue and room > 0 and self._credit > 0:
            frame = self._queue[0]
            left = len(frame) - self._position
            if left > PIECE_BYTES or self._position:
                if frames:
                    break
                piece = frame[self._position : self._position + PIECE_BYTES]
                self._credit -= len(piece) + FRAME_COST
                self._queued -= len(piece)
                if left > PIECE_BYTES:
                    self._position += PIECE_BYTES
                    return mesh_frames.TunnelData(self.number, [piece], unfinished=True)
                self._position = 0
                self._queue.popleft()
                self._queued -= FRAME_COST
                return mesh_frames.TunnelData(self.number, [piece])
            self._queue.popleft()
            cost = len(frame) + FRAME_COST
            self._queued -= cost
            self._credit -= cost
            room -= cost
            frames.append(frame)
        return mesh_frames.TunnelData(self.number, frames)

    def add_credit(self, count: int) -> None:
        self._credit += count
        if self._queue:
            self._carrier.queue_tunnel(self)

    def receive(self, data: mesh_frames.TunnelData) -> None:
        """Raises `WindowViolation`."""
        if not self._open or self._other_closed:
            return
        cost = sum(map(len, data.frames)) + FRAME_COST * len(data.frames)
        self._untaken += cost
        if self._untaken + self._ungranted > self._window + PIECE_BYTES + FRAME_COST:
            raise WindowViolation("a tunnel got more than its window")
        frames = data.frames
        if data.unfinished or self._pieces:
            self._pieces += frames
            self._pieces_bytes += cost
            if self._pieces_bytes > 2 * mesh_frames.MOST_FRAME_BYTES:
                raise WindowViolation("a frame in a tunnel does not end")
            if data.unfinished:
                frames = []
            else:
                frames = [b"".join(self._pieces)]
                self._pieces.clear()
                self._pieces_bytes = 0
        self._inbox += frames
        if self._reading:
            self._deliver()

    def on_remote_end(self, end: mesh_frames.TunnelEnd) -> None:
        """The other side has ended the tunnel. Data that it sent before is still delivered, unless it aborted the tunnel."""
        self._other_closed = True
        self._queue.clear()
        if end.code is None:
            self.finish()
            return
        self.closed_by_other = (end.code, end.reason)
        self.writable = False
        if self._closing is not None or not self._inbox:
            self.finish()

    def finish(self) -> None:
        """Ends the tunnel immediately."""
        if self._ended:
            return
        self._ended = True
        self._open = self.writable = False
        self._queue.clear()
        self._inbox.clear()
        self._pieces.clear()
        if self._flush_timer is not None:
            self._flush_timer.cancel()
        self._carrier.remove_tunnel(self)
        self._call_guarded(self._receiver.on_disconnected)

    def _schedule_delivery(self) -> None:
        if not self._scheduled and not self._ended:
            self._scheduled = True
            self._loop.call_soon(self._deliver_again)

    def _deliver_again(self) -> None:
        self._scheduled = False
        if self._reading and self._open:
            self._deliver()

    def _deliver(self) -> None:
        frames, self._inbox = self._inbox, []
        self._ungranted += self._untaken
        self._untaken = 0
        if frames:
            try:
                self._receiver.on_frames(frames)
            except Exception:
                _log.exception("who is at the end of a tunnel failed")
                self.abort()
        if self._other_closed:
            if not self._inbox:
                self.finish()
        elif self._open and self._ungranted >= self._window // 4:
            self._carrier.send(mesh_frames.TunnelCredit(self.number, self._ungranted))
            self._ungranted = 0

    def _call_guarded(self, call: "_Call") -> None:
        try:
            call()
        except Exception:
            _log.exception("who is at the end of a tunnel failed")


class _Call(Protocol):
    def __call__(self) -> None: ...
