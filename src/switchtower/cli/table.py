"""Rows as plain columns, for people and for `awk`. Pure."""

from collections.abc import Sequence


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
