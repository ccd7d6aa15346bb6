"""Code fences of Markdown: made so that nothing inside can end them, and found in what a model says. Pure.

Texts come here plain: a line ends with a line feed and nothing else.

What stands above a document: which session it is, and when and where it worked. Pure.

A call's arguments and an approval's details, as pieces that are shown each in its own way. Pure."""

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
    """The text between fences that are longer than any row of backticks in it."""
    marks = "`" * max(3, 1 + max(map(len, _BACKTICKS.findall(text)), default=0))
    end = "" if text.endswith("\n") or not text else "\n"
    return f"{marks}{_INFO.sub('', info)}\n{text}{end}{marks}"


def format_code_span(text: str) -> str:
    """On one line, as code; also where there are backticks in it."""
    flat = " ".join(text.split())
    if not flat:
        return ""
    marks = "`" * (1 + max(map(len, _BACKTICKS.findall(flat)), default=0))
    return f"{marks} {flat} {marks}" if flat[0] == "`" or flat[-1] == "`" else f"{marks}{flat}{marks}"


def split_fences(text: str) -> Iterator[MarkdownPart]:
    """Prose and code in turn. A fence that is never closed ends with the text."""
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


def _is_closing(line: str, opening: str) -> bool:
    """As CommonMark has it: the same mark, at least as often, and nothing behind it."""
    stripped = line.strip(" \t")
    indent = len(line) - len(line.lstrip(" "))
    return indent <= 3 and len(stripped) >= len(opening) and set(stripped) == {opening[0]}


def format_title(session_id: str, about: extension_messages.SessionInfo | None) -> str:
    return (to_plain_line(about.title) if about is not None else "") or f"Session {session_id}"


def list_facts(session_id: str, about: extension_messages.SessionInfo | None) -> list[tuple[str, str]]:
    """Names and values. An older daemon tells nothing but the id."""
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
    """In UTC: a document is read elsewhere. What no clock can have shown is told as the number it is."""
    try:
        return f"{datetime.datetime.fromtimestamp(ms / 1000, datetime.UTC):%Y-%m-%d %H:%M:%S} UTC"
    except (ValueError, OverflowError, OSError):
        return str(ms)


_HIDDEN_ARGUMENTS = ("always", "destructive")


class ArgumentPart(NamedTuple):
    """`name` is empty for what is one object of several arguments."""

    name: str
    text: str
    kind: str
    """`json`, `diff`, or empty for text as it is."""


def split_arguments(values: Mapping[str, Any]) -> Iterator[ArgumentPart]:
    """What has several lines is a text of its own; the rest stays together."""
    long = {name: value for name, value in values.items() if isinstance(value, str) and "\n" in value}
    short = {name: value for name, value in values.items() if name not in long and name not in _HIDDEN_ARGUMENTS}
    if short:
        yield ArgumentPart("", json.dumps(short, indent=2, ensure_ascii=False, default=str), "json")
    for name, text in long.items():
        yield ArgumentPart(name, text, "diff" if name == "diff" else "")
