"""The file of a Unix socket: private from its first instant, never taken from a live process, removed only by its maker."""

import contextlib
import errno
import fcntl
import os
import socket
import stat
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from switchtower.transports import errors

PATH_LIMIT = 107 if sys.platform == "linux" else 103

_BACKLOG = 1024


class FileIdentity(NamedTuple):
    """Distinguishes our socket file from a later one of the same name."""

    device: int
    inode: int


def bind_private(path: Path) -> tuple[socket.socket, FileIdentity]:
    """Returns a listening socket at `path`, readable and writable by its owner alone. Makes its folder if there is none."""
    name = os.fsencode(path)
    if len(name) > PATH_LIMIT:
        raise errors.PathTooLong(
            f"`{path}` has {len(name)} bytes, at most {PATH_LIMIT} fit",
            hint="choose a shorter path, such as one in `/run/user`",
        )
    _make_private(path.parent)
    with _lock_folder(path.parent):
        _remove_stale_socket(path)
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            others_masked = os.umask(0o177)
            try:
                sock.bind(name)
            finally:
                os.umask(others_masked)
            # A socket that is bound but does not listen looks like a leftover to the next process, so this too happens under the
            # lock.
            sock.listen(_BACKLOG)
            status = path.lstat()
        except BaseException:
            sock.close()
            raise
    sock.setblocking(False)
    return sock, FileIdentity(status.st_dev, status.st_ino)


def remove_if_ours(path: Path, identity: FileIdentity) -> None:
    """Removes the socket file unless another one has replaced it."""
    with contextlib.suppress(FileNotFoundError), _lock_folder(path.parent):
        status = path.lstat()
        if (status.st_dev, status.st_ino) == identity:
            path.unlink()


def _make_private(folder: Path) -> None:
    for missing in reversed([part for part in (folder, *folder.parents) if not part.exists()]):
        missing.mkdir(mode=0o700, exist_ok=True)
    status = folder.stat()
    if not stat.S_ISDIR(status.st_mode):
        raise errors.PathTaken(f"`{folder}` is not a folder", hint="choose another path")
    ours = status.st_uid in (os.geteuid(), 0)
    others_write = status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    if not ours or (others_write and not status.st_mode & stat.S_ISVTX):
        remedy = f"run `chmod go-w {folder}` or choose another path" if ours else "choose a path in a folder of your own"
        raise errors.FolderNotPrivate(f"`{folder}`", hint=remedy)


@contextlib.contextmanager
def _lock_folder(folder: Path) -> Iterator[None]:
    """Two processes that start at once must not both find the same leftover and remove each other's socket."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _remove_stale_socket(path: Path) -> None:
    """Removes the leftover of a process that has ended; raises if anything else has that path."""
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise errors.PathTaken(f"`{path}`", hint="move it away or choose another path")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        outcome = probe.connect_ex(os.fsencode(path))
    if outcome == errno.ECONNREFUSED:
        path.unlink()
    elif outcome != errno.ENOENT:
        # Any other error, even a full backlog, means that a process is alive, or that we must not replace it.
        raise errors.AddressInUse(f"`{path}`", hint="stop that process or choose another path")
