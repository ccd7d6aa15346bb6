"""Converts the colours and attributes of a cell from a program's SGR sequence, and back into one."""

import functools
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


"""The most characters that are read of a row, or of a question wrapped over several: the cost of patterns grows with the
length.
"""
