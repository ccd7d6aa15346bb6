"""Searches the run's folder for lines that match, with ripgrep where it is installed and with our own search otherwise.

The query is a regular expression; an invalid one is searched as plain text. It is never an option, and each match that a searcher
reports is read again through `scope`: a link that changes meanwhile shows nothing.
"""

import asyncio
import os
import re
from contextlib import suppress
from functools import partial

from msgspec import Struct

from switchtower.tools import outcome, safe_text
from switchtower.tools.files import scope
from switchtower.tools.processes import cancellation
from switchtower.tools.remote_ops import paths
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
            raise paths.OperationRefused("the search took too long") from None
        is_complete = False
    return SearchResult(matches[:MOST_MATCHES], not is_complete)


def _check(q: str) -> None:
    if not q:
        raise paths.OperationRefused("query is empty")
    if len(q) > _LONGEST_QUERY:
        raise paths.OperationRefused("query is too long")
    if "\0" in q or "\n" in q:
        raise paths.OperationRefused("query contains a null character or a newline")
    try:
        q.encode()
    except UnicodeEncodeError:
        raise paths.OperationRefused("query is not valid Unicode") from None


def _search(cwd: str, q: str, matches: list[SearchMatch], cancel_scope: cancellation.CancelScope) -> bool:
    """Returns whether those were all."""
    paths.check_folder_exists(cwd)
    with paths.translate_errors():
        for pattern in (q, _SPECIAL.sub(r"\\\g<0>", q)):
            with suppress(_InvalidPattern):
                return _search_pattern(cwd, pattern, matches, cancel_scope)
    raise paths.OperationRefused("the query cannot be searched")


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
            raise paths.OperationRefused("the search broke off")
    return True


def _verify_match(cwd: str, find: line_search.LineMatch) -> SearchMatch | None:
    """Returns the line as the file itself has it, or None when it does not, or may not be read."""
    with suppress(OSError, outcome.ToolFailed, paths.OperationRefused), scope.locate(cwd, find.path) as place:
        file = paths.open_to_read(place)
        try:
            is_start = not find.offset or os.pread(file, 1, find.offset - 1) == b"\n"
            line = os.pread(file, _LONGEST_LINE + 2, find.offset).partition(b"\n")[0].removesuffix(b"\r")
        finally:
            os.close(file)
        if is_start and line[: line_search.COMPARED_BYTES] == find.beginning[: line_search.COMPARED_BYTES]:
            shown, is_cut = safe_text.truncate_text(line, _LONGEST_LINE, errors="replace")
            return SearchMatch(safe_text.decode_name(find.path), find.line, find.column, f"{shown}…" if is_cut else shown)
    return None
