"""Which files of a workspace belong into a snapshot, by name. Git says so: what it tracks, and what nobody told it to ignore."""

import os
import posixpath
from collections.abc import Iterable

from switchtower.tools.git.plumbing import git
from switchtower.tools.git.plumbing.discovery import VerifiedRepository
from switchtower.tools.git.plumbing.unavailable import GitUnavailable
from switchtower.tools.running.leash import CancelScope
from switchtower.tools.snapshots.limits import SnapshotLimits
from switchtower.tools.snapshots.store import ObjectStore

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
"""Folders that are left out where no repository says what to ignore."""


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
        caller = git.GitRunner(root, {"GIT_DIR": store.git_dir, "GIT_WORK_TREE": root})
        which = ["--others", *(f"--exclude={name}/" for name in RUBBISH)]
    else:
        most = limits.repository_files
        caller = git.GitRunner(root, {"GIT_DIR": repository.git_dir, "GIT_WORK_TREE": repository.top})
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
