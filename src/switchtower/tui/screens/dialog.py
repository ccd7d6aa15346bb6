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

from switchtower.client.dialogs import PushDialog, InterviewItem
from switchtower.tui.state import harmless
from switchtower.tui.widgets.choices import ChoiceList

LONGEST_REPLY = 256 * 1024
_YES_NO = ("Yes", "No")


class DialogScreen(ModalScreen[Mapping[str, Any] | None]):
    """Ends with the answer as `answer_dialog` wants it, or None when it is left for later."""

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
            yield Static(harmless.to_safe_line(self.dialog.title), classes="question-title", markup=False)
            if self.dialog.message:
                yield Static(harmless.escape_prose(self.dialog.message), classes="question-text", markup=False)
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
                await asked.mount(TextArea(harmless.escape_prose(dialog.prefill or ""), id="text"))
            case "interview" if self._questions:
                question = self._questions[self._index]
                needed = " (needs an answer)" if question.required else ""
                label = f"{self._index + 1}/{len(self._questions)}  {harmless.to_safe_line(question.question)}{needed}"
                await asked.mount(Static(label, markup=False), _make_field(question))
            case _:
                await asked.mount(
                    Input(
                        harmless.to_safe_line(dialog.prefill or ""), placeholder=harmless.to_safe_line(dialog.placeholder or "")
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
            return SelectionList[str](*(Selection(Content(harmless.to_safe_line(option)), option) for option in question.options))
        case "boolean":
            return _make_options(_YES_NO)
    return Input()


def _make_options(options: tuple[str, ...]) -> OptionList:
    return ChoiceList(*(Option(Content(harmless.to_safe_line(option))) for option in options))
