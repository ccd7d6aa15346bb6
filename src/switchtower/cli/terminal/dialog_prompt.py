"""Prompts the user at the terminal for dialogs of a watched session: each one once, until it is closed.

Ctrl-D dismisses a dialog, and so does an empty line if the prompt offers it. Nothing is asked while history is still being read,
because a dialog that was open then may be closed by now.
"""

import time
from typing import Any, Protocol

from switchtower.cli import console
from switchtower.cli.terminal import user_input
from switchtower.cli.terminal.user_input import QuestionQueue
from switchtower.client import errors, frames
from switchtower.client.client import DaemonClient
from switchtower.client.frames import InterviewItem, PushDialog, PushEvent
from switchtower.client.subscription import SessionSubscription
from switchtower.presentation import dialog_form
from switchtower.presentation.approval_text import format_detail_value
from switchtower.presentation.dialog_form import DISMISSED, DialogReply

DISMISS_HINT = "Enter alone or Ctrl-D dismisses"


class DialogQuestion:
    """Implements `TerminalQuestion`."""

    def __init__(self, client: DaemonClient, session_id: str, dialog: PushDialog, *, is_shown: bool) -> None:
        self.id: str = dialog.dialog_id
        self._client = client
        self._session_id = session_id
        self._dialog = dialog
        self._is_shown = is_shown
        self._reply: DialogReply | None = None

    async def ask(self, *, again: bool) -> None:
        if again or not self._is_shown:
            for text, colour in dialog_form.format_dialog(self._dialog):
                console.print_line(text, colour)
        user_input.discard_typeahead()
        self._reply = await _ask_for_reply(self._dialog)

    async def send_answer(self) -> None:
        if self._reply is None:
            console.print_line(f"  hint: {dialog_form.format_answer_command(self._dialog, self._session_id)}", "yellow")
            return
        try:
            await self._client.answer_dialog(self._session_id, self.id, **self._reply._asdict())
        except errors.ClientError as problem:
            console.print_error(str(problem))


def format_time_left(dialog: PushDialog) -> str:
    """Formats the time left by this machine's clock, which usually matches the daemon's."""
    seconds = round(dialog.expires_at / 1000 - time.time())
    return f"open for {max(0, seconds)} s" if seconds < 600 else f"open for {seconds // 60} min"


async def _ask_for_reply(dialog: PushDialog) -> DialogReply | None:
    """Returns None when this program does not know the dialog's method."""
    match dialog.method:
        case "select":
            return await _ask_for_line(dialog, f"its number or text · {DISMISS_HINT}", "  choose? ")
        case "confirm":
            return await _ask_for_line(dialog, f"y yes · n no · {DISMISS_HINT}", "  confirm? [y/n] ")
        case "input":
            return await _ask_for_line(dialog, f"one line · {DISMISS_HINT}", "  > ")
        case "editor":
            return await _ask_for_text(dialog)
        case "interview" if all(question.type in _QUESTION_HINTS for question in dialog.questions):
            return await _ask_interview(dialog)
    console.print_line("  this cannot be asked here: it is of a kind that this version does not know", "yellow")
    return None


def _print_instructions(dialog: PushDialog, how: str) -> None:
    console.print_line(f"  {how} · {format_time_left(dialog)}", "dim")


async def _ask_for_line(dialog: PushDialog, how: str, prompt: str) -> DialogReply:
    _print_instructions(dialog, how)
    while True:
        typed = await user_input.read_line(prompt)
        if typed is None or not typed.strip():
            return DISMISSED
        if (reply := dialog_form.parse_dialog_reply(dialog, typed)) is not None:
            return reply


async def _ask_for_text(dialog: PushDialog) -> DialogReply:
    prefill = dialog.prefill or ""
    if (words := user_input.find_editor()) is None:
        return await _ask_for_lines(dialog, prefill)
    _print_instructions(dialog, f"in {words[0]}: save and leave it · an empty text dismisses")
    text = prefill
    while True:
        try:
            text = await user_input.edit_text(words, text)
        except user_input.EditorError as problem:
            console.print_line(f"! {problem}", "yellow")
            return await _ask_for_lines(dialog, prefill)
        if not text.strip():
            return DISMISSED
        if len(text) <= dialog_form.MAX_REPLY_CHARS:
            return DialogReply(value=text.removesuffix("\n"))
        console.print_line(f"! it is longer than {dialog_form.MAX_REPLY_CHARS} characters; hint: shorten it", "yellow")
        if await user_input.read_line("  Enter goes back to it, Ctrl-D dismisses ") is None:
            return DISMISSED


