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
from switchtower.tools.git.plumbing.unavailable import Unavailable
from switchtower.tools.running import leash

_USUAL_BASES = ("main", "master", "trunk", "develop")
_REMOTE = "origin"


async def look(task: engine.Task) -> port.Repository | None:
    """None where there is none, or none that may be looked at. Raises `ExtensionError` when it takes too long."""
    try:
        async with asyncio.timeout(tool.GIT_TIME):
            return await leash.lead(task.run_id, partial(_look, task))
    except TimeoutError:
        raise port.ExtensionError(f"git did not answer within {tool.GIT_TIME:g} s") from None
    except (outcome.Failed, Unavailable, plumbing.Failed, OSError):
        return None


def _look(task: engine.Task, held: leash.Leash) -> port.Repository:
    with git.view(task.workspace.root, held) as view:
        listed = view.ask("status", "--porcelain=v1", "-z", "--no-renames", "--untracked-files=all", "--ignore-submodules=all")
        changed = sum(bool(entry) for entry in listed.split(b"\0"))
        base, ahead = None, 0
        if view.commit is not None:
            base, ahead = _base(task, view, held)
        return port.Repository(branch=view.branch, commit=view.commit, changed=changed, base=base, ahead=ahead)


def _base(task: engine.Task, view: git.View, held: leash.Leash) -> tuple[str | None, int]:
    """The first candidate that there is, and by how many commits this branch has gone beyond it."""
    with tempfile.TemporaryDirectory(prefix="tower-git-") as elsewhere:
        # References alone: neither a file of the workspace nor an object is looked at with the repository's configuration.
        theirs = plumbing.Git(elsewhere, {"GIT_DIR": view.found.git_dir})
        for name, reference in _candidates(task, theirs, held):
            if name in (view.branch, f"{_REMOTE}/{view.branch}"):
                return None, 0
            commit = _printed(theirs, held, "rev-parse", "--quiet", "--verify", reference)
            if commit is not None:
                return name, int(view.ask("rev-list", "--count", f"{commit}..{view.commit}"))
    return None, 0


def _candidates(task: engine.Task, theirs: plumbing.Git, held: leash.Leash) -> Iterator[tuple[str, str]]:
    """A name that git understands in a command, and the whole reference."""
    named = task.workspace.default_branch
    if named:
        yield named, f"refs/heads/{named}"
        yield f"{_REMOTE}/{named}", f"refs/remotes/{_REMOTE}/{named}"
    head = _printed(theirs, held, "symbolic-ref", "--quiet", f"refs/remotes/{_REMOTE}/HEAD")
    if head is not None:
        yield head.removeprefix("refs/remotes/"), head
    yield from ((name, f"refs/heads/{name}") for name in _USUAL_BASES)


def _printed(theirs: plumbing.Git, held: leash.Leash, *args: str) -> str | None:
    attempt = theirs.attempt(held, *args)
    return os.fsdecode(attempt.printed).strip() or None if attempt.exit_code == 0 else None
