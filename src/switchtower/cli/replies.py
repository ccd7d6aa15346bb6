"""What is answered to a dialog: read from what somebody typed, and checked against what was asked. Pure."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from switchtower.client.dialogs import PushDialog, InterviewItem

MAX_REPLY_CHARS = 256 * 1024
"""Characters of an answer. No more fits into what an extension takes."""
MAX_INTERVIEW_ANSWER_CHARS = 64 * 1024


class DialogReply(NamedTuple):
    """One of them, as `answer_dialog` wants it."""

    value: str | None = None
    confirmed: bool | None = None
    responses: Mapping[str, Any] | None = None
    dismissed: bool = False


DISMISSED = DialogReply(dismissed=True)


def parse_choice(typed: str, options: Sequence[str]) -> str | None:
    """An option by its text or by its number in the list; its text comes first. None when it is none."""
    if typed in options:
        return typed
    typed = typed.strip()
    if typed in options:
        return typed
    if re.fullmatch(r"[0-9]{1,4}", typed) and 1 <= int(typed) <= len(options):
        return options[int(typed) - 1]
    # A name may be typed in any case where that leaves no doubt.
    alike = [option for option in options if option.casefold() == typed.casefold()]
    return alike[0] if len(alike) == 1 else None


def parse_choices(typed: str, options: Sequence[str]) -> list[str] | None:
    """Several options, by commas, or by blanks where all are numbers. None when one of them is none."""
    if (one := parse_choice(typed, options)) is not None:
        return [one]
    parts = re.split(r"[\s,]+" if re.fullmatch(r"[\s,0-9]+", typed) else ",", typed)
    found = [parse_choice(part, options) for part in parts if part.strip()]
    chosen = [option for option in found if option is not None]
    return list(dict.fromkeys(chosen)) if chosen and len(chosen) == len(found) else None


def parse_yes_no(typed: str) -> bool | None:
    return {"y": True, "yes": True, "n": False, "no": False}.get(typed.strip().lower())


def parse_question_reply(question: InterviewItem, typed: str) -> Any:
    """The answer to one question of an interview; None when what was typed is none."""
    match question.type:
        case "single":
            return parse_choice(typed, question.options)
        case "multi":
            return parse_choices(typed, question.options)
        case "boolean":
            return parse_yes_no(typed)
    return typed if len(typed) <= MAX_INTERVIEW_ANSWER_CHARS else None


def parse_dialog_reply(dialog: PushDialog, typed: str) -> DialogReply | None:
    """What a text answers; None when it is no answer to this one."""
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
    """Why a reply cannot be meant, before the daemon is asked: an interview with a mistake in it would be held again."""
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
    return True  # of a newer daemon, which knows better
