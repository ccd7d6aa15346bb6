"""The query and the matches of a line search, for both searchers: ripgrep, and our own in this module.

Our own search runs in a separate process: a regular expression that never ends cannot be stopped otherwise. It is used where
ripgrep is not installed, and reports its matches in the same form. It walks with open folders and follows no link, opens no file
with secrets, and reads bounded pieces.

Compiles path patterns of git and ripgrep into regular expressions. It is close rather than complete."""

import os
import re
import resource
import stat
import sys
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from io import BufferedReader
from itertools import accumulate, islice
from pathlib import PurePath

from msgspec import Struct

import switchtower
from switchtower.core import policy
from switchtower.tools import outcome
from switchtower.tools.files import scope


class InvalidGlob(ValueError):
    """The pattern is invalid; the text gives the reason."""


class IgnoreRule(Struct, frozen=True):
    """One line of a `.gitignore`. The last rule that matches decides."""

    matches: re.Pattern[str]
    ignores: bool
    folders_only: bool


def parse_gitignore(text: str) -> list[IgnoreRule]:
    """Parses a whole `.gitignore`. Invalid lines are skipped, as in git."""
    return list(_iterate_rules(text))


def is_ignored(path: str, rules_of_folder: Sequence[IgnoreRule], *, is_folder: bool) -> bool | None:
    """Returns the decision of one folder's rules about a path below it; None when no rule matches."""
    for rule in reversed(rules_of_folder):
        if (is_folder or not rule.folders_only) and rule.matches.fullmatch(path):
            return rule.ignores
    return None


def compile_glob(glob: str) -> re.Pattern[str]:
    """Compiles a glob that selects files, with `{a,b}`. Without a slash, it matches names at any depth."""
    return _compile(glob, braces=True)


def _iterate_rules(text: str) -> Iterator[IgnoreRule]:
    for raw in text.splitlines():
        line = raw.rstrip()
        if raw[len(line) :].startswith(" ") and line.endswith("\\"):
            line += " "
        if not line or line.startswith("#"):
            continue
        negated = line.startswith("!")
        line = line[1:] if negated else line
        try:
            pattern = _compile(line.rstrip("/"), braces=False, anchored="/" in line.rstrip("/"))
        except (InvalidGlob, re.error):
            continue
        yield IgnoreRule(pattern, ignores=not negated, folders_only=line.endswith("/"))


def _compile(glob: str, *, braces: bool, anchored: bool | None = None) -> re.Pattern[str]:
    if anchored is None:
        anchored = "/" in glob
    body = _GlobTranslator(glob.removeprefix("/"), braces=braces).translate()
    try:
        return re.compile(body if anchored else f"(?:.*/)?{body}", re.DOTALL)
    except re.error as error:
        raise InvalidGlob(f"the glob `{glob}` cannot be read: {error}") from None


class _GlobTranslator:
    def __init__(self, glob: str, *, braces: bool) -> None:
        self._glob = glob
        self._braces = braces
        self._at = 0
        self._open_braces = 0

    def translate(self) -> str:
        pieces = list(self._iterate_pieces())
        if self._open_braces:
            raise InvalidGlob(f"the glob `{self._glob}` has a brace that is never closed")
        return "".join(pieces)

    def _iterate_pieces(self) -> Iterator[str]:
        glob = self._glob
        while self._at < len(glob):
            char = glob[self._at]
            self._at += 1
            if char == "*":
                yield self._translate_stars()
            elif char == "?":
                yield "[^/]"
            elif char == "[":
                yield self._translate_character_class()
            elif char == "\\" and self._at < len(glob):
                yield re.escape(glob[self._at])
                self._at += 1
            elif self._braces and char in "{,}":
                yield self._translate_brace(char)
            else:
                yield re.escape(char)

    def _translate_stars(self) -> str:
        start = self._at - 1
        while self._glob[self._at : self._at + 1] == "*":
            self._at += 1
        at_start = start == 0 or self._glob[start - 1] == "/"
        if self._at - start < 2 or not at_start:
            return "[^/]*"
        if self._at == len(self._glob):
            return ".+" if start else ".*"
        if self._glob[self._at] == "/":
            self._at += 1
            return "(?:.*/)?"
        return "[^/]*"

    def _translate_character_class(self) -> str:
        glob = self._glob
        negated = glob[self._at : self._at + 1] in ("!", "^")
        start = self._at + negated
        end = glob.find("]", start + 1)
        if end < 0:
            raise InvalidGlob(f"the glob `{glob}` has a bracket that is never closed")
        self._at = end + 1
        inside = "".join(f"\\{char}" if char in "\\[]^&~|" else char for char in glob[start:end])
        return f"(?!/)[{'^' if negated else ''}{inside}]"

    def _translate_brace(self, char: str) -> str:
        if char == "{":
            self._open_braces += 1
            return "(?:"
        if not self._open_braces:
            return re.escape(char)
        if char == "}":
            self._open_braces -= 1
            return ")"
        return "|"


