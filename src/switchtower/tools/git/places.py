"""What git needs of the world outside a workspace, and what inside it makes git run programs. For a sandbox, which opens the
one and closes the other. Looks at files and never runs git: they may have been written by somebody whom nobody trusts.
"""

import os
from pathlib import Path

from msgspec import Struct

from switchtower.tools import outcome
from switchtower.tools.git import repository

_WRITTEN_BY_COMMITS = ("objects", "refs", "logs", "reftable", "lfs")


class Needs(Struct, frozen=True):
    """Absolute paths that are no links."""

    readable: tuple[str, ...] = ()
    """Outside the workspace, for git to work at all."""
    writable: tuple[str, ...] = ()
    """Where a commit goes. May lie below the readable ones."""
    fixed: tuple[str, ...] = ()
    """To be seen and not changed: who writes here has git run what he likes, outside too, when somebody else uses it."""
    absent: tuple[str, ...] = ()
    """Folders of that kind that are not there, and must not appear."""


def needs(workspace: str) -> Needs:
    """Of a workspace given by its real path."""
    dot_git = Path(workspace, ".git")
    if dot_git.is_symlink():
        return Needs()
    if dot_git.is_dir():
        return _needs_of_repository(dot_git)
    if dot_git.is_file():
        return _needs_of_worktree(dot_git)
    return _needs_of_a_part(workspace)


def _needs_of_repository(dot_git: Path) -> Needs:
    # The folder itself is a mount too: it cannot be moved away and replaced by another with other hooks.
    absent = () if os.path.lexists(dot_git / "hooks") else (str(dot_git / "hooks"),)
    return Needs(writable=(str(dot_git),), fixed=_existing(dot_git, "config", "hooks"), absent=absent)


def _needs_of_worktree(dot_git: Path) -> Needs:
    """The worktree's own part of the repository, and of what all worktrees share only what a commit writes."""
    workspace = dot_git.parent
    try:
        # Only a repository that knows this workspace is found: a pointer could have been written to have a stranger's opened.
        found = repository.find(str(workspace))
    except outcome.Failed:
        return Needs(fixed=(str(dot_git),))
    git_dir, common_dir = Path(found.git_dir), Path(found.common_dir)
    if git_dir.is_relative_to(workspace) or common_dir.is_relative_to(workspace) or git_dir.parent != common_dir / "worktrees":
        return Needs(fixed=(str(dot_git),))
    return Needs(
        readable=(str(common_dir),),
        writable=(*_existing(common_dir, *_WRITTEN_BY_COMMITS), str(git_dir)),
        fixed=(str(dot_git), *_existing(git_dir, "commondir", "gitdir", "config.worktree")),
    )


def _needs_of_a_part(workspace: str) -> Needs:
    """Of one in the middle of a repository, which lies outside it and can be read there. Nothing inside had a say in where."""
    try:
        found = repository.find(workspace)
    except outcome.Failed:
        return Needs()
    return Needs(readable=(found.top, found.common_dir))


def _existing(folder: Path, *names: str) -> tuple[str, ...]:
    """Those that are there. A link could lead anywhere, so it does not count."""
    return tuple(str(folder / name) for name in names if (folder / name).exists() and not (folder / name).is_symlink())
