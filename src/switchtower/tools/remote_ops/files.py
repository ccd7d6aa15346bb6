"""Lists, reads and writes files of the run's folder. A listing holds only as many names in memory as it returns, a read returns a
bounded text, and a write is atomic and can be previewed.

Searches the run's folder for lines that match, with ripgrep where it is installed and with our own search otherwise.

The query is a regular expression; an invalid one is searched as plain text. It is never an option, and each match that a searcher
reports is read again through `scope`: a link that changes meanwhile shows nothing."""

import asyncio
import heapq
import os
import re
import stat
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from typing import Any

from msgspec import Struct

from switchtower.tools import concurrency, outcome, safe_text
from switchtower.tools.files import atomic_write, scope
from switchtower.tools.processes import cancellation
from switchtower.tools.remote_ops import host
from switchtower.tools.search import line_search, workspace_search

MOST_MATCHES = 200
SEARCH_TIME = 20.0
_LONGEST_QUERY = 1000
_LONGEST_LINE = 500
"""The most bytes of a line; only the start of a longer one is shown."""
_PASSED_ON = ("PATH", "LD_LIBRARY_PATH")
_SPECIAL = re.compile(r"[\\.+*?()|\[\]{}^$]")
"""`re.escape` is not used: ripgrep does not support an escaped space."""


class SearchMatch(Struct, frozen=True):
    path: str
    line: int
    column: int
    """The column in bytes, from 1, as ripgrep counts."""
    text: str


class SearchResult(Struct, frozen=True):
    matches: list[SearchMatch]
    truncated: bool


async def search_folder(cwd: str, q: str, *, run_id: str | None = None, seconds: float = SEARCH_TIME) -> SearchResult:
    """Matches that were found when the time was over are returned as a truncated result. With a run's id, the search process is
    identified as the run's after a crash of the daemon.
    """
    _check(q)
    matches: list[SearchMatch] = []
    try:
        async with asyncio.timeout(seconds) as limit:
            is_complete = await cancellation.run_in_cancel_scope(run_id, partial(_search, cwd, q, matches))
    except TimeoutError:
        if not limit.expired():
            raise
        if not matches:
            raise host.OperationRefused("the search took too long") from None
        is_complete = False
    return SearchResult(matches[:MOST_MATCHES], not is_complete)


def _check(q: str) -> None:
    if not q:
        raise host.OperationRefused("query is empty")
    if len(q) > _LONGEST_QUERY:
        raise host.OperationRefused("query is too long")
    if "\0" in q or "\n" in q:
        raise host.OperationRefused("query contains a null character or a newline")
    try:
        q.encode()
    except UnicodeEncodeError:
        raise host.OperationRefused("query is not valid Unicode") from None


def _search(cwd: str, q: str, matches: list[SearchMatch], cancel_scope: cancellation.CancelScope) -> bool:
    """Returns whether those were all."""
    host.check_folder_exists(cwd)
    with host.translate_errors():
        for pattern in (q, _SPECIAL.sub(r"\\\g<0>", q)):
            with suppress(_InvalidPattern):
                return _search_pattern(cwd, pattern, matches, cancel_scope)
    raise host.OperationRefused("the query cannot be searched")


class _InvalidPattern(Exception):
    """The pattern is not a regular expression, or one that is too large."""


def _search_pattern(cwd: str, pattern: str, matches: list[SearchMatch], cancel_scope: cancellation.CancelScope) -> bool:
    query = line_search.LineQuery(pattern=pattern, start=".", glob=None, case_sensitive=True, most_results=MOST_MATCHES)
    rg = workspace_search.find_ripgrep()
    argv = workspace_search.build_arguments(rg, query, root=cwd) if rg else line_search.build_command(cwd, query)
    env = {name: os.environ[name] for name in _PASSED_ON if name in os.environ} | {"LC_ALL": "C.UTF-8"}
    with cancel_scope.start_program(argv, cwd=cwd, env=env) as program:
        for find in line_search.parse_matches(program.read_output()):
            match = _verify_match(cwd, find)
            if match is not None and len(matches) == MOST_MATCHES:
                return False
            if match is not None:
                matches.append(match)
        # Without a message, 1 means "nothing found" and 2 "a file could not be opened".
        if program.exit_code == 2 and program.error_text:
            raise _InvalidPattern
        if program.exit_code > 2 or (program.exit_code == 1 and program.error_text):
            raise host.OperationRefused("the search broke off")
    return True


def _verify_match(cwd: str, find: line_search.LineMatch) -> SearchMatch | None:
    """Returns the line as the file itself has it, or None when it does not, or may not be read."""
    with suppress(OSError, outcome.ToolFailed, host.OperationRefused), scope.locate(cwd, find.path) as place:
        file = host.open_to_read(place)
        try:
            is_start = not find.offset or os.pread(file, 1, find.offset - 1) == b"\n"
            line = os.pread(file, _LONGEST_LINE + 2, find.offset).partition(b"\n")[0].removesuffix(b"\r")
        finally:
            os.close(file)
        if is_start and line[: line_search.COMPARED_BYTES] == find.beginning[: line_search.COMPARED_BYTES]:
            shown, is_cut = safe_text.truncate_text(line, _LONGEST_LINE, errors="replace")
            return SearchMatch(safe_text.decode_name(find.path), find.line, find.column, f"{shown}…" if is_cut else shown)
    return None


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
    with host.locate_path(cwd, path) as place:
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
    with host.locate_path(cwd, path) as place:
        host.refuse_all_but_files(path, place)
        with os.fdopen(host.open_to_read(place), "rb") as stream:
            piece = stream.read(READ_LIMIT + 1)
    try:
        content, is_cut = safe_text.truncate_text(piece, READ_LIMIT, errors="strict")
    except UnicodeDecodeError:
        raise host.OperationRefused(host.NOT_TEXT) from None
    if "\0" in content:
        raise host.OperationRefused(host.NOT_TEXT)
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
    host.check_path(cwd, path)
    if path.endswith(("/", "/.")):
        raise host.OperationRefused(host.IS_A_FOLDER)
    with host.translate_errors():
        try:
            with scope.locate(cwd, path) as place:
                host.refuse_all_but_files(path, place)
        except FileNotFoundError:
            return  # its folders are made when it is written


def _encode(content: str) -> bytes:
    try:
        encoded = content.encode()
    except UnicodeEncodeError:
        raise host.OperationRefused("content is not valid Unicode") from None
    if len(encoded) > WRITE_LIMIT:
        raise host.OperationRefused(host.TOO_LARGE)
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
    host.check_path(cwd, path)
    if path.endswith(("/", "/.")):
        raise host.OperationRefused(host.IS_A_FOLDER)  # before its folders are made
    with host.locate_path(cwd, path, make_folders=True) as place:
        host.refuse_all_but_files(path, place)
        atomic_write.replace_file(place, encoded, permit=permit)
    return WriteResult(path, len(encoded))


async def _consume_exception(changing: asyncio.Task[WriteResult]) -> None:
    await asyncio.wait([changing])
    if not changing.cancelled():
        changing.exception()  # retrieved, so that asyncio does not report it as never retrieved


def _replace_surrogates(shown: str) -> str:
    return shown.encode(errors="replace").decode()
