"""Which files of a workspace belong into a snapshot, by name. Git says so: what it tracks, and what nobody told it to ignore."""

import os
import posixpath
from collections.abc import Iterable

from switchtower.tools.git.plumbing import git
from switchtower.tools.git.plumbing.discovery import Repository
from switchtower.tools.git.plumbing.unavailable import Unavailable
from switchtower.tools.running.leash import Leash
from switchtower.tools.snapshots.limits import Limits
from switchtower.tools.snapshots.store import Store

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


class Wanted:
    """The names to take in one folder."""

    __slots__ = ("files", "folders")

    def __init__(self) -> None:
        self.files: set[str] = set()
        self.folders: dict[str, Wanted] = {}

    def add(self, path: str) -> None:
        *folders, name = path.split("/")
        place = self
        for folder in folders:
            place = place.folders.setdefault(folder, Wanted())
        if name:  # a nested repository is listed as a folder, with a slash behind it
            place.files.add(name)


def of_workspace(
    root: str, repository: Repository | None, store: Store, also: Iterable[str], limits: Limits, held: Leash
) -> Wanted:
    """Paths in `also` are wanted even when they are ignored."""
    wanted = Wanted()
    for path in _listed(root, repository, store, limits, held):
        wanted.add(path)
    for path in also:
        inside = posixpath.relpath(posixpath.join(root, path), root)
        if inside.split("/")[0] not in (".", ".."):
            wanted.add(inside)
    return wanted


def _listed(root: str, repository: Repository | None, store: Store, limits: Limits, held: Leash) -> list[str]:
    if repository is None:
        most = limits.folder_files
        caller = git.Git(root, {"GIT_DIR": store.git_dir, "GIT_WORK_TREE": root})
        which = ["--others", *(f"--exclude={name}/" for name in RUBBISH)]
    else:
        most = limits.repository_files
        caller = git.Git(root, {"GIT_DIR": repository.git_dir, "GIT_WORK_TREE": repository.top})
        which = ["--others", "--cached"]
    listed: list[str] = []
    rest = b""
    with caller.start(held, "ls-files", "-z", "--exclude-standard", *which) as running:
        for chunk in running.output():
            *names, rest = (rest + chunk).split(b"\0")
            listed += map(os.fsdecode, names)
            if len(listed) > most:
                raise Unavailable(
                    f"`{root}` has more than {most} files", hint="let `.gitignore` name the folders that hold no work"
                )
        if running.exit_code != 0:
            raise Unavailable(f"git cannot list the files of `{root}`", hint="see what `git status` says there")
    return listed
