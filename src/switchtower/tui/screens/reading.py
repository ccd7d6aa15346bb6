"""Something to read: a diff, the help, everything about a session. Scrolls, and goes away with Esc."""

from collections.abc import Iterable
from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.geometry import Size
from textual.screen import ModalScreen
from textual.scroll_view import ScrollView
from textual.strip import Strip
from textual.widgets import Static

from switchtower.tui.paint import palette

MOST_LINES = 20_000


class TextViewerScreen(ModalScreen[None]):
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q", "app.pop_screen", "Back"),
        Binding("down,j", "scroll(1)", "Down", show=False),
        Binding("up,k", "scroll(-1)", "Up", show=False),
        Binding("pagedown,space", "page(1)", "Page down", show=False),
        Binding("pageup,b", "page(-1)", "Page up", show=False),
    ]

    def __init__(self, title: str, lines: Iterable[Text]) -> None:
        super().__init__()
        self._title = title
        self._lines = list(lines)

    def compose(self) -> ComposeResult:
        with Vertical(id="reading"):
            yield Static(self._title, id="reading-title", markup=False)
            yield StyledLines(self._lines, id="reading-body")
            yield Static("Esc goes back", id="reading-foot", markup=False)

    def action_scroll(self, lines: int) -> None:
        self.query_one(StyledLines).scroll_relative(y=lines, animate=False)

    def action_page(self, pages: int) -> None:
        body = self.query_one(StyledLines)
        body.scroll_relative(y=pages * max(1, body.size.height - 2), animate=False)


class StyledLines(ScrollView, can_focus=True):
    """Lines with styles by the palette's names. Long ones are broken, not cut."""

    def __init__(self, lines: list[Text], *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._texts = lines
        self._strips: list[Strip] = []
        self._width = 0

    def on_resize(self) -> None:
        width = self.scrollable_content_region.width
        if not width or width == self._width:
            return
        self._width = width
        console = (palette.DARK if self.app.current_theme.dark else palette.LIGHT).console
        options = console.options.update(width=max(10, width - 1), overflow="fold")
        self._strips = []
        for text in self._texts:
            text.end = ""
            self._strips += [Strip(line) for line in console.render_lines(text, options, pad=False)] or [Strip([])]
            if len(self._strips) > MOST_LINES:
                self._strips.append(
                    Strip(console.render_lines(Text("[… more, see the files themselves]", "dim"), options, pad=False)[0])
                )
                break
        self.virtual_size = Size(width, len(self._strips))
        self.refresh()

    def render_line(self, y: int) -> Strip:
        line = self.scroll_offset.y + y
        strip = self._strips[line] if line < len(self._strips) else Strip([])
        return strip.crop_extend(0, self.size.width, self.rich_style).apply_style(self.rich_style)
