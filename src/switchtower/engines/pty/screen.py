"""The screen of a program in a terminal: its rows, the cursor, and the text that repaints it. It does no I/O.

The parser splits a program's output into text, controls and escape sequences, and passes each to an emulator. Features that we do
not support (links, clipboard, pictures, keyboard protocols) are recognised as a whole, so that none of them shows, and are
dropped. Nothing raises for what a program wrote.

Output is only stored until the screen is read: `update()` (or `update_in_steps()`, which never blocks the event loop for long)
brings the screen up to date. A flood is not drawn: of more than 64 KiB that wait, only the last 32 KiB ever show, after the
terminal modes that the rest had set.
"""

import logging
import re
from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, Protocol

from switchtower.engines.pty import screen_rows

if TYPE_CHECKING:
    from re import Match

    from pyte.screens import Char

    from switchtower.engines.pty.screen_grid import Row


HELD_LIMIT = 256
"""A sequence longer than this has no effect; the parser only waits for its end."""

STRING_LIMIT = 512
"""Only the start of a string (a title, a link, a picture) is kept; only a title is ever used."""

_TOKEN = re.compile(
    r"(?P<text>[^\x00-\x1f\x7f-\x9f]+)"
    r"|(?:\x1b\[|\x9b)(?P<params>[0-?]*)(?P<between>[ -/]*)(?P<final>[@-~])"
    r"|(?P<string>\x1b[PX\]^_]|[\x90\x98\x9d\x9e\x9f])"
    r"|\x1b(?P<designated>[ -/]+)(?P<charset>[0-~])"
    r"|\x1b(?P<escape>[0-OQ-WYZ\\`-~])"
    r"|(?P<part>(?:\x1b\[|\x9b)[0-?]*[ -/]*\Z|\x1b[ -/]*\Z)"
    r"|(?P<junk>(?:\x1b\[|\x9b)[0-?]*[ -/]*|\x1b[ -/]*)"
    r"|(?P<control>[\x00-\x1f\x7f-\x9f])"
)
_END_OF_COMMAND = re.compile("[\x07\x18\x1a\x1b\x9c]")
_END_OF_STRING = re.compile("[\x18\x1a\x1b\x9c]")


class ParserTarget(Protocol):
    """The operations that a parser calls."""

    def draw(self, data: str) -> None: ...
    def handle_control(self, char: str) -> None: ...
    def handle_escape(self, char: str) -> None: ...
    def set_charset(self, slot: str, charset: str) -> None: ...
    def handle_sequence(self, params: str, between: str, final: str) -> None: ...
    def handle_command(self, text: str) -> None: ...


class EscapeParser:
    """Keeps the state of an unfinished sequence between two texts; a sequence may be split anywhere."""

    def __init__(self, emulator: ParserTarget) -> None:
        self._emulator = emulator
        self._held = ""
        self._string: str | None = None  # the start of the current string
        self._is_command = False

    def feed(self, text: str) -> None:
        data = self._held + text
        self._held = ""
        at, end = 0, len(data)
        while at < end:
            if self._string is not None:
                at = self._skip_string(data, at)
                continue
            token = _TOKEN.match(data, at)
            assert token is not None, "every character belongs to a token"
            at = token.end()
            self._take(token)

    def _take(self, token: "Match[str]") -> None:
        emulator = self._emulator
        match token.lastgroup:
            case "text":
                emulator.draw(token.group())
            case "final" if len(token["params"]) <= HELD_LIMIT:
                emulator.handle_sequence(token["params"], token["between"], token["final"])
            case "control":
                emulator.handle_control(token.group())
            case "escape":
                emulator.handle_escape(token["escape"])
            case "charset":
                emulator.set_charset(token["designated"], token["charset"])
            case "string":
                self._string = ""
                self._is_command = token["string"] in ("\x1b]", "\x9d")
            case "part":
                self._held = token.group() if token.end() - token.start() <= HELD_LIMIT else _shorten_sequence(token.group())
            case _:
                pass  # junk: a sequence that is too long, or interrupted by a control character

    def _skip_string(self, data: str, at: int) -> int:
        assert self._string is not None
        end = (_END_OF_COMMAND if self._is_command else _END_OF_STRING).search(data, at)
        stop = end.start() if end else len(data)
        room = STRING_LIMIT - len(self._string)
        if room > 0:
            self._string += data[at : min(stop, at + room)]
        if end is None:
            return len(data)
        if self._is_command and end.group() not in "\x18\x1a":
            self._emulator.handle_command(self._string)
        self._string = None
        # An ESC belongs to the next sequence: usually the `\` which, alone, has no effect.
        return stop if end.group() == "\x1b" else stop + 1


