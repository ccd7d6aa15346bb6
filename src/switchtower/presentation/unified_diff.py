"""Classifies the lines of a unified diff, and names a colour for each class. Pure."""

from collections.abc import Iterator
from typing import Literal

DiffPart = Literal["head", "hunk", "added", "removed", "note"]

_HEADER_PREFIXES = (
    "diff ",
    "index ",
    "--- ",
    "+++ ",
    "new file",
    "deleted file",
    "old mode",
    "new mode",
    "rename ",
    "similarity ",
)
_PARTS_BY_PREFIX: dict[str, DiffPart] = {"@": "hunk", "+": "added", "-": "removed", "\\": "note"}


def classify_lines(diff: str) -> Iterator[tuple[str, DiffPart | None]]:
    """Yields each line with its part; None for an unchanged line. Inside a hunk, `--- x` is a removed line `-- x`, not a
    header."""
    in_hunk = False
    for line in diff.removesuffix("\n").split("\n"):
        if line.startswith("@@"):
            in_hunk = True
        elif line.startswith("diff "):
            in_hunk = False
        if not in_hunk and line.startswith(_HEADER_PREFIXES):
            yield line, "head"
        else:
            yield line, _PARTS_BY_PREFIX.get(line[:1]) if in_hunk else None


_DIFF_COLOURS: dict[DiffPart | None, str] = {
    "head": "dim",
    "hunk": "cyan",
    "added": "green",
    "removed": "red",
    "note": "dim",
}


def colour_lines(diff: str) -> Iterator[tuple[str, str | None]]:
    return ((line, _DIFF_COLOURS.get(part)) for line, part in classify_lines(diff))