COMPARED_BYTES = 200
"""The most bytes of a matching line that are reported with it."""
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
    """A line that matched, as a searcher reports it. It counts only when the file itself confirms it."""

    path: str
    line: int
    column: int
    """The column in bytes, from 1."""
    offset: int
    """The offset of the line's first byte."""
    beginning: bytes


def has_repository(root: str) -> bool:
    folder = PurePath(os.path.realpath(root))
    return any(os.path.lexists(above / ".git") for above in (folder, *folder.parents))


def encode_match(find: LineMatch) -> bytes:
    return b"./%b\0%d:%d:%d:%b\n" % (os.fsencode(find.path), find.line, find.column, find.offset, find.beginning)


def parse_matches(chunks: Iterable[bytes]) -> Iterator[LineMatch]:
    """Parses `path NUL line:column:offset:text LF`. A path may contain a newline, a text cannot."""
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
    # A remark about a binary file is on a separate line, so before the next path.
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


TIME_LIMIT = 60
"""The limit of processor time. The parent ends this process long before; the limit is for when the parent has died."""
_MEMORY_LIMIT = 2 * 1024**3
_BLOCK = 1024 * 1024
_LONGEST_LINE = 16 * 1024 * 1024
_LARGEST_IGNORE_FILE = 256 * 1024
_DEEPEST = 200

_Levels = Sequence[tuple[str, Sequence[IgnoreRule]]]
"""The rules of each folder from the workspace down, with the folder's path and a slash."""


def build_command(root: str, query: LineQuery) -> list[str]:
    """Returns the command that runs this file. It is isolated: nothing is imported from the current folder or named by a
    variable.
    """
    package_parent = os.path.dirname(switchtower.__path__[0])  # noqa: PTH120
    start = f"import sys; sys.path.insert(0, sys.argv[1]); from {__name__} import main; main(sys.argv[2:])"
    case = "sensitive" if query.case_sensitive else "ignore"
    asked = [root, query.pattern, query.start, query.glob or "", case, str(query.most_results)]
    return [sys.executable, "-I", "-X", "utf8", "-c", start, package_parent, *asked]


def main(args: list[str]) -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (TIME_LIMIT, TIME_LIMIT))
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_LIMIT, _MEMORY_LIMIT))
    root, pattern, start, glob, case, most_results = args
    query = LineQuery(pattern, start, glob or None, case == "sensitive", int(most_results))
    try:
        for find in _Search(root, query).iterate_matches():
            os.write(1, encode_match(find))
    except (InvalidGlob, re.error) as error:
        sys.stderr.write(f"{error}\n")
        sys.exit(2)
    except (OSError, outcome.ToolFailed):
        pass  # an unreadable entry has no matches


class _Search:
    def __init__(self, root: str, query: LineQuery) -> None:
        self._root = root
        self._real_root = os.path.realpath(root)
        self._query = query
        if "[[:" in query.pattern:
            raise re.error("classes such as [[:alpha:]] need ripgrep")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self._pattern = re.compile(query.pattern, 0 if query.case_sensitive else re.IGNORECASE)
        glob = query.glob or ""
        self._excludes = glob.startswith("!")
        self._glob = compile_glob(glob.removeprefix("!")) if glob else None

    def iterate_matches(self) -> Iterator[LineMatch]:
        with scope.locate(self._root, self._query.start) as place:
            status = os.stat(place.name, dir_fd=place.folder, follow_symlinks=False)
            if not stat.S_ISDIR(status.st_mode):
                yield from self._search_file(place.folder, place.name, place.path)
                return
            folder = scope.open_folder(place)
            path = "" if place.path == "." else f"{place.path}/"
        try:
            yield from self._search_folder(folder, path, self._read_levels_above(path), depth=0)
        finally:
            os.close(folder)

    def _read_levels_above(self, path: str) -> _Levels:
        levels: list[tuple[str, Sequence[IgnoreRule]]] = []
        parts = path.split("/")[:-1]
        for depth in range(len(parts)):
            above = "/".join(parts[:depth])
            with scope.locate(self._root, above) as place:
                folder = scope.open_folder(place)
            try:
                levels = _add_rules(folder, f"{above}/" if above else "", levels)
            finally:
                os.close(folder)
        return levels

    def _search_folder(self, folder: int, path: str, levels: _Levels, *, depth: int) -> Iterator[LineMatch]:
        levels = _add_rules(folder, path, levels)
        with os.scandir(folder) as scanned:
            entries = sorted((os.fsencode(entry.name), entry.is_dir(follow_symlinks=False)) for entry in scanned)
        for raw_name, is_folder in entries:
            name = os.fsdecode(raw_name)
            below = f"{path}{name}"
            if name == ".git" or policy.is_secret(f"{self._real_root}/{below}"):
                continue
            if not self._is_wanted(below, levels, is_folder=is_folder):
                continue
            with suppress(OSError):
                if not is_folder:
                    yield from self._search_file(folder, name, below)
                elif depth < _DEEPEST:
                    inner = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
                    try:
                        yield from self._search_folder(inner, f"{below}/", levels, depth=depth + 1)
                    finally:
                        os.close(inner)

    def _is_wanted(self, path: str, levels: _Levels, *, is_folder: bool) -> bool:
        """A glob takes precedence: it selects a path even where git ignores it."""
        if self._glob is not None:
            chosen = self._glob.fullmatch(path) is not None
            if self._excludes and chosen:
                return False
            if not self._excludes and not is_folder:
                return chosen
        for prefix, rules in reversed(levels):
            ignored = is_ignored(path.removeprefix(prefix), rules, is_folder=is_folder)
            if ignored is not None:
                return not ignored
        return True

    def _search_file(self, folder: int, name: str, path: str) -> Iterator[LineMatch]:
        file = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
        with os.fdopen(file, "rb") as stream:
            if not stat.S_ISREG(os.fstat(file).st_mode):
                return
            yield from islice(_LineSearch(self._pattern, path).iterate_matches(stream), self._query.most_results + 1)


