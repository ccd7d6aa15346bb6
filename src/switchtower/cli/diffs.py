"""The colours of a unified diff's lines. Pure."""

from collections.abc import Iterator

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
_COLOURS = {"@": "cyan", "+": "green", "-": "red", "\\": "dim"}


def lines(diff: str) -> Iterator[tuple[str, str | None]]:
    """Each line with its colour. Inside of a hunk `--- x` is a line that was `-- x`, and is coloured so."""
    in_hunk = False
    for line in diff.removesuffix("\n").split("\n"):
        if line.startswith("@@"):
            in_hunk = True
        elif line.startswith("diff "):
            in_hunk = False
        if not in_hunk and line.startswith(_BEFORE_THE_HUNKS):
            yield line, "dim"
        else:
            yield line, _COLOURS.get(line[:1]) if in_hunk else None
