"""What the folder of a run says about itself: its branches, read from git's own files. Runs no program."""

from pathlib import Path

from switchtower.client import errors
from switchtower.protocols.push import messages

DETACHED = "HEAD"
"""Stands for the branch where a commit is checked out and no branch, as in git's own answers."""
_USUAL_DEFAULT = "main"
UNKNOWN_BRANCHES = (DETACHED, _USUAL_DEFAULT)
"""The current and the default branch for a daemon that requires both."""


def describe(folder: Path) -> messages.Repo:
    """The folder as `start_session` wants it. Outside of git it has no branches."""
    root = root_of(folder)
    git = _git_folder(Path(root))
    if git is None:
        return messages.Repo(root)
    default = _branch(_common_folder(git) / "refs/remotes/origin/HEAD", "refs/remotes/origin/")
    return messages.Repo(root, _branch(git / "HEAD", "refs/heads/") or DETACHED, default or _USUAL_DEFAULT)


def root_of(folder: Path) -> str:
    """The folder's whole name, as the wire can carry it. Raises `ClientError`."""
    root = str(folder.resolve())
    try:
        root.encode()
    except UnicodeEncodeError:
        raise errors.ClientError(f"the folder's name is not UTF-8: {root!a}", hint="give another with `--cwd`") from None
    return root


def _git_folder(start: Path) -> Path | None:
    for folder in (start, *start.parents):
        entry = folder / ".git"
        if entry.is_dir():
            return entry
        pointer = _first_line(entry)  # in a worktree or submodule, `.git` is a file that points elsewhere
        if pointer.startswith("gitdir: "):
            return folder / pointer.removeprefix("gitdir: ")
    return None


def _common_folder(git: Path) -> Path:
    """A worktree keeps its own HEAD and shares the rest."""
    shared = _first_line(git / "commondir")
    return git / shared if shared else git


def _branch(head: Path, prefix: str) -> str | None:
    reference = _first_line(head)
    return reference.removeprefix(f"ref: {prefix}") if reference.startswith(f"ref: {prefix}") else None


def _first_line(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.readline(4_096).decode(errors="replace").strip()
    except OSError:
        return ""