class _LineSearch:
    """Searches one file, piece by piece: whole lines as far as they fit into a piece, or a part of a line that is too long for
    one.
    """

    def __init__(self, pattern: re.Pattern[str], path: str) -> None:
        self._search = pattern.search
        self._path = path
        self._number = 1
        self._offset = 0
        self._long_line: _LongLine | None = None

    def iterate_matches(self, stream: BufferedReader) -> Iterator[LineMatch]:
        for piece in _iterate_pieces(stream):
            end_of_text = piece.find(b"\0")
            # A file is binary from its first null byte on.
            text = piece if end_of_text < 0 else piece[: piece.rfind(b"\n", 0, end_of_text) + 1]
            yield from self._search_piece(text)
            if end_of_text >= 0:
                return
            self._skip_piece(piece)

    def _search_piece(self, piece: bytes) -> Iterator[LineMatch]:
        lines = piece.removesuffix(b"\n").decode(errors="surrogateescape").split("\n") if piece else []
        if b"\r" in piece:
            lines = [line.removesuffix("\r") for line in lines]
        matching = [index for index, line in enumerate(lines) if self._search(line)]
        if not matching:
            return
        raw = piece.split(b"\n")
        starts = [0, *accumulate(len(line) + 1 for line in raw)]
        for index in matching:
            line = lines[index]
            found = self._search(line)
            assert found is not None
            column = len(line[: found.start()].encode(errors="surrogateescape")) + 1
            start, beginning = self._offset + starts[index], raw[index][:COMPARED_BYTES].removesuffix(b"\r")
            if index == 0 and self._long_line is not None:
                if self._long_line.is_found:
                    continue
                column += start - self._long_line.offset
                start, beginning = self._long_line.offset, self._long_line.beginning
            yield LineMatch(self._path, self._number + index, column, start, beginning)
            if not piece.endswith(b"\n") and index == len(lines) - 1:
                self._long_line = _LongLine(start, beginning, is_found=True)

    def _skip_piece(self, piece: bytes) -> None:
        if piece.endswith(b"\n"):
            self._long_line = None
        elif self._long_line is None:
            self._long_line = _LongLine(self._offset, piece[:COMPARED_BYTES])
        self._offset += len(piece)
        self._number += piece.count(b"\n")


class _LongLine(Struct, frozen=True):
    """A line that did not fit into the previous piece."""

    offset: int
    beginning: bytes
    is_found: bool = False


def _iterate_pieces(stream: BufferedReader) -> Iterator[bytes]:
    waiting = b""
    while block := stream.read(_BLOCK):
        waiting += block
        end = waiting.rfind(b"\n") + 1
        if end == 0 and len(waiting) >= _LONGEST_LINE:
            end = len(waiting)
        if end:
            yield waiting[:end]
            waiting = waiting[end:]
    if waiting:
        yield waiting


def _add_rules(folder: int, path: str, levels: _Levels) -> list[tuple[str, Sequence[IgnoreRule]]]:
    """A nested repository has only its own rules."""
    own = _read_rules(folder, ".gitignore")
    if _has_entry(folder, ".git"):
        return [(path, _read_rules(folder, ".git/info/exclude")), (path, own)]
    return [*levels, (path, own)] if own else list(levels)


def _read_rules(folder: int, name: str) -> Sequence[IgnoreRule]:
    try:
        file = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    except OSError:
        return ()
    with os.fdopen(file, "rb") as stream:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            return ()
        return parse_gitignore(stream.read(_LARGEST_IGNORE_FILE).decode(errors="surrogateescape"))


def _has_entry(folder: int, name: str) -> bool:
    try:
        os.stat(name, dir_fd=folder, follow_symlinks=False)
    except OSError:
        return False
    return True
