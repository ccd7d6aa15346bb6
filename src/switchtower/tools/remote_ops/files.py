"""Lists, reads and writes files of the run's folder. A listing holds only as many names in memory as it returns, a read returns a
bounded text, and a write is atomic and can be previewed.
"""

import asyncio
import heapq
import os
import stat
from collections.abc import Iterator
from functools import partial
from typing import Any

from msgspec import Struct

from switchtower.tools import concurrency, safe_text
from switchtower.tools.files import atomic_write, scope
from switchtower.tools.processes import cancellation
from switchtower.tools.remote_ops import paths

LIST_LIMIT = 500
_ENTRIES_PER_CHECK = 1024


class ListEntry(Struct, frozen=True):
    name: str
    is_dir: bool
    size_bytes: int | None
    """The size of a regular file. A link counts as neither a folder nor a file here: its target may be private."""


class ListResult(Struct, frozen=True):
    path: str
    entries: list[ListEntry]
    truncated: bool


async def list_folder(cwd: str, path: str = ".") -> ListResult:
    """Lists folders first, then by name."""
    return await cancellation.run_in_cancel_scope(None, partial(_list, cwd, path or "."))


def _list(cwd: str, path: str, cancel_scope: cancellation.CancelScope) -> ListResult:
    with paths.locate_path(cwd, path) as place:
        folder = scope.open_folder(place)
        try:
            with os.scandir(folder) as scanned:
                first = heapq.nsmallest(LIST_LIMIT + 1, _iterate_checked(scanned, cancel_scope), key=_make_sort_key)
                entries = [_make_entry(entry) for entry in first[:LIST_LIMIT]]
        finally:
            os.close(folder)
    return ListResult(path, entries, len(first) > LIST_LIMIT)


def _iterate_checked(scanned: Iterator[os.DirEntry[str]], cancel_scope: cancellation.CancelScope) -> Iterator[os.DirEntry[str]]:
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
        size = None  # removed since
    else:
        size = status.st_size if stat.S_ISREG(status.st_mode) else None
    return ListEntry(safe_text.decode_name(entry.name), entry.is_dir(follow_symlinks=False), size)


READ_LIMIT = 1024 * 1024


class ReadResult(Struct, frozen=True):
    path: str
    content: str
    truncated: bool


async def read_file(cwd: str, path: str) -> ReadResult:
    return await concurrency.run_in_thread(_read, cwd, path)


def _read(cwd: str, path: str) -> ReadResult:
    with paths.locate_path(cwd, path) as place:
        paths.refuse_all_but_files(path, place)
        with os.fdopen(paths.open_to_read(place), "rb") as stream:
            piece = stream.read(READ_LIMIT + 1)
    try:
        content, is_cut = safe_text.truncate_text(piece, READ_LIMIT, errors="strict")
    except UnicodeDecodeError:
        raise paths.OperationRefused(paths.NOT_TEXT) from None
    if "\0" in content:
        raise paths.OperationRefused(paths.NOT_TEXT)
    return ReadResult(path, content, is_cut)


WRITE_LIMIT = 10 * 1024 * 1024


class WriteResult(Struct, frozen=True):
    path: str
    bytes_written: int


async def write_file(cwd: str, path: str, content: str) -> WriteResult:
    """Creates the file and the folders on the way, or replaces it; its mode stays. When it is cancelled, it has either happened
    or will not happen any more.
    """
    encoded = _encode(content)
    permit = atomic_write.WritePermit()
    changing = asyncio.create_task(concurrency.run_in_thread(_write, cwd, path, encoded, permit))
    try:
        await asyncio.wait([changing])
    except asyncio.CancelledError:
        if not (permit.withdraw() and changing.cancel()):
            await concurrency.run_to_completion(_consume_exception(changing))
        raise
    return changing.result()


async def check_write(cwd: str, path: str, content: str) -> None:
    """Raises `OperationRefused` for what `write_file` would refuse at the moment. Changes nothing."""
    _encode(content)
    await concurrency.run_in_thread(_check_place, cwd, path)


def _check_place(cwd: str, path: str) -> None:
    paths.check_path(cwd, path)
    if path.endswith(("/", "/.")):
        raise paths.OperationRefused(paths.IS_A_FOLDER)
    with paths.translate_errors():
        try:
            with scope.locate(cwd, path) as place:
                paths.refuse_all_but_files(path, place)
        except FileNotFoundError:
            return  # its folders are made when it is written


def _encode(content: str) -> bytes:
    try:
        encoded = content.encode()
    except UnicodeEncodeError:
        raise paths.OperationRefused("content is not valid Unicode") from None
    if len(encoded) > WRITE_LIMIT:
        raise paths.OperationRefused(paths.TOO_LARGE)
    return encoded


def preview_write(path: str, content: str) -> dict[str, Any]:
    """Returns relay's `op_args` for the approval request: complete, not redacted. Bytes are those of the content."""
    return {
        "path": _replace_surrogates(path),
        "content": _replace_surrogates(content),
        "bytes": len(content.encode(errors="surrogatepass")),
        "truncated": False,
    }


def _write(cwd: str, path: str, encoded: bytes, permit: atomic_write.WritePermit) -> WriteResult:
    paths.check_path(cwd, path)
    if path.endswith(("/", "/.")):
        raise paths.OperationRefused(paths.IS_A_FOLDER)  # before its folders are made
    with paths.locate_path(cwd, path, make_folders=True) as place:
        paths.refuse_all_but_files(path, place)
        atomic_write.replace_file(place, encoded, permit=permit)
    return WriteResult(path, len(encoded))


async def _consume_exception(changing: asyncio.Task[WriteResult]) -> None:
    await asyncio.wait([changing])
    if not changing.cancelled():
        changing.exception()  # retrieved, so that asyncio does not report it as never retrieved


def _replace_surrogates(shown: str) -> str:
    return shown.encode(errors="replace").decode()
