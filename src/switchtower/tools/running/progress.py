"""Output on its way to who watches: a few pieces a second, each of bounded size, and not without end. What comes faster than
that is skipped over, and the pieces say so; the result has what is kept.
"""

import asyncio
import codecs
from collections.abc import Awaitable, Callable

from switchtower.tools.running import capture

PIECE = 8 * 1024
MOST = 256 * 1024
INTERVAL = 0.25

ProgressCallback = Callable[[str], Awaitable[None]]


class OutputProgress:
    """Use it as `async with`, and give `hear` the output. The last moments before the end are left to the result."""

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
        """Characters, not bytes, are counted from here on: the bounds are rough anyway."""
        if self._left <= 0:
            return
        self._waiting += self._decoder.decode(chunk)
        if (excess := len(self._waiting) - self._piece) > 0:
            excess += capture.find_start(self._waiting[excess:], min(capture.LINE_REACH, self._piece // 4))
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
            self._reporting.exception()  # whoever watches may be gone; the work matters more

    async def _report_periodically(self) -> None:
        while self._left > 0:
            await self._has_output.wait()
            await asyncio.sleep(self._interval)
            self._has_output.clear()
            note = f"[… {self._skipped} characters skipped …]\n" if self._skipped else ""
            waiting, self._waiting, self._skipped = self._waiting, "", 0
            if len(waiting) > self._left:
                waiting = waiting[: self._left]
                waiting = waiting[: capture.find_end(waiting)]
                self._left = 0
            piece = note + waiting
            self._left -= len(piece)
            if self._left <= 0:
                piece += "\n[… no more is shown on the way; the rest is in the result …]"
            await self._callback(piece)
