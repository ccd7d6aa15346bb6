"""Asks the person at the terminal what a dialog asks. Ctrl-D dismisses it, and so does an empty line where it says so."""

import time
from typing import Any

from switchtower.cli import console, dialog_lines, editor, keyboard, replies
from switchtower.cli.replies import DISMISSED, Reply
from switchtower.client import errors
from switchtower.client.client import Client
from switchtower.client.dialogs import Dialog, Question

DISMISS = "Enter alone or Ctrl-D dismisses"


class DialogQuestion:
    """Implements `asker.Question`."""

    def __init__(self, client: Client, session_id: str, dialog: Dialog, *, is_shown: bool) -> None:
        self.id: str = dialog.dialog_id
        self._client = client
        self._session_id = session_id
        self._dialog = dialog
        self._is_shown = is_shown
        self._reply: Reply | None = None

    async def put(self, *, again: bool) -> None:
        if again or not self._is_shown:
            for text, colour in dialog_lines.lines(self._dialog):
                console.say(text, colour)
        keyboard.forget_typed()
        self._reply = await _reply_from_terminal(self._dialog)

    async def send(self) -> None:
        if self._reply is None:
            console.say(f"  hint: {dialog_lines.how_to_answer(self._dialog, self._session_id)}", "yellow")
            return
        try:
            await self._client.answer_dialog(self._session_id, self.id, **self._reply._asdict())
        except errors.ClientError as problem:
            console.fail(str(problem))


def time_left(dialog: Dialog) -> str:
    """By our own clock, which is the daemon's as a rule."""
    seconds = round(dialog.expires_at / 1000 - time.time())
    return f"open for {max(0, seconds)} s" if seconds < 600 else f"open for {seconds // 60} min"


async def _reply_from_terminal(dialog: Dialog) -> Reply | None:
    """None when this program does not know how to ask it."""
    match dialog.method:
        case "select":
            return await _line(dialog, f"its number or text · {DISMISS}", "  choose? ")
        case "confirm":
            return await _line(dialog, f"y yes · n no · {DISMISS}", "  confirm? [y/n] ")
        case "input":
            return await _line(dialog, f"one line · {DISMISS}", "  > ")
        case "editor":
            return await _text(dialog)
        case "interview" if all(question.type in _HOW for question in dialog.questions):
            return await _interview(dialog)
    console.say("  this cannot be asked here: it is of a kind that this version does not know", "yellow")
    return None


def _explain(dialog: Dialog, how: str) -> None:
    console.say(f"  {how} · {time_left(dialog)}", "dim")


async def _line(dialog: Dialog, how: str, asked_with: str) -> Reply:
    _explain(dialog, how)
    while True:
        typed = await keyboard.line(asked_with)
        if typed is None or not typed.strip():
            return DISMISSED
        if (reply := replies.to_dialog(dialog, typed)) is not None:
            return reply


async def _text(dialog: Dialog) -> Reply:
    prefill = dialog.prefill or ""
    if (words := editor.command()) is None:
        return await _lines(dialog, prefill)
    _explain(dialog, f"in {words[0]}: save and leave it · an empty text dismisses")
    text = prefill
    while True:
        try:
            text = await editor.edited(words, text)
        except editor.CannotEdit as problem:
            console.say(f"! {problem}", "yellow")
            return await _lines(dialog, prefill)
        if not text.strip():
            return DISMISSED
        if len(text) <= replies.LONGEST:
            return Reply(value=text.removesuffix("\n"))
        console.say(f"! it is longer than {replies.LONGEST} characters; hint: shorten it", "yellow")
        if await keyboard.line("  Enter goes back to it, Ctrl-D dismisses ") is None:
            return DISMISSED


async def _lines(dialog: Dialog, prefill: str) -> Reply:
    at_once = "Enter at once keeps the text above, Ctrl-D dismisses" if prefill else DISMISS
    _explain(dialog, f"lines, until an empty one · {at_once}")
    written: list[str] = []
    while (typed := await keyboard.line("  > ")) is not None and typed.strip():
        written.append(typed)
        if sum(map(len, written)) > replies.LONGEST:
            console.say(f"! it is longer than {replies.LONGEST} characters", "yellow")
            written.clear()
    if written:
        return Reply(value="\n".join(written))
    return Reply(value=prefill) if prefill and typed is not None else DISMISSED


_HOW = {
    "text": ("one line", "  > "),
    "single": ("its number or text", "  choose? "),
    "multi": ("numbers or texts, with commas between", "  choose? "),
    "boolean": ("y yes · n no", "  [y/n] "),
}


async def _interview(dialog: Dialog) -> Reply:
    _explain(dialog, "Enter alone leaves a question out · Ctrl-D dismisses")
    responses: dict[str, object] = {}
    for number, question in enumerate(dialog.questions, 1):
        for text, colour in dialog_lines.question(question, number, len(dialog.questions)):
            console.say(text, colour)
        how, asked_with = _HOW[question.type]
        if question.type == "multi":
            console.say(f"  {how}", "dim")
        answer = await _answer(question, asked_with)
        if answer is None:
            return DISMISSED
        if answer != "":
            responses[question.id] = answer
    return Reply(responses=responses)


async def _answer(question: Question, asked_with: str) -> Any:
    """Empty where it is left out; None dismisses."""
    while True:
        typed = await keyboard.line(asked_with)
        if typed is None:
            return None
        if not typed.strip():
            if not question.required:
                return ""
        elif (answer := replies.to_question(question, typed)) is not None:
            return answer
