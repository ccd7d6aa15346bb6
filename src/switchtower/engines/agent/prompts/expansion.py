"""What a message becomes before a model reads it: a called template takes its place, and what it mentions follows it.

Each text is looked through once, as its author wrote it: the user's words and a prompt's own. What they bring in, and
what arguments and a prompt's words form together, is never looked through again.
"""

import re
from pathlib import Path

from msgspec import Struct

from switchtower.engines.agent.prompts import blocks, filling, folders, mentions, reading, templates

_PART = folders.PART.pattern
_MOST_PARTS = folders.MOST_PARTS + 2
"""A name may have its origin and its kind in front."""
_CALL = re.compile(rf"/({_PART}(?::{_PART}){{0,{_MOST_PARTS - 1}}})(?:\s+(.*))?", re.DOTALL)


class MessageExpansion(Struct, frozen=True):
    text: str
    sources: tuple[str, ...] = ()
    """The files that went into it: the template first, then what was mentioned."""
    problems: tuple[str, ...] = ()


class _FilledMessage(Struct, frozen=True):
    """A message after its template was put in."""

    text: str
    looked_through: tuple[str, ...]
    """The texts whose mentions count."""
    sources: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()


def expand_message(text: str, workspace: str, user_folder: Path | None, *, trusted: bool = True) -> MessageExpansion:
    """A workspace that is not `trusted` brings in files that the message mentions, and no skills or prompts."""
    spoken = _fill_message(text, workspace, user_folder, trusted=trusted)
    brought = mentions.expand_mentions(spoken.looked_through, workspace)
    notes = tuple(f"[{problem}]" for problem in brought.problems)
    parts = (spoken.text, *brought.blocks, *notes)
    return MessageExpansion(
        text="\n\n".join(parts),
        sources=tuple(dict.fromkeys(spoken.sources + brought.sources)),
        problems=spoken.problems + brought.problems,
    )


def parse_call(text: str) -> tuple[str, str] | None:
    """The name and the arguments of a message that calls something, whether or not there is such a thing."""
    call = _CALL.fullmatch(text)
    return None if call is None else (call[1], (call[2] or "").strip())


def _fill_message(text: str, workspace: str, user_folder: Path | None, *, trusted: bool) -> _FilledMessage:
    call = parse_call(text)
    if call is None:
        return _FilledMessage(text, (text,))
    name, arguments = call
    catalogue = templates.load_catalog(workspace, user_folder, trusted=trusted)
    template = catalogue.templates.get(name)
    if template is None and not trusted and name in templates.load_catalog(workspace, user_folder).templates:
        told = f"`/{name}` is of this folder, which you have not trusted; hint: `tower trust add` trusts it"
        return _FilledMessage(text, (text,), problems=(told,))
    if template is None:
        problem = catalogue.unusable.get(name)
        return _FilledMessage(text, (text,), problems=(problem,) if problem else ())
    try:
        body = templates.read_template(template, workspace, user_folder)
        if template.kind == "skill":
            return _FilledMessage(_append_request(template, body, arguments), (arguments,), (template.path,))
        return _FilledMessage(filling.fill_template(body, arguments), (body, arguments), (template.path,))
    except reading.PromptFileError as trouble:
        problem = f"`{template.path}` cannot be used: {trouble}"
    except filling.PromptTooLong:
        problem = f"`{template.path}` cannot be used: with these arguments it would be too long"
    return _FilledMessage(text, (text,), problems=(blocks.to_one_line(problem, longest=500),))


def _append_request(template: templates.Template, body: str, request: str) -> str:
    skill = blocks.quote_block("skill", body, name=template.name, path=template.path)
    return f"{skill}\n\n{request or 'Do what this skill describes.'}"
