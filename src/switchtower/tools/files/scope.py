"""The boundary around a workspace. A path is followed part by part with open folders, so no other process can replace a part with
a link between the check and the use. Every way out is refused: `..`, an absolute path, a link.

Links that stay inside are followed, by us and never by the kernel. Files that contain secrets are refused under whatever name
they are reached. The calls block; callers run them on a thread.
"""

import errno
import os
import stat
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import PurePosixPath

from msgspec import Struct

from switchtower.core import policy
from switchtower.tools import outcome

_FOLDER = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_MOST_LINKS = 40


class PathRefused(outcome.ToolFailed):
    """The path is outside the workspace or is a file that tools may not touch."""

    def __init__(self, message: str) -> None:
        super().__init__(outcome.ToolErrorType.EDIT_GUARD_BLOCKED, message)


class ResolvedPath(Struct, frozen=True):
    """The target of a path: an open folder, and a name in it that was not a link when it was checked. Use it with
    `O_NOFOLLOW`.
    """

    folder: int
    name: str
    path: str
    """The same place for people: relative to the workspace, links resolved."""


def find_identity(root: str) -> tuple[int, int] | None:
    """Returns the folder that a workspace's path leads to at the moment, by device and inode; None when it leads to no folder."""
    try:
        status = os.stat(root)  # noqa: PTH116 - it may be no path at all
    except (OSError, ValueError):
        return None
    return (status.st_dev, status.st_ino) if stat.S_ISDIR(status.st_mode) else None


def check_path(root: str, path: str) -> None:
    """Refuses a path by its text alone, before an approval is requested. `locate` has the final decision."""
    parts = _split_path(root, path)
    depth = 0
    for part in parts:
        depth += -1 if part == ".." else 1
        if depth < 0:
            raise PathRefused(f"`{path}` is outside the workspace")
    _refuse_secrets(root, parts, shown=path)


def to_relative(root: str, path: str) -> str:
    """Returns the path below the workspace as it is written, if `check_path` accepts it."""
    check_path(root, path)
    return "/".join(_split_path(root, path)) or "."


@contextmanager
def locate(root: str, path: str, *, make_folders: bool = False) -> Iterator[ResolvedPath]:
    """Follows the path to its last part, which need not exist. `make_folders` creates missing folders on the way."""
    check_path(root, path)
    walk = _PathWalk(root, path)
    try:
        name = walk.walk(make_folders=make_folders)
        parts = walk.names if name == "." else [*walk.names, name]
        _refuse_secrets(root, parts, shown=path)
        yield ResolvedPath(folder=walk.folder, name=name, path="/".join(parts) or ".")
    finally:
        walk.close()


def open_to_read(place: ResolvedPath) -> tuple[int, os.stat_result]:
    """Opens a regular file. A pipe or a device would block or act on being read, so it is refused."""
    try:
        file = os.open(place.name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=place.folder)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise PathRefused(f"`{place.path}` changed into a link while it was opened") from error
        raise
    status = os.fstat(file)
    if stat.S_ISREG(status.st_mode):
        return file, status
    os.close(file)
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), place.path)
    raise PathRefused(f"`{place.path}` is not a regular file")


def open_folder(place: ResolvedPath) -> int:
    """Opens a folder so that it can be listed."""
    try:
        return os.open(place.name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=place.folder)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise PathRefused(f"`{place.path}` changed into a link while it was opened") from error
        raise


class _PathWalk:
    """The folders from the workspace down to the current position, all held open."""

    def __init__(self, root: str, path: str) -> None:
        self.names: list[str] = []
        self._root = root
        self._path = path
        self._parts = deque(_split_path(root, path))
        try:
            # The workspace itself may be reached through a link: it is the user's own choice.
            self._open_folders = [os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)]
        except OSError as error:
            raise outcome.ToolFailed(
                outcome.ToolErrorType.SANDBOX_UNREACHABLE, f"the workspace `{root}` cannot be opened: {error.strerror}"
            ) from error

    @property
    def folder(self) -> int:
        return self._open_folders[-1]

    def walk(self, *, make_folders: bool) -> str:
        links = 0
        while self._parts:
            part = self._parts.popleft()
            if part == "..":
                self._enter_parent()
            elif (target := _read_link(part, self.folder)) is not None:
                links += 1
                if links > _MOST_LINKS:
                    raise PathRefused(f"`{self._path}` goes through too many links")
                self._follow_link(target)
            elif self._parts:
                self._enter_folder(part, make_folders=make_folders)
            else:
                return part
        return "."

    def close(self) -> None:
        while self._open_folders:
            os.close(self._open_folders.pop())

    def _enter_parent(self) -> None:
        if not self.names:
            raise PathRefused(f"`{self._path}` is outside the workspace")
        os.close(self._open_folders.pop())
        self.names.pop()

    def _follow_link(self, target: str) -> None:
        try:
            parts = _split_path(self._root, target)
        except PathRefused:
            raise PathRefused(f"`{self._path}` is a link out of the workspace") from None
        if target.startswith("/"):
            while self.names:
                self._enter_parent()
        self._parts.extendleft(reversed(parts))

    def _enter_folder(self, part: str, *, make_folders: bool) -> None:
        if make_folders:
            with suppress(FileExistsError):
                os.mkdir(part, dir_fd=self.folder)
        try:
            folder = os.open(part, _FOLDER, dir_fd=self.folder)
        except OSError as error:
            if error.errno == errno.ELOOP:
                raise PathRefused(f"`{self._path}` changed into a link while it was followed") from error
            raise
        self._open_folders.append(folder)
        self.names.append(part)


def _split_path(root: str, path: str) -> list[str]:
    """Returns the parts below the workspace. An absolute path is accepted when it starts with the workspace's own."""
    if "\0" in path:
        raise PathRefused("a path cannot hold a null character")
    pure = PurePosixPath(path)
    if not pure.is_absolute():
        return list(pure.parts)
    for base in (PurePosixPath(root), PurePosixPath(os.path.realpath(root))):
        if pure.is_relative_to(base):
            return list(pure.relative_to(base).parts)
    raise PathRefused(f"`{path}` is outside the workspace")


def _read_link(name: str, folder: int) -> str | None:
    try:
        return os.readlink(name, dir_fd=folder)
    except OSError as error:
        if error.errno in (errno.EINVAL, errno.ENOENT):
            return None
        raise


def _refuse_secrets(root: str, parts: list[str], *, shown: str) -> None:
    # The root is prepended when there are parts below it: a workspace may itself lie in a folder of secrets.
    if parts and policy.is_secret("/".join([os.path.realpath(root), *parts])):
        raise PathRefused(f"`{shown}` is a file that holds secrets")
