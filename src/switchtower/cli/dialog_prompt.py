"""Asks the person at the terminal what a dialog asks. Ctrl-D dismisses it, and so does an empty line where it says so."""

import time
from typing import Any

from switchtower.cli import console, dialog_lines, editor, keyboard, replies
from switchtower.cli.replies import DISMISSED, DialogReply
from switchtower.client import errors
from switchtower.client.client import DaemonClient
from switchtower.client.dialogs import PushDialog, InterviewItem

DISMISS_HINT = "Enter alone or Ctrl-D dismisses"


class DialogQuestion:
    """Implements `asker.Question`."""

    def __init__(self, client: DaemonClient, session_id: str, dialog: PushDialog, *, is_shown: bool) -> None:
        self.id: str = dialog.dialog_id
        self._client = client
        self._session_id = session_id
        self._dialog = dialog
        self._is_shown = is_shown
        self._reply: DialogReply | None = None

    async def ask(self, *, again: bool) -> None:
        if again or not self._is_shown:
            for text, colour in dialog_lines.format_dialog(self._dialog):
                console.print_line(text, colour)
        keyboard.discard_typeahead()
        self._reply = await _ask_for_reply(self._dialog)

    async def send_answer(self) -> None:
        if self._reply is None:
            console.print_line(f"  hint: {dialog_lines.format_answer_command(self._dialog, self._session_id)}", "yellow")
            return
        try:
            await self._client.answer_dialog(self._session_id, self.id, **self._reply._asdict())
        except errors.ClientError as problem:
            console.print_error(str(problem))


def format_time_left(dialog: PushDialog) -> str:
    """By our own clock, which is the daemon's as a rule."""
    seconds = round(dialog.expires_at / 1000 - time.time())
    return f"open for {max(0, seconds)} s" if seconds < 600 else f"open for {seconds // 60} min"


async def _ask_for_reply(dialog: PushDialog) -> DialogReply | None:
    """None when this program does not know how to ask it."""
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
        typed = await keyboard.read_line(prompt)
        if typed is None or not typed.strip():
            return DISMISSED
        if (reply := replies.parse_dialog_reply(dialog, typed)) is not None:
            return reply


async def _ask_for_text(dialog: PushDialog) -> DialogReply:
    prefill = dialog.prefill or ""
    if (words := editor.find_editor()) is None:
        return await _ask_for_lines(dialog, prefill)
    _print_instructions(dialog, f"in {words[0]}: save and leave it · an empty text dismisses")
    text = prefill
    while True:
        try:
            text = await editor.edit_text(words, text)
        except editor.EditorError as problem:
            console.print_line(f"! {problem}", "yellow")
            return await _ask_for_lines(dialog, prefill)
        if not text.strip():
            return DISMISSED
        if len(text) <= replies.MAX_REPLY_CHARS:
            return DialogReply(value=text.removesuffix("\n"))
        console.print_line(f"! it is longer than {replies.MAX_REPLY_CHARS} characters; hint: shorten it", "yellow")
        if await keyboard.read_line("  Enter goes back to it, Ctrl-D dismisses ") is None:
            return DISMISSED


async def _ask_for_lines(dialog: PushDialog, prefill: str) -> DialogReply:
    at_once = "Enter at once keeps the text above, Ctrl-D dismisses" if prefill else DISMISS_HINT
    _print_instructions(dialog, f"lines, until an empty one · {at_once}")
    written: list[str] = []
    while (typed := await keyboard.read_line("  > ")) is not None and typed.strip():
        written.append(typed)
        if sum(map(len, written)) > replies.MAX_REPLY_CHARS:
            console.print_line(f"! it is longer than {replies.MAX_REPLY_CHARS} characters", "yellow")
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
        for text, colour in dialog_lines.format_question(question, number, len(dialog.questions)):
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
    """Empty where it is left out; None dismisses."""
    while True:
        typed = await keyboard.read_line(prompt)
        if typed is None:
            return None
        if not typed.strip():
            if not question.required:
                return ""
        elif (answer := replies.parse_question_reply(question, typed)) is not None:
            return answer
