"""A unified diff as lines with colours, and small diffs made from what a tool was asked to write."""

from collections.abc import Iterator

from rich.text import Text

from switchtower.client import diffs

_STYLES: dict[diffs.DiffPart | None, str] = {"head": "dim", "hunk": "hunk", "added": "added", "removed": "removed", "note": "dim"}


def paint_diff(diff: str) -> Iterator[Text]:
    return (Text(line, _STYLES.get(part, "")) for line, part in diffs.classify_lines(diff))


def diff_edit(old: str, new: str) -> list[str]:
    """What an edit replaces and by what, line by line."""
    from difflib import ndiff

    old_lines, new_lines = old.split("\n"), new.split("\n")
    if len(old_lines) * len(new_lines) > 40_000:  # comparing would take longer than reading
        return [f"- {line}" for line in old_lines] + [f"+ {line}" for line in new_lines]
    return [line for line in ndiff(old_lines, new_lines) if not line.startswith("? ")]


def paint_marked_lines(rows: list[str]) -> Iterator[Text]:
    """Lines that begin with their mark."""
    for row in rows:
        yield Text(row, {"+": "added", "-": "removed"}.get(row[:1], ""))
