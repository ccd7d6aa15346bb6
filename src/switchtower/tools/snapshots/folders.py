"""Reads files through folders that are held open. No link is ever followed, and nothing but folders, regular files and links is
opened: a pipe or a device would block or act on it.
"""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager

from msgspec import Struct

from switchtower.tools.snapshots import objects

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
