"""Modal dialogs: the app's own (a picker, a line of text, a confirmation) and those of an extension or the agent.

A scrolling viewer for a diff, the help or a session's details, which Esc closes; and the text of the help."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

from rich.text import Text
from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.geometry import Size
from textual.screen import ModalScreen
from textual.scroll_view import ScrollView
from textual.strip import Strip
from textual.widgets import Button, Input, OptionList, SelectionList, Static, TextArea
from textual.widgets.option_list import Option
from textual.widgets.selection_list import Selection

from switchtower.client.frames import InterviewItem, PushDialog
from switchtower.presentation import safe_text
from switchtower.tui.paint import palette
from switchtower.tui.state import input
from switchtower.tui.widgets.lines import ChoiceList


class Choice(NamedTuple):
    value: str
    label: str
    about: str = ""
    usable: bool = True


class PickerScreen(ModalScreen[str | None]):
    """Lets the user pick an entry from a list, filtered by typing."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "dismiss(None)", "Back")]

    def __init__(self, title: str, choices: Sequence[Choice], *, current: str | None = None) -> None:
        super().__init__()
        self._title = title
        self._choices = list(choices)
        self._current = current

    def compose(self) -> ComposeResult:
        with Vertical(classes="question"):
            yield Static(self._title, classes="question-title", markup=False)
            yield Input(placeholder="type to filter", compact=True)
            yield ChoiceList()

    def on_mount(self) -> None:
        self._draw("")

    def _draw(self, wanted: str) -> None:
        words = wanted.casefold().split()
        found = [one for one in self._choices if all(word in f"{one.label} {one.about}".casefold() for word in words)]
        options = self.query_one(OptionList)
        options.set_options(
            Option(
                Content.assemble(
                    ("● " if one.value == self._current else "  ", "$success"),
                    safe_text.to_safe_line(one.label),
                    (f"  {safe_text.to_safe_line(one.about)}", "$muted"),
                ),
                id=one.value,
                disabled=not one.usable,
            )
            for one in found
        )
        usable = [index for index, one in enumerate(found) if one.usable]
        current = [index for index, one in enumerate(found) if one.value == self._current and one.usable]
        options.highlighted = next(iter(current or usable), None)

    def on_input_changed(self, event: Input.Changed) -> None:
        self._draw(event.value)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        self.query_one(OptionList).action_select()

    def on_key(self, event: events.Key) -> None:
        if event.key in ("up", "down") and self.query_one(Input).has_focus:
            event.stop()
            options = self.query_one(OptionList)
            if event.key == "up":
                options.action_cursor_up()
            else:
                options.action_cursor_down()

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        self.dismiss(event.option_id)


class TextPromptScreen(ModalScreen[str | None]):
    """Asks for a line of text."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "dismiss(None)", "Back")]

    def __init__(self, title: str, *, value: str = "", placeholder: str = "") -> None:
        super().__init__()
        self._title = title
        self._value = value
        self._placeholder = placeholder

    def compose(self) -> ComposeResult:
        with Vertical(classes="question small"):
            yield Static(self._title, classes="question-title", markup=False)
            yield Input(self._value, placeholder=self._placeholder, compact=True)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        self.dismiss(event.value.strip() or None)


class ConfirmScreen(ModalScreen[bool]):
    """Asks for confirmation of an action that cannot be undone."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "dismiss(True)", "Yes"),
        Binding("n,escape", "dismiss(False)", "No"),
    ]

    def __init__(self, question: str, *, yes: str) -> None:
        super().__init__()
        self._question = question
        self._yes = yes

    def compose(self) -> ComposeResult:
        with Vertical(classes="question small"):
            yield Static(self._question, classes="question-title", markup=False)
            with Horizontal(classes="question-keys"):
                yield Button(f"y  {self._yes}", id="yes", variant="error", compact=True)
                yield Button("n  no", id="no", compact=True)

    def on_mount(self) -> None:
        self.query_one("#no", Button).focus()

    def on_button_pressed(self, event: Button.Pressed) -> None:
        self.dismiss(event.button.id == "yes")


LONGEST_REPLY = 256 * 1024
_YES_NO = ("Yes", "No")


