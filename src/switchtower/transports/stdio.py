"""Lines over two inherited descriptors: pipes, files, terminals, sockets. It handles frames, not their content.

Such a descriptor may be shared with other processes, so its blocking mode is not changed; two threads wait for it, and the loop
never does. Only one read is active at a time: the next starts when its lines were taken. Output waits in a buffer, and `writable`
becomes false when that is full.
"""

import asyncio
import contextlib
import os
import select
import threading
from collections.abc import Callable

from switchtower.transports.stream import ConnectionOrigin, LineSplitter, OversizedMessage, Packet, Receiver

_MOST_AT_ONCE = 65_536
_FLUSH_SECONDS = 5.0
"""The seconds that a closed connection may take to drain before it is abandoned."""


class StdioConnection:
    """The `Stream` that the receiver holds. The caller closes the descriptors, after `wait_closed`."""

    def __init__(
        self,
        receiver: Receiver,
        input_fd: int,
        output_fd: int,
        *,
        max_line_bytes: int,
        output_limit_bytes: int,
        ended: Callable[[], None],
        complaint: OversizedMessage,
    ) -> None:
        """`ended` is called once, when there is no more input or the output has no reader any more. Pending output can still be
        sent.
        """
        self.origin = ConnectionOrigin(transport="stdio")
        self.writable = True
        self._receiver = receiver
        self._limit = max_line_bytes
        self._splitter = LineSplitter(max_line_bytes)
        self._format_oversized = complaint
        self._ended = ended
        self._loop = asyncio.get_running_loop()
        self._open = True
        self._over = False
        self._paused = False
        self._held: bytes | None = None
        self._gone = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None
        self._source = _Source(input_fd, self._make_loop_callback(self._on_data))
        self._sink = _Sink(
            output_fd,
            output_limit_bytes,
            drained=self._make_loop_callback(self._on_drained),
            ended=self._make_loop_callback(self._on_flushed),
        )

    def start(self) -> None:
        self._receiver.on_connected(self)
        self._source.start()
        self._sink.start()

    async def wait_closed(self) -> None:
        await self._gone.wait()

    # The methods that the receiver calls: a `Stream`.

    def send(self, packet: Packet) -> None:
        if self._open and not self._sink.put(packet.lines):
            self.writable = False

    def pause_reading(self) -> None:
        self._paused = True

    def resume_reading(self) -> None:
        self._paused = False
        if self._held is not None and self._open:
            held, self._held = self._held, None
            self._loop.call_soon(self._on_data, held)

    def close(self, code: int = 1000, reason: str = "") -> None:
        if self._open:
            self._open = self.writable = False
            self._source.stop()
            self._sink.finish()
            self._timer = self._loop.call_later(_FLUSH_SECONDS, self._on_flushed)

    def abort(self) -> None:
        if self._open:
            self._open = self.writable = False
            self._source.stop()
        self._sink.abandon()
        self._on_flushed()

    # The threads' callbacks, on the loop.

    def _make_loop_callback(self, call: Callable[..., None]) -> Callable[..., None]:
        def tell(*arguments: object) -> None:
            with contextlib.suppress(RuntimeError):  # the loop has ended, so the event is irrelevant
                self._loop.call_soon_threadsafe(call, *arguments)

        return tell

    def _on_data(self, data: bytes) -> None:
        """Handles a piece of input; an empty one is its end."""
        if not self._open:
            return
        if self._paused:
            self._held = data
            return
        if frames := self._splitter.feed(data) if data else self._splitter.finish():
            self._receiver.on_frames(frames)
        oversizes, self._splitter.oversizes = self._splitter.oversizes, []
        for size in oversizes:
            self._receiver.on_oversized_frame(self._format_oversized(size, self._limit))
        if data:
            self._source.resume()
        else:
            self._end()

    def _on_drained(self) -> None:
        if self._open and not self._sink.is_full:  # it may have filled up again meanwhile
            self.writable = True
            self._receiver.on_writable()

    def _on_flushed(self) -> None:
        """Handles the end of the output: all is written, or it never will be."""
        if self._gone.is_set():
            return
        self._gone.set()
        self._open = self.writable = False
        if self._timer is not None:
            self._timer.cancel()
        self._source.stop()
        self._receiver.on_disconnected()
        self._end()

    def _end(self) -> None:
        if not self._over:
            self._over = True
            self._ended()


