"""Rows of a screen as plain text: without boxes, shortened, and measured in the terminal's cells.

Converts the colours and attributes of a cell from a program's SGR sequence, and back into one."""

import functools
import re
import textwrap
import unicodedata
from collections.abc import Sequence
from typing import Any

from pyte import graphics, screens

_BASIC = ("black", "red", "green", "brown", "blue", "magenta", "cyan", "white")
_NAMES = (*_BASIC, *(f"bright{name}" for name in _BASIC))
_FLAGS = {
    1: ("bold", True),
    3: ("italics", True),
    4: ("underscore", True),
    5: ("blink", True),
    7: ("reverse", True),
    9: ("strikethrough", True),
    21: ("underscore", True),
    22: ("bold", False),
    23: ("italics", False),
    24: ("underscore", False),
    25: ("blink", False),
    27: ("reverse", False),
    29: ("strikethrough", False),
}
_ON = {name: code for code, (name, on) in _FLAGS.items() if on and code != 21}

PLAIN = screens.Char(" ")
FIELDS_LIMIT = 64


def parse_sgr(attributes: screens.Char, params: str) -> screens.Char:
    """Returns the attributes after the SGR sequence with these parameters; unknown ones change nothing."""
    if params in ("", "0"):
        return PLAIN
    return _remembered(attributes, params) if len(params) < 40 else _apply_parameters(attributes, params)


def _apply_parameters(attributes: screens.Char, params: str) -> screens.Char:
    changes: dict[str, Any] = {}
    fields = params.split(";")[:FIELDS_LIMIT]
    while fields:
        field, *detail = fields.pop(0).split(":")
        code = _parse_number(field)
        if code == 0:
            attributes, changes = PLAIN, {}
        elif code == 4 and detail:
            changes["underscore"] = _parse_number(detail[0]) != 0
        elif code in _FLAGS:
            name, on = _FLAGS[code]
            changes[name] = on
        elif code in (38, 48, 58):
            colour = _parse_extended_color(detail) if detail else _parse_extended_color(fields, taken=fields)
            if colour and code != 58:
                changes["fg" if code == 38 else "bg"] = colour
        elif code in (39, 49):
            changes["fg" if code == 39 else "bg"] = "default"
        elif code // 10 in (3, 4) and code % 10 < 8:
            changes["fg" if code < 40 else "bg"] = _NAMES[code % 10]
        elif code // 10 in (9, 10) and code % 10 < 8:
            changes["fg" if code < 100 else "bg"] = _NAMES[8 + code % 10]
    return attributes._replace(**changes) if changes else attributes


_remembered = functools.lru_cache(maxsize=512)(_apply_parameters)


def _parse_extended_color(fields: list[str], *, taken: list[str] | None = None) -> str | None:
    """Parses `5;N` or `2;R;G;B`, or the same with colons, where a colour space may come first."""
    kind = _parse_number(fields[0]) if fields else 0
    size = {5: 2, 2: 4}.get(kind, 1)
    values = [_parse_number(field) for field in fields[1:]]
    if taken is not None:
        values = values[: size - 1]
        del taken[:size]
    if kind == 5 and values and values[0] < 256:
        return _NAMES[values[0]] if values[0] < 16 else graphics.FG_BG_256[values[0]]
    if kind == 2 and len(values) >= 3 and max(values[-3:]) < 256:
        return "".join(f"{value:02x}" for value in values[-3:])
    return None


def _parse_number(field: str) -> int:
    return int(field) if 0 < len(field) <= 4 and field.isdecimal() else 0


def format_sgr(attributes: screens.Char) -> str:
    """Returns the SGR sequence that gives exactly these attributes, whatever was set before."""
    codes = ["0"]
    codes += [str(code) for name, code in _ON.items() if getattr(attributes, name)]
    codes += _format_color(attributes.fg, basic=30, bright=90, extended=38)
    codes += _format_color(attributes.bg, basic=40, bright=100, extended=48)
    return f"\x1b[{';'.join(codes)}m"


def _format_color(name: str, *, basic: int, bright: int, extended: int) -> list[str]:
    if name == "default":
        return []
    if name in _NAMES:
        index = _NAMES.index(name)
        return [str(basic + index if index < 8 else bright + index - 8)]
    red, green, blue = (int(name[at : at + 2], 16) for at in (0, 2, 4))
    return [f"{extended};2;{red};{green};{blue}"]


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
