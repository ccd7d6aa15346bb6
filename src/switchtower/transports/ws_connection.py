"""A WebSocket, whichever of its ends we are: reading, keeping alive, and parting. How it came to be, each end knows itself."""

import asyncio
from collections.abc import Callable
from typing import Any, cast

from picows import WSCloseCode, WSTransport

from switchtower.transports import wire
from switchtower.transports.stream import ConnectionOrigin

MOST_PER_READ = 65_536
"""picows doubles its buffer whenever a read fills it; this keeps a client that floods from making it grow."""

GOODBYE_SECONDS = 5.0
"""How long the other side may take to answer a close, or to stop sending after an error, before it is cut off."""

LONGEST_REASON = 123
"""RFC 6455, 5.5: a control frame has at most 125 bytes, and the close code takes two."""


class WsConnection(asyncio.BufferedProtocol):
    """Most of a `stream.Stream`; sending is the end's own."""

    origin: ConnectionOrigin

    def __init__(self, max_message_bytes: int, ping_seconds: float) -> None:
        self.writable = False
        self.is_open = False
        self.transport: asyncio.Transport
        self._messages = wire.MessageAssembler(max_message_bytes)
        self._ping_seconds = ping_seconds
        self._wire: Any = None
        self._filter: wire.FrameFilter | None = None
        self._buffer: memoryview
        self._ws: WSTransport
        self._is_ignoring_input = False
        self._goodbye_bytes_left = max_message_bytes
        self._reading = True
        self._heard = False
        self._pinged = False
        self._unsent = 0
        self._timer: asyncio.TimerHandle | None = None

    # What the event loop calls.

    def get_buffer(self, sizehint: int) -> memoryview:
        buffer: memoryview = self._wire.get_buffer(sizehint)
        self._buffer = buffer if len(buffer) <= MOST_PER_READ else buffer[:MOST_PER_READ]
        return self._buffer

    def eof_received(self) -> bool:
        return False

    # What the receiver calls.

    def pause_reading(self) -> None:
        if self.is_open:
            self._reading = False
            self.transport.pause_reading()

    def resume_reading(self) -> None:
        if self.is_open:
            self._reading = True
            self.transport.resume_reading()

    def close(self, code: int = 1000, reason: str = "") -> None:
        """Says goodbye and waits for the answer, but not for ever."""
        if not self.is_open:
            return
        self._ws.send_close(cast(WSCloseCode, code), reason.encode()[:LONGEST_REASON].decode(errors="ignore"))
        self.is_open = self.writable = False
        self.transport.resume_reading()
        self._set_timer(GOODBYE_SECONDS, self.transport.abort)

    def abort(self) -> None:
        self.is_open = self.writable = False
        self.transport.abort()

    # Life and end

    def _mark_open(self) -> None:
        """From now on it is open."""
        self.is_open = self.writable = True
        self._set_timer(self._ping_seconds, self._check_alive)

    def _parse(self, nbytes: int) -> None:
        """Has picows read what has arrived in its buffer."""
        if self._filter is None:
            self._wire.buffer_updated(nbytes)
        else:
            self._filter.feed(self._wire, self._buffer[:nbytes], is_in_place=True)

    def _take_frames(self) -> list[bytes]:
        """The whole messages of the last read."""
        frames = self._messages.whole
        if frames:
            self._messages.whole = []
        return frames

    def _wait_for_goodbye(self, nbytes: int) -> None:
        """We have said goodbye and look only for the answer, though not through more than a message could hold."""
        self._goodbye_bytes_left -= nbytes
        self._is_ignoring_input = self._goodbye_bytes_left < 0

    def _on_goodbye(self, code: int) -> None:
        """The other side has said goodbye: answer it unless it was the answer, and go."""
        if self.is_open:
            self._ws.send_close(cast(WSCloseCode, code))
        self.is_open = self.writable = False
        self.transport.close()
        self._set_timer(GOODBYE_SECONDS, self.transport.abort)

    def _check_alive(self) -> None:
        """Whoever neither says nor takes anything is asked; whoever does not answer until the next time is dead."""
        unsent = self.transport.get_write_buffer_size()
        alive = self._heard or not self._reading or (unsent > 0 and unsent != self._unsent)
        if alive:
            self._heard = self._pinged = False
        elif self._pinged:
            self.abort()
            return
        else:
            self._ws.send_ping()
            self._pinged = True
        # With the ping, which may wait behind the rest: it is no sign that the other side takes anything.
        self._unsent = self.transport.get_write_buffer_size()
        self._set_timer(self._ping_seconds, self._check_alive)

    def _set_timer(self, seconds: float, call: Callable[[], None]) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(seconds, call)
