"""Small questions of our own: one of a list, a line of text, yes or no."""

from collections.abc import Sequence
from typing import ClassVar, NamedTuple

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Button, Input, OptionList, Static
from textual.widgets.option_list import Option

from switchtower.tui.state import harmless
from switchtower.tui.widgets.choices import ChoiceList


class Choice(NamedTuple):
    value: str
    label: str
    about: str = ""
    usable: bool = True


class PickerScreen(ModalScreen[str | None]):
    """One of a list, filtered by typing."""

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
                    harmless.to_safe_line(one.label),
                    (f"  {harmless.to_safe_line(one.about)}", "$muted"),
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
    """A line of text."""

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
    """Yes or no, where yes cannot be taken back."""

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
