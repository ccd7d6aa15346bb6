"""Formats rows as plain columns for users and for `awk`, and the cells of the daemon's listings. Pure."""

import datetime
from collections.abc import Mapping, Sequence

from switchtower.presentation import formats


def format_rows(cells: Sequence[Sequence[str]]) -> list[str]:
    """Formats each row on one line with aligned columns; the last column may have any length."""
    flat = [[" ".join(cell.splitlines()) for cell in row] for row in cells]
    widths = [max(map(len, column)) for column in zip(*flat, strict=True)][:-1]
    return ["  ".join([*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[-1]]).rstrip() for row in flat]


def format_fields(pairs: Sequence[tuple[str, str]]) -> list[str]:
    """Formats one name and value per line; further lines of a value are indented under its first line."""
    width = max((len(name) for name, _ in pairs), default=0) + 1
    spelled = []
    for name, value in pairs:
        first, *more = value.splitlines() or [""]
        spelled.append(f"{name + ':':<{width}} {first}".rstrip())
        spelled += [f"{'':<{width}} {line}" for line in more]
    return spelled


def format_cell(row: Mapping[str, object], key: str) -> str:
    value = row.get(key)
    return "-" if value is None or value == "" else str(value)


def format_since(row: Mapping[str, object], key: str, *, now: float) -> str:
    moment = _parse_moment(row.get(key))
    return "never" if moment is None else f"{formats.format_age(now - moment)} ago"


def format_until(row: Mapping[str, object], key: str, *, now: float) -> str:
    moment = _parse_moment(row.get(key))
    return "-" if moment is None else f"in {formats.format_age(moment - now)}"


def _parse_moment(value: object) -> float | None:
    """Returns seconds since 1970, from relay's time format or from milliseconds."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return value / 1_000
    if isinstance(value, str):
        try:
            moment = datetime.datetime.fromisoformat(value)
        except ValueError:
            return None
        return moment.replace(tzinfo=moment.tzinfo or datetime.UTC).timestamp()
    return None
