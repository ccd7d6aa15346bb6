"""What a search is asked and how its finds are told, for both who search: ripgrep, and our own in `find_lines`."""

import os
from collections.abc import Iterable, Iterator
from pathlib import PurePath

from msgspec import Struct

COMPARED_BYTES = 200
"""As much of a found line as is told with it."""
_LONGEST_RECORD = 64 * 1024

_NOISE = (b": binary file matches (found ", b": WARNING: stopped searching binary file after match (found ")


class LineQuery(Struct, frozen=True):
    pattern: str
    start: str
    """A folder or a file below the workspace, links resolved."""
    glob: str | None
    case_sensitive: bool
    most_results: int


class LineMatch(Struct, frozen=True):
    """A line that matched, by whoever searched. It is only believed when the file itself says the same."""

    path: str
    line: int
    column: int
    """In bytes, from 1."""
    offset: int
    """Of the line's first byte."""
    beginning: bytes


def has_repository(root: str) -> bool:
    folder = PurePath(os.path.realpath(root))
    return any(os.path.lexists(above / ".git") for above in (folder, *folder.parents))


def encode_match(find: LineMatch) -> bytes:
    return b"./%b\0%d:%d:%d:%b\n" % (os.fsencode(find.path), find.line, find.column, find.offset, find.beginning)


def parse_matches(chunks: Iterable[bytes]) -> Iterator[LineMatch]:
    """From `path NUL line:column:offset:text LF`. A path may hold a newline, a text cannot."""
    waiting = bytearray()
    for chunk in chunks:
        waiting += chunk
        while (path_end := waiting.find(0)) >= 0 and (end := waiting.find(b"\n", path_end)) >= 0:
            find = _parse_match(bytes(waiting[:path_end]), bytes(waiting[path_end + 1 : end]))
            del waiting[: end + 1]
            if find is not None:
                yield find
        if len(waiting) > _LONGEST_RECORD:
            return


def _parse_match(path: bytes, rest: bytes) -> LineMatch | None:
    # A remark about a binary file stands on a line of its own, so before the next path.
    while any(noise in path.partition(b"\n")[0] for noise in _NOISE) and b"\n" in path:
        path = path.partition(b"\n")[2]
    line, column, offset, beginning = rest.split(b":", 3)
    if not path.startswith(b"./"):
        return None
    return LineMatch(
        path=os.path.normpath(os.fsdecode(path)),
        line=int(line),
        column=int(column),
        offset=int(offset),
        beginning=beginning.removesuffix(b"\r"),
    )
