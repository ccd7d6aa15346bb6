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


class Plan(Struct, frozen=True):
    """The paths as git takes them; files of secrets below them are left out."""

    paths: tuple[str, ...]
    left_out: tuple[str, ...]
    during_merge: bool
    """Git then commits all that is staged or nothing."""


class Measure(Struct, frozen=True):
    files: tuple[str, ...]
    insertions: int
    deletions: int
    tree: str
    """The hash of all files as they would be."""


def plan(root: str, paths: Sequence[str] | None, held: leash.Leash) -> Plan:
    """Raises `outcome.Failed` where there is no repository, or none that is what it seems."""
    with git.view(root, held) as seen:
        if git.top_by_git(root, held) != seen.found.top:
            message = "the repository's configuration names another folder as its files; hint: look at `core.worktree`"
            raise outcome.Failed(outcome.ErrorType.EDIT_GUARD_BLOCKED, message)
        return _planned(seen, root, paths)


def measure(root: str, paths: Sequence[str] | None, held: leash.Leash) -> tuple[Plan, Measure]:
    with git.view(root, held) as seen:
        planned = _planned(seen, root, paths)
        if planned.paths:
            if not planned.during_merge:
                seen.ask("read-tree", seen.commit or "--empty")
            seen.ask("add", "--all", "--", *planned.paths)
        against = [seen.commit] if seen.commit else []
        counted = seen.ask("diff", "--cached", "--numstat", "-z", "--no-renames", *DIFF, *against, "--")
        return planned, _measured(counted, seen.ask("write-tree").decode().strip())


DIFF = ("--no-ext-diff", "--no-textconv", "--no-color", "--submodule=short", "--ignore-submodules=dirty")
"""Nothing is run for a diff, and nothing decorates it."""


def secrets_in(root: str, names: Iterable[str], top: str) -> list[str]:
    """Those names, seen from the top, that belong to files which tools may not touch."""
    found = [name for name in names if name and policy.is_secret(f"{top}/{name}")]
    if len(found) > _MOST_LEFT_OUT:
        message = f"too many files of `{root}` may hold secrets; hint: name narrower paths"
        raise outcome.Failed(outcome.ErrorType.EDIT_GUARD_BLOCKED, message)
    return found


def names_in(listed: bytes) -> list[str]:
    return [os.fsdecode(name) for name in listed.split(b"\0") if name]


def _planned(seen: git.View, root: str, paths: Sequence[str] | None) -> Plan:
    during_merge = "a merge" in seen.found.unfinished()
    if paths is None:
        return Plan((), (), during_merge)
    wanted = [git.literally(scope.relative(root, path)) for path in paths]
    status = ("status", "--porcelain=v1", "-z", "--untracked-files=all", "--no-renames", "--ignore-submodules=dirty")
    # Each entry is two letters, a space and the name.
    changed = [entry[3:] for entry in names_in(seen.ask(*status, "--", *wanted))]
    left_out = secrets_in(root, changed, seen.found.top)
    return Plan((*wanted, *(git.all_but(name) for name in left_out)), tuple(left_out), during_merge)


def _measured(counted: bytes, tree: str) -> Measure:
    files, insertions, deletions = [], 0, 0
    for line in names_in(counted):
        added, removed, name = line.split("\t", 2)
        files.append(name)
        # A binary file has a dash for each.
        insertions += int(added) if added.isdigit() else 0
        deletions += int(removed) if removed.isdigit() else 0
    return Measure(tuple(files), insertions, deletions, tree)
