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


class Expansion(Struct, frozen=True):
    text: str
    sources: tuple[str, ...] = ()
    """The files that went into it: the template first, then what was mentioned."""
    problems: tuple[str, ...] = ()


class _Spoken(Struct, frozen=True):
    """A message after its template was put in."""

    text: str
    looked_through: tuple[str, ...]
    """The texts whose mentions count."""
    sources: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()


def expand(text: str, workspace: str, user_folder: Path | None, *, trusted: bool = True) -> Expansion:
    """A workspace that is not `trusted` brings in files that the message mentions, and no skills or prompts."""
    spoken = _spoken(text, workspace, user_folder, trusted=trusted)
    brought = mentions.bring_in(spoken.looked_through, workspace)
    notes = tuple(f"[{problem}]" for problem in brought.problems)
    parts = (spoken.text, *brought.blocks, *notes)
    return Expansion(
        text="\n\n".join(parts),
        sources=tuple(dict.fromkeys(spoken.sources + brought.sources)),
        problems=spoken.problems + brought.problems,
    )


def called(text: str) -> tuple[str, str] | None:
    """The name and the arguments of a message that calls something, whether or not there is such a thing."""
    call = _CALL.fullmatch(text)
    return None if call is None else (call[1], (call[2] or "").strip())


def _spoken(text: str, workspace: str, user_folder: Path | None, *, trusted: bool) -> _Spoken:
    call = called(text)
    if call is None:
        return _Spoken(text, (text,))
    name, arguments = call
    catalogue = templates.catalogue(workspace, user_folder, trusted=trusted)
    template = catalogue.templates.get(name)
    if template is None and not trusted and name in templates.catalogue(workspace, user_folder).templates:
        told = f"`/{name}` is of this folder, which you have not trusted; hint: `tower trust add` trusts it"
        return _Spoken(text, (text,), problems=(told,))
    if template is None:
        problem = catalogue.unusable.get(name)
        return _Spoken(text, (text,), problems=(problem,) if problem else ())
    try:
        body = templates.text_of(template, workspace, user_folder)
        if template.kind == "skill":
            return _Spoken(_with_request(template, body, arguments), (arguments,), (template.path,))
        return _Spoken(filling.fill(body, arguments), (body, arguments), (template.path,))
    except reading.Trouble as trouble:
        problem = f"`{template.path}` cannot be used: {trouble}"
    except filling.TooLong:
        problem = f"`{template.path}` cannot be used: with these arguments it would be too long"
    return _Spoken(text, (text,), problems=(blocks.one_line(problem, longest=500),))


def _with_request(template: templates.Template, body: str, request: str) -> str:
    skill = blocks.block("skill", body, name=template.name, path=template.path)
    return f"{skill}\n\n{request or 'Do what this skill describes.'}"
