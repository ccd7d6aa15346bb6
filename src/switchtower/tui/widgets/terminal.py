"""A program's live screen, which gets the keys while it has the focus and is left with Ctrl-]; and the encoding of those keys.

The names of keys are Textual's.
"""

from typing import ClassVar

from rich.color import ColorParseError
from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.binding import BindingType
from textual.message import Message
from textual.strip import Strip
from textual.widget import Widget

from switchtower.presentation import safe_text
from switchtower.presentation.program_screen import ProgramScreen, ScreenCell

DETACH_KEY = "ctrl+right_square_bracket"
_NAMED = {
    "enter": "\r",
    "tab": "\t",
    "shift+tab": "\x1b[Z",
    "backspace": "\x7f",
    "ctrl+backspace": "\x17",
    "escape": "\x1b",
    "delete": "\x1b[3~",
    "insert": "\x1b[2~",
    "pageup": "\x1b[5~",
    "pagedown": "\x1b[6~",
    "shift+enter": "\n",
    "ctrl+at": "\x00",
    "ctrl+backslash": "\x1c",
    "ctrl+circumflex_accent": "\x1e",
    "ctrl+underscore": "\x1f",
}
_CURSOR = {"up": "A", "down": "B", "right": "C", "left": "D", "end": "F", "home": "H"}
_FUNCTION = {
    1: "OP",
    2: "OQ",
    3: "OR",
    4: "OS",
    5: "[15~",
    6: "[17~",
    7: "[18~",
    8: "[19~",
    9: "[20~",
    10: "[21~",
    11: "[23~",
    12: "[24~",
}
_MODIFIERS = {"shift": 1, "alt": 2, "ctrl": 4}


def encode_key(key: str, character: str | None, *, application_cursor: bool = False) -> str | None:
    """Returns the characters that a terminal sends for a key; None if it sends none. Programs may switch the cursor keys to
    application mode."""
    if key in _NAMED:
        return _NAMED[key]
    *modifiers, name = key.split("+") if key != "+" else ["+"]
    if name in _CURSOR:
        number = 1 + sum(_MODIFIERS.get(modifier, 0) for modifier in modifiers)
        if number > 1:
            return f"\x1b[1;{number}{_CURSOR[name]}"
        return f"\x1b{'O' if application_cursor else '['}{_CURSOR[name]}"
    if name.startswith("f") and name[1:].isdigit() and int(name[1:]) in _FUNCTION and not modifiers:
        return f"\x1b{_FUNCTION[int(name[1:])]}"
    if "ctrl" in modifiers and len(name) == 1 and name.isalpha() and name.isascii():
        typed = chr(ord(name.lower()) - ord("a") + 1)
        return f"\x1b{typed}" if "alt" in modifiers else typed
    if "alt" in modifiers and (character or len(name) == 1):
        return f"\x1b{character or name}"
    return character if character is not None and character.isprintable() else None


_NAMES = {"brown": "yellow", "brightbrown": "bright_yellow"}


class TerminalView(Widget, can_focus=True):
    BINDINGS: ClassVar[list[BindingType]] = []

    class KeysTyped(Message):
        def __init__(self, keys: str) -> None:
            super().__init__()
            self.keys = keys

    class ViewResized(Message):
        def __init__(self, cols: int, rows: int) -> None:
            super().__init__()
            self.cols = cols
            self.rows = rows

    class FocusReleased(Message):
        """The user pressed Ctrl-]; the program continues without the focus."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._screen = ProgramScreen(80, 24)
        self._takes_keys = True

    def start_program(self, cols: int, rows: int, *, takes_keys: bool) -> None:
        self._screen = ProgramScreen(cols, rows)
        self._takes_keys = takes_keys
        if takes_keys and self.size.width:
            self.post_message(self.ViewResized(self.size.width, self.size.height))
        self.refresh()

    def mark_ended(self) -> None:
        self._takes_keys = False
        self.refresh()

    def feed(self, text: str) -> None:
        self._screen.feed(text)
        self.refresh()

    def set_size(self, cols: int, rows: int) -> None:
        """Adopts the program's current window size."""
        if (cols, rows) != (self._screen.cols, self._screen.rows):
            self._screen.resize(cols, rows)
            self.refresh()

    def read_lines(self) -> list[str]:
        return self._screen.read_lines()

    def render_line(self, y: int) -> Strip:
        width = self.size.width
        if y >= self._screen.rows:
            return Strip.blank(width, self.rich_style)
        cursor = self._screen.cursor if self.has_focus and self._takes_keys else None
        at = cursor[1] if cursor is not None and cursor[0] == y else None
        segments = []
        for x, cell in enumerate(self._screen.read_row(y)):
            if cell.text:
                style = _make_style(cell) if cell[1:] != _PLAIN else Style.null()
                segments.append(Segment(safe_text.clean_cell(cell.text), style + Style(reverse=True) if x == at else style))
        return Strip(segments).simplify().crop_extend(0, width, None).apply_style(self.rich_style)

    def on_resize(self, event: events.Resize) -> None:
        if self._takes_keys and event.size.width and event.size.height:
            self.post_message(self.ViewResized(event.size.width, event.size.height))

    async def _on_key(self, event: events.Key) -> None:
        event.stop()
        event.prevent_default()
        if event.key == DETACH_KEY or (event.key in ("escape", "q") and not self._takes_keys):
            self.post_message(self.FocusReleased())
        elif self._takes_keys:
            typed = encode_key(event.key, event.character, application_cursor=self._screen.application_cursor)
            if typed is not None:
                self.post_message(self.KeysTyped(typed))

    def _on_paste(self, event: events.Paste) -> None:
        event.stop()
        if self._takes_keys and event.text:
            self.post_message(self.KeysTyped(event.text.replace("\n", "\r")))


_PLAIN = ScreenCell("")[1:]


def _make_style(cell: ScreenCell) -> Style:
    return Style(
        color=_parse_colour(cell.fg),
        bgcolor=_parse_colour(cell.bg),
        bold=cell.bold,
        italic=cell.italics,
        underline=cell.underscore,
        reverse=cell.reverse,
    )


def _parse_colour(name: str) -> str | None:
    if name == "default":
        return None
    if len(name) == 6 and all(digit in "0123456789abcdefABCDEF" for digit in name):
        return f"#{name}"
    name = _NAMES.get(name, name)
    name = f"bright_{name.removeprefix('bright')}" if name.startswith("bright") and not name.startswith("bright_") else name
    try:
        Style(color=name)
    except ColorParseError:
        return None
    return name
