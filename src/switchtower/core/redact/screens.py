"""Redaction of a terminal's screen, which has a secret in rows of cells: what was wrapped is looked at as one text. Pure."""

import re
from collections.abc import Callable

from switchtower.core.redact.shapes import MARK

_SEQUENCE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[ -/]*[0-~])")
_ROW_START = re.compile(r"\x1b\[([0-9]{1,5});1H")

CellSpan = tuple[int, int]


def redact_screen(text: str, columns: int, find: Callable[[str], list[CellSpan]]) -> str:
    """The screen's text with a mark where a secret begins, and its other cells left out."""
    plain, places = _read_cells(text, columns)
    hidden = [(places[start], places[end - 1] + 1) for start, end in find(plain) if end > start]
    done, shown = 0, list[str]()
    for start, end in hidden:
        # Sequences between its cells stay: they say where the next row is.
        kept = "".join(_SEQUENCE.findall(text[start:end]))
        shown += (text[done:start], MARK, kept)
        done = end
    return "".join((*shown, text[done:])) if hidden else text


def _read_cells(text: str, columns: int) -> tuple[str, list[int]]:
    """What stands in the cells, a full row joined with the one below it, and where in the text each cell is."""
    plain, places, width, row, at = list[str](), list[int](), 0, 0, 0
    while at < len(text):
        if text[at] == "\x1b" and (sequence := _SEQUENCE.match(text, at)) is not None:
            if sequence[0][-1:] != "m":
                below = _ROW_START.fullmatch(sequence[0])
                number = int(below[1]) if below is not None else 0
                if width < columns or number != row + 1:
                    plain.append("\n")
                    places.append(at)
                width, row = 0, number
            at = sequence.end()
            continue
        plain.append(text[at])
        places.append(at)
        width = 0 if text[at] in "\r\n" else width + 1
        at += 1
    return "".join(plain), places
