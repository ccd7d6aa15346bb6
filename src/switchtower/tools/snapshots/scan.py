"""Scans a workspace for a snapshot: stores the wanted files and notes the names of the rest. It follows no link, opens nothing
but folders and regular files, and reads only files that seem changed since the last scan.

Git determines the wanted files: tracked ones, and untracked ones that are not ignored. Ignored files, secrets, files that are too
large or unreadable, nested repositories, and anything that is neither file nor link are left out, and only named. Beyond its
limits a snapshot is refused or a file is left out; it never grows without bound.

A file whose status is the same as at the last scan is not read again. The status of a file that changed just before it was read
is not remembered: a second change in the same tick of the clock would not show.

Reads files through folders that are held open. No link is ever followed, and nothing but folders, regular files and links is
opened: a pipe or a device would block or act on it."""

import os
import posixpath
import re
import stat
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from uuid import uuid4

import msgspec
from msgspec import Struct, field

from switchtower.core import policy
from switchtower.tools.git import process
from switchtower.tools.git.process import GitUnavailable, VerifiedRepository
from switchtower.tools.processes.cancellation import CancelScope
from switchtower.tools.snapshots import objects
from switchtower.tools.snapshots.objects import FolderTree, ObjectStore, TreeEntry

_OPEN_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_OPEN_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_PASS_THROUGH = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_MOST_DEEP = 128

Entries = list["os.DirEntry[str]"]


class PresentFile(Struct, frozen=True):
    """The current state of a file or link."""

    mode: int
    """The mode as in a tree."""
    content: bytes


class NestedRepository(Exception):
    """A folder on the way has its own repository."""


