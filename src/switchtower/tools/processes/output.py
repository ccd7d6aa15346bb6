"""Reads a command's output as it arrives. It is kept in bounded memory and passed to a listener; while a listener is busy, the
command waits at its own pipe.

Progress for subscribers is a few pieces a second, each of bounded size, and bounded in total. Faster output is skipped, and the
pieces note that; the result has what is kept.
"""

import asyncio
import codecs
import inspect
import logging
import os
from collections.abc import Awaitable, Callable
from contextlib import suppress

from switchtower.tools import safe_text

OutputListener = Callable[[bytes], Awaitable[None] | None]

_CHUNK = 64 * 1024
LINGER = 0.25
"""The seconds in which output may still arrive after the shell has ended, from a background process that holds the pipe."""
_MOST_LAST_READS = 16

log = logging.getLogger(__name__)


class CommandOutput:
    def __init__(
        self, pipe: int, kept: safe_text.SpillingCapture, listener: OutputListener | None, *, linger_s: float = LINGER
    ) -> None:
        self.kept = kept
        self.closed = asyncio.Event()
        """This is set when no process can write any more, and all output is read."""
        self._pipe = pipe
        self._listener = listener
        self._linger_s = linger_s
        self._notifying: asyncio.Future[None] | None = None
        self._reads = 0
        self._loop = asyncio.get_running_loop()
        os.set_blocking(pipe, False)
        self._loop.add_reader(pipe, self._read)

    async def drain(self, deadline: float) -> None:
        """Reads the remaining output once the command has ended. A background process may hold the pipe, or fill it without end:
        it is not waited for. A listener is, until the deadline on the loop's clock.
        """
        reads_before = self._reads
        while True:
            was_telling = self._notifying is not None
            with suppress(TimeoutError):
                async with asyncio.timeout(self._linger_s):
                    await self.closed.wait()
            # A listener that has just finished its piece gets time for the next to be read.
            is_listening = (was_telling or self._notifying is not None) and self._loop.time() < deadline
            if self.closed.is_set() or not is_listening or self._reads - reads_before > _MOST_LAST_READS:
                return

    def close(self) -> None:
        """Closes the pipe. The shell's last output is in the pipe already, so it is not lost even when the loop was too busy to
        read it. This last read is bounded, and no listener gets it.
        """
        self._listener = None
        if self._notifying is not None:
            self._notifying.cancel()
        for _ in range(_MOST_LAST_READS):
            if self.closed.is_set():
                break
            self._read()
        self._loop.remove_reader(self._pipe)
        os.close(self._pipe)
        self._pipe = -1

    def _read(self) -> None:
        try:
            chunk = os.read(self._pipe, _CHUNK)
        except BlockingIOError:
            return
        if not chunk:
            self._loop.remove_reader(self._pipe)
            self.closed.set()
            return
        self._reads += 1
        self.kept.add(chunk)
        if self._listener is not None:
            self._notify(self._listener, chunk)

    def _notify(self, listener: OutputListener, chunk: bytes) -> None:
        try:
            answer = listener(chunk)
        except Exception:
            self._stop_notifying()
            return
        if inspect.isawaitable(answer):
            self._loop.remove_reader(self._pipe)
            self._notifying = asyncio.ensure_future(answer)
            self._notifying.add_done_callback(self._on_notified)

    def _on_notified(self, telling: "asyncio.Future[None]") -> None:
        self._notifying = None
        if not telling.cancelled() and telling.exception() is not None:
            self._stop_notifying(telling.exception())
        if self._pipe != -1:
            self._loop.add_reader(self._pipe, self._read)

    def _stop_notifying(self, error: BaseException | None = None) -> None:
        """The command and its kept output are more important than the listener."""
        log.error("output is no longer told to its listener", exc_info=error or True)
        self._listener = None


PIECE = 8 * 1024
MOST = 256 * 1024
INTERVAL = 0.25

ProgressCallback = Callable[[str], Awaitable[None]]


class OutputProgress:
    """Use it with `async with`, and pass the output to `add_output`. The output of the last moments is left to the result."""

    def __init__(self, tell: ProgressCallback, *, interval: float = INTERVAL, piece: int = PIECE, most: int = MOST) -> None:
        self._callback = tell
        self._interval = interval
        self._piece = piece
        self._left = most
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._waiting = ""
        self._skipped = 0
        self._has_output = asyncio.Event()
        self._reporting: asyncio.Task[None] | None = None

    def add_output(self, chunk: bytes) -> None:
        """Counts characters, not bytes, from here on: the bounds are rough anyway."""
        if self._left <= 0:
            return
        self._waiting += self._decoder.decode(chunk)
        if (excess := len(self._waiting) - self._piece) > 0:
            excess += safe_text.find_start(self._waiting[excess:], min(safe_text.LINE_REACH, self._piece // 4))
            self._skipped += excess
            self._waiting = self._waiting[excess:]
        if self._waiting:
            self._has_output.set()

    async def __aenter__(self) -> "OutputProgress":
        self._reporting = asyncio.create_task(self._report_periodically())
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._reporting is not None
        self._reporting.cancel()
        await asyncio.wait([self._reporting])
        if not self._reporting.cancelled():
            self._reporting.exception()  # the subscriber may have disconnected; the work matters more

    async def _report_periodically(self) -> None:
        while self._left > 0:
            await self._has_output.wait()
            await asyncio.sleep(self._interval)
            self._has_output.clear()
            note = f"[… {self._skipped} characters skipped …]\n" if self._skipped else ""
            waiting, self._waiting, self._skipped = self._waiting, "", 0
            if len(waiting) > self._left:
                waiting = waiting[: self._left]
                waiting = waiting[: safe_text.find_end(waiting)]
                self._left = 0
            piece = note + waiting
            self._left -= len(piece)
            if self._left <= 0:
                piece += "\n[… no more is shown on the way; the rest is in the result …]"
            await self._callback(piece)
