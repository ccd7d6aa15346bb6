"""A scrolling viewer for a diff, the help or a session's details, which Esc closes; and the text of the help."""

from collections.abc import Iterable, Iterator
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
from switchtower.tui.state import input

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
    """Lines with the palette's named styles. Long lines are wrapped, not cut."""

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


_KEYS = (
    ("Enter", "send; while it works, steer it"),
    ("Ctrl-J", "a new line (also Shift-Enter, Alt-Enter, or \\ and Enter)"),
    ("Up, Down", "what was sent before"),
    ("Esc", "cancel the run; close what is open"),
    ("Tab", "complete a command or a file; else to the next part"),
    ("PgUp, PgDn", "read back while you write; Ctrl-Home, Ctrl-End"),
    ("Ctrl-O", "unfold everything: thinking, arguments, output"),
    ("[ ] Enter", "in the transcript: from card to card, and unfold one"),
    ("Ctrl-B", "the sessions: type / to filter, n new, r rename, f fork, d delete"),
    ("Ctrl-T", "inbox: approvals of all sessions"),
    ("Ctrl-N", "a new session"),
    ("Ctrl-P", "all commands, to search in"),
    ("Ctrl-R", "start the daemon when it is away"),
    ("Ctrl-C", "copy what is selected; clear the input; twice leaves"),
    ("Ctrl-Q", "leave: what runs goes on"),
)
_DECIDING = (
    ("y", "approve once"),
    ("a", "allow the rule shown for the rest of the session"),
    ("Ctrl-Y", "confirm: needed for a, and for destructive actions"),
    ("n", "deny, with an optional reason; the run continues"),
    ("d", "deny and stop the run"),
    ("Esc", "decide later; the approval stays in the inbox"),
)


class HelpScreen(TextViewerScreen):
    def __init__(self) -> None:
        super().__init__("Help", _list_help_lines())


def _list_help_lines() -> Iterator[Text]:
    yield Text("Keys", "heading")
    yield from (_paint_help_row(key, about) for key, about in _KEYS)
    yield Text("")
    yield Text("When something waits for your decision", "heading")
    yield from (_paint_help_row(key, about) for key, about in _DECIDING)
    yield Text("")
    yield Text("In a program's terminal", "heading")
    yield _paint_help_row("Ctrl-]", "leave it running; every other key is the program's")
    yield Text("")
    yield Text("Commands", "heading")
    for command in input.COMMANDS:
        yield _paint_help_row(f"/{command.name} {command.arguments}".rstrip(), command.about)
    yield Text("")
    yield Text("Skills and prompts of the workspace are commands too, see /skills. @ names a file.", "dim")


def _paint_help_row(key: str, about: str) -> Text:
    return Text.assemble((f"  {key:<24} ", "accent"), about)
