"""The paths that a peer may name: relative, without `..`, and never out of the run's folder, whatever links lie there.
Stricter than `scope`, which does the walking.
"""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from switchtower.tools.files import scope
from switchtower.tools.workbench import refusals

_LONGEST_PATH = 4096
"""In bytes; no system takes more."""


def check_path(cwd: str, path: str) -> None:
    """Refuses what its words alone give away, so that nobody is asked about it. Each function here checks for itself too."""
    if not path:
        raise refusals.OperationRefused("path is empty")
    if "\0" in path:
        raise refusals.OperationRefused("path contains a null character")
    try:
        size = len(path.encode())
    except UnicodeEncodeError:
        raise refusals.OperationRefused("path is not valid Unicode") from None
    if size > _LONGEST_PATH:
        raise refusals.OperationRefused(refusals.TOO_LONG)
    if path.startswith("/"):
        raise refusals.OperationRefused(refusals.MUST_BE_RELATIVE)
    # Also where it would lead back inside: relay's hosts refuse the part wherever it stands.
    if ".." in path.split("/"):
        raise refusals.OperationRefused(refusals.CONTAINS_PARENT)
    try:
        scope.check_path(cwd, path)
    except scope.PathRefused:
        raise refusals.OperationRefused(refusals.SECRET) from None


@contextmanager
def locate_path(cwd: str, path: str, *, make_folders: bool = False) -> Iterator[scope.ResolvedPath]:
    """Where the path leads. What is done there is explained as a refusal too. Blocks."""
    check_path(cwd, path)
    with refusals.translate_errors(), scope.locate(cwd, path, make_folders=make_folders) as place:
        yield place


def check_folder_exists(cwd: str) -> None:
    """Refuses a run's folder that is gone. Blocks."""
    with locate_path(cwd, "."):
        pass


def refuse_all_but_files(path: str, place: scope.ResolvedPath) -> None:
    """A look before anything is opened: to open a device can be to use it. One that is not there yet passes."""
    if path.endswith(("/", "/.")):
        raise refusals.OperationRefused(refusals.IS_A_FOLDER if _is_folder(place) else refusals.NOT_A_FOLDER)
    try:
        mode = os.stat(place.name, dir_fd=place.folder, follow_symlinks=False).st_mode
    except FileNotFoundError:
        return
    if stat.S_ISDIR(mode):
        raise refusals.OperationRefused(refusals.IS_A_FOLDER)
    if not (stat.S_ISREG(mode) or stat.S_ISLNK(mode)):
        raise refusals.OperationRefused(refusals.NOT_REGULAR)


def open_to_read(place: scope.ResolvedPath) -> int:
    """A regular file of a disk. A run may work in `/`, and a peer is not to read the daemon's own environment in `/proc`."""
    file, status = scope.open_to_read(place)
    if status.st_dev == _find_proc_device():
        os.close(file)
        raise refusals.OperationRefused(refusals.SECRET)
    return file


@cache
def _find_proc_device() -> int | None:
    try:
        return Path("/proc").stat().st_dev
    except OSError:
        return None


def _is_folder(place: scope.ResolvedPath) -> bool:
    return stat.S_ISDIR(os.stat(place.name, dir_fd=place.folder, follow_symlinks=False).st_mode)
