"""Lists a folder of the run's folder. However large it is, only as many names as are told are held in memory."""

import heapq
import os
import stat
from collections.abc import Iterator
from functools import partial

from msgspec import Struct

from switchtower.tools.files import scope
from switchtower.tools.running import leash
from switchtower.tools.workbench import paths, text

LIST_LIMIT = 500
_BETWEEN_LOOKS = 1024


class Entry(Struct, frozen=True):
    name: str
    is_dir: bool
    size_bytes: int | None
    """Of regular files only. A link is neither a folder nor a file here: where it leads may be nobody's business."""


class ListResult(Struct, frozen=True):
    path: str
    entries: list[Entry]
    truncated: bool


async def list_folder(cwd: str, path: str = ".") -> ListResult:
    """Folders first, then by name."""
    return await leash.lead(None, partial(_list, cwd, path or "."))


def _list(cwd: str, path: str, held: leash.Leash) -> ListResult:
    with paths.located(cwd, path) as place:
        folder = scope.open_folder(place)
        try:
            with os.scandir(folder) as scanned:
                first = heapq.nsmallest(LIST_LIMIT + 1, _watched(scanned, held), key=_order)
                entries = [_entry(entry) for entry in first[:LIST_LIMIT]]
        finally:
            os.close(folder)
    return ListResult(path, entries, len(first) > LIST_LIMIT)


def _watched(scanned: Iterator[os.DirEntry[str]], held: leash.Leash) -> Iterator[os.DirEntry[str]]:
    for number, entry in enumerate(scanned):
        if number % _BETWEEN_LOOKS == 0:
            held.check()
        yield entry


def _order(entry: os.DirEntry[str]) -> tuple[bool, str]:
    return not entry.is_dir(follow_symlinks=False), entry.name


def _entry(entry: os.DirEntry[str]) -> Entry:
    try:
        status = entry.stat(follow_symlinks=False)
    except OSError:
        size = None  # gone since
    else:
        size = status.st_size if stat.S_ISREG(status.st_mode) else None
    return Entry(text.of_name(entry.name), entry.is_dir(follow_symlinks=False), size)
