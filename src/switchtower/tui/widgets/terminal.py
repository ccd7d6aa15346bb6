"""A program's screen, live: typed into while it has the focus, left with Ctrl-]."""

from typing import ClassVar

from rich.color import ColorParseError
from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.binding import BindingType
from textual.message import Message
from textual.strip import Strip
from textual.widget import Widget

from switchtower.tui.state import harmless, keys
from switchtower.tui.state.screen import Cell, ProgramScreen

_NAMES = {"brown": "yellow", "brightbrown": "bright_yellow"}


class TerminalView(Widget, can_focus=True):
    BINDINGS: ClassVar[list[BindingType]] = []

    class Typed(Message):
        def __init__(self, keys: str) -> None:
            super().__init__()
            self.keys = keys

    class Resized(Message):
        def __init__(self, cols: int, rows: int) -> None:
            super().__init__()
            self.cols = cols
            self.rows = rows

    class Left(Message):
        """Ctrl-]: the program goes on without us."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._screen = ProgramScreen(80, 24)
        self._takes_keys = True

    def begin(self, cols: int, rows: int, *, takes_keys: bool) -> None:
        self._screen = ProgramScreen(cols, rows)
        self._takes_keys = takes_keys
        if takes_keys and self.size.width:
            self.post_message(self.Resized(self.size.width, self.size.height))
        self.refresh()

    def ended(self) -> None:
        self._takes_keys = False
        self.refresh()

    def feed(self, text: str) -> None:
        self._screen.feed(text)
        self.refresh()

    def set_size(self, cols: int, rows: int) -> None:
        """As the program has it now."""
        if (cols, rows) != (self._screen.cols, self._screen.rows):
            self._screen.resize(cols, rows)
            self.refresh()

    def lines(self) -> list[str]:
        return self._screen.lines()

    def render_line(self, y: int) -> Strip:
        width = self.size.width
        if y >= self._screen.rows:
            return Strip.blank(width, self.rich_style)
        cursor = self._screen.cursor if self.has_focus and self._takes_keys else None
        at = cursor[1] if cursor is not None and cursor[0] == y else None
        segments = []
        for x, cell in enumerate(self._screen.row(y)):
            if cell.text:
                style = _style(cell) if cell[1:] != _PLAIN else Style.null()
                segments.append(Segment(harmless.cell(cell.text), style + Style(reverse=True) if x == at else style))
        return Strip(segments).simplify().crop_extend(0, width, None).apply_style(self.rich_style)

    def on_resize(self, event: events.Resize) -> None:
        if self._takes_keys and event.size.width and event.size.height:
            self.post_message(self.Resized(event.size.width, event.size.height))

    async def _on_key(self, event: events.Key) -> None:
        event.stop()
        event.prevent_default()
        if event.key == keys.LEAVE or (event.key in ("escape", "q") and not self._takes_keys):
            self.post_message(self.Left())
        elif self._takes_keys:
            typed = keys.sent(event.key, event.character, application_cursor=self._screen.application_cursor)
            if typed is not None:
                self.post_message(self.Typed(typed))

    def _on_paste(self, event: events.Paste) -> None:
        event.stop()
        if self._takes_keys and event.text:
            self.post_message(self.Typed(event.text.replace("\n", "\r")))


_PLAIN = Cell("")[1:]


def _style(cell: Cell) -> Style:
    return Style(
        color=_colour(cell.fg),
        bgcolor=_colour(cell.bg),
        bold=cell.bold,
        italic=cell.italics,
        underline=cell.underscore,
        reverse=cell.reverse,
    )


def _colour(name: str) -> str | None:
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