class DialogScreen(ModalScreen[Mapping[str, Any] | None]):
    """Returns the answer with the arguments of `answer_dialog`, or None when the user defers it."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "dismiss(None)", "Later"),
        Binding("ctrl+s", "send", "Send"),
        Binding("ctrl+d", "dismissed", "Dismiss"),
    ]

    def __init__(self, dialog: PushDialog) -> None:
        super().__init__()
        self.dialog = dialog
        self._questions = list(dialog.questions) if dialog.method == "interview" else []
        self._index = 0
        self._responses: dict[str, Any] = {}

    def compose(self) -> ComposeResult:
        with Vertical(classes="question"):
            yield Static(safe_text.to_safe_line(self.dialog.title), classes="question-title", markup=False)
            if self.dialog.message:
                yield Static(safe_text.escape_prose(self.dialog.message), classes="question-text", markup=False)
            yield Vertical(id="asked")
            yield Static(self._describe_keys(), classes="question-foot", markup=False)

    def _describe_keys(self) -> str:
        send = "Ctrl-S sends" if self.dialog.method in ("editor", "interview") else "Enter sends"
        return f"{send} · Ctrl-D dismisses · Esc answers later"

    async def on_mount(self) -> None:
        await self._ask()

    async def _ask(self) -> None:
        asked = self.query_one("#asked", Vertical)
        await asked.remove_children()
        dialog = self.dialog
        match dialog.method:
            case "select":
                await asked.mount(_make_options(dialog.options))
            case "confirm":
                await asked.mount(_make_options(_YES_NO))
            case "editor":
                await asked.mount(TextArea(safe_text.escape_prose(dialog.prefill or ""), id="text"))
            case "interview" if self._questions:
                question = self._questions[self._index]
                needed = " (needs an answer)" if question.required else ""
                label = f"{self._index + 1}/{len(self._questions)}  {safe_text.to_safe_line(question.question)}{needed}"
                await asked.mount(Static(label, markup=False), _make_field(question))
            case _:
                await asked.mount(
                    Input(
                        safe_text.to_safe_line(dialog.prefill or ""), placeholder=safe_text.to_safe_line(dialog.placeholder or "")
                    )
                )
        asked.children[-1].focus()

    async def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        match self.dialog.method:
            case "select":
                self.dismiss({"value": self.dialog.options[event.option_index]})
            case "confirm":
                self.dismiss({"confirmed": event.option_index == 0})
            case "interview":
                question = self._questions[self._index]
                await self._show_next(
                    event.option_index == 0 if question.type == "boolean" else question.options[event.option_index]
                )

    async def on_input_submitted(self, event: Input.Submitted) -> None:
        if self.dialog.method == "interview":
            await self._show_next(event.value)
        else:
            self.dismiss({"value": event.value[:LONGEST_REPLY]})

    async def action_send(self) -> None:
        if self.dialog.method == "editor":
            self.dismiss({"value": self.query_one("#text", TextArea).text[:LONGEST_REPLY]})
        elif self.dialog.method == "interview":
            several = self.query(SelectionList)
            one_line = self.query(Input)
            if several:
                await self._show_next(list(several.first().selected))
            elif one_line:
                await self._show_next(one_line.first().value)

    def action_dismissed(self) -> None:
        self.dismiss({"dismissed": True})

    async def _show_next(self, answer: Any) -> None:
        question = self._questions[self._index]
        is_empty = answer in (None, []) or (isinstance(answer, str) and not answer.strip())
        if is_empty and question.required:
            self.notify("this one needs an answer", severity="warning", markup=False)
            return
        if not is_empty:
            self._responses[question.id] = answer
        self._index += 1
        if self._index >= len(self._questions):
            self.dismiss({"responses": self._responses})
        else:
            await self._ask()


def _make_field(question: InterviewItem) -> "OptionList | SelectionList[str] | Input":
    match question.type:
        case "single":
            return _make_options(question.options)
        case "multi":
            return SelectionList[str](
                *(Selection(Content(safe_text.to_safe_line(option)), option) for option in question.options)
            )
        case "boolean":
            return _make_options(_YES_NO)
    return Input()


def _make_options(options: tuple[str, ...]) -> OptionList:
    return ChoiceList(*(Option(Content(safe_text.to_safe_line(option))) for option in options))


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
