"""What is said to one client that may be slow: sent at once while it reads, kept in order while it does not, and only so much.

For what is not in a journal. Whoever does not take it in the end is cut off rather than told with a hole.
"""

import logging
from collections import deque

from switchtower.transports.packet import Packet
from switchtower.transports.stream import Stream

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
