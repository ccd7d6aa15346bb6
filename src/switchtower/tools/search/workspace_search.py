"""Searches the workspace for lines that match a regular expression: with ripgrep where it is installed, otherwise with
`line_search`. It blocks and belongs on a thread.

A searcher only reports places. The shown lines are read here, through `scope`, and a match that the file itself does not confirm
is dropped: so a link that changes while ripgrep follows it reveals nothing.

Ripgrep is called without the user's configuration, without following links, and so that neither a pattern nor a path can be taken
for an option.

The tool that searches the workspace's files."""

import asyncio
import os
import re
import stat
from contextlib import suppress
from functools import partial
from typing import Annotated, Literal

from msgspec import Meta, Struct

from switchtower.core.policy import paths
from switchtower.tools import outcome, safe_text, tool
from switchtower.tools.files import files, scope
from switchtower.tools.processes import cancellation, marks
from switchtower.tools.search import line_search

MOST_RESULTS = 200
LONGEST_ANSWER = 32 * 1024
_LONGEST_LINE = 400
_BEFORE_MATCH = 100
_HEAD = 4096

_PASSED_ON = ("PATH", "LD_LIBRARY_PATH")


class SearchResults:
    """The matches so far; they can be rendered at any time."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._lines: list[str] = []
        self._size = 0
        self._more = False

    def add(self, line: str) -> bool:
        """Returns whether there is room for more."""
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


def search_workspace(
    root: str, query: line_search.LineQuery, results: SearchResults, cancel_scope: cancellation.CancelScope
) -> None:
    """Adds the matches. `query.start` may still be any path that leads into the workspace."""
    query = _resolve_query(root, query)
    rg = find_ripgrep()
    argv = build_arguments(rg, query, root=root) if rg else line_search.build_command(root, query)
    env = {name: os.environ[name] for name in _PASSED_ON if name in os.environ} | {"LC_ALL": "C.UTF-8"}
    with cancel_scope.start_program(argv, cwd=root, env=env) as program:
        for find in line_search.parse_matches(program.read_output()):
            line = _verify_match(root, find)
            if line is not None and not results.add(line):
                return
        # Both searchers exit with 2 for an invalid query; ripgrep also when it could not open a file, without a message.
        if program.exit_code == 2 and program.error_text:
            problem = program.error_text.partition("\n\n")[0]
            raise outcome.ToolFailed(outcome.ToolErrorType.UNKNOWN, f"the pattern or the glob cannot be read: {problem}")
        if program.exit_code > 2 or (program.exit_code == 1 and program.error_text):  # without a message it means "nothing found"
            raise outcome.ToolFailed(outcome.ToolErrorType.UNKNOWN, "the search broke off; hint: try a simpler pattern")


def _resolve_query(root: str, query: line_search.LineQuery) -> line_search.LineQuery:
    with scope.locate(root, query.start) as place:
        mode = os.stat(place.name, dir_fd=place.folder, follow_symlinks=False).st_mode
        if not (stat.S_ISDIR(mode) or stat.S_ISREG(mode)):
            raise scope.PathRefused(f"`{place.path}` is not a regular file")
        return line_search.LineQuery(
            pattern=query.pattern,
            start=place.path,
            glob=query.glob,
            case_sensitive=query.case_sensitive,
            most_results=query.most_results,
        )


def _verify_match(root: str, find: line_search.LineMatch) -> str | None:
    """Returns the found line as the file itself has it, or None when it does not, or may not be read."""
    with suppress(OSError, outcome.ToolFailed), scope.locate(root, find.path) as place:
        file, _ = scope.open_to_read(place)
        try:
            text = _read_line(file, find)
        finally:
            os.close(file)
        if text is not None:
            return f"{safe_text.escape_to_one_line(find.path)}:{find.line}:{safe_text.escape_control_characters(text)}"
    return None


def _read_line(file: int, find: line_search.LineMatch) -> str | None:
    if find.offset and os.pread(file, 1, find.offset - 1) != b"\n":
        return None
    head = os.pread(file, _HEAD, find.offset)
    line = _take_first_line(head)
    if line[: line_search.COMPARED_BYTES] != find.beginning[: line_search.COMPARED_BYTES]:
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


def find_ripgrep() -> str | None:
    return marks.find_program("rg")


def build_arguments(rg: str, query: line_search.LineQuery, *, root: str) -> list[str]:
    """Returns the command, which must run in the workspace. Its lines have the form that `line_search.parse_matches` reads."""
    return [
        rg,
        "--no-config",
        "--no-follow",
        "--no-messages",
        "--no-ignore-messages",
        "--color=never",
        "--no-heading",
        "--with-filename",
        "--null",
        "--line-number",
        "--column",
        "--byte-offset",
        "--sort=path",
        "--hidden",
        "--crlf",
        "--encoding=none",
        f"--max-count={query.most_results + 1}",
        f"--max-columns={line_search.COMPARED_BYTES}",
        "--max-columns-preview",
        *_build_ignore_options(query, root),
        "--case-sensitive" if query.case_sensitive else "--ignore-case",
        *([f"--glob={query.glob}"] if query.glob else []),
        "--glob=!.git",
        *(f"--iglob=!{pattern}" for pattern in _build_secret_globs()),
        f"--regexp={query.pattern}",
        "--",
        f"./{query.start}",
    ]


def _build_ignore_options(query: line_search.LineQuery, root: str) -> list[str]:
    """Applies git's rules, whether or not this is a repository. Rules above the workspace count as far as the repository reaches:
    without one, a rule in the user's home could hide everything.
    """
    flags = ["--no-require-git", "--no-ignore-dot", "--no-ignore-global"]
    if line_search.has_repository(root):
        return flags
    own = [] if query.start == "." else ["--ignore-file=.gitignore"]
    return [*flags, "--no-ignore-parent", *own]


def _build_secret_globs() -> list[str]:
    """These files are not even opened. `scope` has the final decision on what is shown."""
    return [*paths.NAMES, *paths.FOLDERS, *(f"**/{folder}/{name}" for folder, name in paths.PLACES)]


_NEWLINE = re.compile(r"(?<!\\)(?:\\\\)*\\n|\n")


class SearchToolArguments(Struct, frozen=True, forbid_unknown_fields=True):
    pattern: Annotated[str, Meta(min_length=1, max_length=1000, description="A regular expression, matched within each line")]
    path: Annotated[str, Meta(description="A folder or a file, relative to the workspace")] = "."
    glob: Annotated[
        Annotated[str, Meta(max_length=500)] | None,
        Meta(description="Only files that match, such as *.py or src/**/*.{ts,tsx}; a leading ! excludes"),
    ] = None
    max_results: Annotated[int, Meta(ge=1, le=MOST_RESULTS)] = 100
    case: Annotated[Literal["sensitive", "ignore"], Meta(description="Whether upper and lower case differ")] = "sensitive"


class SearchTool(tool.CoreTool[SearchToolArguments]):
    name = "search"
    description = (
        "Search text files for a regular expression: one `path:line:text` a line. Skips what git ignores, binary files and links"
    )
    effect = outcome.ToolEffect.READ
    arguments = SearchToolArguments
    time_limit = None

    def __init__(self, *, seconds: float = tool.READ_TIME) -> None:
        self._seconds = seconds

    def check_arguments(self, arguments: SearchToolArguments, context: outcome.ToolContext) -> None:
        scope.check_path(context.workspace, arguments.path)
        if "\0" in arguments.pattern or "\0" in (arguments.glob or ""):
            raise outcome.ToolFailed(outcome.ToolErrorType.UNKNOWN, "a pattern or a glob cannot hold a null character")
        if _NEWLINE.search(arguments.pattern):
            raise outcome.ToolFailed(
                outcome.ToolErrorType.UNKNOWN, "a pattern is matched within one line and cannot hold a newline"
            )

    async def run(self, arguments: SearchToolArguments, context: outcome.ToolContext) -> outcome.ToolOutput:
        self.check_arguments(arguments, context)
        query = line_search.LineQuery(
            pattern=arguments.pattern,
            start=arguments.path,
            glob=arguments.glob,
            case_sensitive=arguments.case == "sensitive",
            most_results=arguments.max_results,
        )
        results = SearchResults(arguments.max_results)
        try:
            async with asyncio.timeout(self._seconds) as limit:
                with files.translate_os_errors(arguments.path, outcome.ToolErrorType.UNKNOWN):
                    await cancellation.run_in_cancel_scope(
                        context.run_id, partial(search_workspace, context.workspace, query, results)
                    )
        except TimeoutError:
            if not limit.expired():
                raise
            message = f"the search did not end within {self._seconds:g} s; hint: use a simpler pattern or a narrower path"
            text = f"{results.render()}\n[{message}]"
            return outcome.make_failure(outcome.ToolErrorType.EXEC_TIMEOUT, message, text=text, retryable=True)
        return outcome.ToolOutput(results.render())
