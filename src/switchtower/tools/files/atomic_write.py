"""Replaces a file atomically: the new content is written to an unnamed file, flushed to the disk, and then takes the target's
name.

A kill in the middle leaves nothing: an unnamed file disappears with its process. For the moment in which it has a temporary name,
and for disks without unnamed files, leftovers are removed from a folder when it is next written to.
"""

import errno
import os
import re
import secrets
import stat
import threading
import time
from contextlib import suppress

from switchtower.tools import outcome
from switchtower.tools.files import scope

_LEFTOVER = re.compile(r"\.tower-[0-9a-f]{16}\.tmp")
LEFTOVER_AGE = 3600.0
"""No write takes this many seconds: older temporary files are leftovers."""
_MOST_SWEPT_FOLDERS = 1024

_naming = threading.Lock()
"""Between the last check of a file and its replacement, no other thread of this process replaces one."""
_swept: dict[tuple[int, int], float] = {}


class WriteWithdrawn(Exception):
    """The caller no longer waits for this write; nothing was changed."""


class WritePermit:
    """The permission to take the last step of a change, the only one that others can see. It is either used or withdrawn."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._settled: str | None = None

    def use(self) -> None:
        if not self._settle("used"):
            raise WriteWithdrawn

    def withdraw(self) -> bool:
        """Returns whether that was still possible: then nothing was and nothing will be changed."""
        return self._settle("withdrawn")

    def _settle(self, how: str) -> bool:
        with self._lock:
            self._settled = self._settled or how
            return self._settled == how


def replace_file(
    place: scope.ResolvedPath, content: bytes, *, permit: WritePermit, expected: os.stat_result | None = None
) -> bool:
    """Returns whether the file is a new one. With `expected`, only the file that had this status is replaced."""
    former = _read_status(place)
    if former and stat.S_ISLNK(former.st_mode):
        raise scope.PathRefused(f"`{place.path}` changed into a link while it was written")
    if former and not stat.S_ISREG(former.st_mode):
        raise outcome.ToolFailed(outcome.ToolErrorType.WRITE_FAILED, f"`{place.path}` is not a regular file")
    _sweep(place.folder)
    beside = _write_beside(place, content, former)
    try:
        with _naming:
            if expected is not None and not _is_same(expected, _read_status(place)):
                raise make_stale_error(place.path)
            permit.use()
            os.rename(beside, place.name, src_dir_fd=place.folder, dst_dir_fd=place.folder)
    except BaseException:
        with suppress(OSError):
            os.unlink(beside, dir_fd=place.folder)
        raise
    return former is None


def make_stale_error(path: str) -> outcome.ToolFailed:
    message = f"`{path}` was changed by somebody else since this session last saw it; hint: read it again first"
    return outcome.ToolFailed(outcome.ToolErrorType.STALE_FILE, message, retryable=True)


def _read_status(place: scope.ResolvedPath) -> os.stat_result | None:
    try:
        return os.stat(place.name, dir_fd=place.folder, follow_symlinks=False)
    except FileNotFoundError:
        return None


def _is_same(expected: os.stat_result, now: os.stat_result | None) -> bool:
    return now is not None and (expected.st_dev, expected.st_ino, expected.st_size, expected.st_mtime_ns) == (
        now.st_dev,
        now.st_ino,
        now.st_size,
        now.st_mtime_ns,
    )


def _write_beside(place: scope.ResolvedPath, content: bytes, former: os.stat_result | None) -> str:
    """Writes a file with a separate short name: the target's may already have the maximum length."""
    beside = f".tower-{secrets.token_hex(8)}.tmp"
    if (file := _open_unnamed(place.folder)) is not None:
        try:
            _fill(file, content, former)
            os.link(f"/proc/self/fd/{file}", beside, dst_dir_fd=place.folder, follow_symlinks=True)
            return beside
        except FileNotFoundError:
            pass  # no /proc here: an unnamed file could not be given a name, so the ordinary way remains
        finally:
            os.close(file)
    file = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666, dir_fd=place.folder)
    try:
        _fill(file, content, former)
    except BaseException:
        with suppress(OSError):
            os.unlink(beside, dir_fd=place.folder)
        raise
    finally:
        os.close(file)
    return beside


def _open_unnamed(folder: int) -> int | None:
    if not hasattr(os, "O_TMPFILE"):
        return None
    try:
        return os.open(".", os.O_TMPFILE | os.O_WRONLY | os.O_CLOEXEC, 0o666, dir_fd=folder)
    except OSError as error:
        if error.errno in (errno.EOPNOTSUPP, errno.EISDIR, errno.ENOENT, errno.EINVAL):
            return None
        raise


def _fill(file: int, content: bytes, former: os.stat_result | None) -> None:
    if former:
        # Mode and owner stay as they were, as far as we may set them.
        with suppress(PermissionError):
            os.fchown(file, former.st_uid, former.st_gid)
        os.fchmod(file, stat.S_IMODE(former.st_mode))
    rest = memoryview(content)
    while rest:
        rest = rest[os.write(file, rest) :]
    os.fsync(file)


def _sweep(folder: int) -> None:
    """Removes the leftovers of a killed daemon. A folder is scanned once an hour at most."""
    here = os.fstat(folder)
    identity, now = (here.st_dev, here.st_ino), time.monotonic()
    if now - _swept.get(identity, -LEFTOVER_AGE) < LEFTOVER_AGE:
        return
    if len(_swept) >= _MOST_SWEPT_FOLDERS:
        _swept.clear()
    _swept[identity] = now
    with suppress(OSError):
        listed = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=folder)
        try:
            with os.scandir(listed) as entries:
                old = [entry.name for entry in entries if _LEFTOVER.fullmatch(entry.name) and _is_old(entry)]
        finally:
            os.close(listed)
        for name in old:
            with suppress(OSError):
                os.unlink(name, dir_fd=folder)


def _is_old(entry: os.DirEntry[str]) -> bool:
    status = entry.stat(follow_symlinks=False)
    return stat.S_ISREG(status.st_mode) and time.time() - status.st_mtime > LEFTOVER_AGE
