"""Two streams joined in memory: what one sends, the other's receiver is given. For trying a receiver without a socket.

As over a socket, frames arrive in a later turn of the loop, those of one turn together; a side that does not read makes the
other one's `writable` turn false; and both are told of the end.
"""

import asyncio

from switchtower.transports.packet import Packet
from switchtower.transports.stream import Origin, Receiver, Stream


class MemoryStream:
    """One side's `Stream`."""

    def __init__(self, receiver: Receiver, origin: Origin, output_limit_bytes: int) -> None:
        self.origin = origin
        self.writable = True
        self.open = True
        self.close_code: int | None = None
        """What this side closed with."""
        self._receiver = receiver
        self._limit = output_limit_bytes
        self._other: MemoryStream
        self._arrived: list[bytes] = []
        self._arrived_bytes = 0
        self._reading = True
        self._scheduled = False

    def send(self, packet: Packet) -> None:
        other = self._other
        if not (self.open and other.open):
            return
        other._arrived.extend(packet.frames)
        other._arrived_bytes += sum(map(len, packet.frames))
        if other._arrived_bytes > self._limit:
            self.writable = False
        other._deliver_soon()

    def pause_reading(self) -> None:
        self._reading = False

    def resume_reading(self) -> None:
        self._reading = True
        self._deliver_soon()

    def close(self, code: int = 1000, reason: str = "") -> None:
        if self.open:
            self.close_code = code
            self._end()

    def abort(self) -> None:
        if self.open:
            self._other._arrived.clear()
            self._end()

    def refuse(self, problem: str) -> None:
        """Tells the receiver of a frame that was thrown away."""
        self._receiver.refused(problem)

    def _end(self) -> None:
        self.open = self.writable = False
        self._arrived.clear()
        self._deliver_soon()
        self._other._deliver_soon()

    def _deliver_soon(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._deliver)

    def _deliver(self) -> None:
        self._scheduled = False
        other = self._other
        if self._arrived and self._reading:
            frames, self._arrived, self._arrived_bytes = self._arrived, [], 0
            self._receiver.received(frames)
            if other.open and not other.writable:
                other.writable = True
                other._receiver.writable_again()
        if not (self.open and other.open) and not self._arrived:
            self._tell_end()

    def _tell_end(self) -> None:
        self.open = self.writable = False
        if self._told:
            return
