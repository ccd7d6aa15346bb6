"""Code fences of Markdown: made so that nothing inside can end them, and found in what a model says. Pure.

Texts come here plain: a line ends with a line feed and nothing else.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

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
