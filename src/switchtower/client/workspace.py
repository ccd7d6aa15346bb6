"""The folder that a session works in: its branches, read from git's own files, and its file names for completion.

This module runs no program, and it bounds the number of files and the time: a home folder can be a workspace too.
"""

import os
import time
from pathlib import Path

from switchtower.client import errors
from switchtower.protocols.push import messages

DETACHED = "HEAD"
"""The branch name reported for a checked-out commit without a branch, as in git's own answers."""
_FALLBACK_DEFAULT_BRANCH = "main"
UNKNOWN_BRANCHES = (DETACHED, _FALLBACK_DEFAULT_BRANCH)
"""The current and the default branch for a daemon that requires both."""


def describe_repo(folder: Path) -> messages.Repo:
    """Describes the folder for `start_session`. A folder outside of git has no branches."""
    root = resolve_root(folder)
    git = _find_git_folder(Path(root))
    if git is None:
        return messages.Repo(root)
    default = _read_branch(_find_common_folder(git) / "refs/remotes/origin/HEAD", "refs/remotes/origin/")
    return messages.Repo(root, _read_branch(git / "HEAD", "refs/heads/") or DETACHED, default or _FALLBACK_DEFAULT_BRANCH)


def resolve_root(folder: Path) -> str:
    """Returns the absolute path in a form that the wire can carry. Raises `ClientError`."""
    root = str(folder.resolve())
    try:
        root.encode()
    except UnicodeEncodeError:
        raise errors.ClientError(f"the folder's name is not UTF-8: {root!a}", hint="give another with `--cwd`") from None
    return root


def _find_git_folder(start: Path) -> Path | None:
    for folder in (start, *start.parents):
        entry = folder / ".git"
        if entry.is_dir():
            return entry
        pointer = _read_first_line(entry)  # in a worktree or submodule, `.git` is a file that points elsewhere
        if pointer.startswith("gitdir: "):
            return folder / pointer.removeprefix("gitdir: ")
    return None


def _find_common_folder(git: Path) -> Path:
    """Returns the folder that a worktree shares with its repository; a worktree has its own HEAD and shares the rest."""
    shared = _read_first_line(git / "commondir")
    return git / shared if shared else git


def _read_branch(head: Path, prefix: str) -> str | None:
    reference = _read_first_line(head)
    return reference.removeprefix(f"ref: {prefix}") if reference.startswith(f"ref: {prefix}") else None


def _read_first_line(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.readline(4_096).decode(errors="replace").strip()
    except OSError:
        return ""


MOST_FILES = 20_000
MOST_SECONDS = 2.0
_SKIPPED = frozenset(
    {"node_modules", "vendor", "__pycache__", "target", "dist", "build", "venv", "site-packages", "bower_components", "coverage"}
)


def resolve_folder(folder: str | Path) -> str:
    """Returns the absolute path. Raises `ClientError` when a session cannot use the folder."""
    path = Path(folder).expanduser()
    if not path.is_dir():
        raise errors.ClientError(f"`{path}` is no folder", hint="give one that exists")
    root = str(path.resolve())
    try:
        root.encode()
    except UnicodeEncodeError:
        raise errors.ClientError(f"the folder's name is not UTF-8: {root!a}", hint="give another") from None
    return root


def describe_workspace(root: str) -> messages.Repo:
    """Describes the folder for `start_session`."""
    return describe_repo(Path(root))


def list_files(root: str, *, most: int = MOST_FILES) -> list[str]:
    """Lists files and folders below the root in the form of mentions, nearest first, without hidden folders and build output."""
    found: list[str] = []
    deadline = time.monotonic() + MOST_SECONDS
    level = [""]
    while level and len(found) < most and time.monotonic() < deadline:
        deeper: list[str] = []
        for folder in level:
            if len(found) >= most or time.monotonic() > deadline:
                break
            for name, is_folder in _list_entries(f"{root}/{folder}"):
                path = f"{folder}{name}"
                if is_folder:
                    deeper.append(f"{path}/")
                    path += "/"
                found.append(path)
        level = deeper
    return found[:most]


def _list_entries(folder: str) -> list[tuple[str, bool]]:
    entries: list[tuple[str, bool]] = []
    try:
        with os.scandir(folder) as listing:
            for entry in listing:
                is_folder = entry.is_dir(follow_symlinks=False)
                if is_folder and (entry.name in _SKIPPED or entry.name.startswith(".")):
                    continue
                if entry.name.isprintable():
                    entries.append((entry.name, is_folder))
    except OSError:
        return []
    return sorted(entries)
