"""A look at a workspace's repository for extensions. Runs nothing of the repository's own, and changes nothing."""

import asyncio
import os
import tempfile
from collections.abc import Iterator
from functools import partial

from switchtower.core import engine
from switchtower.extensions import port
from switchtower.tools import outcome, tool
from switchtower.tools.git import git
from switchtower.tools.git.plumbing import git as plumbing
from switchtower.tools.git.plumbing.unavailable import GitUnavailable
from switchtower.tools.running import leash

_USUAL_BASES = ("main", "master", "trunk", "develop")
_REMOTE = "origin"


async def read_repository(task: engine.Task) -> port.RepositoryInfo | None:
    """None where there is none, or none that may be looked at. Raises `ExtensionError` when it takes too long."""
    try:
        async with asyncio.timeout(tool.GIT_TIME):
            return await leash.run_in_cancel_scope(task.run_id, partial(_read_repository, task))
    except TimeoutError:
        raise port.ExtensionError(f"git did not answer within {tool.GIT_TIME:g} s") from None
    except (outcome.ToolFailed, GitUnavailable, plumbing.GitError, OSError):
        return None


def _read_repository(task: engine.Task, cancel_scope: leash.CancelScope) -> port.RepositoryInfo:
    with git.open_view(task.workspace.root, cancel_scope) as view:
        listed = view.run_git(
            "status", "--porcelain=v1", "-z", "--no-renames", "--untracked-files=all", "--ignore-submodules=all"
        )
        changed = sum(bool(entry) for entry in listed.split(b"\0"))
        base, ahead = None, 0
        if view.commit is not None:
            base, ahead = _find_base(task, view, cancel_scope)
        return port.RepositoryInfo(branch=view.branch, commit=view.commit, changed=changed, base=base, ahead=ahead)


def _find_base(task: engine.Task, view: git.RepositoryView, cancel_scope: leash.CancelScope) -> tuple[str | None, int]:
    """The first candidate that there is, and by how many commits this branch has gone beyond it."""
    with tempfile.TemporaryDirectory(prefix="tower-git-") as elsewhere:
        # References alone: neither a file of the workspace nor an object is looked at with the repository's configuration.
        theirs = plumbing.GitRunner(elsewhere, {"GIT_DIR": view.found.git_dir})
        for name, reference in _list_base_candidates(task, theirs, cancel_scope):
            if name in (view.branch, f"{_REMOTE}/{view.branch}"):
                return None, 0
            commit = _run_git(theirs, cancel_scope, "rev-parse", "--quiet", "--verify", reference)
            if commit is not None:
                return name, int(view.run_git("rev-list", "--count", f"{commit}..{view.commit}"))
    return None, 0


def _list_base_candidates(
    task: engine.Task, theirs: plumbing.GitRunner, cancel_scope: leash.CancelScope
) -> Iterator[tuple[str, str]]:
    """A name that git understands in a command, and the whole reference."""
    named = task.workspace.default_branch
    if named:
        yield named, f"refs/heads/{named}"
        yield f"{_REMOTE}/{named}", f"refs/remotes/{_REMOTE}/{named}"
    head = _run_git(theirs, cancel_scope, "symbolic-ref", "--quiet", f"refs/remotes/{_REMOTE}/HEAD")
    if head is not None:
        yield head.removeprefix("refs/remotes/"), head
    yield from ((name, f"refs/heads/{name}") for name in _USUAL_BASES)


def _run_git(theirs: plumbing.GitRunner, cancel_scope: leash.CancelScope, *args: str) -> str | None:
    attempt = theirs.try_run(cancel_scope, *args)
    return os.fsdecode(attempt.printed).strip() or None if attempt.exit_code == 0 else None
