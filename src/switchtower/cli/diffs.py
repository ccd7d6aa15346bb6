"""The colours of a unified diff's lines. Pure."""

from collections.abc import Iterator

from switchtower.client import diffs

_DIFF_COLOURS: dict[diffs.DiffPart | None, str] = {
    "head": "dim",
    "hunk": "cyan",
    "added": "green",
    "removed": "red",
    "note": "dim",
}


def colour_lines(diff: str) -> Iterator[tuple[str, str | None]]:
    return ((line, _DIFF_COLOURS.get(part)) for line, part in diffs.classify_lines(diff))
