"""Formats dialogs as lines, parses and checks typed answers, and shows the command that answers a dialog. Pure.

Text that an extension or a model wrote stays on its own lines, so that it cannot imitate a line of the user interface.
"""

import json
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from switchtower.client.frames import ANSWERED, InterviewItem, PushDialog
from switchtower.presentation.approval_text import ColouredLines, format_detail_value

MAX_REPLY_CHARS = 256 * 1024
"""The maximum number of characters in an answer. Extensions accept no more."""
MAX_INTERVIEW_ANSWER_CHARS = 64 * 1024


class DialogReply(NamedTuple):
    """One answer, with the fields of `answer_dialog`."""

    value: str | None = None
    confirmed: bool | None = None
    responses: Mapping[str, Any] | None = None
    dismissed: bool = False


DISMISSED = DialogReply(dismissed=True)


def parse_choice(typed: str, options: Sequence[str]) -> str | None:
    """Finds an option by its text or else by its number in the list; None when there is no match."""
    if typed in options:
        return typed
    typed = typed.strip()
    if typed in options:
        return typed
    if re.fullmatch(r"[0-9]{1,4}", typed) and 1 <= int(typed) <= len(options):
        return options[int(typed) - 1]
    # A name may be typed in any case where that is unambiguous.
    alike = [option for option in options if option.casefold() == typed.casefold()]
    return alike[0] if len(alike) == 1 else None


def parse_choices(typed: str, options: Sequence[str]) -> list[str] | None:
    """Parses several options, separated by commas, or by spaces if all are numbers. None when one of them does not match."""
    if (one := parse_choice(typed, options)) is not None:
        return [one]
    parts = re.split(r"[\s,]+" if re.fullmatch(r"[\s,0-9]+", typed) else ",", typed)
    found = [parse_choice(part, options) for part in parts if part.strip()]
    chosen = [option for option in found if option is not None]
    return list(dict.fromkeys(chosen)) if chosen and len(chosen) == len(found) else None


def parse_yes_no(typed: str) -> bool | None:
    return {"y": True, "yes": True, "n": False, "no": False}.get(typed.strip().lower())


def parse_question_reply(question: InterviewItem, typed: str) -> Any:
    """Parses the answer to one question of an interview; None when the typed text does not answer it."""
    match question.type:
        case "single":
            return parse_choice(typed, question.options)
        case "multi":
            return parse_choices(typed, question.options)
        case "boolean":
            return parse_yes_no(typed)
    return typed if len(typed) <= MAX_INTERVIEW_ANSWER_CHARS else None


def parse_dialog_reply(dialog: PushDialog, typed: str) -> DialogReply | None:
    """Parses a typed answer; None when the text does not answer this dialog."""
    match dialog.method:
        case "select":
            chosen = parse_choice(typed, dialog.options)
            return None if chosen is None else DialogReply(value=chosen)
        case "confirm":
            confirmed = parse_yes_no(typed)
            return None if confirmed is None else DialogReply(confirmed=confirmed)
        case "input" | "editor":
            return DialogReply(value=typed) if len(typed) <= MAX_REPLY_CHARS else None
    return None


def find_reply_problem(dialog: PushDialog, reply: DialogReply) -> str | None:
    """Returns why the daemon would not accept the reply. It is checked first because an extension would repeat a whole interview
    for one mistake."""
    if reply.dismissed:
        return None
    match dialog.method:
        case "select" if reply.value is None or reply.value not in dialog.options:
            return "it is none of the options"
        case "confirm" if reply.confirmed is None:
            return "it is neither yes nor no"
        case "input" | "editor" if reply.value is None:
            return "it is not a text"
        case "input" | "editor" if len(reply.value or "") > MAX_REPLY_CHARS:
            return f"it is longer than {MAX_REPLY_CHARS} characters"
        case "interview":
            return "it has no `responses`" if reply.responses is None else _find_interview_problem(dialog, reply.responses)
    return None


def _find_interview_problem(dialog: PushDialog, responses: Mapping[str, Any]) -> str | None:
    asked = {question.id: question for question in dialog.questions}
    for name, answer in responses.items():
        if name not in asked:
            return f"no question has the id `{name}`"
        if not _is_valid_answer(asked[name], answer):
            return f"`{name}` is not {_EXPECTED_ANSWERS.get(asked[name].type, 'an answer')}"
    for question in dialog.questions:
        answer = responses.get(question.id)
        if question.required and (answer in (None, []) or (isinstance(answer, str) and not answer.strip())):
            return f"`{question.id}` needs an answer"
    return None


