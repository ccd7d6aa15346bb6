"""The input: several lines, history, and completion of commands and files.

It posts the submitted text as a message; the app decides what to do with it.
"""

from collections.abc import Callable, Sequence
from typing import ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.message import Message
from textual.widgets import OptionList, TextArea
from textual.widgets.option_list import Option

from switchtower.presentation import safe_text
from switchtower.tui.state import input
from switchtower.tui.state.input import InputHistory
from switchtower.tui.widgets.lines import ChoiceList

_MOST_ROWS = 8


class Composer(Vertical):
    class MessageSubmitted(Message):
        def __init__(self, text: str) -> None:
            super().__init__()
            self.text = text

    class EscapePressed(Message):
        """The user pressed Esc, and the composer had nothing to close."""

    class ScrollKeyPressed(Message):
        """The user pressed a key that scrolls the transcript while writing."""

        def __init__(self, key: str) -> None:
            super().__init__()
            self.key = key

    def __init__(self, history: InputHistory, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.history = history
        self.files: Sequence[str] = ()
        self.templates: Sequence[input.SlashOption] = ()
        self.values: Callable[[str], Sequence[input.SlashOption]] = lambda command: ()
        """Returns the known arguments of a command."""
        self._offer = input.NO_OFFER
        self._keeps_history_position = False

    def compose(self) -> ComposeResult:
        yield ChoiceList(id="offers")
        yield ComposerText(id="page", soft_wrap=True, tab_behavior="focus", show_line_numbers=False, compact=True)

    @property
    def page(self) -> "ComposerText":
        return self.query_one(ComposerText)

    @property
    def text(self) -> str:
        return self.page.text

    def set_text(self, text: str) -> None:
        """Replaces the text and moves the cursor to its end."""
        self.page.text = text
        self.page.move_cursor(self.page.document.end)

    def set_placeholder(self, placeholder: str) -> None:
        self.page.placeholder = Content(placeholder)

    # Completion

    @property
    def has_offer(self) -> bool:
        return bool(self._offer.options)

    def on_text_area_changed(self, event: TextArea.Changed) -> None:
        if self.history.is_browsing and not self._keeps_history_position:
            self.history.reset()
        self._keeps_history_position = False
        self.refresh_offers()

    def on_text_area_selection_changed(self, event: TextArea.SelectionChanged) -> None:
        self.refresh_offers()

    def refresh_offers(self) -> None:
        """Updates the completions for the text before the cursor."""
        before = self.page.before_cursor
        offer = input.NO_OFFER
        if not self.history.is_browsing:
            command = before[1:].partition(" ")[0] if before.startswith("/") else ""
            offer = input.find_offer(
                before, templates=self.templates, values=self.values(command) if " " in before else (), files=self.files
            )
        if offer != self._offer:
            self._offer = offer
            self._show_offer()

    def _show_offer(self) -> None:
        offers = self.query_one("#offers", OptionList)
        offers.set_options(Option(_paint_option(option)) for option in self._offer.options)
        offers.display = self.has_offer
        offers.styles.height = min(_MOST_ROWS, len(self._offer.options))
        # Enter completes a command; an optional argument is taken only if the user selected it.
        offers.highlighted = 0 if self.has_offer and not self._is_offering_values else None

    @property
    def _is_offering_values(self) -> bool:
        before = self.page.before_cursor
        return self._offer.start == 0 and before.startswith("/") and " " in before

    def move_selection(self, step: int) -> None:
        offers = self.query_one("#offers", OptionList)
        at = offers.highlighted
        count = len(self._offer.options)
        offers.highlighted = (0 if step > 0 else count - 1) if at is None else (at + step) % count

    def accept_offer(self) -> bool:
        """Inserts the selected completion and returns whether the text has changed."""
        index = self.query_one("#offers", OptionList).highlighted
        if not self.has_offer or index is None or index >= len(self._offer.options):
            return False
        start, taken = self._offer.start, self._offer.options[index].text
        before = self.page.before_cursor
        if before[start:] == taken:
            return False
        self.page.replace_before_cursor(len(before) - start, taken if taken.endswith("/") else f"{taken} ")
        return True

    @property
    def is_complete_command(self) -> bool:
        """Returns whether the text is a command that takes no arguments."""
        typed = input.parse_slash(self.text.strip())
        return isinstance(typed, input.SlashInput) and not typed.command.arguments

    def close_offer(self) -> None:
        self._offer = input.NO_OFFER
        self._show_offer()

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        self.accept_offer()
        self.page.focus()

    # Actions that need the composer as a whole

    def submit(self) -> None:
        text = self.text
        if text.endswith("\\"):  # a trailing backslash is the newline key for terminals that have no other
            self.set_text(text[:-1] + "\n")
            return
        if not text.strip():
            return
        self.close_offer()
        self.set_text("")
        self.history.add(text)
        self.post_message(self.MessageSubmitted(text))

    def show_history_entry(self, text: str | None) -> None:
        if text is not None and text != self.text:
            self._keeps_history_position = True
            self.set_text(text)


def _paint_option(option: input.SlashOption) -> Content:
    return Content.assemble(safe_text.to_safe_line(option.text), ("  " + safe_text.to_safe_line(option.about), "$muted"))


class ComposerText(TextArea):
    """The text area of the composer."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+j,shift+enter,alt+enter", "newline", "New line", show=False),
    ]

    @property
    def composer(self) -> Composer:
        parent = self.parent
        assert isinstance(parent, Composer)
        return parent

    @property
    def before_cursor(self) -> str:
        row, column = self.cursor_location
        lines = self.text.split("\n")
        return "\n".join([*lines[:row], lines[row][:column]]) if row < len(lines) else self.text

    def replace_before_cursor(self, count: int, text: str) -> None:
        """Replaces `count` characters before the cursor, which are all on its line or all from the start of the text."""
        row, column = self.cursor_location
        start = (row, column - count) if count <= column else (0, 0)
        self.replace(text, start, (row, column))

    async def _on_key(self, event: events.Key) -> None:
        composer = self.composer
        handled = True
        match event.key:
            case "enter":
                if not (composer.has_offer and composer.accept_offer()) or composer.is_complete_command:
                    composer.submit()
            case "tab" if composer.has_offer:
                composer.accept_offer()
            case "up" if composer.has_offer:
                composer.move_selection(-1)
            case "down" if composer.has_offer:
                composer.move_selection(1)
            case "up" if self.cursor_at_first_line:
                composer.show_history_entry(composer.history.go_back(self.text))
            case "down" if self.cursor_at_last_line:
                composer.show_history_entry(composer.history.go_forward())
            case "pageup" | "pagedown" | "ctrl+home" | "ctrl+end":
                composer.post_message(Composer.ScrollKeyPressed(event.key))
            case "escape":
                if composer.has_offer:
                    composer.close_offer()
                else:
                    composer.post_message(Composer.EscapePressed())
            case _:
                handled = False
        if handled:
            event.stop()
            event.prevent_default()
        else:
            await super()._on_key(event)

    async def _on_paste(self, event: events.Paste) -> None:
        """Escapes pasted text, which may contain any characters."""
        event.prevent_default()
        event.stop()
        text = safe_text.escape_prose(event.text.replace("\r\n", "\n").replace("\r", "\n"))
        if self.read_only or not text:
            return
        start, end = self.selection
        self.replace(text, start, end)

    def action_newline(self) -> None:
        self.insert("\n")
