"""A unified diff as lines with colours, and small diffs made from what a tool was asked to write."""

from collections.abc import Iterator

from rich.text import Text

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
_STYLES = {"@": "hunk", "+": "added", "-": "removed", "\\": "dim"}


def lines(diff: str) -> Iterator[Text]:
    """Inside of a hunk `--- x` is a line that was `-- x`, and is coloured so."""
    in_hunk = False
    for line in diff.removesuffix("\n").split("\n"):
        if line.startswith("@@"):
            in_hunk = True
        elif line.startswith("diff "):
            in_hunk = False
        if not in_hunk and line.startswith(_BEFORE_THE_HUNKS):
            yield Text(line, "dim")
        else:
            yield Text(line, _STYLES.get(line[:1], "") if in_hunk else "")


def of_edit(old: str, new: str) -> list[str]:
    """What an edit replaces and by what, line by line."""
    from difflib import ndiff

    old_lines, new_lines = old.split("\n"), new.split("\n")
    if len(old_lines) * len(new_lines) > 40_000:  # comparing would take longer than reading
        return [f"- {line}" for line in old_lines] + [f"+ {line}" for line in new_lines]
    return [line for line in ndiff(old_lines, new_lines) if not line.startswith("? ")]


def marked(rows: list[str]) -> Iterator[Text]:
    """Lines that begin with their mark."""
    for row in rows:
        yield Text(row, {"+": "added", "-": "removed"}.get(row[:1], ""))
