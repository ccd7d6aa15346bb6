"""Inspects a git repository without trusting it, and computes the content of a commit without a trace in the repository. The
calls block and belong on a thread.

A repository's own configuration can name programs for git to run: filters, diff drivers, watchers, hooks, transports. So git
never uses that configuration here. It gets a temporary git folder, with the same commit, a copy of the index and the repository's
objects to read from; only settings that are known to run nothing are copied. Nothing is written to the repository.
"""

import os
import re
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from msgspec import Struct

from switchtower.core import policy
from switchtower.tools import outcome
from switchtower.tools.files import scope
from switchtower.tools.git import process as plumbing
from switchtower.tools.git import repository
from switchtower.tools.git.process import GitUnavailable
from switchtower.tools.processes import cancellation

_ALWAYS = ("--no-pager", "-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null", "-c", "core.quotePath=false")
_READABLE = {"LC_ALL": "C.UTF-8"}
"""Git prints names unescaped."""
_HARMLESS = re.compile(
    r"core\.(?:autocrlf|eol|filemode|ignorecase|symlinks|precomposeunicode|trustctime|checkstat)|extensions\.objectformat"
)
_PLAIN_VALUE = re.compile(r"[A-Za-z0-9]{0,20}")
_LARGEST_INDEX = 512 * 1024 * 1024
_LARGEST_RULES = 1024 * 1024
_MOST_OUTPUT = 16 * 1024 * 1024


class GitOutput(Struct, frozen=True):
    exit_code: int
    output: bytes
    complaint: str


class RepositoryView:
    """A repository as it was when the view was opened, with the current files."""

    def __init__(
        self,
        cancel_scope: cancellation.CancelScope,
        found: repository.GitRepository,
        *,
        cwd: str,
        variables: Mapping[str, str],
        branch: str | None,
        commit: str | None,
    ) -> None:
        self._cancel_scope = cancel_scope
        self._cwd = cwd
        self._variables = variables
        self.found = found
        self.branch = branch
        self.commit = commit

    def run_git(self, *args: str) -> bytes:
        """Returns git's output. Raises `outcome.ToolFailed` with git's own message when git fails."""
        answer = _run_git(self._cancel_scope, args, cwd=self._cwd, variables=self._variables)
        if answer.exit_code != 0:
            raise outcome.ToolFailed(
                outcome.ToolErrorType.UNKNOWN, f"git could not do it: {answer.complaint or answer.exit_code}"
            )
        return answer.output

    def start(self, *args: str) -> AbstractContextManager[cancellation.HelperProgram]:
        return _start(self._cancel_scope, args, cwd=self._cwd, variables=self._variables)


@contextmanager
def open_view(root: str, cancel_scope: cancellation.CancelScope) -> Iterator[RepositoryView]:
    """Raises `outcome.ToolFailed` when the workspace is in no repository."""
    found = repository.find_repository(root)
    with tempfile.TemporaryDirectory(prefix="tower-git-", ignore_cleanup_errors=True) as folder:
        ours = Path(folder)
        theirs = {"GIT_DIR": found.git_dir}
        # None of these three commands reads a file or an object, so they run no program either.
        commit = _read_line(_run_git(cancel_scope, ("rev-parse", "--quiet", "--verify", "HEAD"), cwd=folder, variables=theirs))
        branch = _read_line(_run_git(cancel_scope, ("symbolic-ref", "--quiet", "--short", "HEAD"), cwd=folder, variables=theirs))
        listed = _run_git(
            cancel_scope, ("config", "--null", "--get-regexp", r"^(core|extensions)\."), cwd=folder, variables=theirs
        )
        (ours / "HEAD").write_text(f"{commit}\n" if commit else "ref: refs/heads/unborn\n")
        (ours / "config").write_text(_select_configuration(listed.output))
        (ours / "objects" / "info").mkdir(parents=True)
        (ours / "objects" / "info" / "alternates").write_bytes(_quote(found.objects) + b"\n")
        (ours / "refs").mkdir()
        (ours / "info").mkdir()
        _link_repository(found, ours)
        variables = {"GIT_DIR": folder, "GIT_WORK_TREE": found.top}
        yield RepositoryView(cancel_scope, found, cwd=os.path.realpath(root), variables=variables, branch=branch, commit=commit)


