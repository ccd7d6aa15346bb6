"""The pipes of a server's process. They are bounded on every side: a line has a maximum length, lines must be consumed before
more is read, a write waits for space, and only both ends of the error stream are kept.
"""

import asyncio
import os
from collections import deque
from collections.abc import Callable

from switchtower.tools import safe_text

LONGEST_LINE = 8 * 1024 * 1024
KEEP_OF_LONG = 4 * 1024
"""The bytes that are kept of the start and of the end of an overlong line."""
_CHUNK = 64 * 1024
_MOST_UNSENT = 64 * 1024
_KEEP_BYTES = 8 * 1024
_BREATH = 0.02
"""The seconds between two full reads of an error stream: a server that floods it has to wait."""


class OverlongLine(bytes):
    """The start and the end of a line that was too long to keep."""


class LineBuffer:
    """Splits a stream of bytes into lines."""

    def __init__(self, longest: int = LONGEST_LINE) -> None:
        self._longest = longest
        self._open = bytearray()
        self._head: bytes | None = None

    def feed(self, chunk: bytes) -> list[bytes]:
        *ended, rest = chunk.split(b"\n")
        lines = []
        for piece in ended:
            self._add(piece)
            lines.append(bytes(self._open) if self._head is None else OverlongLine(self._head + self._open[-KEEP_OF_LONG:]))
            self._open.clear()
            self._head = None
        self._add(rest)
        return lines

    def _add(self, piece: bytes) -> None:
        self._open += piece
        if len(self._open) > self._longest:
            if self._head is None:
                self._head = bytes(self._open[:KEEP_OF_LONG])
            del self._open[:-KEEP_OF_LONG]


class _Pipe:
    """One end of a pipe, watched by the event loop while there is something to wait for."""

    def __init__(self, descriptor: int) -> None:
        os.set_blocking(descriptor, False)
        self._descriptor = descriptor
        self._loop = asyncio.get_running_loop()
        self._closed = False

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._loop.remove_reader(self._descriptor)
            self._loop.remove_writer(self._descriptor)
            os.close(self._descriptor)

    def _watch(self, read: Callable[[], None]) -> None:
        if not self._closed:
            self._loop.add_reader(self._descriptor, read)

    def _read_chunk(self) -> bytes | None:
        """Returns the available bytes; an empty value at the end of the stream; `None` when the caller has to wait."""
        try:
            return os.read(self._descriptor, _CHUNK)
        except BlockingIOError:
            return None
        except OSError:
            return b""


class IncomingPipe(_Pipe):
    """The server's output, line by line. More is read only when all lines have been taken."""

    def __init__(self, descriptor: int) -> None:
        super().__init__(descriptor)
        self._lines = LineBuffer()
        self._ready: deque[bytes] = deque()
        self._news = asyncio.Event()
        self._over = False
        self._no_more_comes = False

    async def read_line(self) -> bytes | None:
        """Returns the next line; `None` when there will be none."""
        while not self._ready and not self._over:
            if self._no_more_comes:
                self._read()
            else:
                self._news.clear()
                self._watch(self._read)
                await self._news.wait()
        return self._ready.popleft() if self._ready else None

    def on_writer_exit(self) -> None:
        """Marks the current content of the pipe as the last, even if a process that the writer started still holds it open."""
        self._no_more_comes = True
        self._news.set()

    def discard(self) -> None:
        """Discards all further output, so that the writer does not block."""
        self._over = True
        self._news.set()
        self._watch(self._drop)

    def _read(self) -> None:
        chunk = self._read_chunk()
        if chunk:
            self._ready += self._lines.feed(chunk)
        elif chunk == b"" or self._no_more_comes:
            self._over = True
        if self._ready or self._over:
            self._loop.remove_reader(self._descriptor)
            self._news.set()

    def _drop(self) -> None:
        if self._read_chunk() == b"":
            self._loop.remove_reader(self._descriptor)


class OutgoingPipe(_Pipe):
    """The server's input. A started line is always sent completely, even when its writer is cancelled."""

    def __init__(self, descriptor: int, on_broken: Callable[[], None]) -> None:
        """`on_broken` is called when the server has closed its input, even while no write waits."""
        super().__init__(descriptor)
        self._on_broken = on_broken
        self._unsent = bytearray()
        self._room = asyncio.Event()
        self.broken = False

    async def write(self, line: bytes) -> None:
        """Waits for space in the pipe. Raises `BrokenPipeError` when the server accepts no more."""
        while len(self._unsent) >= _MOST_UNSENT and not self.broken and not self._closed:
            self._room.clear()
            await self._room.wait()
        if self.broken or self._closed:
            raise BrokenPipeError
        self._unsent += line
        self._send()
        if self.broken:
            raise BrokenPipeError

    def close(self) -> None:
        super().close()
        self._room.set()

    def _send(self) -> None:
        try:
            del self._unsent[: os.write(self._descriptor, self._unsent)]
        except BlockingIOError:
            pass
        except OSError:
            self.broken = True
            self._unsent.clear()
            self._on_broken()
        if self._unsent:
            self._loop.add_writer(self._descriptor, self._send)
        else:
            self._loop.remove_writer(self._descriptor)
        if len(self._unsent) < _MOST_UNSENT:
            self._room.set()


class ErrorPipe(_Pipe):
    """The server's error stream, and output lines that are not messages."""

    def __init__(self, descriptor: int) -> None:
        super().__init__(descriptor)
        self._kept = safe_text.HeadAndTail(_KEEP_BYTES)
        self._watch(self._read)

    def add(self, text: bytes) -> None:
        self._kept.add(text)

    def render(self) -> str:
        return self._kept.render()

    def close(self) -> None:
        if not self._closed:
            # Its last output may still be in the pipe, when the loop was too busy to read it.
            self.add(self._read_chunk() or b"")
        super().close()

    def _read(self) -> None:
        chunk = self._read_chunk()
        if chunk is None:
            return
        self.add(chunk)
        if not chunk:
            self._loop.remove_reader(self._descriptor)
        elif len(chunk) == _CHUNK:
            self._loop.remove_reader(self._descriptor)
            self._loop.call_later(_BREATH, self._watch, self._read)
