"""A separate working tree for a session: a new branch, checked out in a folder that the daemon manages. Uncommitted changes are
not copied.

Nothing that the repository configures is run: no hook, none of its filters, and nothing is fetched. The user's own filters work.
"""

import itertools
import os
import shutil
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path, PurePath
from typing import TypeVar

from msgspec import Struct

from switchtower.core import errors
from switchtower.tools import concurrency, outcome
from switchtower.tools.git import process, repository
from switchtower.tools.git.process import GitRunner, GitUnavailable, override_programs
from switchtower.tools.processes.cancellation import CancelScope

SECONDS = 120.0
"""The time limit of a checkout; a large one takes long."""
_SHORT = 10
"""The number of characters of a session's id that name its branch and folder. They are taken from its end, which differs most."""

T = TypeVar("T")


class Worktree(Struct, frozen=True):
    root: str
    """The workspace: the requested folder of the repository, in its new place."""
    branch: str
    origin: str
    """The repository's own working tree."""


async def create_worktree(repository: str, folder: Path, session_id: str, base: str | None = None) -> Worktree:
    """Creates a new branch `tower/…` at `base`, or at what is checked out, in a separate folder inside `folder`. Raises
    `errors.InvalidCommand` when the repository cannot have one and `errors.SandboxUnavailable` when it does not succeed.
    """
    unfinished: list[_PartialWorktree] = []
    try:
        return await _run_on_thread(lambda held: _create(repository, folder, session_id, base, unfinished, held))
    except BaseException:
        if unfinished:
            with suppress(errors.CoreError):
                await concurrency.run_to_completion(_run_on_thread(unfinished[0].discard))
        raise


async def remove_worktree(root: str, origin: str, *, force: bool) -> None:
    """Removes the working tree, even a partly removed one. Its branch stays when it has commits that exist nowhere else. Without
    `force`, `errors.InvalidCommand` is raised when there are uncommitted changes.
    """
    await _run_on_thread(lambda held: _remove(root, origin, force=force, cancel_scope=held))


async def prune_worktrees(folder: Path, *, keep: Collection[str]) -> tuple[str, ...]:
    """Removes the working trees in `folder` that no root in `keep` lies in, except those with uncommitted changes. Returns the
    removed ones.
    """
    removed: list[str] = []
    for top in await _run_on_thread(lambda _: _find_strays(folder, keep)):
        with suppress(errors.CoreError):
            await _run_on_thread(lambda held, top=top: _prune(top, held))  # type: ignore[misc]
            removed.append(str(top))
    return tuple(removed)


class _PartialWorktree(Struct, frozen=True):
    """A working tree that is being made. A mark file beside it records that, in case the work is interrupted."""

    git: GitRunner
    top: Path
    branch: str
    commit: str

    def discard(self, cancel_scope: CancelScope) -> None:
        self.git.try_run(cancel_scope, "worktree", "remove", "--force", "--force", str(self.top))
        shutil.rmtree(self.top, ignore_errors=True)
        self.git.try_run(cancel_scope, "worktree", "prune")
        self.git.try_run(cancel_scope, "update-ref", "-d", f"refs/heads/{self.branch}", self.commit)
        _find_mark_file(self.top).unlink(missing_ok=True)


def _create(
    workspace: str, folder: Path, session_id: str, base: str | None, unfinished: list[_PartialWorktree], cancel_scope: CancelScope
) -> Worktree:
    root = os.path.realpath(workspace)
    if not Path(root).is_dir():
        raise errors.InvalidCommand(f"there is no folder `{workspace}`")
    origin = process.find_verified_repository(root, cancel_scope)
    if origin is None:
        raise errors.InvalidCommand(
            f"a worktree needs a git repository, and `{workspace}` is in none",
            hint="make one with `git init` and a first commit, or start the session without a worktree",
        )
    caller = override_programs(GitRunner(origin.top, {"GIT_DIR": origin.git_dir, "GIT_WORK_TREE": origin.top}), cancel_scope)
    commit = _resolve_commit(caller, origin.top, base, cancel_scope)
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    top, branch = _find_free_names(caller, folder, session_id, cancel_scope)
    _find_mark_file(top).touch()
    unfinished.append(_PartialWorktree(caller, top, branch, commit))
    caller.run(cancel_scope, "worktree", "add", "--no-checkout", "--no-track", "-b", branch, "--", str(top), commit)
    # The programs are read again in the new place: a setting can apply only there.
    inside = override_programs(GitRunner(str(top)), cancel_scope)
    inside.run(cancel_scope, "-c", "submodule.recurse=false", "reset", "--hard", "--quiet")
    new_root = _find_same_folder(top, PurePath(root).relative_to(os.path.realpath(origin.top)))
    _find_mark_file(top).unlink()
    return Worktree(root=str(new_root), branch=branch, origin=origin.top)


