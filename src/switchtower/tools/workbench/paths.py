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


def check(cwd: str, path: str) -> None:
    """Refuses what its words alone give away, so that nobody is asked about it. Each function here checks for itself too."""
    if not path:
        raise refusals.Refused("path is empty")
    if "\0" in path:
        raise refusals.Refused("path contains a null character")
    try:
        size = len(path.encode())
    except UnicodeEncodeError:
        raise refusals.Refused("path is not valid Unicode") from None
    if size > _LONGEST_PATH:
        raise refusals.Refused(refusals.TOO_LONG)
    if path.startswith("/"):
        raise refusals.Refused(refusals.MUST_BE_RELATIVE)
    # Also where it would lead back inside: relay's hosts refuse the part wherever it stands.
    if ".." in path.split("/"):
        raise refusals.Refused(refusals.CONTAINS_PARENT)
    try:
        scope.check(cwd, path)
    except scope.Refused:
        raise refusals.Refused(refusals.SECRET) from None


@contextmanager
def located(cwd: str, path: str, *, make_folders: bool = False) -> Iterator[scope.Place]:
    """Where the path leads. What is done there is explained as a refusal too. Blocks."""
    check(cwd, path)
    with refusals.explained(), scope.locate(cwd, path, make_folders=make_folders) as place:
        yield place


def enter(cwd: str) -> None:
    """Refuses a run's folder that is gone. Blocks."""
    with located(cwd, "."):
        pass


def refuse_all_but_files(path: str, place: scope.Place) -> None:
    """A look before anything is opened: to open a device can be to use it. One that is not there yet passes."""
    if path.endswith(("/", "/.")):
        raise refusals.Refused(refusals.IS_A_FOLDER if _is_folder(place) else refusals.NOT_A_FOLDER)
    try:
        mode = os.stat(place.name, dir_fd=place.folder, follow_symlinks=False).st_mode
    except FileNotFoundError:
        return
    if stat.S_ISDIR(mode):
        raise refusals.Refused(refusals.IS_A_FOLDER)
    if not (stat.S_ISREG(mode) or stat.S_ISLNK(mode)):
        raise refusals.Refused(refusals.NOT_REGULAR)


def open_to_read(place: scope.Place) -> int:
    """A regular file of a disk. A run may work in `/`, and a peer is not to read the daemon's own environment in `/proc`."""
    file, status = scope.open_to_read(place)
    if status.st_dev == _device_of_processes():
        os.close(file)
        raise refusals.Refused(refusals.SECRET)
    return file


@cache
def _device_of_processes() -> int | None:
    try:
        return Path("/proc").stat().st_dev
    except OSError:
        return None


def _is_folder(place: scope.Place) -> bool:
    return stat.S_ISDIR(os.stat(place.name, dir_fd=place.folder, follow_symlinks=False).st_mode)