class _Source:
    """A thread that reads when it may."""

    def __init__(self, fd: int, read: Callable[[bytes], None]) -> None:
        self._fd = fd
        self._read = read
        self._may_read = threading.Event()
        self._may_read.set()
        self._stopped = False
        self._wake_reader, self._wake_writer = os.pipe()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run, name="stdin", daemon=True)
        self._thread.start()

    def resume(self) -> None:
        self._may_read.set()

    def stop(self) -> None:
        if not self._stopped:
            self._stopped = True
            self._may_read.set()
            os.close(self._wake_writer)
            if self._thread is None:
                os.close(self._wake_reader)

    def _run(self) -> None:
        poll = select.poll()
        poll.register(self._fd, select.POLLIN)
        poll.register(self._wake_reader, select.POLLIN)
        try:
            while True:
                self._may_read.wait()
                self._may_read.clear()
                data = self._read_next(poll)
                if data is not None:
                    self._read(data)
                if not data:
                    return
        finally:
            os.close(self._wake_reader)

    def _read_next(self, poll: select.poll) -> bytes | None:
        """Returns None when the thread must stop."""
        while True:
            ready = [fd for fd, _ in poll.poll()]
            if self._stopped or self._wake_reader in ready:
                return None
            try:
                return os.read(self._fd, _MOST_AT_ONCE)
            except BlockingIOError:  # another process has made the descriptor nonblocking, and read the data first
                continue
            except OSError:
                return b""


class _Sink:
    """A buffer, and a thread that writes it out."""

    def __init__(self, fd: int, limit: int, *, drained: Callable[[], None], ended: Callable[[], None]) -> None:
        self._fd = fd
        self._limit = limit
        self._drained = drained
        self._ended = ended
        self._changed = threading.Condition()
        self._pieces: list[bytes] = []
        self._unwritten = 0
        self.is_full = False
        self._finishing = False
        self._given_up = False

    def start(self) -> None:
        threading.Thread(target=self._run, name="stdout", daemon=True).start()

    def put(self, data: bytes) -> bool:
        """Returns whether there is room for more."""
        with self._changed:
            self._pieces.append(data)
            self._unwritten += len(data)
            self.is_full = self.is_full or self._unwritten > self._limit
            self._changed.notify()
            return not self.is_full

    def finish(self) -> None:
        """Ends the thread when all output is written."""
        with self._changed:
            self._finishing = True
            self._changed.notify()

    def abandon(self) -> None:
        with self._changed:
            self._given_up = self._finishing = True
            self._pieces.clear()
            self._changed.notify()

    def _run(self) -> None:
        with contextlib.suppress(OSError):  # the reader has closed
            while pieces := self._wait():
                self._write(memoryview(b"".join(pieces)))
        self._ended()

    def _wait(self) -> list[bytes]:
        with self._changed:
            while not self._pieces and not self._finishing:
                self._changed.wait()
            pieces, self._pieces = self._pieces, []
            return pieces

    def _write(self, data: memoryview) -> None:
        while data and not self._given_up:
            try:
                written = os.write(self._fd, data[:_MOST_AT_ONCE])
            except BlockingIOError:
                poll = select.poll()
                poll.register(self._fd, select.POLLOUT)
                poll.poll()
                continue
            data = data[written:]
            with self._changed:
                self._unwritten -= written
                has_drained = self.is_full and self._unwritten <= self._limit // 4
                if has_drained:
                    self.is_full = False
            if has_drained:
                self._drained()
