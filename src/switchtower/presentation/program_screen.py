"""The screen of a terminal program, rebuilt from its output with pyte.

pyte does not know every sequence that programs send: this module removes those that it would draw as text, and keeps the
alternate screen itself. An error costs the picture, never the app.
"""

import re
from collections.abc import Iterator
from copy import deepcopy
from typing import Any, NamedTuple

COLUMNS = (2, 1000)
ROWS = (1, 500)
MOST_AT_ONCE = 64 * 1024
"""The maximum number of characters drawn at once. Of longer output only the end is drawn: the rest would have scrolled off."""

_UNSUPPORTED = re.compile(
    r"""\x1b(?:
        \[[<=>][0-?]*[ -/]*[@-~]                      # keyboards and versions
      | \[[0-?]*[ -/]+[@-~]                           # cursor shapes and the like
      | \[[0-9;:]*u | \[\?[0-9;]*[un] | \[[0-9;]*t    # keyboards, reports, windows
      | [P_^X][^\x1b\x9c]*(?:\x1b\\|\x9c)             # pictures
      | \][^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c)        # titles, links, colours
    )""",
    re.VERBOSE,
)
_ALTERNATE = re.compile(r"\x1b\[\?(?:1049|1047|47)([hl])")
_UNFINISHED = re.compile(r"\x1b(?:\[[0-?]*[ -/]*|[P_^X\]][^\x1b\x07\x9c]{0,4096}\x1b?)?\Z")
_SEQUENCES = re.compile(r"(\x1b\[[0-?]*[ -/]*[@-~])")
_DOUBLED = re.compile(r"\x1b+(?=\x1b)")
"""An escape sequence that restarts before it has ended counts as one that never started."""
_ONE_SPELLING = str.maketrans({"\x9b": "\x1b[", "\x9d": "\x1b]", "\x90": "\x1bP", "\x9c": "\x1b\\"})
_APPLICATION_CURSOR = 1 << 5


class ScreenCell(NamedTuple):
    text: str
    fg: str = "default"
    bg: str = "default"
    bold: bool = False
    italics: bool = False
    underscore: bool = False
    reverse: bool = False


class ProgramScreen:
    def __init__(self, cols: int, rows: int) -> None:
        self.cols, self.rows = _clamp(cols, COLUMNS), _clamp(rows, ROWS)
        self._unparsed = ""
        self._reset()

    def _reset(self) -> None:
        import pyte  # costs 40 ms, so only views of a program import it

        self._screen = pyte.Screen(self.cols, self.rows)
        self._stream = self._new_stream()
        self._saved_screen: Any = None

    def _new_stream(self) -> Any:
        import pyte

        stream = pyte.Stream(self._screen)
        stream.use_utf8 = True
        return stream

    def feed(self, text: str) -> None:
        text = _DOUBLED.sub("", self._unparsed + text.translate(_ONE_SPELLING))
        self._unparsed = ""
        if len(text) > MOST_AT_ONCE:
            text = text[-MOST_AT_ONCE:]
        if found := _UNFINISHED.search(text):
            text, self._unparsed = text[: found.start()], found[0]
        at = 0
        for switch in _ALTERNATE.finditer(text):
            self._write(text[at : switch.start()])
            self._switch_buffer(alternate=switch[1] == "h")
            at = switch.end()
        self._write(text[at:])

    def _write(self, text: str) -> None:
        for piece in _SEQUENCES.split(_UNSUPPORTED.sub("", text)):
            try:
                self._stream.feed(piece)
            except Exception:
                # pyte raises an error if a sequence has more numbers than it knows. The part that it drew so far is correct.
                self._stream = self._new_stream()

    def _switch_buffer(self, *, alternate: bool) -> None:
        if alternate and self._saved_screen is None:
            self._saved_screen = deepcopy(self._screen.buffer), deepcopy(self._screen.cursor)
            self._screen.erase_in_display(2)
            self._screen.cursor_position()
        elif not alternate and self._saved_screen is not None:
            self._screen.buffer, self._screen.cursor = self._saved_screen
            self._screen.dirty.update(range(self.rows))
            self._saved_screen = None

    def resize(self, cols: int, rows: int) -> None:
        self.cols, self.rows = _clamp(cols, COLUMNS), _clamp(rows, ROWS)
        self._screen.resize(self.rows, self.cols)

    @property
    def cursor(self) -> tuple[int, int] | None:
        """The row and column; None while the program hides the cursor."""
        cursor = self._screen.cursor
        return None if cursor.hidden else (cursor.y, min(cursor.x, self.cols - 1))

    @property
    def application_cursor(self) -> bool:
        return _APPLICATION_CURSOR in self._screen.mode

    def read_row(self, y: int) -> Iterator[ScreenCell]:
        row: Any = self._screen.buffer.get(y, {})
        for x in range(self.cols):
            if x not in row:
                yield _BLANK
            else:
                char = row[x]
                yield ScreenCell(char.data, char.fg, char.bg, char.bold, char.italics, char.underscore, char.reverse)

    def read_lines(self) -> list[str]:
        return ["".join(cell.text for cell in self.read_row(y)).rstrip() for y in range(self.rows)]


_BLANK = ScreenCell(" ")


def _clamp(value: int, limits: tuple[int, int]) -> int:
    return max(limits[0], min(value, limits[1]))