@contextmanager
def open_root(path: str) -> Iterator[int]:
    """Opens the workspace itself. It may be reached through a link: that is the user's own choice."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def open_subfolder(parent: int, name: str) -> Iterator[int | None]:
    """Opens the folder of that name; `None` when it is not a folder, or may not be read."""
    try:
        folder = os.open(name, _OPEN_FOLDER, dir_fd=parent)
    except OSError:
        yield None
        return
    try:
        yield folder
    finally:
        os.close(folder)


@contextmanager
def open_parent(root: int, path: str, *, make: bool = False) -> Iterator[tuple[int, str]]:
    """Opens the folder that contains a path, and yields the name in it. `make` creates folders that are missing on the way."""
    *parts, name = path.split("/")
    folder = os.dup(root)
    try:
        for part in parts:
            if make and not _exists(folder, part):
                os.mkdir(part, dir_fd=folder)
            below = os.open(part, _PASS_THROUGH, dir_fd=folder)
            os.close(folder)
            folder = below
            if _exists(folder, ".git"):
                raise NestedRepository
        yield folder, name
    finally:
        os.close(folder)


def list_entries(folder: int) -> Entries:
    with os.scandir(folder) as entries:
        return list(entries)


def is_repository(entries: Entries) -> bool:
    return any(entry.name.casefold() == ".git" for entry in entries)


def read_present(folder: int, name: str, most_bytes: int) -> PresentFile | None:
    """Returns `None` for an entry that is neither file nor link, is too large, or cannot be read. Raises `FileNotFoundError` when
    there is no entry.
    """
    status = os.stat(name, dir_fd=folder, follow_symlinks=False)
    try:
        if stat.S_ISLNK(status.st_mode):
            return PresentFile(objects.LINK, os.fsencode(os.readlink(name, dir_fd=folder)))
        if not stat.S_ISREG(status.st_mode):
            return None
        # The entry may have changed: only the opened file counts.
        with os.fdopen(os.open(name, _OPEN_FILE, dir_fd=folder), "rb") as stream:
            status = os.fstat(stream.fileno())
            if not stat.S_ISREG(status.st_mode) or status.st_size > most_bytes:
                return None
            content = stream.read(most_bytes + 1)
    except OSError:
        return None
    mode = objects.PROGRAM if status.st_mode & stat.S_IXUSR else objects.FILE
    return PresentFile(mode, content) if len(content) <= most_bytes else None


def is_empty(parent: int, name: str, depth: int = 0) -> bool:
    """Returns whether it is a folder with nothing but such folders in it. An endless one does not count."""
    with open_subfolder(parent, name) as folder:
        if folder is None or depth > _MOST_DEEP:
            return False
        return all(
            entry.is_dir(follow_symlinks=False) and is_empty(folder, entry.name, depth + 1) for entry in list_entries(folder)
        )


def remove_empty(parent: int, name: str) -> None:
    """Removes a folder that has nothing but such folders in it."""
    with open_subfolder(parent, name) as folder:
        if folder is None:
            return
        for entry in list_entries(folder):
            remove_empty(folder, entry.name)
    os.rmdir(name, dir_fd=parent)


def _exists(folder: int, name: str) -> bool:
    try:
        os.stat(name, dir_fd=folder, follow_symlinks=False)
    except OSError:
        return False
    return True


MiB = 1024 * 1024


class SnapshotLimits(Struct, frozen=True):
    seconds: float = 30.0
    """The time limit for taking or comparing. A restore runs to its end once it has started."""
    file_bytes: int = 20 * MiB
    """A larger file is left out."""
    new_bytes: int = 500 * MiB
    """The most bytes that one snapshot may read that the previous one had not."""
    repository_files: int = 200_000
    folder_files: int = 20_000
    """The most files in a folder that is not a repository, where no ignore rules exist."""
    names_left_out: int = 200_000
    """The most names of files that are not covered; they are kept so that these do not count as new files."""
    depth: int = 128
    """The most nested folders; deeper ones are left out."""
    diff_bytes: int = 1 * MiB


_TICK_NS = 1_000_000_000
_THIS_PROCESS = uuid4().hex

StatusSummary = tuple[int, int, int, int, int]
"""The size, the times of change of content and of the rest, inode, mode."""


def summarize_status(status: os.stat_result) -> StatusSummary:
    return (status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino, status.st_mode)


def is_settled(status: os.stat_result, now_ns: int) -> bool:
    return max(status.st_mtime_ns, status.st_ctime_ns) < now_ns - _TICK_NS


class KnownFileStats(msgspec.Struct):
    """The files of one workspace at the last scan, by path."""

    algorithm: str
    files: dict[str, tuple[StatusSummary, str]]
    judged_by: str = _THIS_PROCESS
    """The process that found no secrets among them: the rules for that may have changed since."""

    @property
    def has_current_secret_rules(self) -> bool:
        return self.judged_by == _THIS_PROCESS


def load_known(path: Path, algorithm: str) -> KnownFileStats:
    """Returns an empty record when there is none, or none that can be used."""
    with suppress(OSError, msgspec.DecodeError, ValueError):
        known = msgspec.msgpack.decode(path.read_bytes(), type=KnownFileStats)
        if known.algorithm == algorithm:
            return known
    return KnownFileStats(algorithm, {})


def save_known(path: Path, known: KnownFileStats) -> None:
    encodable = {name: file for name, file in known.files.items() if name.isascii() or _is_text(name)}
    beside = path.with_name(f"{path.name}.new")
    try:
        beside.write_bytes(msgspec.msgpack.encode(KnownFileStats(known.algorithm, encodable)))
        beside.replace(path)
    except OSError:
        beside.unlink(missing_ok=True)


def _is_text(name: str) -> bool:
    """Returns whether the name is valid text; a name can contain any bytes."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


RUBBISH = (
    "node_modules",
    "bower_components",
    ".venv",
    "venv",
    "__pycache__",
    ".mypy_cache",
    ".pytest_cache",
    ".ruff_cache",
    ".tox",
    ".nox",
    ".gradle",
    ".next",
    ".cache",
    "target",
)
"""Folders that are left out where no repository has ignore rules."""


class WantedFiles:
    """The names to take in one folder."""

    __slots__ = ("files", "folders")

    def __init__(self) -> None:
        self.files: set[str] = set()
        self.folders: dict[str, WantedFiles] = {}

    def add(self, path: str) -> None:
        *folders, name = path.split("/")
        place = self
        for folder in folders:
            place = place.folders.setdefault(folder, WantedFiles())
        if name:  # a nested repository is listed as a folder, with a slash behind it
            place.files.add(name)


