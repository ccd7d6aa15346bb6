"""A walk through a workspace that takes down the files wanted and notes the names of the rest. Follows no link, opens nothing
but folders and regular files, and reads only files that look changed since the last time.

Left out, and only named: ignored files, secrets, files too large, what cannot be read, repositories inside, and whatever is
neither file nor link.
"""

import os
import re
import stat
import time
from collections.abc import Callable

from msgspec import Struct, field

from switchtower.core import policy
from switchtower.tools.git.plumbing.unavailable import Unavailable
from switchtower.tools.running.leash import Leash
from switchtower.tools.snapshots import folders, objects, stats
from switchtower.tools.snapshots.limits import Limits
from switchtower.tools.snapshots.listing import Wanted
from switchtower.tools.snapshots.objects import Entry
from switchtower.tools.snapshots.trees import Folder

_MOST_NAMED = 100
"""An uncovered folder with more inside is left out as a whole; of a smaller one each file is named."""
_HALF_WRITTEN = re.compile(r"\.tower-[0-9a-f]{16}\.tmp")


class Scan(Struct):
    """What was found."""

    files: Folder = field(default_factory=dict)
    left_out: list[str] = field(default_factory=list)
    """A folder's name ends with a slash."""
    private: list[str] = field(default_factory=list)
    """Files that only their owner may read or write."""
    known: dict[str, tuple[stats.Look, str]] = field(default_factory=dict)
    unread: set[str] = field(default_factory=set)
    """Ids taken from the last time."""


class Scanner:
    def __init__(
        self,
        root: str,
        *,
        known: stats.Known,
        keep: Callable[[bytes], str],
        apart: frozenset[str],
        limits: Limits,
        held: Leash,
    ) -> None:
        """`keep` takes a file's content into the store and answers its id; `apart` are folders that are none of the
        workspace's business."""
        self._root = root
        self._known = known.files
        self._no_secrets = known.files if known.are_no_secrets else {}
        self._keep = keep
        self._apart = apart
        self._limits = limits
        self._held = held
        self._now_ns = time.time_ns()
        self._new_bytes = 0
        self.scan = Scan()

    def walk(self, wanted: Wanted) -> Scan:
        with folders.root(self._root) as root:
            self.scan.files = self._folder(folders.entries_of(root), root, "", wanted, 0)
        return self.scan

    def _folder(self, entries: folders.Entries, descriptor: int, prefix: str, wanted: Wanted, depth: int) -> Folder:
        self._held.check()
        folder: Folder = {}
        if prefix and policy.is_secret(f"{self._root}/{prefix}x"):
            self._leave_out(prefix)
            return folder
        for entry in entries:
            name = entry.name
            path = prefix + name
            if name.startswith(".") and (name.casefold() == ".git" or _HALF_WRITTEN.fullmatch(name)):
                continue
            if entry.is_dir(follow_symlinks=False):
                inside = self._subfolder(descriptor, name, path, wanted.folders.get(name), depth + 1)
                if inside:
                    folder[name] = inside
            elif name not in wanted.files or (path not in self._no_secrets and policy.is_secret(f"{self._root}/{path}")):
                self._leave_out(path)
            elif (file := self._file(entry, descriptor, path)) is not None:
                folder[name] = file
        return folder

    def _subfolder(self, parent: int, name: str, path: str, wanted: Wanted | None, depth: int) -> Folder | None:
        if path in self._apart or depth > self._limits.depth:
            self._leave_out(f"{path}/")
            return None
        with folders.inside(parent, name) as folder:
            if folder is None:
                self._leave_out(f"{path}/")
                return None
            entries = folders.entries_of(folder)
            if folders.is_repository(entries):
                self._leave_out(f"{path}/")
            elif wanted is not None:
                return self._folder(entries, folder, f"{path}/", wanted, depth)
            else:
                few = _Names(self._limits.depth)
                for left_out in few.names if few.gather(entries, folder, f"{path}/", depth) else [f"{path}/"]:
                    self._leave_out(left_out)
        return None

    def _file(self, entry: "os.DirEntry[str]", folder: int, path: str) -> Entry | None:
        try:
            status = entry.stat(follow_symlinks=False)
        except OSError:
            return None  # gone meanwhile
        look = stats.look_of(status)
        last_look, id = self._known.get(path, (None, ""))
        if look == last_look:
            self.scan.unread.add(id)
        elif (content := self._content(entry.name, folder, status)) is None:
            self._leave_out(path)
            return None
        else:
            id = self._keep(content)
        if stats.is_settled(status, self._now_ns):
            self.scan.known[path] = (look, id)
        if stat.S_ISLNK(status.st_mode):
            return Entry(objects.LINK, id)
        if not status.st_mode & 0o077:
            self.scan.private.append(path)
        return Entry(objects.PROGRAM if status.st_mode & stat.S_IXUSR else objects.FILE, id)

    def _content(self, name: str, folder: int, status: os.stat_result) -> bytes | None:
        self._held.check()
        try:
            present = folders.look(folder, name, self._limits.file_bytes)
        except FileNotFoundError:
            return None
        # What became something else since its status was read is for the next time.
        if present is None or stat.S_IFMT(present.mode) != stat.S_IFMT(status.st_mode):
            return None
        self._new_bytes += len(present.content)
        if self._new_bytes > self._limits.new_bytes:
            raise Unavailable(
                f"more than {self._limits.new_bytes} bytes have changed", hint="let `.gitignore` name what is no work"
            )
        return present.content

    def _leave_out(self, path: str) -> None:
        self.scan.left_out.append(path)
        if len(self.scan.left_out) > self._limits.names_left_out:
            raise Unavailable(
                f"`{self._root}` has more than {self._limits.names_left_out} files that are ignored one by one",
                hint="let `.gitignore` name their folder",
            )


class _Names:
    """The files in a folder of which none is covered, as long as they are few."""

    def __init__(self, most_deep: int) -> None:
        self.names: list[str] = []
        self._seen = 0
        self._most_deep = most_deep

    def gather(self, entries: folders.Entries, folder: int, prefix: str, depth: int) -> bool:
        """Whether all could be named. A repository is not looked into; an empty folder has nothing to name."""
        self._seen += len(entries)
        if self._seen > _MOST_NAMED or depth > self._most_deep or folders.is_repository(entries):
            return False
        for entry in entries:
            if not entry.is_dir(follow_symlinks=False):
                self.names.append(prefix + entry.name)
                continue
            with folders.inside(folder, entry.name) as inside:
                if inside is None or not self.gather(folders.entries_of(inside), inside, f"{prefix}{entry.name}/", depth + 1):
                    return False
        return True
