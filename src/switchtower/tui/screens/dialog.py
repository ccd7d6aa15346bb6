"""A question of an extension or of the agent: choose, confirm, write, or several of them one after another."""

from collections.abc import Mapping
from typing import Any, ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Input, OptionList, SelectionList, Static, TextArea
from textual.widgets.option_list import Option
from textual.widgets.selection_list import Selection

from switchtower.client.dialogs import Dialog, Question
from switchtower.tui.state import harmless
from switchtower.tui.widgets.choices import Choices

LONGEST = 256 * 1024
_YES_NO = ("Yes", "No")


class DialogScreen(ModalScreen[Mapping[str, Any] | None]):
    """Ends with the answer as `answer_dialog` wants it, or None when it is left for later."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "dismiss(None)", "Later"),
        Binding("ctrl+s", "send", "Send"),
        Binding("ctrl+d", "dismissed", "Dismiss"),
    ]

    def __init__(self, dialog: Dialog) -> None:
        super().__init__()
        self.dialog = dialog
        self._questions = list(dialog.questions) if dialog.method == "interview" else []
        self._at = 0
        self._responses: dict[str, Any] = {}

    def compose(self) -> ComposeResult:
        with Vertical(classes="question"):
            yield Static(harmless.line(self.dialog.title), classes="question-title", markup=False)
            if self.dialog.message:
                yield Static(harmless.prose(self.dialog.message), classes="question-text", markup=False)
            yield Vertical(id="asked")
            yield Static(self._foot(), classes="question-foot", markup=False)

    def _foot(self) -> str:
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
                await asked.mount(_options(dialog.options))
            case "confirm":
                await asked.mount(_options(_YES_NO))
            case "editor":
                await asked.mount(TextArea(harmless.prose(dialog.prefill or ""), id="text"))
            case "interview" if self._questions:
                question = self._questions[self._at]
                needed = " (needs an answer)" if question.required else ""
                label = f"{self._at + 1}/{len(self._questions)}  {harmless.line(question.question)}{needed}"
                await asked.mount(Static(label, markup=False), _field(question))
            case _:
                await asked.mount(Input(harmless.line(dialog.prefill or ""), placeholder=harmless.line(dialog.placeholder or "")))
        asked.children[-1].focus()

    async def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        match self.dialog.method:
            case "select":
                self.dismiss({"value": self.dialog.options[event.option_index]})
            case "confirm":
                self.dismiss({"confirmed": event.option_index == 0})
            case "interview":
                question = self._questions[self._at]
                await self._next(event.option_index == 0 if question.type == "boolean" else question.options[event.option_index])

    async def on_input_submitted(self, event: Input.Submitted) -> None:
        if self.dialog.method == "interview":
            await self._next(event.value)
        else:
            self.dismiss({"value": event.value[:LONGEST]})

    async def action_send(self) -> None:
        if self.dialog.method == "editor":
            self.dismiss({"value": self.query_one("#text", TextArea).text[:LONGEST]})
        elif self.dialog.method == "interview":
            several = self.query(SelectionList)
            one_line = self.query(Input)
            if several:
                await self._next(list(several.first().selected))
            elif one_line:
                await self._next(one_line.first().value)

    def action_dismissed(self) -> None:
        self.dismiss({"dismissed": True})

    async def _next(self, answer: Any) -> None:
        question = self._questions[self._at]
        is_empty = answer in (None, []) or (isinstance(answer, str) and not answer.strip())
        if is_empty and question.required:
            self.notify("this one needs an answer", severity="warning", markup=False)
            return
        if not is_empty:
            self._responses[question.id] = answer
        self._at += 1
        if self._at >= len(self._questions):
            self.dismiss({"responses": self._responses})
        else:
            await self._ask()


def _field(question: Question) -> "OptionList | SelectionList[str] | Input":
    match question.type:
        case "single":
            return _options(question.options)
        case "multi":
            return SelectionList[str](*(Selection(Content(harmless.line(option)), option) for option in question.options))
        case "boolean":
            return _options(_YES_NO)
    return Input()


def _options(options: tuple[str, ...]) -> OptionList:
    return Choices(*(Option(Content(harmless.line(option))) for option in options))
