"""Rows as plain columns, for people and for `awk`. Pure.

Rows of the daemon's listings of users, tokens and hosts, for people. Pure."""

import datetime
from collections.abc import Mapping, Sequence

from switchtower.presentation import formats


def format_rows(cells: Sequence[Sequence[str]]) -> list[str]:
    """Each row on one line, its columns under each other; the last column is as long as it likes."""
    flat = [[" ".join(cell.splitlines()) for cell in row] for row in cells]
    widths = [max(map(len, column)) for column in zip(*flat, strict=True)][:-1]
    return ["  ".join([*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[-1]]).rstrip() for row in flat]


def format_fields(pairs: Sequence[tuple[str, str]]) -> list[str]:
    """A name and its value a line; a value of several lines goes on under its first."""
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
    """Seconds since 1970, from a time as relay spells it or from milliseconds."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return value / 1_000
    if isinstance(value, str):
        try:
            moment = datetime.datetime.fromisoformat(value)
        except ValueError:
            return None
        return moment.replace(tzinfo=moment.tzinfo or datetime.UTC).timestamp()
    return None
