"""A program's output on its way to the journal: soon when it is little, in large pieces when it is much, and after a silence
the screen is looked at. Nothing more is read than can be stored, so a program that floods its terminal waits."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

from switchtower.core import engine, events
from switchtower.engines.pty import program as programs
from switchtower.engines.pty import queries
from switchtower.engines.pty.chunks import OutputChunker
from switchtower.engines.pty.program import TerminalProgram
from switchtower.engines.pty.screen import TerminalScreen

AT_ONCE = 0.001
"""From a key's echo to the journal."""
SOON = 0.005
"""From the first output after a pause to the journal."""
EVERY = 0.05
"""Between two pieces, while output goes on and none is full."""
ECHO = 0.1
"""After a key, output is taken to be its echo for so long."""
SILENCE = 0.12
"""After this the program is taken to wait for something."""
BETWEEN = 0.25
"""While output continues, the screen is looked at this often: a program that animates something is never silent."""
CLOSELY = 0.05
"""The same, while a prompt that was answered must be seen to go."""
BETWEEN_CHARS = 16 * 1024
"""More output than this between two looks is a flood, in which no dialog stands."""
KEYFRAME_CHARS = 256 * 1024
"""Output after which the whole screen is kept again."""


class OutputPump:
    def __init__(
        self,
        program: TerminalProgram,
        context: engine.RunContext,
        call_id: str,
        screen: TerminalScreen,
        *,
        on_silence: Callable[[], Awaitable[None]],
        on_output: Callable[[], Awaitable[None]],
        is_watched_closely: Callable[[], bool],
    ) -> None:
        """`on_silence` looks at the screen after a pause, `on_output` from time to time while output continues."""
        self._program = program
        self._context = context
        self._call_id = call_id
        self._screen = screen
        self._on_silence = on_silence
        self._on_output = on_output
        self._is_watched_closely = is_watched_closely
        self._chunks = OutputChunker()
        self._since_keyframe = 0
        self._keyframe_is_due = False
        self._typed_at = -ECHO
        self._silent_at: float | None = None
        self._check_at: float | None = None
        self._since_check = 0
        self._is_handing_over = False
        self._reading: asyncio.Timeout | None = None

    async def run(self) -> None:
        """To the program's end; then all that it put out has been handed over."""
        clock = asyncio.get_running_loop().time
        flushed_at = 0.0
        flush_at: float | None = None
        while True:
            due = min((moment for moment in (flush_at, self._silent_at, self._check_at) if moment is not None), default=None)
            try:
                async with asyncio.timeout_at(due) as self._reading:
                    data = await self._program.read()
            except TimeoutError:
                now = clock()
                if flush_at is not None and now >= flush_at:
                    await self._emit_output(self._chunks.flush())
                    if self._is_echo(now):
                        # What may begin a secret is not held back from who has just typed it.
                        self._context.release_output(self._call_id)
                    flushed_at = now
                    # The beginning of an escape sequence is waited for once more, then it is let go.
                    flush_at = None if self._chunks.is_empty else now + EVERY
                if self._silent_at is not None and now >= self._silent_at:
                    self._silent_at = self._check_at = None
                    await self._report_silence()
                elif self._check_at is not None and now >= self._check_at:
                    self._check_at = None
                    await self._check_between()
                continue
            finally:
                self._reading = None
            if not data:
                break
            for text in self._chunks.feed(data):
                await self._emit_output(text)
            now = clock()
            if flush_at is None and not self._chunks.is_empty:
                flush_at = now + AT_ONCE if self._is_echo(now) else max(now + SOON, flushed_at + EVERY)
            self._silent_at = now + SILENCE
            if self._check_at is None:
                self._check_at = now + (CLOSELY if self._is_watched_closely() else BETWEEN)
            elif now >= self._check_at:
                # Output comes faster than it is waited for.
                self._check_at = None
                await self._check_between()
        await self._emit_output(self._chunks.close())
        self._context.release_output(self._call_id)
        await self.settle()

    def on_input(self) -> None:
        """Somebody has typed: what comes now is likely the echo, and is looked for."""
        self._typed_at = asyncio.get_running_loop().time()
        self.schedule_check()

    def _is_echo(self, now: float) -> bool:
        return now - self._typed_at < ECHO

    def schedule_keyframe(self) -> None:
        """The screen has another size, so what was kept of it no longer fits."""
        self._keyframe_is_due = True
        self.schedule_check()

    def schedule_check(self, after: float = SILENCE) -> None:
        """Somebody did something at the terminal: the screen is looked at after a while, also when the program says nothing."""
        self._silent_at = asyncio.get_running_loop().time() + after
        reading = self._reading
        if reading is not None and not reading.expired() and ((due := reading.when()) is None or due > self._silent_at):
            reading.reschedule(self._silent_at)

    @property
    def is_drawn(self) -> bool:
        """All that was read of the program's output is on the screen."""
        return self._chunks.is_empty and not self._is_handing_over and self._screen.is_current

    async def settle(self) -> None:
        """Brings the picture up to date, a little at a time: others have work too."""
        for _ in self._screen.update_in_steps():
            await asyncio.sleep(0)

    async def _report_silence(self) -> None:
        self._context.release_output(self._call_id)
        self._since_check = 0
        await self.settle()
        if self._keyframe_is_due or self._since_keyframe >= KEYFRAME_CHARS:
            self._keyframe_is_due = False
            self._since_keyframe = 0
            taken = events.ScreenCaptured(text=self._screen.render_repaint(), cols=self._screen.cols, rows=self._screen.rows)
            await self._context.emit(taken)
        await self._on_silence()

    async def _check_between(self) -> None:
        since, self._since_check = self._since_check, 0
        if since <= BETWEEN_CHARS:
            await self.settle()
            await self._on_output()

    async def _emit_output(self, text: str) -> None:
        self._is_handing_over = True
        try:
            await self._split(text)
        finally:
            self._is_handing_over = False

    async def _split(self, text: str) -> None:
        told = 0
        for query in queries.QUERY.finditer(text) if "\x1b" in text else ():
            # Up to the question all is on the screen before it is answered.
            await self._deliver(text[told : query.start()])
            told = query.end()
            await self.settle()
            if answer := queries.answer_query(query, self._screen.cursor, self._screen.cols):
                with contextlib.suppress(programs.ProgramExited, programs.InputFull):
                    self._program.write(answer.encode())
        await self._deliver(text[told:] if told else text)

    async def _deliver(self, text: str) -> None:
        if text:
            self._screen.feed(text)
            self._since_keyframe += len(text)
            self._since_check += len(text)
            await self._context.emit(events.ToolProgressed(call_id=self._call_id, text=text))
