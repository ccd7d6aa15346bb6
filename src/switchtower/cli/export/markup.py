"""Helpers of both export formats: Markdown code fences, the facts above a document, and the parts of arguments. Pure.

Every text must be plain: a line ends with a line feed and nothing else.
"""

import datetime
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from switchtower.presentation.safe_text import to_plain_line
from switchtower.protocols.push import extension_messages

_BACKTICKS = re.compile("`+")
_OPENING = re.compile(r" {0,3}(?:(`{3,})([^`]*)|(~{3,})(.*))$")
_INFO = re.compile(r"[^A-Za-z0-9_+.#-]")


class MarkdownPart(NamedTuple):
    is_code: bool
    info: str
    text: str


def fence_code(text: str, info: str = "") -> str:
    """Puts the text between fences that are longer than any run of backticks in it."""
    marks = "`" * max(3, 1 + max(map(len, _BACKTICKS.findall(text)), default=0))
    end = "" if text.endswith("\n") or not text else "\n"
    return f"{marks}{_INFO.sub('', info)}\n{text}{end}{marks}"


def format_code_span(text: str) -> str:
    """Formats the text on one line as a code span, even if it contains backticks."""
    flat = " ".join(text.split())
    if not flat:
        return ""
    marks = "`" * (1 + max(map(len, _BACKTICKS.findall(flat)), default=0))
    return f"{marks} {flat} {marks}" if flat[0] == "`" or flat[-1] == "`" else f"{marks}{flat}{marks}"


def split_fences(text: str) -> Iterator[MarkdownPart]:
    """Yields prose and code in turn. An unclosed fence ends with the text."""
    prose: list[str] = []
    code: list[str] = []
    opened: tuple[str, str] | None = None
    for line in text.split("\n"):
        if opened is not None:
            if _is_closing(line, opened[0]):
                yield MarkdownPart(True, opened[1], "\n".join(code))
                code, opened = [], None
            else:
                code.append(line)
        elif found := _OPENING.match(line):
            if prose:
                yield MarkdownPart(False, "", "\n".join(prose))
            prose, opened = [], (found[1] or found[3], (found[2] or found[4] or "").strip())
        else:
            prose.append(line)
    if opened is not None:
        yield MarkdownPart(True, opened[1], "\n".join(code))
    elif prose:
        yield MarkdownPart(False, "", "\n".join(prose))


def is_fence(line: str) -> bool:
    """Returns whether the line opens a fence."""
    return _OPENING.match(line) is not None


def _is_closing(line: str, opening: str) -> bool:
    """Returns whether the line closes the fence, as defined by CommonMark: the same mark, at least as long, and nothing
    after it."""
    stripped = line.strip(" \t")
    indent = len(line) - len(line.lstrip(" "))
    return indent <= 3 and len(stripped) >= len(opening) and set(stripped) == {opening[0]}


def format_title(session_id: str, about: extension_messages.SessionInfo | None) -> str:
    return (to_plain_line(about.title) if about is not None else "") or f"Session {session_id}"


def list_facts(session_id: str, about: extension_messages.SessionInfo | None) -> list[tuple[str, str]]:
    """Returns names and values. An older daemon reports only the id."""
    pairs = [("Session", session_id)]
    if about is None:
        return pairs
    pairs.append(("Started", format_moment(about.createdAt)))
    pairs.append(("Last event", format_moment(about.updatedAt)))
    if about.terminal is not None:
        pairs.append(("Program", to_plain_line(about.terminal.command)))
        if about.terminal.exitCode is not None:
            pairs.append(("Exit code", str(about.terminal.exitCode)))
    else:
        pairs.append(("Model", to_plain_line(f"{about.provider} {about.model or ''}")))
        pairs.append(("Policy", to_plain_line(about.policy)))
    pairs.append(("Folder", to_plain_line(about.rootPath) + (f" (branch {to_plain_line(about.branch)})" if about.branch else "")))
    pairs.append(("State", about.state))
    return pairs


def format_moment(ms: int) -> str:
    """Formats a time in UTC, because the document is read elsewhere. A value that is not a valid time stays a number."""
    try:
        return f"{datetime.datetime.fromtimestamp(ms / 1000, datetime.UTC):%Y-%m-%d %H:%M:%S} UTC"
    except (ValueError, OverflowError, OSError):
        return str(ms)


_HIDDEN_ARGUMENTS = ("always", "destructive")


class ArgumentPart(NamedTuple):
    """One part of the arguments. `name` is empty for an object of several arguments."""

    name: str
    text: str
    kind: str
    """`json`, `diff`, or empty for plain text."""


def split_arguments(values: Mapping[str, Any]) -> Iterator[ArgumentPart]:
    """Makes a separate part of each multi-line text and one part of the rest."""
    long = {name: value for name, value in values.items() if isinstance(value, str) and "\n" in value}
    short = {name: value for name, value in values.items() if name not in long and name not in _HIDDEN_ARGUMENTS}
    if short:
        yield ArgumentPart("", json.dumps(short, indent=2, ensure_ascii=False, default=str), "json")
    for name, text in long.items():
        yield ArgumentPart(name, text, "diff" if name == "diff" else "")