def list_wanted_files(
    root: str,
    repository: VerifiedRepository | None,
    store: ObjectStore,
    also: Iterable[str],
    limits: SnapshotLimits,
    cancel_scope: CancelScope,
) -> WantedFiles:
    """Paths in `also` are wanted even when they are ignored."""
    wanted = WantedFiles()
    for path in _list_with_git(root, repository, store, limits, cancel_scope):
        wanted.add(path)
    for path in also:
        inside = posixpath.relpath(posixpath.join(root, path), root)
        if inside.split("/")[0] not in (".", ".."):
            wanted.add(inside)
    return wanted


def _list_with_git(
    root: str, repository: VerifiedRepository | None, store: ObjectStore, limits: SnapshotLimits, cancel_scope: CancelScope
) -> list[str]:
    if repository is None:
        most = limits.folder_files
        caller = process.GitRunner(root, {"GIT_DIR": store.git_dir, "GIT_WORK_TREE": root})
        which = ["--others", *(f"--exclude={name}/" for name in RUBBISH)]
    else:
        most = limits.repository_files
        caller = process.GitRunner(root, {"GIT_DIR": repository.git_dir, "GIT_WORK_TREE": repository.top})
        which = ["--others", "--cached"]
    listed: list[str] = []
    rest = b""
    with caller.start(cancel_scope, "ls-files", "-z", "--exclude-standard", *which) as running:
        for chunk in running.read_output():
            *names, rest = (rest + chunk).split(b"\0")
            listed += map(os.fsdecode, names)
            if len(listed) > most:
                raise GitUnavailable(
                    f"`{root}` has more than {most} files", hint="let `.gitignore` name the folders that hold no work"
                )
        if running.exit_code != 0:
            raise GitUnavailable(f"git cannot list the files of `{root}`", hint="see what `git status` says there")
    return listed


_MOST_NAMED = 100
"""An uncovered folder with more entries is left out as a whole; in a smaller one each file is named."""
_HALF_WRITTEN = re.compile(r"\.tower-[0-9a-f]{16}\.tmp")


class WorkspaceScan(Struct):
    """The result of a scan."""

    files: FolderTree = field(default_factory=dict)
    left_out: list[str] = field(default_factory=list)
    """The names that were left out; a folder's name ends with a slash."""
    private: list[str] = field(default_factory=list)
    """Files that only their owner may read or write."""
    known: dict[str, tuple[StatusSummary, str]] = field(default_factory=dict)
    unread: set[str] = field(default_factory=set)
    """Ids taken from the last scan."""


