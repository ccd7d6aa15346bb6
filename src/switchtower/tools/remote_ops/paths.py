"""The paths that a peer may name: relative, without `..`, and never out of the run's folder, whatever links lie there. This is
stricter than `scope`, which resolves them.

A refusal is one error, whose message is relay's error string: short, without a path of this machine and without any content of a
file.
"""

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from switchtower.tools import outcome
from switchtower.tools.files import scope

_LONGEST_PATH = 4096
"""The longest path in bytes; no system accepts more."""


def check_path(cwd: str, path: str) -> None:
    """Refuses a path by its text alone, before an approval is requested. Each function of this package checks for itself too."""
    if not path:
        raise OperationRefused("path is empty")
    if "\0" in path:
        raise OperationRefused("path contains a null character")
    try:
        size = len(path.encode())
    except UnicodeEncodeError:
        raise OperationRefused("path is not valid Unicode") from None
    if size > _LONGEST_PATH:
        raise OperationRefused(TOO_LONG)
    if path.startswith("/"):
        raise OperationRefused(MUST_BE_RELATIVE)
    # This holds even where it would lead back inside: relay's hosts refuse the part at any position.
    if ".." in path.split("/"):
        raise OperationRefused(CONTAINS_PARENT)
    try:
        scope.check_path(cwd, path)
    except scope.PathRefused:
        raise OperationRefused(SECRET) from None


@contextmanager
def locate_path(cwd: str, path: str, *, make_folders: bool = False) -> Iterator[scope.ResolvedPath]:
    """Yields the target of the path. Errors of the operations there become refusals too. Blocks."""
    check_path(cwd, path)
    with translate_errors(), scope.locate(cwd, path, make_folders=make_folders) as place:
        yield place


def check_folder_exists(cwd: str) -> None:
    """Refuses a run's folder that no longer exists. Blocks."""
    with locate_path(cwd, "."):
        pass


def refuse_all_but_files(path: str, place: scope.ResolvedPath) -> None:
    """Checks the type before anything is opened: opening a device can trigger it. A path that does not exist yet passes."""
    if path.endswith(("/", "/.")):
        raise OperationRefused(IS_A_FOLDER if _is_folder(place) else NOT_A_FOLDER)
    try:
        mode = os.stat(place.name, dir_fd=place.folder, follow_symlinks=False).st_mode
    except FileNotFoundError:
        return
    if stat.S_ISDIR(mode):
        raise OperationRefused(IS_A_FOLDER)
    if not (stat.S_ISREG(mode) or stat.S_ISLNK(mode)):
        raise OperationRefused(NOT_REGULAR)


def open_to_read(place: scope.ResolvedPath) -> int:
    """Opens a regular file of a disk. A run may work in `/`, and a peer must not read the daemon's own environment in `/proc`."""
    file, status = scope.open_to_read(place)
    if status.st_dev == _find_proc_device():
        os.close(file)
        raise OperationRefused(SECRET)
    return file


@cache
def _find_proc_device() -> int | None:
    try:
        return Path("/proc").stat().st_dev
    except OSError:
        return None


def _is_folder(place: scope.ResolvedPath) -> bool:
    return stat.S_ISDIR(os.stat(place.name, dir_fd=place.folder, follow_symlinks=False).st_mode)


# relay, interop: these strings exactly.
MUST_BE_RELATIVE = "path must be relative"
CONTAINS_PARENT = "path contains .."
ESCAPES = "path escapes run cwd"

NO_CWD = "the run's cwd cannot be opened"
NO_SUCH_FILE = "no such file"
IS_A_FOLDER = "is a directory"
NOT_A_FOLDER = "not a directory"
NOT_REGULAR = "not a regular file"
NOT_TEXT = "not a UTF-8 file"
TOO_LARGE = "file is too large"
TOO_LONG = "path is too long"
SECRET = "path may hold secrets"  # noqa: S105 - a sentence

_BY_NUMBER = {
    errno.ENOENT: NO_SUCH_FILE,
    errno.EISDIR: IS_A_FOLDER,
    errno.ENOTDIR: NOT_A_FOLDER,
    errno.ENAMETOOLONG: TOO_LONG,
    errno.ENXIO: NOT_REGULAR,
    errno.ELOOP: ESCAPES,
    errno.EACCES: "permission denied",
    errno.EPERM: "permission denied",
}


class OperationRefused(Exception):
    """The operation is impossible or not permitted."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


@contextmanager
def translate_errors() -> Iterator[None]:
    """Turns errors of `scope` and of the system into relay's strings."""
    try:
        yield
    except scope.PathRefused as refused:
        # The text of the path was checked before: the remaining cause is a link out, or one that changed meanwhile.
        raise OperationRefused(ESCAPES) from refused
    except outcome.ToolFailed as failed:
        raise OperationRefused(NO_CWD if failed.type is outcome.ToolErrorType.SANDBOX_UNREACHABLE else NOT_REGULAR) from failed
    except OSError as error:
        raise OperationRefused(_BY_NUMBER.get(error.errno or 0, (error.strerror or "it cannot be read").lower())) from error
