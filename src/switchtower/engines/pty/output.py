"""Sends a program's output to the journal: soon when it is little, in large pieces when it is much. After a silence the screen is
checked. No more is read than can be stored, so a program that floods its terminal has to wait.

The pieces are text, not too small, not too large, and never end inside a character, nor inside an escape sequence whose rest is
near. They are measured in bytes of the output; a text never has more characters than that.

Programs query their terminal for the cursor position, its type and its colours. We are the terminal, so we answer, and remove the
query from the output: otherwise the terminal of every subscriber would answer it once more.
"""

import asyncio
import codecs
import contextlib
import re
from collections.abc import Awaitable, Callable

from switchtower.core import events
from switchtower.core.ports import engine
from switchtower.engines.pty import program as programs
from switchtower.engines.pty.program import TerminalProgram
from switchtower.engines.pty.screen import TerminalScreen

AT_ONCE = 0.001
"""The seconds from a key's echo to the journal."""
SOON = 0.005
"""The seconds from the first output after a pause to the journal."""
EVERY = 0.05
"""The seconds between two pieces, while output continues and none is full."""
ECHO = 0.1
"""The seconds after a key in which output counts as its echo."""
SILENCE = 0.12
"""The seconds of silence after which the program counts as waiting."""
BETWEEN = 0.25
"""The seconds between two checks of the screen while output continues: a program with an animation is never silent."""
CLOSELY = 0.05
"""The same, while the watcher waits for an answered prompt to disappear."""
BETWEEN_CHARS = 16 * 1024
"""More output than this between two checks is a flood, which contains no dialog."""
KEYFRAME_CHARS = 256 * 1024
"""The output, in characters, after which the whole screen is stored again."""


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
        """`on_silence` checks the screen after a pause, `on_output` at intervals while output continues."""
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
        """Runs to the program's end; then all of its output has been handed over."""
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
                        # Text that may be the start of a secret is not held back from the user who has just typed it.
                        self._context.release_output(self._call_id)
                    flushed_at = now
                    # The start of an escape sequence is held back once more, then it is sent as it is.
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
                # Output arrives faster than the wait takes.
                self._check_at = None
                await self._check_between()
        await self._emit_output(self._chunks.close())
        self._context.release_output(self._call_id)
        await self.settle()

    def on_input(self) -> None:
        """Notes that a user has typed: the next output is likely the echo."""
        self._typed_at = asyncio.get_running_loop().time()
        self.schedule_check()

    def _is_echo(self, now: float) -> bool:
        return now - self._typed_at < ECHO

    def schedule_keyframe(self) -> None:
        """Stores the screen again: it has another size, so the stored one no longer fits."""
        self._keyframe_is_due = True
        self.schedule_check()

    def schedule_check(self, after: float = SILENCE) -> None:
        """Schedules a check of the screen after input at the terminal, even when the program prints nothing."""
        self._silent_at = asyncio.get_running_loop().time() + after
        reading = self._reading
        if reading is not None and not reading.expired() and ((due := reading.when()) is None or due > self._silent_at):
            reading.reschedule(self._silent_at)

    @property
    def is_drawn(self) -> bool:
        """True when all output that was read from the program is on the screen."""
        return self._chunks.is_empty and not self._is_handing_over and self._screen.is_current

    async def settle(self) -> None:
        """Updates the screen in small steps, so that other tasks can run in between."""
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
        for query in QUERY.finditer(text) if "\x1b" in text else ():
            # All output before the query is on the screen before the query is answered.
            await self._deliver(text[told : query.start()])
            told = query.end()
            await self.settle()
            if answer := answer_query(query, self._screen.cursor, self._screen.cols):
                with contextlib.suppress(programs.ProgramExited, programs.InputFull):
                    self._program.write(answer.encode())
        await self._deliver(text[told:] if told else text)

    async def _deliver(self, text: str) -> None:
        if text:
            self._screen.feed(text)
            self._since_keyframe += len(text)
            self._since_check += len(text)
            await self._context.emit(events.ToolProgressed(call_id=self._call_id, text=text))


LIMIT = 16 * 1024
NEAR = 64
"""The most bytes behind the limit in which the rest of an escape sequence must end to be waited for."""
_LONGEST_CHARACTER = 4
_ESCAPE = b"\x1b"
_WHOLE_SEQUENCE = re.compile(
    # Any other byte ends a sequence too; an ESC starts the next one.
    rb"""\x1b(?:
        \[ [\x20-\x3f]* (?: [^\x20-\x3f\x1b] | (?=\x1b) )                                       # CSI: parameters, then a letter
      | [\]PX^_] [^\x07\x18\x1a\x1b]* (?: [\x07\x18\x1a] | \x1b\\ | (?=\x1b[^\\]) )             # OSC, DCS: until BEL or ST
      | [NO] .                                                                                  # one character of another set
      | [\x20-\x2f]+ (?: [^\x20-\x2f\x1b] | (?=\x1b) )
      | [^\x20-\x2f\[\]PX^_NO\x1b]
      | (?=\x1b)
    )""",
    re.VERBOSE | re.DOTALL,
)