_EXPECTED_ANSWERS = {
    "text": f"a text of at most {MAX_INTERVIEW_ANSWER_CHARS} characters",
    "boolean": "true or false",
    "single": "one of its options",
    "multi": "a list of its options",
}


def _is_valid_answer(question: InterviewItem, answer: Any) -> bool:
    match question.type:
        case "text":
            return isinstance(answer, str) and len(answer) <= MAX_INTERVIEW_ANSWER_CHARS
        case "boolean":
            return isinstance(answer, bool)
        case "single":
            return isinstance(answer, str) and answer in question.options
        case "multi":
            return isinstance(answer, list) and all(isinstance(one, str) and one in question.options for one in answer)
    return True  # a question type of a newer daemon, which validates the answer itself


_MAX_LINES = 20
_MAX_TITLE_CHARS = 200

_SAMPLE_ANSWERS: dict[str, object] = {"text": "…", "boolean": True}


def format_dialog(dialog: PushDialog) -> ColouredLines:
    """Formats a dialog. The questions of an interview are asked one by one, so this only counts them."""
    count = len(dialog.questions)
    kind = f" ({count} question{'' if count == 1 else 's'})" if dialog.method == "interview" else ""
    yield f"? {format_detail_value(dialog.title)}{kind}", "yellow"
    if dialog.message:
        yield from _format_text(dialog.message)
    yield from format_options(dialog.options)
    if dialog.placeholder:
        yield f"  such as: {format_detail_value(dialog.placeholder)}", "dim"
    if dialog.prefill:
        yield from _format_text(dialog.prefill)


def format_options(chosen_from: tuple[str, ...]) -> ColouredLines:
    width = len(str(len(chosen_from)))
    for number, option in enumerate(chosen_from, 1):
        yield f"  {number:>{width}}  {format_detail_value(option)}", "yellow"


def format_question(question: InterviewItem, number: int, count: int) -> ColouredLines:
    required = "" if not question.required else " (needs an answer)"
    yield f"  {number}/{count} {format_detail_value(question.question)}{required}", "yellow"
    yield from format_options(question.options)


def format_interview(dialog: PushDialog) -> Iterator[str]:
    """Formats all questions of an interview with their ids, for a user who answers them in one command."""
    for asked in dialog.questions:
        one_of = f" of {', '.join(map(format_detail_value, asked.options))}" if asked.options else ""
        required = ", required" if asked.required else ""
        type_ = f"{format_detail_value(asked.type)}{one_of}{required}"
        yield f"  {format_detail_value(asked.id)}: {format_detail_value(asked.question)} ({type_})"


def format_answer_command(dialog: PushDialog, session_id: str) -> str:
    """Returns a command line that answers the dialog."""
    command = f"tower answer {session_id}"
    match dialog.method:
        case "select":
            return f"`{command} 1`, by number or text"
        case "confirm":
            return f"`{command} --yes` or `--no`"
        case "interview":
            responses = {asked.id: _make_sample_answer(asked) for asked in dialog.questions if asked.required} or {
                asked.id: _make_sample_answer(asked) for asked in dialog.questions[:1]
            }
            return f"`{command} --json {shlex.quote(json.dumps({'responses': responses}, ensure_ascii=False))}`"
    return f'`{command} "TEXT"`, or `-` for stdin'


def format_dialog_end(title: str, how: str) -> tuple[str, str]:
    """Formats the end of a dialog, with its colour."""
    about = format_detail_value(title if len(title) <= _MAX_TITLE_CHARS else f"{title[:_MAX_TITLE_CHARS]}…")
    match how:
        case _ if how == ANSWERED:
            return f"answered: {about}", "dim"
        case "expired":
            return f"! nobody answered in time: {about}", "yellow"
        case "dismissed":
            return f"dismissed: {about}", "yellow"
    return f"not asked any more ({format_detail_value(how)}): {about}", "dim"


def _make_sample_answer(question: InterviewItem) -> object:
    if question.type == "multi":
        return list(question.options[:1])
    return question.options[0] if question.type == "single" and question.options else _SAMPLE_ANSWERS.get(question.type, "…")


def _format_text(text: str) -> ColouredLines:
    rows = text.split("\n")
    for row in rows[:_MAX_LINES]:
        yield f"  | {row}", "yellow"
    if len(rows) > _MAX_LINES:
        yield f"  | … {len(rows) - _MAX_LINES} more lines", "dim"
