"""The colours of a unified diff's lines. Pure."""

from collections.abc import Iterator

from switchtower.client import diffs

_COLOURS: dict[diffs.Part | None, str] = {"head": "dim", "hunk": "cyan", "added": "green", "removed": "red", "note": "dim"}


def lines(diff: str) -> Iterator[tuple[str, str | None]]:
    return ((line, _COLOURS.get(part)) for line, part in diffs.lines(diff))
