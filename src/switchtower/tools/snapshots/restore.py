"""Restores files to their state in one snapshot, if they are still as in the other. Nothing else is changed.

Each file is replaced in one step. Folders are held open on the way and no link is followed, so nothing outside the workspace can
be reached. A file that already has its target state counts as done: restarted after a crash, the restore continues.
"""

import errno
import hashlib
import os
import stat
from collections.abc import Iterable
from contextlib import suppress

from msgspec import Struct

from switchtower.core import policy
from switchtower.tools.snapshots import objects, scan
from switchtower.tools.snapshots.objects import ObjectReader, TreeEntry

_IN_THE_WAY = frozenset({errno.ENOTDIR, errno.ELOOP, errno.EEXIST, errno.EISDIR, errno.ENOTEMPTY})


class RestoreResult(Struct, frozen=True):
    files: tuple[str, ...] = ()
    """Files that now have their target state, including those that had it before."""
    skipped: tuple[str, ...] = ()
    """Files that were skipped: they have been changed since, or something else is in their place."""
    failed: tuple[str, ...] = ()
    """Files that could not be written, each with the reason."""


class RestoreStep(Struct, frozen=True):
    """One path: its expected current state, and its target state. `None` means that it does not exist."""

    path: str
    have: TreeEntry | None
    want: TreeEntry | None
    private: bool = False


class _SomethingElse:
    """An entry that is neither file nor link, or cannot be read."""


class Restorer:
    def __init__(self, root: str, *, algorithm: str, most_bytes: int, reader: ObjectReader, force: bool) -> None:
        """`force` also replaces files that have been changed since."""
        self._root = root
        self._algorithm = algorithm
        self._most_bytes = most_bytes
        self._reader = reader
        self._force = force
        self._files: list[str] = []
        self._skipped: list[str] = []
        self._failed: list[str] = []

    def restore(self, steps: Iterable[RestoreStep]) -> RestoreResult:
        with scan.open_root(self._root) as root:
            # Removals come first: a file may be where a folder has to be.
            for step in sorted(steps, key=lambda step: step.want is not None):
                self._apply_step(root, step)
        return RestoreResult(
            files=_to_printable(self._files), skipped=_to_printable(self._skipped), failed=_to_printable(self._failed)
        )

    def _apply_step(self, root: int, step: RestoreStep) -> None:
        try:
            if policy.is_secret(f"{self._root}/{step.path}"):
                raise scan.NestedRepository
            present = self._read_entry(root, step.path)
            if present != step.want:
                if present != step.have and not self._force:
                    raise scan.NestedRepository
                if step.want is None:
                    _remove(root, step.path)
                else:
                    self._write(root, step, step.want)
        except scan.NestedRepository:
            self._skipped.append(step.path)
        except OSError as error:
            if error.errno in _IN_THE_WAY:
                self._skipped.append(step.path)
            else:
                self._failed.append(f"{step.path}: {error.strerror}")
        except objects.DamagedObject as damage:
            self._failed.append(f"{step.path}: {damage}")
        else:
            self._files.append(step.path)

    def _read_entry(self, root: int, path: str) -> TreeEntry | _SomethingElse | None:
        try:
            with scan.open_parent(root, path) as (folder, name):
                present = scan.read_present(folder, name, self._most_bytes)
                if present is None:
                    return None if scan.is_empty(folder, name) else _SomethingElse()
        except OSError as error:
            # Below a link or a file there is nothing: neither is followed.
            if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
                return None
            raise
        return TreeEntry(present.mode, objects.compute_object_id(self._algorithm, "blob", present.content))

    def _write(self, root: int, step: RestoreStep, want: TreeEntry) -> None:
        content = self._reader.read_blob(want.id)
        with scan.open_parent(root, step.path, make=True) as (folder, name):
            if scan.is_empty(folder, name):
                scan.remove_empty(folder, name)
            # The same file always has the same name, so that a second attempt after a crash cleans up after the first.
            beside = f".tower-{hashlib.blake2b(os.fsencode(step.path), digest_size=8).hexdigest()}.tmp"
            with suppress(FileNotFoundError):
                os.unlink(beside, dir_fd=folder)
            try:
                if want.mode == objects.LINK:
                    os.symlink(os.fsdecode(content), beside, dir_fd=folder)
                else:
                    _write_new(folder, beside, content, step, want, _read_former_status(folder, name))
                os.rename(beside, name, src_dir_fd=folder, dst_dir_fd=folder)
            except BaseException:
                with suppress(OSError):
                    os.unlink(beside, dir_fd=folder)
                raise


def _remove(root: int, path: str) -> None:
    """Removes a file, and the folders that it leaves empty."""
    with suppress(FileNotFoundError), scan.open_parent(root, path) as (folder, name):
        os.unlink(name, dir_fd=folder)
    *parents, _ = path.split("/")
    while parents:
        try:
            with scan.open_parent(root, "/".join(parents)) as (folder, name):
                os.rmdir(name, dir_fd=folder)
        except (OSError, scan.NestedRepository):
            return
        parents.pop()


def _write_new(folder: int, name: str, content: bytes, step: RestoreStep, want: TreeEntry, former: os.stat_result | None) -> None:
    allowed = 0o700 if step.private else 0o777
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    new = (0o777 if want.mode == objects.PROGRAM else 0o666) & allowed
    with os.fdopen(os.open(name, flags, new, dir_fd=folder), "wb") as stream:
        if former is not None:
            with suppress(PermissionError):
                os.fchown(stream.fileno(), former.st_uid, former.st_gid)
            os.fchmod(stream.fileno(), _compute_permissions(former, want) & allowed)
        stream.write(content)
        stream.flush()
        os.fsync(stream.fileno())


def _compute_permissions(former: os.stat_result, want: TreeEntry) -> int:
    """Keeps the permissions, but every user who may read a program may run it, and no other file is executable."""
    permissions = stat.S_IMODE(former.st_mode)
    return permissions | (permissions & 0o444) >> 2 if want.mode == objects.PROGRAM else permissions & ~0o111


def _read_former_status(folder: int, name: str) -> os.stat_result | None:
    with suppress(FileNotFoundError):
        status = os.stat(name, dir_fd=folder, follow_symlinks=False)
        if stat.S_ISREG(status.st_mode):
            return status
    return None


def _to_printable(paths: list[str]) -> tuple[str, ...]:
    """Makes names printable: a name can contain bytes that are not valid text, and a client can show only text."""
    return tuple(os.fsencode(path).decode(errors="replace") for path in sorted(paths))
