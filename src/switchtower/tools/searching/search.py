"""Searches the workspace for lines that match a regular expression: by ripgrep where there is one, otherwise by
`find_lines`. Blocking; belongs on a thread.

Whoever searches only says where. What is shown is read here, through `scope`, and a find that the file itself does not
bear out is left aside: so a link that turns while ripgrep follows it gives nothing away.
"""

import os
import stat
from contextlib import suppress

from switchtower.tools import outcome, shown
from switchtower.tools.files import scope
from switchtower.tools.running import leash
from switchtower.tools.searching import find_lines, finding, ripgrep

MOST_RESULTS = 200
LONGEST_ANSWER = 32 * 1024
_LONGEST_LINE = 400
_BEFORE_MATCH = 100
_HEAD = 4096

_PASSED_ON = ("PATH", "LD_LIBRARY_PATH")


class SearchResults:
    """What was found so far; it can be told at any time."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._lines: list[str] = []
        self._size = 0
        self._more = False

    def add(self, line: str) -> bool:
        """Whether there is room for more."""
        size = len(line.encode(errors="replace")) + 1
        if len(self._lines) == self._most or self._size + size > LONGEST_ANSWER:
            self._more = True
            return False
        self._lines.append(line)
        self._size += size
        return True

    def render(self) -> str:
        if not self._lines:
            return "[no match]"
        if not self._more:
            return "\n".join(self._lines)
        note = f"[… only the first {len(self._lines)} results are shown; narrow the pattern, the path or the glob …]"
        return "\n".join([*self._lines, note])


def search_workspace(root: str, query: finding.LineQuery, results: SearchResults, cancel_scope: leash.CancelScope) -> None:
    """Adds what is found. `query.start` may still be any path that leads into the workspace."""
    query = _resolve_query(root, query)
    rg = ripgrep.find_ripgrep()
    argv = ripgrep.build_arguments(rg, query, root=root) if rg else find_lines.build_command(root, query)
    env = {name: os.environ[name] for name in _PASSED_ON if name in os.environ} | {"LC_ALL": "C.UTF-8"}
    with cancel_scope.start_program(argv, cwd=root, env=env) as program:
        for find in finding.parse_matches(program.read_output()):
            line = _verify_match(root, find)
            if line is not None and not results.add(line):
                return
        # Both end with 2 when they cannot read what is asked; ripgrep also when it could not open some file, without a word.
        if program.exit_code == 2 and program.error_text:
            problem = program.error_text.partition("\n\n")[0]
            raise outcome.ToolFailed(outcome.ToolErrorType.UNKNOWN, f"the pattern or the glob cannot be read: {problem}")
        if program.exit_code > 2 or (program.exit_code == 1 and program.error_text):  # without a word it is "nothing found"
            raise outcome.ToolFailed(outcome.ToolErrorType.UNKNOWN, "the search broke off; hint: try a simpler pattern")


def _resolve_query(root: str, query: finding.LineQuery) -> finding.LineQuery:
    with scope.locate(root, query.start) as place:
        mode = os.stat(place.name, dir_fd=place.folder, follow_symlinks=False).st_mode
        if not (stat.S_ISDIR(mode) or stat.S_ISREG(mode)):
            raise scope.PathRefused(f"`{place.path}` is not a regular file")
        return finding.LineQuery(
            pattern=query.pattern,
            start=place.path,
            glob=query.glob,
            case_sensitive=query.case_sensitive,
            most_results=query.most_results,
        )


def _verify_match(root: str, find: finding.LineMatch) -> str | None:
    """The found line as the file itself has it, or None when it does not, or may not be read."""
    with suppress(OSError, outcome.ToolFailed), scope.locate(root, find.path) as place:
        file, _ = scope.open_to_read(place)
        try:
            text = _read_line(file, find)
        finally:
            os.close(file)
        if text is not None:
            return f"{shown.escape_to_one_line(find.path)}:{find.line}:{shown.escape_control_characters(text)}"
    return None


def _read_line(file: int, find: finding.LineMatch) -> str | None:
    if find.offset and os.pread(file, 1, find.offset - 1) != b"\n":
        return None
    head = os.pread(file, _HEAD, find.offset)
    line = _take_first_line(head)
    if line[: finding.COMPARED_BYTES] != find.beginning[: finding.COMPARED_BYTES]:
        return None
    is_whole = b"\n" in head or len(head) < _HEAD
    if is_whole and len(line) <= _LONGEST_LINE:
        return line.decode(errors="replace")
    start = max(find.column - 1 - _BEFORE_MATCH, 0)
    piece = os.pread(file, _LONGEST_LINE + 1, find.offset + start)
    part = _take_first_line(piece)
    text = part[:_LONGEST_LINE].decode(errors="ignore")
    return f"{'…' if start else ''}{text}{'…' if len(part) > _LONGEST_LINE else ''}"


def _take_first_line(piece: bytes) -> bytes:
    return piece.partition(b"\n")[0].removesuffix(b"\r")
