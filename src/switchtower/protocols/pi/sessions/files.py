"""Stored sessions as files (pi-server 20). Our sessions are in the journal; their paths are under the directory where pi keeps
its own, and name a session, not a file. Files that pi itself wrote can be read and imported."""

import os
import re
import stat
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from msgspec import Struct

from switchtower.protocols.pi.errors import PiCommandError
from switchtower.protocols.pi.sessions import jsonl

OURS = "switchtower"
"""Our folder, inside pi's."""
MAX_FILES = 200
_MAX_CANDIDATES = 20_000
_MAX_FILE_BYTES = 256 * 1024 * 1024
_MAX_HEADER_BYTES = 64 * 1024
_MAX_READ = 64 * 1024 * 1024
"""Bytes of files that one listing reads for names and counts; beyond it, only the headers are read."""
_MAX_REMEMBERED = 1_000

_MAX_NAME_LENGTH = 100

_is_ours = re.compile(r"(sess_[0-9A-Z]{26})(?:_[A-Za-z0-9_.-]{1,100}?)?(?:~([0-9]{1,6}))?\.jsonl").fullmatch
_is_older = re.compile(r"([A-Za-z0-9_.-]{1,256}?)(?:~([0-9]{1,6}))?\.jsonl").fullmatch
"""A session that an older release stored under an id which its client chose."""


class SessionFileLocation(Struct, frozen=True):
    """The meaning of a path: one of our sessions, perhaps as it was before its n-th clearing; or one of pi's files."""

    path: str
    session_id: str | None = None
    until_clearing: int | None = None


class StoredSessionFile(Struct, frozen=True):
    path: str
    session_id: str
    name: str
    cwd: str
    created_at_ms: int
    modified_at_ms: int
    messages: int | None = None
    """None: the file is too large to be read for a listing."""


class SessionFiles:
    def __init__(self, sessions_dir: str) -> None:
        self._root = Path(sessions_dir)
        self._ours = self._root / OURS
        self._read: OrderedDict[tuple[str, int, int], StoredSessionFile] = OrderedDict()
        """A cache of files that have not changed: by path, size and time."""

    def make_path(self, session_id: str, name: str, *, until_clearing: int | None = None) -> str:
        """Makes the path of one of our sessions: its id in the core decides, its name is for people."""
        shown = "" if name == session_id else f"_{name[:_MAX_NAME_LENGTH]}"
        suffix = "" if until_clearing is None else f"~{until_clearing}"
        return str(self._ours / f"{session_id}{shown}{suffix}.jsonl")

    def exists(self, path: str) -> bool:
        """Returns whether a file exists at the path of a session. Blocks."""
        return Path(path).is_file()

    def resolve_path(self, given: str) -> SessionFileLocation:
        """pi-server 20.2: absolute, without `..`, and under an allowed directory, even after links are followed."""
        if "\0" in given or not given.startswith("/"):
            raise PiCommandError("sessionPath must be an absolute path")
        path = Path(given)
        if ".." in path.parts:
            raise PiCommandError("sessionPath must not contain '..'")
        if not self._is_allowed(path):
            raise PiCommandError("sessionPath must be under an allowed session directory")
        if path.parent == self._ours:
            if (named := _is_ours(path.name) or _is_older(path.name)) is None:
                raise PiCommandError("sessionPath must name a session file (.jsonl)")
            return SessionFileLocation(given, named[1], int(named[2]) if named[2] else None)
        return SessionFileLocation(given)

    def _is_allowed(self, path: Path) -> bool:
        """pi-server 20.2: pi's own storage, or any project's `.pi/sessions`."""
        if path.is_relative_to(self._root) and path != self._root:
            return True
        parts = path.parts
        return any(parts[index : index + 2] == (".pi", "sessions") for index in range(len(parts) - 2))

    def read_session(self, place: SessionFileLocation) -> jsonl.ImportedSession:
        """Reads one of pi's files. Blocks. Links are followed before the path is checked again."""
        real = Path(os.path.realpath(place.path))
        if not self._is_allowed_after_links(real):
            raise PiCommandError("sessionPath must be under an allowed session directory")
        try:
            with _open_regular_file(real) as file:
                if os.fstat(file.fileno()).st_size > _MAX_FILE_BYTES:
                    raise PiCommandError(f"Session file is too large: {place.path}")
                return jsonl.read_session_file(file)
        except OSError:
            raise PiCommandError(f"Session file not found: {place.path}") from None
        except jsonl.NotASessionFile as problem:
            raise PiCommandError(f"Not a session file: {problem}") from None

    def _is_allowed_after_links(self, real: Path) -> bool:
        """The directory itself may be a link, as a home often is."""
        return self._is_allowed(real) or real.is_relative_to(Path(os.path.realpath(self._root)))

    def list_stored(self, projects: Iterable[str] = ()) -> list[StoredSessionFile]:
        """Lists the newest files of pi's own and of these projects', by their headers. Blocks."""
        found: list[tuple[float, Path]] = []
        for root in (self._root, *(Path(project) / ".pi" / "sessions" for project in sorted(set(projects)))):
            for folder, folders, names in os.walk(root):
                if Path(folder) == self._root and OURS in folders:
                    folders.remove(OURS)
                found += self._list_by_date(Path(folder), names)
                if len(found) > _MAX_CANDIDATES:
                    break
        found.sort(reverse=True)
        files, budget = [], _MAX_READ
        for _, path in found[:MAX_FILES]:
            try:
                status = path.stat()
            except OSError:
                continue
            known = (str(path), status.st_size, status.st_mtime_ns)
            if (stored := self._read.get(known)) is None:
                stored = _read_stored_file(path, status, whole=status.st_size <= budget)
                if stored is None:
                    continue
                if stored.messages is not None:
                    budget -= status.st_size
                    self._read[known] = stored
                    while len(self._read) > _MAX_REMEMBERED:
                        self._read.popitem(last=False)
            files.append(stored)
        return files

    def _list_by_date(self, folder: Path, names: list[str]) -> Iterator[tuple[float, Path]]:
        for name in names:
            path = folder / name
            # A link that leads elsewhere is not one of these session files.
            if name.endswith(".jsonl") and self._is_allowed_after_links(Path(os.path.realpath(path))):
                with suppress(OSError):
                    yield path.stat().st_mtime, path


def _open_regular_file(path: Path) -> BinaryIO:
    """Opens a regular file, and nothing that could block. Raises `OSError`."""
    file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise OSError(f"{path} is no regular file")
    return os.fdopen(file, "rb")


def _read_stored_file(path: Path, status: os.stat_result, *, whole: bool) -> StoredSessionFile | None:
    """Reads one of pi's files for a listing: its header, and with `whole` the rest."""
    try:
        with _open_regular_file(path) as file:
            if whole:
                found = jsonl.read_session_file(file)
                session_id, name, cwd, created_at_ms = found.session_id, found.name or "", found.cwd, found.created_at_ms
                count: int | None = len(found.messages)
            else:
                header = jsonl.parse_header(file.readline(_MAX_HEADER_BYTES))
                session_id, name, cwd, created_at_ms, count = header.session_id, "", header.cwd, header.created_at_ms, None
    except (OSError, jsonl.NotASessionFile):
        return None
    return StoredSessionFile(
        path=str(path),
        session_id=session_id,
        name=name,
        cwd=cwd,
        created_at_ms=created_at_ms,
        modified_at_ms=status.st_mtime_ns // 1_000_000,
        messages=count,
    )
