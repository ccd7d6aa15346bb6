"""What the folder of a run says about itself: its branches, read from git's own files. Runs no program."""

from pathlib import Path

from switchtower.client import errors
from switchtower.protocols.push import messages

DETACHED = "HEAD"
"""Stands for the branch where a commit is checked out and no branch, as in git's own answers."""
_FALLBACK_DEFAULT_BRANCH = "main"
UNKNOWN_BRANCHES = (DETACHED, _FALLBACK_DEFAULT_BRANCH)
"""The current and the default branch for a daemon that requires both."""


def describe_repo(folder: Path) -> messages.Repo:
    """The folder as `start_session` wants it. Outside of git it has no branches."""
    root = resolve_root(folder)
    git = _find_git_folder(Path(root))
    if git is None:
        return messages.Repo(root)
    default = _read_branch(_find_common_folder(git) / "refs/remotes/origin/HEAD", "refs/remotes/origin/")
    return messages.Repo(root, _read_branch(git / "HEAD", "refs/heads/") or DETACHED, default or _FALLBACK_DEFAULT_BRANCH)


def resolve_root(folder: Path) -> str:
    """The folder's whole name, as the wire can carry it. Raises `ClientError`."""
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
    """A worktree keeps its own HEAD and shares the rest."""
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
