"""A program's output on its way to the journal: soon when it is little, in large pieces when it is much, and after a silence
the screen is looked at. Nothing more is read than can be stored, so a program that floods its terminal waits.

Output in pieces fit for the journal: text, not too small, not too large, never ending inside a character, nor inside an
escape sequence whose rest is near. Pure: it reads nothing and knows no time. Whoever feeds it says when there is silence.

Pieces are measured in bytes as they came; a text never has more characters than that.

What programs ask of their terminal: where the cursor is, what kind it is, which colours it has. We are the terminal, so we
answer; and since the question was for us alone, it goes no further: whoever watches has a terminal too, which would answer
once more. Pure."""

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
        for query in QUERY.finditer(text) if "\x1b" in text else ():
            # Up to the question all is on the screen before it is answered.
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
"""How far behind the limit the rest of an escape sequence may end to be waited for."""
_LONGEST_CHARACTER = 4
_ESCAPE = b"\x1b"
_WHOLE_SEQUENCE = re.compile(
    # Whatever else comes in its place ends a sequence too; an ESC begins the next one.
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
        """Nothing waits, neither for more nor for a flush."""
        return not self._held

    def feed(self, data: bytes) -> list[str]:
        """The pieces that are full with this. What remains waits for more."""
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
        """What there is, without a character whose rest is to come. The beginning of an escape sequence is kept back too,
        but only once: at the next flush, if nothing has come between, it is given as it is."""
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
        """Everything: nothing more will come."""
        held, self._held = self._held, b""
        return _decode(held)

    def _find_piece_end(self, held: bytes, start: int) -> int | None:
        """`None` when the rest of an escape sequence should be waited for."""
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
    """Where the escape sequence begins in which `end` lies, if it lies in one."""
    begun = held.rfind(_ESCAPE, start, end)
    if begun == -1:
        return None
    if begun == end - 1:
        # Perhaps the first half of what ends a longer one.
        before = held.rfind(_ESCAPE, start, begun)
        if before != -1 and _WHOLE_SEQUENCE.match(held, before, end) is None:
            return before
        return begun
    return begun if _WHOLE_SEQUENCE.match(held, begun, end) is None else None


def _find_character_end(held: bytes, start: int, end: int) -> int:
    """The same end, or up to three bytes before it where a character has begun that may yet be completed."""
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
    r"|\x1b\[(?:\?u|>0?q)"  # keyboard protocols and version: no answer means none
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
