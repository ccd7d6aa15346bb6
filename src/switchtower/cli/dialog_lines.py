"""A dialog as lines for the person who answers, and how to answer it with a command. Pure.

What an extension or a model wrote is kept to its own lines: nothing inside of it can pass for one of ours.
"""

import json
import shlex
from collections.abc import Iterator

from switchtower.cli.questions import ColouredLines, format_detail_value
from switchtower.client.dialogs import ANSWERED, PushDialog, InterviewItem

_MAX_LINES = 20
_MAX_TITLE_CHARS = 200

_SAMPLE_ANSWERS: dict[str, object] = {"text": "…", "boolean": True}


def format_dialog(dialog: PushDialog) -> ColouredLines:
    """What is asked. The questions of an interview are asked one by one, and only counted here."""
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
    """All questions of an interview with their ids, for who answers it in one piece."""
    for asked in dialog.questions:
        one_of = f" of {', '.join(map(format_detail_value, asked.options))}" if asked.options else ""
        required = ", required" if asked.required else ""
        yield f"  {format_detail_value(asked.id)}: {format_detail_value(asked.question)} ({format_detail_value(asked.type)}{one_of}{required})"


def format_answer_command(dialog: PushDialog, session_id: str) -> str:
    """A command line that answers."""
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
    """That a dialog is over, with its colour."""
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
