"""A dialog as lines for the person who answers, and how to answer it with a command. Pure.

What an extension or a model wrote is kept to its own lines: nothing inside of it can pass for one of ours.
"""

import json
import shlex
from collections.abc import Iterator

from switchtower.cli.questions import Lines, spelled
from switchtower.client.dialogs import ANSWERED, Dialog, Question

_MOST_LINES = 20
_LONGEST_TITLE = 200

_SAMPLES: dict[str, object] = {"text": "…", "boolean": True}


def lines(dialog: Dialog) -> Lines:
    """What is asked. The questions of an interview are asked one by one, and only counted here."""
    count = len(dialog.questions)
    kind = f" ({count} question{'' if count == 1 else 's'})" if dialog.method == "interview" else ""
    yield f"? {spelled(dialog.title)}{kind}", "yellow"
    if dialog.message:
        yield from _text(dialog.message)
    yield from options(dialog.options)
    if dialog.placeholder:
        yield f"  such as: {spelled(dialog.placeholder)}", "dim"
    if dialog.prefill:
        yield from _text(dialog.prefill)


def options(chosen_from: tuple[str, ...]) -> Lines:
    width = len(str(len(chosen_from)))
    for number, option in enumerate(chosen_from, 1):
        yield f"  {number:>{width}}  {spelled(option)}", "yellow"


def question(asked: Question, number: int, count: int) -> Lines:
    required = "" if not asked.required else " (needs an answer)"
    yield f"  {number}/{count} {spelled(asked.question)}{required}", "yellow"
    yield from options(asked.options)


def form(dialog: Dialog) -> Iterator[str]:
    """All questions of an interview with their ids, for who answers it in one piece."""
    for asked in dialog.questions:
        one_of = f" of {', '.join(map(spelled, asked.options))}" if asked.options else ""
        required = ", required" if asked.required else ""
        yield f"  {spelled(asked.id)}: {spelled(asked.question)} ({spelled(asked.type)}{one_of}{required})"


def how_to_answer(dialog: Dialog, session_id: str) -> str:
    """A command line that answers."""
    command = f"tower answer {session_id}"
    match dialog.method:
        case "select":
            return f"`{command} 1`, by number or text"
        case "confirm":
            return f"`{command} --yes` or `--no`"
        case "interview":
            responses = {asked.id: _sample(asked) for asked in dialog.questions if asked.required} or {
                asked.id: _sample(asked) for asked in dialog.questions[:1]
            }
            return f"`{command} --json {shlex.quote(json.dumps({'responses': responses}, ensure_ascii=False))}`"
    return f'`{command} "TEXT"`, or `-` for stdin'


def ending(title: str, how: str) -> tuple[str, str]:
    """That a dialog is over, with its colour."""
    about = spelled(title if len(title) <= _LONGEST_TITLE else f"{title[:_LONGEST_TITLE]}…")
    match how:
        case _ if how == ANSWERED:
            return f"answered: {about}", "dim"
        case "expired":
            return f"! nobody answered in time: {about}", "yellow"
        case "dismissed":
            return f"dismissed: {about}", "yellow"
    return f"not asked any more ({spelled(how)}): {about}", "dim"


def _sample(asked: Question) -> object:
    if asked.type == "multi":
        return list(asked.options[:1])
    return asked.options[0] if asked.type == "single" and asked.options else _SAMPLES.get(asked.type, "…")


def _text(text: str) -> Lines:
    rows = text.split("\n")
    for row in rows[:_MOST_LINES]:
        yield f"  | {row}", "yellow"
    if len(rows) > _MOST_LINES:
        yield f"  | … {len(rows) - _MOST_LINES} more lines", "dim"