class WorkspaceScanner:
    def __init__(
        self,
        root: str,
        *,
        known: KnownFileStats,
        keep: Callable[[bytes], str],
        apart: frozenset[str],
        limits: SnapshotLimits,
        cancel_scope: CancelScope,
    ) -> None:
        """`keep` stores a file's content and returns its id; `apart` are folders that do not belong to the workspace."""
        self._root = root
        self._known = known.files
        self._no_secrets = known.files if known.has_current_secret_rules else {}
        self._keep = keep
        self._apart = apart
        self._limits = limits
        self._cancel_scope = cancel_scope
        self._now_ns = time.time_ns()
        self._new_bytes = 0
        self.scan = WorkspaceScan()

    def walk(self, wanted: WantedFiles) -> WorkspaceScan:
        with open_root(self._root) as root:
            self.scan.files = self._scan_folder(list_entries(root), root, "", wanted, 0)
        return self.scan

    def _scan_folder(self, entries: Entries, descriptor: int, prefix: str, wanted: WantedFiles, depth: int) -> FolderTree:
        self._cancel_scope.raise_if_cancelled()
        folder: FolderTree = {}
        if prefix and policy.is_secret(f"{self._root}/{prefix}x"):
            self._record_left_out(prefix)
            return folder
        for entry in entries:
            name = entry.name
            path = prefix + name
            if name.startswith(".") and (name.casefold() == ".git" or _HALF_WRITTEN.fullmatch(name)):
                continue
            if entry.is_dir(follow_symlinks=False):
                inside = self._scan_subfolder(descriptor, name, path, wanted.folders.get(name), depth + 1)
                if inside:
                    folder[name] = inside
            elif name not in wanted.files or (path not in self._no_secrets and policy.is_secret(f"{self._root}/{path}")):
                self._record_left_out(path)
            elif (file := self._scan_file(entry, descriptor, path)) is not None:
                folder[name] = file
        return folder

    def _scan_subfolder(self, parent: int, name: str, path: str, wanted: WantedFiles | None, depth: int) -> FolderTree | None:
        if path in self._apart or depth > self._limits.depth:
            self._record_left_out(f"{path}/")
            return None
        with open_subfolder(parent, name) as folder:
            if folder is None:
                self._record_left_out(f"{path}/")
                return None
            entries = list_entries(folder)
            if is_repository(entries):
                self._record_left_out(f"{path}/")
            elif wanted is not None:
                return self._scan_folder(entries, folder, f"{path}/", wanted, depth)
            else:
                few = _UncoveredNames(self._limits.depth)
                for left_out in few.names if few.gather(entries, folder, f"{path}/", depth) else [f"{path}/"]:
                    self._record_left_out(left_out)
        return None

    def _scan_file(self, entry: "os.DirEntry[str]", folder: int, path: str) -> TreeEntry | None:
        try:
            status = entry.stat(follow_symlinks=False)
        except OSError:
            return None  # removed meanwhile
        look = summarize_status(status)
        last_look, id = self._known.get(path, (None, ""))
        if look == last_look:
            self.scan.unread.add(id)
        elif (content := self._read_content(entry.name, folder, status)) is None:
            self._record_left_out(path)
            return None
        else:
            id = self._keep(content)
        if is_settled(status, self._now_ns):
            self.scan.known[path] = (look, id)
        if stat.S_ISLNK(status.st_mode):
            return TreeEntry(objects.LINK, id)
        if not status.st_mode & 0o077:
            self.scan.private.append(path)
        return TreeEntry(objects.PROGRAM if status.st_mode & stat.S_IXUSR else objects.FILE, id)

    def _read_content(self, name: str, folder: int, status: os.stat_result) -> bytes | None:
        self._cancel_scope.raise_if_cancelled()
        try:
            present = read_present(folder, name, self._limits.file_bytes)
        except FileNotFoundError:
            return None
        # An entry whose type changed since its status was read is left to the next snapshot.
        if present is None or stat.S_IFMT(present.mode) != stat.S_IFMT(status.st_mode):
            return None
        self._new_bytes += len(present.content)
        if self._new_bytes > self._limits.new_bytes:
            raise GitUnavailable(
                f"more than {self._limits.new_bytes} bytes have changed", hint="let `.gitignore` name what is no work"
            )
        return present.content

    def _record_left_out(self, path: str) -> None:
        self.scan.left_out.append(path)
        if len(self.scan.left_out) > self._limits.names_left_out:
            raise GitUnavailable(
                f"`{self._root}` has more than {self._limits.names_left_out} files that are ignored one by one",
                hint="let `.gitignore` name their folder",
            )


class _UncoveredNames:
    """The files in a folder of which none is covered, as long as they are few."""

    def __init__(self, most_deep: int) -> None:
        self.names: list[str] = []
        self._seen = 0
        self._most_deep = most_deep

    def gather(self, entries: Entries, folder: int, prefix: str, depth: int) -> bool:
        """Returns whether all could be named. A nested repository is not entered; an empty folder has nothing to name."""
        self._seen += len(entries)
        if self._seen > _MOST_NAMED or depth > self._most_deep or is_repository(entries):
            return False
        for entry in entries:
            if not entry.is_dir(follow_symlinks=False):
                self.names.append(prefix + entry.name)
                continue
            with open_subfolder(folder, entry.name) as inside:
                if inside is None or not self.gather(list_entries(inside), inside, f"{prefix}{entry.name}/", depth + 1):
                    return False
        return True
