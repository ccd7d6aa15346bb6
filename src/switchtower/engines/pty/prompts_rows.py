"""Rows of a screen as plain text: without boxes, shortened, and measured in the terminal's cells. Pure."""

import re
import textwrap
import unicodedata
from collections.abc import Sequence

PROMPT_LIMIT = 200
DETAILS_LIMIT = 2000
ROW_LIMIT = 600
"""Of a row, or of a question wrapped over several, no more is read: patterns cost by length."""

_BOX = re.compile(r"[\u2500-\u259f]+")
_SIGN = re.compile(r"^(?:\?|[\u25a0-\u27bf])\s+(?=\S)")


def labels(option: re.Pattern[str], text: str) -> list[str]:
    """A named group of the pattern, whichever matched, is the label; without one it is the whole match."""
    found = option.finditer(text) if text else ()
    return [short(next((group for group in match.groupdict().values() if group), match.group())) for match in found]


def plain(line: str) -> str:
    return _BOX.sub(" ", line).rstrip() if _BOX.search(line) else line.rstrip()


def short(text: str) -> str:
    text = " ".join(_BOX.sub(" ", text).split())
    return text if len(text) <= PROMPT_LIMIT else "…" + text[1 - PROMPT_LIMIT :]


def question(text: str) -> str:
    """Shortened, without the sign that a tool draws before its questions (`?`, `△`)."""
    return _SIGN.sub("", short(text))


def details(rows: Sequence[str]) -> str:
    text = textwrap.dedent("\n".join(row.rstrip() for row in rows)).strip("\n")
    text = re.sub(r"\n{3,}", "\n\n", text)
    return text if len(text) <= DETAILS_LIMIT else text[: DETAILS_LIMIT - 1] + "…"


def _cell_width(char: str) -> int:
    if unicodedata.combining(char) or unicodedata.category(char) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


def width(line: str) -> int:
    return len(line) if line.isascii() else sum(map(_cell_width, line))


def is_wrapped(line: str, rest: str, columns: int) -> bool:
    """Whether the terminal broke the line because it was full; a wide character leaves the last cell free."""
    return width(line) >= columns - (_cell_width(rest[0]) - 1 if rest else 0)


def index(line: str, column: int) -> int:
    """The place in the text of a column on the screen, where wide characters take two."""
    if line.isascii():
        return min(column, len(line))
    width = 0
    for at, char in enumerate(line):
        if width >= column and _cell_width(char):
            return at
        width += _cell_width(char)
    return len(line)
