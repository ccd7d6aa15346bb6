"""A unified diff line by line, with the part that each plays. Pure; in which colour that is shown, front ends say."""

from collections.abc import Iterator
from typing import Literal

Part = Literal["head", "hunk", "added", "removed", "note"]

_BEFORE_THE_HUNKS = (
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
_PARTS: dict[str, Part] = {"@": "hunk", "+": "added", "-": "removed", "\\": "note"}


def lines(diff: str) -> Iterator[tuple[str, Part | None]]:
    """Inside of a hunk `--- x` is a line that was `-- x`, and plays that part. None is what has not changed."""
    in_hunk = False
    for line in diff.removesuffix("\n").split("\n"):
        if line.startswith("@@"):
            in_hunk = True
        elif line.startswith("diff "):
            in_hunk = False
        if not in_hunk and line.startswith(_BEFORE_THE_HUNKS):
            yield line, "head"
        else:
            yield line, _PARTS.get(line[:1]) if in_hunk else None