async def _ask_for_lines(dialog: PushDialog, prefill: str) -> DialogReply:
    at_once = "Enter at once keeps the text above, Ctrl-D dismisses" if prefill else DISMISS_HINT
    _print_instructions(dialog, f"lines, until an empty one · {at_once}")
    written: list[str] = []
    while (typed := await user_input.read_line("  > ")) is not None and typed.strip():
        written.append(typed)
        if sum(map(len, written)) > dialog_form.MAX_REPLY_CHARS:
            console.print_line(f"! it is longer than {dialog_form.MAX_REPLY_CHARS} characters", "yellow")
            written.clear()
    if written:
        return DialogReply(value="\n".join(written))
    return DialogReply(value=prefill) if prefill and typed is not None else DISMISSED


_QUESTION_HINTS = {
    "text": ("one line", "  > "),
    "single": ("its number or text", "  choose? "),
    "multi": ("numbers or texts, with commas between", "  choose? "),
    "boolean": ("y yes · n no", "  [y/n] "),
}


async def _ask_interview(dialog: PushDialog) -> DialogReply:
    _print_instructions(dialog, "Enter alone leaves a question out · Ctrl-D dismisses")
    responses: dict[str, object] = {}
    for number, question in enumerate(dialog.questions, 1):
        for text, colour in dialog_form.format_question(question, number, len(dialog.questions)):
            console.print_line(text, colour)
        how, asked_with = _QUESTION_HINTS[question.type]
        if question.type == "multi":
            console.print_line(f"  {how}", "dim")
        answer = await _ask_question(question, asked_with)
        if answer is None:
            return DISMISSED
        if answer != "":
            responses[question.id] = answer
    return DialogReply(responses=responses)


async def _ask_question(question: InterviewItem, prompt: str) -> Any:
    """Returns an empty answer if the user skips the question; None dismisses the dialog."""
    while True:
        typed = await user_input.read_line(prompt)
        if typed is None:
            return None
        if not typed.strip():
            if not question.required:
                return ""
        elif (answer := dialog_form.parse_question_reply(question, typed)) is not None:
            return answer


class DialogPresenter(Protocol):
    def ask(self, dialog: frames.PushDialog) -> None: ...

    def withdraw(self, dialog_id: str) -> None: ...


class TerminalDialogPresenter:
    """Prompts for dialogs. `is_shown` means that the view already shows dialogs to the same user."""

    def __init__(self, asker: QuestionQueue, client: DaemonClient, session_id: str, *, is_shown: bool = True) -> None:
        self._asker = asker
        self._client = client
        self._session_id = session_id
        self._is_shown = is_shown

    def ask(self, dialog: frames.PushDialog) -> None:
        self._asker.enqueue(DialogQuestion(self._client, self._session_id, dialog, is_shown=self._is_shown))

    def withdraw(self, dialog_id: str) -> None:
        self._asker.withdraw(dialog_id)


class DialogHint:
    """Prints the commands that answer a dialog, when no user can be prompted."""

    def __init__(self, session_id: str) -> None:
        self._session_id = session_id

    def ask(self, dialog: frames.PushDialog) -> None:
        for line in dialog_form.format_interview(dialog):
            console.print_line(line, "yellow")
        how = dialog_form.format_answer_command(dialog, self._session_id)
        left = format_time_left(dialog)
        console.print_line(f"waiting for an answer to “{format_detail_value(dialog.title)}”, {left}; hint: {how}", "yellow")

    def withdraw(self, dialog_id: str) -> None:
        pass  # the view shows how it ended


class DialogWatch:
    def __init__(self, session: SessionSubscription, presenter: DialogPresenter) -> None:
        self._session = session
        self._presenter = presenter
        self._open = frames.DialogTracker()
        self._asked: set[str] = set()

    def on_event(self, event: PushEvent) -> None:
        self._open.on_event(event)
        for dialog_id in self._asked - self._open.dialogs.keys():
            self._asked.discard(dialog_id)
            self._presenter.withdraw(dialog_id)
        attached = self._session.attached
        if attached is None or self._session.last_seen_seq < attached.replay.toSeq:
            return
        for _, dialog in self._open.dialogs.values():
            self._ask_once(dialog)

    def add_earlier(self, seq: int, dialog: frames.PushDialog) -> None:
        """Adds a dialog from before the watched events."""
        self._open.dialogs[dialog.dialog_id] = (seq, dialog)
        self._ask_once(dialog)

    def _ask_once(self, dialog: frames.PushDialog) -> None:
        if dialog.dialog_id not in self._asked:
            self._asked.add(dialog.dialog_id)
            self._presenter.ask(dialog)