class OutputChunker:
    def __init__(self, limit: int = LIMIT) -> None:
        assert limit >= _LONGEST_CHARACTER, "a piece holds at least one character"
        self._limit = limit
        self._held = b""
        self._is_silent = False

    @property
    def is_empty(self) -> bool:
        """True when nothing waits, neither for more output nor for a flush."""
        return not self._held

    def feed(self, data: bytes) -> list[str]:
        """Returns the pieces that are now full. The rest waits for more output."""
        if not data:
            return []
        self._is_silent = False
        held = self._held + data
        texts = []
        start = 0
        while len(held) - start >= self._limit and (end := self._find_piece_end(held, start)) is not None:
            texts.append(_decode(held[start:end]))
            start = end
        self._held = held[start:]
        return texts

    def flush(self) -> str:
        """Returns the pending text, without an incomplete character. The start of an escape sequence is held back too, but only
        once: at the next flush, if no output has arrived in between, it is returned as it is.
        """
        held = self._held
        end = len(held)
        if not self._is_silent:
            begun = _find_open_sequence(held, 0, end)
            if begun is not None and end - begun < NEAR:
                end = begun
        self._is_silent = True
        end = _find_character_end(held, 0, end)
        self._held = held[end:]
        return _decode(held[:end])

    def close(self) -> str:
        """Returns everything: no more output will arrive."""
        held, self._held = self._held, b""
        return _decode(held)

    def _find_piece_end(self, held: bytes, start: int) -> int | None:
        """Returns `None` when the rest of an escape sequence should be waited for."""
        end = start + self._limit
        begun = _find_open_sequence(held, start, end)
        if begun is not None:
            rest = _WHOLE_SEQUENCE.match(held, begun, end + NEAR)
            if rest is not None:
                end = rest.end()
            elif len(held) < end + NEAR:
                return None
        return _find_character_end(held, start, end)


def _find_open_sequence(held: bytes, start: int, end: int) -> int | None:
    """Returns the start of the escape sequence that contains `end`, if there is one."""
    begun = held.rfind(_ESCAPE, start, end)
    if begun == -1:
        return None
    if begun == end - 1:
        # It may be the first half of the terminator of a longer sequence.
        before = held.rfind(_ESCAPE, start, begun)
        if before != -1 and _WHOLE_SEQUENCE.match(held, before, end) is None:
            return before
        return begun
    return begun if _WHOLE_SEQUENCE.match(held, begun, end) is None else None


def _find_character_end(held: bytes, start: int, end: int) -> int:
    """Returns the same end, or up to three bytes before it where an incomplete character starts."""
    tail = max(start, end - _LONGEST_CHARACTER + 1)
    return tail + codecs.utf_8_decode(held[tail:end], "replace", False)[1]


def _decode(piece: bytes) -> str:
    return piece.decode("utf-8", "replace")


QUERY = re.compile(
    r"\x1b\[(?P<cursor>\??6n)"
    r"|\x1b\[(?P<well>5n)"
    r"|\x1b\[(?P<kind>>?)0?c"
    r"|\x1b\[\?(?P<mode>[0-9]{1,5})\$p"
    r"|\x1b\](?P<colour>1[01]);\?(?:\x07|\x1b\\)"
    r"|\x1b\[(?:\?u|>0?q)"  # keyboard protocols and version: no answer means that there is no support
)
_COLOURS = {"10": "dddd/dddd/dddd", "11": "0000/0000/0000"}


def answer_query(query: re.Match[str], cursor: tuple[int, int], cols: int) -> str:
    """`cursor` is the row and the column, from 0."""
    row, col = cursor[0] + 1, min(cursor[1] + 1, cols)
    if query["cursor"]:
        return f"\x1b[{'?' if query['cursor'].startswith('?') else ''}{row};{col}R"
    if query["well"]:
        return "\x1b[0n"
    if query["kind"] is not None:
        return "\x1b[>0;10;0c" if query["kind"] else "\x1b[?62;22c"
    if query["mode"]:
        return f"\x1b[?{query['mode']};0$y"
    if query["colour"]:
        return f"\x1b]{query['colour']};rgb:{_COLOURS[query['colour']]}\x1b\\"
    return ""
