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
_ENTRIES_PER_CHECK = 1024


class ListEntry(Struct, frozen=True):
    name: str
    is_dir: bool
    size_bytes: int | None
    """Of regular files only. A link is neither a folder nor a file here: where it leads may be nobody's business."""


class ListResult(Struct, frozen=True):
    path: str
    entries: list[ListEntry]
    truncated: bool


async def list_folder(cwd: str, path: str = ".") -> ListResult:
    """Folders first, then by name."""
    return await leash.run_in_cancel_scope(None, partial(_list, cwd, path or "."))


def _list(cwd: str, path: str, cancel_scope: leash.CancelScope) -> ListResult:
    with paths.locate_path(cwd, path) as place:
        folder = scope.open_folder(place)
        try:
            with os.scandir(folder) as scanned:
                first = heapq.nsmallest(LIST_LIMIT + 1, _iterate_checked(scanned, cancel_scope), key=_make_sort_key)
                entries = [_make_entry(entry) for entry in first[:LIST_LIMIT]]
        finally:
            os.close(folder)
    return ListResult(path, entries, len(first) > LIST_LIMIT)


def _iterate_checked(scanned: Iterator[os.DirEntry[str]], cancel_scope: leash.CancelScope) -> Iterator[os.DirEntry[str]]:
    for number, entry in enumerate(scanned):
        if number % _ENTRIES_PER_CHECK == 0:
            cancel_scope.raise_if_cancelled()
        yield entry


def _make_sort_key(entry: os.DirEntry[str]) -> tuple[bool, str]:
    return not entry.is_dir(follow_symlinks=False), entry.name


def _make_entry(entry: os.DirEntry[str]) -> ListEntry:
    try:
        status = entry.stat(follow_symlinks=False)
    except OSError:
        size = None  # gone since
    else:
        size = status.st_size if stat.S_ISREG(status.st_mode) else None
    return ListEntry(text.decode_name(entry.name), entry.is_dir(follow_symlinks=False), size)