def find_git() -> str:
    try:
        return plumbing.find_git()
    except GitUnavailable as reason:
        raise outcome.ToolFailed(outcome.ToolErrorType.SANDBOX_UNREACHABLE, str(reason)) from reason


def literal_pathspec(path: str) -> str:
    """Returns a path below the current folder as a pathspec in which no character is special."""
    return f":(literal){path}"


def exclude_pathspec(path: str) -> str:
    """Returns a pathspec that excludes a path, relative to the repository's top."""
    return f":(top,exclude,literal){path}"


def find_top(root: str, cancel_scope: cancellation.CancelScope) -> str:
    """Returns the top as git itself determines it, with all of the repository's configuration. Git refuses folders of other
    users.
    """
    answer = _run_git(cancel_scope, ("rev-parse", "--show-toplevel"), cwd=root, variables={})
    if answer.exit_code != 0:
        raise outcome.ToolFailed(outcome.ToolErrorType.UNKNOWN, f"git cannot use this repository: {answer.complaint}")
    return os.path.realpath(os.fsdecode(answer.output).rstrip("\n"))


def _start(
    cancel_scope: cancellation.CancelScope, args: tuple[str, ...], *, cwd: str, variables: Mapping[str, str]
) -> AbstractContextManager[cancellation.HelperProgram]:
    return cancel_scope.start_program(
        [find_git(), *_ALWAYS, *args], cwd=cwd, env=plumbing.build_git_environment({**_READABLE, **variables})
    )


def _run_git(
    cancel_scope: cancellation.CancelScope, args: tuple[str, ...], *, cwd: str, variables: Mapping[str, str]
) -> GitOutput:
    output = bytearray()
    with _start(cancel_scope, args, cwd=cwd, variables=variables) as running:
        for chunk in running.read_output():
            output += chunk
            if len(output) > _MOST_OUTPUT:
                raise outcome.ToolFailed(
                    outcome.ToolErrorType.UNKNOWN, "git has too much to say about this; hint: name a narrower path"
                )
        return GitOutput(running.exit_code, bytes(output), running.error_text)


def _read_line(answer: GitOutput) -> str | None:
    """Returns None when there is no value, which is not an error."""
    if answer.exit_code > 1:
        raise outcome.ToolFailed(outcome.ToolErrorType.UNKNOWN, f"git cannot use this repository: {answer.complaint}")
    return os.fsdecode(answer.output).rstrip("\n") or None


def _select_configuration(listed: bytes) -> str:
    """Returns the final value of each harmless setting. The values are bare, so none of them can start another line."""
    settings = {"core.bare": "false", "core.repositoryformatversion": "0"}
    for entry in listed.split(b"\0"):
        name, _, value = entry.decode(errors="replace").partition("\n")
        if _HARMLESS.fullmatch(name) and _PLAIN_VALUE.fullmatch(value):
            settings[name] = value
    if "extensions.objectformat" in settings:
        settings["core.repositoryformatversion"] = "1"
    return "".join("[{}]\n\t{} = {}\n".format(*name.split("."), value) for name, value in settings.items())


def _quote(path: str) -> bytes:
    return b'"%b"' % os.fsencode(path).replace(b"\\", rb"\\").replace(b'"', rb"\"").replace(b"\n", rb"\n")


def _link_repository(found: repository.GitRepository, ours: Path) -> None:
    for name in ("exclude", "attributes"):
        content = repository.read_small_file(f"{found.common_dir}/info/{name}", _LARGEST_RULES)
        if content is not None:
            (ours / "info" / name).write_bytes(content)
    _copy_index(f"{found.git_dir}/index", ours / "index")
    # A split index names its other half by a hash.
    for entry in os.scandir(found.git_dir):
        if entry.name.startswith("sharedindex.") and entry.is_file(follow_symlinks=False):
            _copy_index(entry.path, ours / entry.name)