def _shorten_sequence(part: str) -> str:
    """Returns an equivalent of the unfinished sequence: its kind, and enough parameters that it has no effect."""
    return part[: HELD_LIMIT + 3] if part[:2] == "\x1b[" or part[0] == "\x9b" else "\x1b  "


log = logging.getLogger(__name__)

WAITING_LIMIT = 64 * 1024
DRAWN_AFTER_SKIP = 32 * 1024
STEP = 1024
COLUMNS = (2, 1000)
ROWS = (1, 500)
_SEEK_BOUNDARY = 4 * 1024
_USUAL_CELLS = 132 * 43

_MODES = re.compile(r"\x1b(?:\[\?([0-9;]{1,64})([hl])|\[([0-9;]{0,9})r|(c))")
_BOUNDARY = re.compile(r"\n|\x1b")
_STRING_OPENERS = ("\x1b]", "\x1bP", "\x1b_", "\x1b^", "\x1bX")


class TerminalScreen:
    def __init__(self, cols: int, rows: int) -> None:
        self.cols, self.rows = _clamp(cols, COLUMNS), _clamp(rows, ROWS)
        self._waiting: deque[str] = deque()
        self._waiting_chars = 0
        self._skipped = False
        self._modes: dict[str, str] = {}  # the last modes that a skipped part had set, in order
        self._failed = False
        self._reset()

    def _reset(self) -> None:
        # pyte costs 40 ms to import: only sessions with a terminal pay for it.
        from switchtower.engines.pty import screen_emulator

        self._emulator = screen_emulator.TerminalEmulator(self.cols, self.rows)
        self._parser = EscapeParser(self._emulator)

    # Output

    def feed(self, text: str) -> None:
        """Stores what the program wrote; nothing is drawn yet, and memory stays bounded."""
        for at in range(0, len(text), WAITING_LIMIT):
            piece = text[at : at + WAITING_LIMIT]
            self._waiting.append(piece)
            self._waiting_chars += len(piece)
            if self._waiting_chars > WAITING_LIMIT:
                self._skip()

    @property
    def is_current(self) -> bool:
        return not self._waiting and not self._skipped

    def update(self) -> None:
        for _ in self.update_in_steps():
            pass

    def update_in_steps(self) -> Iterator[None]:
        """Brings the screen up to date, one short step at a time."""
        # A big screen makes each character more expensive.
        step = max(128, min(STEP, STEP * _USUAL_CELLS // (self.cols * self.rows)))
        while not self.is_current:
            if self._skipped:
                self._start_over()
            if self._waiting:
                self._draw(self._take_pending(step))
            self._emulator.repair_wide_characters()
            yield

    def _take_pending(self, limit: int) -> str:
        """Returns up to `limit` characters: several small pieces, or a part of a long one."""
        taken: list[str] = []
        room = limit
        while self._waiting and room > 0:
            piece = self._waiting.popleft()
            if len(piece) > room:
                self._waiting.appendleft(piece[room:])
                piece = piece[:room]
            taken.append(piece)
            room -= len(piece)
        self._waiting_chars -= limit - room
        return "".join(taken)

    def _draw(self, text: str) -> None:
        try:
            self._parser.feed(text)
        except Exception:
            # A fault of the emulator costs the picture, never the run; the next repaint of the program restores it.
            if not self._failed:
                log.warning("the terminal's screen could not follow its program and starts afresh", exc_info=True)
            self._failed = True
            self._reset()

    def _skip(self) -> None:
        waiting = "".join(self._waiting)
        cut = len(waiting) - DRAWN_AFTER_SKIP
        boundary = _BOUNDARY.search(waiting, cut, cut + _SEEK_BOUNDARY)
        cut = boundary.start() if boundary else cut
        skipped, rest = waiting[:cut], waiting[cut:]
        for setting in _MODES.finditer(skipped):
            private, switch, margins, reset = setting.groups()
            if reset:
                self._modes = {"reset": setting.group()}
            elif private is None:
                self._record_mode("margins", f"\x1b[{margins}r")
            else:
                for mode in private.split(";"):
                    # The three alternate-screen modes are one switch.
                    name = "alternate" if mode in ("47", "1047", "1049") else mode
                    self._record_mode(name, f"\x1b[?{mode}{switch}")
        self._waiting = deque([_find_string_opener(skipped) + rest])
        self._waiting_chars = len(self._waiting[0])
        self._skipped = True

    def _record_mode(self, name: str, setting: str) -> None:
        self._modes.pop(name, None)
        if len(self._modes) < 64:
            self._modes[name] = setting

    def _start_over(self) -> None:
        settings = "".join(self._modes.values())
        self._modes, self._skipped = {}, False
        self._parser = EscapeParser(self._emulator)
        self._emulator.start_over()
        self._draw(settings + "\x1b[H")

    def resize(self, cols: int, rows: int) -> None:
        cols, rows = _clamp(cols, COLUMNS), _clamp(rows, ROWS)
        if (cols, rows) != (self.cols, self.rows):
            self.cols, self.rows = cols, rows
            self._emulator.resize(rows, cols)

    # The contents, as of the last update

    def render_lines(self) -> list[str]:
        return [self._read_row(self._emulator.buffer.get(y)) for y in range(self.rows)]

    def list_history(self) -> list[str]:
        """Returns the rows that left the main screen at the top and directly precede its contents."""
        return [self._read_row(row) for row in self._emulator.history]

    @property
    def scrolled(self) -> int:
        """The number of rows that have left at the top so far."""
        return self._emulator.scrolled

    def find_background(self, row: int, column: int) -> str:
        """The colour behind a cell."""
        cell = self._emulator.buffer[row][column] if row in self._emulator.buffer else self._emulator.default_char
        return f"{cell.fg} reversed" if cell.reverse else cell.bg

    def _read_row(self, row: "Row | None") -> str:
        # Beyond the last cell that was ever written there are only blanks.
        return "".join(row[x].data for x in range(min(max(row) + 1, self.cols))).rstrip() if row else ""

    def render_text(self) -> str:
        """Returns the text with lines that were wrapped at the last column joined, so that a secret in one can be recognised."""
        return "\n".join(screen_rows.join_wrapped(self.render_lines(), self.cols)).rstrip("\n")

    @property
    def cursor(self) -> tuple[int, int]:
        """The row and column, from 0. Behind the last column, the column is the width."""
        return self._emulator.cursor.y, self._emulator.cursor.x

    @property
    def title(self) -> str:
        return self._emulator.title

    @property
    def is_alternate(self) -> bool:
        return self._emulator.saved_main is not None

    def list_modes(self) -> frozenset[int]:
        """Returns the private modes that are on, besides the alternate screen."""
        return frozenset(mode >> 5 for mode in self._emulator.mode if mode >= 32)

    def list_cells(self) -> "list[list[Char]]":
        """Returns every cell; the second half of a wide character has no text."""
        blank = [self._emulator.default_char] * self.cols
        rows = (self._emulator.buffer.get(y) for y in range(self.rows))
        return [blank[:] if row is None else [row[x] for x in range(self.cols)] for row in rows]

    def render_repaint(self) -> str:
        """Returns text that gives a terminal of this size the same screen, cursor and modes."""
        from switchtower.engines.pty import screen_emulator

        return screen_emulator.render_repaint(self._emulator)


def _find_string_opener(skipped: str) -> str:
    """Returns the opener of the string (a picture, a link) that the cut fell into, or nothing: its rest must not show."""
    opened, opener = max((skipped.rfind(opener), opener) for opener in _STRING_OPENERS)
    if opened < 0:
        return ""
    ends = "\x1b\x18\x1a\x9c\x07" if opener == "\x1b]" else "\x1b\x18\x1a\x9c"
    return "" if any(skipped.find(end, opened + 2) >= 0 for end in ends) else opener


def _clamp(value: int, limits: tuple[int, int]) -> int:
    return max(limits[0], min(value, limits[1]))
