"""What is answered to a dialog: read from what somebody typed, and checked against what was asked. Pure."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from switchtower.client.dialogs import Dialog, Question

LONGEST = 256 * 1024
"""Characters of an answer. No more fits into what an extension takes."""
LONGEST_IN_INTERVIEW = 64 * 1024


class Reply(NamedTuple):
    """One of them, as `answer_dialog` wants it."""

    value: str | None = None
    confirmed: bool | None = None
    responses: Mapping[str, Any] | None = None
    dismissed: bool = False


DISMISSED = Reply(dismissed=True)


def choice(typed: str, options: Sequence[str]) -> str | None:
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


def choices(typed: str, options: Sequence[str]) -> list[str] | None:
    """Several options, by commas, or by blanks where all are numbers. None when one of them is none."""
    if (one := choice(typed, options)) is not None:
        return [one]
    parts = re.split(r"[\s,]+" if re.fullmatch(r"[\s,0-9]+", typed) else ",", typed)
    found = [choice(part, options) for part in parts if part.strip()]
    chosen = [option for option in found if option is not None]
    return list(dict.fromkeys(chosen)) if chosen and len(chosen) == len(found) else None


def yes_or_no(typed: str) -> bool | None:
    return {"y": True, "yes": True, "n": False, "no": False}.get(typed.strip().lower())


def to_question(question: Question, typed: str) -> Any:
    """The answer to one question of an interview; None when what was typed is none."""
    match question.type:
        case "single":
            return choice(typed, question.options)
        case "multi":
            return choices(typed, question.options)
        case "boolean":
            return yes_or_no(typed)
    return typed if len(typed) <= LONGEST_IN_INTERVIEW else None


def to_dialog(dialog: Dialog, typed: str) -> Reply | None:
    """What a text answers; None when it is no answer to this one."""
    match dialog.method:
        case "select":
            chosen = choice(typed, dialog.options)
            return None if chosen is None else Reply(value=chosen)
        case "confirm":
            confirmed = yes_or_no(typed)
            return None if confirmed is None else Reply(confirmed=confirmed)
        case "input" | "editor":
            return Reply(value=typed) if len(typed) <= LONGEST else None
    return None


def problem(dialog: Dialog, reply: Reply) -> str | None:
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
        case "input" | "editor" if len(reply.value or "") > LONGEST:
            return f"it is longer than {LONGEST} characters"
        case "interview":
            return "it has no `responses`" if reply.responses is None else _problem_of_interview(dialog, reply.responses)
    return None


def _problem_of_interview(dialog: Dialog, responses: Mapping[str, Any]) -> str | None:
    asked = {question.id: question for question in dialog.questions}
    for name, answer in responses.items():
        if name not in asked:
            return f"no question has the id `{name}`"
        if not _fits(asked[name], answer):
            return f"`{name}` is not {_WANTED.get(asked[name].type, 'an answer')}"
    for question in dialog.questions:
        answer = responses.get(question.id)
        if question.required and (answer in (None, []) or (isinstance(answer, str) and not answer.strip())):
            return f"`{question.id}` needs an answer"
    return None


_WANTED = {
    "text": f"a text of at most {LONGEST_IN_INTERVIEW} characters",
    "boolean": "true or false",
    "single": "one of its options",
    "multi": "a list of its options",
}


def _fits(question: Question, answer: Any) -> bool:
    match question.type:
        case "text":
            return isinstance(answer, str) and len(answer) <= LONGEST_IN_INTERVIEW
        case "boolean":
            return isinstance(answer, bool)
        case "single":
            return isinstance(answer, str) and answer in question.options
        case "multi":
            return isinstance(answer, list) and all(isinstance(one, str) and one in question.options for one in answer)
    return True  # of a newer daemon, which knows better
