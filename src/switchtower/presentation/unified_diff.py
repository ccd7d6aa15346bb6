"""A unified diff line by line, with the part that each plays. Pure; in which colour that is shown, front ends say.

The colours of a unified diff's lines. Pure."""

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
    """Inside of a hunk `--- x` is a line that was `-- x`, and plays that part. None is what has not changed."""
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
