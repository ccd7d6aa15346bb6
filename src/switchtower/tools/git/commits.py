"""What a commit of some paths would hold, worked out beside the repository and without a trace in it. Blocking."""

import os
from collections.abc import Iterable, Sequence

from msgspec import Struct

from switchtower.core import policy
from switchtower.tools import outcome
from switchtower.tools.files import scope
from switchtower.tools.git import git
from switchtower.tools.running import leash

_MOST_LEFT_OUT = 200


class CommitPlan(Struct, frozen=True):
    """The paths as git takes them; files of secrets below them are left out."""

    paths: tuple[str, ...]
    left_out: tuple[str, ...]
    during_merge: bool
    """Git then commits all that is staged or nothing."""


class CommitSize(Struct, frozen=True):
    files: tuple[str, ...]
    insertions: int
    deletions: int
    tree: str
    """The hash of all files as they would be."""


def plan_commit(root: str, paths: Sequence[str] | None, cancel_scope: leash.CancelScope) -> CommitPlan:
    """Raises `outcome.Failed` where there is no repository, or none that is what it seems."""
    with git.open_view(root, cancel_scope) as seen:
        if git.find_top(root, cancel_scope) != seen.found.top:
            message = "the repository's configuration names another folder as its files; hint: look at `core.worktree`"
            raise outcome.ToolFailed(outcome.ToolErrorType.EDIT_GUARD_BLOCKED, message)
        return _make_plan(seen, root, paths)


def measure_commit(root: str, paths: Sequence[str] | None, cancel_scope: leash.CancelScope) -> tuple[CommitPlan, CommitSize]:
    with git.open_view(root, cancel_scope) as seen:
        planned = _make_plan(seen, root, paths)
        if planned.paths:
            if not planned.during_merge:
                seen.run_git("read-tree", seen.commit or "--empty")
            seen.run_git("add", "--all", "--", *planned.paths)
        against = [seen.commit] if seen.commit else []
        counted = seen.run_git("diff", "--cached", "--numstat", "-z", "--no-renames", *DIFF, *against, "--")
        return planned, _parse_sizes(counted, seen.run_git("write-tree").decode().strip())


DIFF = ("--no-ext-diff", "--no-textconv", "--no-color", "--submodule=short", "--ignore-submodules=dirty")
"""Nothing is run for a diff, and nothing decorates it."""


def list_secret_files(root: str, names: Iterable[str], top: str) -> list[str]:
    """Those names, seen from the top, that belong to files which tools may not touch."""
    found = [name for name in names if name and policy.is_secret(f"{top}/{name}")]
    if len(found) > _MOST_LEFT_OUT:
        message = f"too many files of `{root}` may hold secrets; hint: name narrower paths"
        raise outcome.ToolFailed(outcome.ToolErrorType.EDIT_GUARD_BLOCKED, message)
    return found


def split_names(listed: bytes) -> list[str]:
    return [os.fsdecode(name) for name in listed.split(b"\0") if name]


def _make_plan(seen: git.RepositoryView, root: str, paths: Sequence[str] | None) -> CommitPlan:
    during_merge = "a merge" in seen.found.list_unfinished_operations()
    if paths is None:
        return CommitPlan((), (), during_merge)
    wanted = [git.literal_pathspec(scope.to_relative(root, path)) for path in paths]
    status = ("status", "--porcelain=v1", "-z", "--untracked-files=all", "--no-renames", "--ignore-submodules=dirty")
    # Each entry is two letters, a space and the name.
    changed = [entry[3:] for entry in split_names(seen.run_git(*status, "--", *wanted))]
    left_out = list_secret_files(root, changed, seen.found.top)
    return CommitPlan((*wanted, *(git.exclude_pathspec(name) for name in left_out)), tuple(left_out), during_merge)


def _parse_sizes(counted: bytes, tree: str) -> CommitSize:
    files, insertions, deletions = [], 0, 0
    for line in split_names(counted):
        added, removed, name = line.split("\t", 2)
        files.append(name)
        # A binary file has a dash for each.
        insertions += int(added) if added.isdigit() else 0
        deletions += int(removed) if removed.isdigit() else 0
    return CommitSize(tuple(files), insertions, deletions, tree)