def _resolve_commit(caller: GitRunner, top: str, base: str | None, cancel_scope: CancelScope) -> str:
    wanted = "HEAD" if base is None else base
    answer = caller.try_run(cancel_scope, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{wanted}^{{commit}}")
    if answer.exit_code == 0:
        return answer.printed.decode().strip()
    if base is None:
        raise errors.InvalidCommand(
            f"a worktree starts from a commit, and `{top}` has none", hint="commit something, or start without a worktree"
        )
    raise errors.InvalidCommand(f"`{base}` names no commit in `{top}`", hint="name a branch, a tag or a commit that exists")


def _find_free_names(caller: GitRunner, folder: Path, session_id: str, cancel_scope: CancelScope) -> tuple[Path, str]:
    """Returns free names for the folder and the branch."""
    short = "".join(letter for letter in session_id if letter.isascii() and letter.isalnum())[-_SHORT:].lower() or "session"
    # A branch named `tower` prevents others below it.
    prefix = "tower-" if _has_branch(caller, "tower", cancel_scope) else "tower/"
    for number in itertools.count(1):
        name = short if number == 1 else f"{short}-{number}"
        top = folder / name
        if not (os.path.lexists(top) or _find_mark_file(top).exists() or _has_branch(caller, prefix + name, cancel_scope)):
            return top.resolve(), prefix + name
    raise AssertionError("there is always another number")


def _has_branch(caller: GitRunner, branch: str, cancel_scope: CancelScope) -> bool:
    return caller.try_run(cancel_scope, "show-ref", "--verify", "--quiet", f"refs/heads/{branch}").exit_code == 0


def _find_same_folder(top: Path, below: PurePath) -> Path:
    """Returns the same folder as in the repository. It may be uncommitted there, or a link here."""
    root = top / below
    if not Path(os.path.realpath(root)).is_relative_to(top):
        raise errors.InvalidCommand(f"`{below}` is a link out of the repository in that commit")
    root.mkdir(parents=True, exist_ok=True)
    return root


def _remove(root: str, origin: str, *, force: bool, cancel_scope: CancelScope) -> None:
    common = repository.find_repository(origin).common_dir
    listed = sorted(_iterate_worktrees(common), key=lambda tree: len(tree[0].parts))
    # This takes the innermost one, in case one lies in another.
    here = [(top, git_dir) for top, git_dir in listed if PurePath(os.path.realpath(root)).is_relative_to(top)]
    if here:
        _remove_listed(*here[-1], common, force=force, cancel_scope=cancel_scope)
    elif os.path.lexists(root):
        raise errors.InvalidCommand(f"`{root}` is no worktree of `{origin}`")


def _remove_listed(top: PurePath, git_dir: str, common: str, *, force: bool, cancel_scope: CancelScope) -> None:
    if not force and _has_changes(str(top), git_dir, cancel_scope):
        raise errors.InvalidCommand(f"`{top}` has changes that are not committed", hint="commit them, or remove it by force")
    mark = _find_mark_file(Path(top))
    mark.touch()
    head = repository.read_small_file(f"{git_dir}/HEAD") or b""
    caller = override_programs(GitRunner(common, {"GIT_DIR": common}), cancel_scope)
    caller.run(cancel_scope, "worktree", "remove", "--force", "--force", str(top))
    branch = os.fsdecode(head.strip()).removeprefix("ref: refs/heads/")
    if branch.startswith("tower"):
        caller.try_run(cancel_scope, "branch", "--delete", "--quiet", "--", branch)  # git keeps one with unmerged commits
    mark.unlink()


def _has_changes(top: str, git_dir: str, cancel_scope: CancelScope) -> bool:
    if not Path(top).is_dir():
        return False
    if Path(git_dir, "modules").exists():
        return True  # submodules have their own repositories, which are not checked
    caller = override_programs(GitRunner(top, {"GIT_DIR": git_dir, "GIT_WORK_TREE": top}), cancel_scope)
    return bool(caller.run(cancel_scope, "status", "--porcelain", "--ignore-submodules=all"))


def _iterate_worktrees(common: str) -> Iterator[tuple[PurePath, str]]:
    """Yields the working trees that a repository lists, each with its own part of the repository."""
    with suppress(FileNotFoundError), os.scandir(f"{common}/worktrees") as entries:
        for entry in entries:
            pointer = repository.read_small_file(f"{entry.path}/gitdir")
            if pointer:
                yield PurePath(os.path.realpath(os.fsdecode(pointer.rstrip(b"\n")))).parent, entry.path


def _find_strays(folder: Path, keep: Collection[str]) -> list[Path]:
    if not folder.is_dir():
        return []
    kept = [PurePath(os.path.realpath(root)) for root in keep]
    tops = [entry for entry in folder.resolve().iterdir() if entry.is_dir() and not entry.is_symlink()]
    return sorted(top for top in tops if not any(root.is_relative_to(top) for root in kept))


def _prune(top: Path, cancel_scope: CancelScope) -> None:
    half_done = _find_mark_file(top).exists()
    try:
        found = repository.find_repository(str(top))
    except outcome.ToolFailed:
        if not half_done:
            raise
        shutil.rmtree(top)
        _find_mark_file(top).unlink()
    else:
        _remove_listed(top, found.git_dir, found.common_dir, force=half_done, cancel_scope=cancel_scope)


def _find_mark_file(top: Path) -> Path:
    """Returns the mark file beside a working tree that is incomplete."""
    return top.with_name(f"{top.name}.unfinished")


async def _run_on_thread(work: Callable[[CancelScope], T]) -> T:
    with _translate_errors():
        return await process.run_with_timeout(SECONDS, work, hint="check out less, or start the session without a worktree")


@contextmanager
def _translate_errors() -> Iterator[None]:
    try:
        yield
    except process.GitError as failure:
        raise errors.SandboxUnavailable(f"git: {failure}", hint="see what `git worktree list` says") from failure
    except GitUnavailable as reason:
        raise errors.SandboxUnavailable(reason.reason, hint=reason.hint) from reason
    except outcome.ToolFailed as failure:
        raise errors.InvalidCommand(failure.message) from failure
    except OSError as error:
        raise errors.SandboxUnavailable(f"{error.filename}: {error.strerror}" if error.filename else str(error)) from error