def _copy_index(source: str, target: Path) -> None:
    try:
        status = os.lstat(source)
    except FileNotFoundError:
        return  # a repository in which nothing was ever added
    content = repository.read_small_file(source, _LARGEST_INDEX)
    if content is None:
        raise outcome.ToolFailed(
            outcome.ToolErrorType.UNKNOWN, "the repository's index cannot be read; hint: see what `git status` says"
        )
    target.write_bytes(content)
    # Git compares this time with the files' times to find those that may have changed while the index was written.
    os.utime(target, ns=(status.st_atime_ns, status.st_mtime_ns))


_MOST_LEFT_OUT = 200


class CommitPlan(Struct, frozen=True):
    """The pathspecs of a commit; files with secrets below them are excluded."""

    paths: tuple[str, ...]
    left_out: tuple[str, ...]
    during_merge: bool
    """During a merge, git commits all that is staged or nothing."""


class CommitSize(Struct, frozen=True):
    files: tuple[str, ...]
    insertions: int
    deletions: int
    tree: str
    """The hash of all files as they would be committed."""


def plan_commit(root: str, paths: Sequence[str] | None, cancel_scope: cancellation.CancelScope) -> CommitPlan:
    """Raises `outcome.ToolFailed` when there is no repository, or none that is what it seems."""
    with open_view(root, cancel_scope) as seen:
        if find_top(root, cancel_scope) != seen.found.top:
            message = "the repository's configuration names another folder as its files; hint: look at `core.worktree`"
            raise outcome.ToolFailed(outcome.ToolErrorType.EDIT_GUARD_BLOCKED, message)
        return _make_plan(seen, root, paths)


def measure_commit(
    root: str, paths: Sequence[str] | None, cancel_scope: cancellation.CancelScope
) -> tuple[CommitPlan, CommitSize]:
    with open_view(root, cancel_scope) as seen:
        planned = _make_plan(seen, root, paths)
        if planned.paths:
            if not planned.during_merge:
                seen.run_git("read-tree", seen.commit or "--empty")
            seen.run_git("add", "--all", "--", *planned.paths)
        against = [seen.commit] if seen.commit else []
        counted = seen.run_git("diff", "--cached", "--numstat", "-z", "--no-renames", *DIFF, *against, "--")
        return planned, _parse_sizes(counted, seen.run_git("write-tree").decode().strip())


DIFF = ("--no-ext-diff", "--no-textconv", "--no-color", "--submodule=short", "--ignore-submodules=dirty")
"""A diff runs no program and has no decoration."""


def list_secret_files(root: str, names: Iterable[str], top: str) -> list[str]:
    """Returns the names, relative to the top, of files that tools may not access."""
    found = [name for name in names if name and policy.is_secret(f"{top}/{name}")]
    if len(found) > _MOST_LEFT_OUT:
        message = f"too many files of `{root}` may hold secrets; hint: name narrower paths"
        raise outcome.ToolFailed(outcome.ToolErrorType.EDIT_GUARD_BLOCKED, message)
    return found


def split_names(listed: bytes) -> list[str]:
    return [os.fsdecode(name) for name in listed.split(b"\0") if name]


def _make_plan(seen: RepositoryView, root: str, paths: Sequence[str] | None) -> CommitPlan:
    during_merge = "a merge" in seen.found.list_unfinished_operations()
    if paths is None:
        return CommitPlan((), (), during_merge)
    wanted = [literal_pathspec(scope.to_relative(root, path)) for path in paths]
    status = ("status", "--porcelain=v1", "-z", "--untracked-files=all", "--no-renames", "--ignore-submodules=dirty")
    # Each entry is two letters, a space and the name.
    changed = [entry[3:] for entry in split_names(seen.run_git(*status, "--", *wanted))]
    left_out = list_secret_files(root, changed, seen.found.top)
    return CommitPlan((*wanted, *(exclude_pathspec(name) for name in left_out)), tuple(left_out), during_merge)


def _parse_sizes(counted: bytes, tree: str) -> CommitSize:
    files, insertions, deletions = [], 0, 0
    for line in split_names(counted):
        added, removed, name = line.split("\t", 2)
        files.append(name)
        # A binary file has a dash for each.
        insertions += int(added) if added.isdigit() else 0
        deletions += int(removed) if removed.isdigit() else 0
    return CommitSize(tuple(files), insertions, deletions, tree)
