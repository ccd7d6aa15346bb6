"""Rows of a screen as plain text: without boxes, shortened, and measured in the terminal's cells."""

import re
import textwrap
import unicodedata
from collections.abc import Sequence

PROMPT_LIMIT = 200
DETAILS_LIMIT = 16_000
ROW_LIMIT = 600
"""The most characters that are read of a row, or of a question wrapped over several: the cost of patterns grows with the
length.
"""

_BOX = re.compile(r"[\u2500-\u259f]+")
_EDGES = re.compile(r"^\s*[│┃║▌▐|]\s?|\s?[│┃║▌▐|]\s*$")
_DRAWN = re.compile(r"^[\s\u2500-\u259f]+$")
_BORDER = re.compile(r"^\s*[╭╰┌└╔╚┏┗├╞╠][─━═].*[─━═]?[╮╯┐┘╗╝┓┛┤╡╣]\s*$")
_CORNERS = re.compile(r"^(\s*)[╭┌╔┏][─━═╌┄]+[╮┐╗┓]\s*$")
_FULL = re.compile(r"^[─━═▔]+$")
_LEAST_FULL = 40
_SIGN = re.compile(r"^(?:\?|[\u25a0-\u27bf])\s+(?=\S)")


def extract_labels(option: re.Pattern[str], text: str) -> list[str]:
    """Returns the labels: the named group of the pattern that matched, or the whole match when there is none."""
    found = option.finditer(text) if text else ()
    return [shorten(next((group for group in match.groupdict().values() if group), match.group())) for match in found]


def strip_boxes(line: str) -> str:
    return _BOX.sub(" ", line).rstrip() if _BOX.search(line) else line.rstrip()


def strip_box(line: str) -> str:
    """Returns a row without the box around it; empty for a row that is only a part of the box."""
    return "" if _DRAWN.match(line) or _BORDER.match(line) else strip_boxes(_EDGES.sub("", line))


def is_full_divider(line: str, columns: int | None) -> bool:
    """Returns whether the row is a line from the first column to the last. Text of a model is indented and cannot be one."""
    return bool(_FULL.match(line)) and len(line) >= (columns or _LEAST_FULL)


def strip_dialog_box(rows: Sequence[str], edge: int | None) -> list[str]:
    """Returns the text of a dialog's rows: without its own box, whose left edge is in this column, and without a box inside of
    it. The other contents of a row stay unchanged.
    """
    found: list[str] = []
    inside: tuple[int, int] | None = None
    for row in rows:
        text = row if edge is None else _strip_edges(row, edge)
        if opened := _CORNERS.match(text):
            inside = len(opened[1]), len(text.rstrip()) - 1
        elif inside is not None and text[inside[0] : inside[0] + 1] in tuple("│┃║"):
            text = text[: inside[0]] + " " + text[inside[0] + 1 : inside[1]].rstrip()
        if not text.strip() or not (_DRAWN.match(text) or _BORDER.match(text)):
            found.append(text.rstrip())
    return found


def _strip_edges(row: str, edge: int) -> str:
    left = row[edge : edge + 1]
    if left not in tuple("│┃║▌▐|"):
        return row
    # A bar has no right edge: the row's end is text.
    text = row[edge + 1 :].rstrip()
    return text.removesuffix(left) if left in "│║|" else text


def shorten(text: str) -> str:
    text = " ".join(_BOX.sub(" ", text).split())
    return text if len(text) <= PROMPT_LIMIT else "…" + text[1 - PROMPT_LIMIT :]


def summarize(text: str) -> str:
    """Returns the start of the text, on one line."""
    text = " ".join(text.split())
    return text if len(text) <= PROMPT_LIMIT else text[: PROMPT_LIMIT - 1] + "…"


def clean_question(text: str) -> str:
    """Shortens the question, and removes the sign that a tool draws before its questions (`?`, `△`)."""
    return _SIGN.sub("", shorten(text))


def join_rows(rows: Sequence[str]) -> str:
    """Joins the rows without their common margin; several blank rows become one."""
    return re.sub(r"\n{3,}", "\n\n", textwrap.dedent("\n".join(row.rstrip() for row in rows)).strip("\n"))


def format_details(rows: Sequence[str]) -> str:
    text = join_rows(rows)
    return text if len(text) <= DETAILS_LIMIT else text[: DETAILS_LIMIT - 1] + "…"


def _measure_cell(char: str) -> int:
    if unicodedata.combining(char) or unicodedata.category(char) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


def measure_width(line: str) -> int:
    return len(line) if line.isascii() else sum(map(_measure_cell, line))


def is_wrapped(line: str, rest: str, columns: int) -> bool:
    """Returns whether the terminal broke the line because it was full; a wide character leaves the last cell free."""
    return measure_width(line) >= columns - (_measure_cell(rest[0]) - 1 if rest else 0)


def join_wrapped(rows: Sequence[str], columns: int | None) -> list[str]:
    """Returns the rows; each that was wrapped at the last column is joined with the next one. Rows of a box stay unchanged."""
    lines: list[str] = []
    last = ""
    for row in rows:
        is_rest = bool(columns and last and row) and is_wrapped(last, row, columns or 0)
        if is_rest and not (row[0].isspace() or _BOX.match(row) or _BOX.match(last[-1])):
            lines[-1] += row
        else:
            lines.append(row)
        last = row
    return lines


def find_index(line: str, column: int) -> int:
    """Returns the index in the text for a column on the screen, where wide characters take two."""
    if line.isascii():
        return min(column, len(line))
    width = 0
    for at, char in enumerate(line):
        if width >= column and _measure_cell(char):
            return at
        width += _measure_cell(char)
    return len(line)
