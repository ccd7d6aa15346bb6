"""Runs a user's command in the run's folder, in a login shell, with separate output and error streams. `commands` runs it and
ends all of its processes.

Queries git about the run's folder, without trusting the repository: `git.view` runs no program that it configures and writes
nothing to it. Files above the run's folder, and files with secrets, are left out."""

import asyncio
import errno
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial

from msgspec import Struct

from switchtower.tools import outcome, safe_text, tool
from switchtower.tools.git import process as plumbing
from switchtower.tools.git import view
from switchtower.tools.processes import cancellation, commands, marks
from switchtower.tools.remote_ops import host
from switchtower.tools.sandboxes.sandbox import LOCAL, Sandbox
from switchtower.tools.search import line_search

OUTPUT_LIMIT = 512 * 1024
_LONGEST_COMPLAINT = 500
_STATUS = ("status", "--porcelain=v1", "--no-column", "--ignore-submodules=dirty", "--untracked-files=normal")


class GitResult(Struct, frozen=True):
    stdout: str
    truncated: bool


async def read_git_status(cwd: str, *, run_id: str | None = None) -> GitResult:
    """Returns the output of `git status --porcelain=v1 -b`, limited to files in the run's folder."""
    return await _run_with_timeout(partial(_read_status, cwd), run_id)


async def read_git_diff(cwd: str, path: str | None = None, *, run_id: str | None = None) -> GitResult:
    """Returns the output of `git diff`, the unstaged changes. A path is matched literally."""
    return await _run_with_timeout(partial(_read_diff, cwd, path or "."), run_id)


async def _run_with_timeout(work: Callable[[cancellation.CancelScope], GitResult], run_id: str | None) -> GitResult:
    try:
        async with asyncio.timeout(tool.GIT_TIME) as limit:
            return await cancellation.run_in_cancel_scope(run_id, work)
    except TimeoutError:
        if not limit.expired():
            raise
        raise host.OperationRefused("git took too long") from None


def _read_status(cwd: str, cancel_scope: cancellation.CancelScope) -> GitResult:
    with _open_view(cwd, cancel_scope) as seen:
        listed, is_cut = _collect_output(seen, *_STATUS, "--", ".")
        head = f"## {_read_head(seen, cancel_scope)}\n"
    return GitResult(f"{safe_text.decode_name(head)}{listed}", is_cut)


def _read_head(seen: view.RepositoryView, cancel_scope: cancellation.CancelScope) -> str:
    """Returns the branch line. The view has no branches, so it is built here."""
    if seen.branch is None:
        return "HEAD (no branch)"
    if seen.commit is None:
        return f"No commits yet on {seen.branch}"
    # This reads refs and commits; it uses no file, no index and no filter.
    theirs = plumbing.GitRunner(seen.found.top, {"GIT_DIR": seen.found.git_dir})
    asked = ("for-each-ref", "--count=1", "--format=%(upstream:short) %(upstream:track)", f"refs/heads/{seen.branch}")
    upstream = theirs.try_run(cancel_scope, *asked).printed.decode(errors="surrogateescape").strip()
    return f"{seen.branch}...{upstream}" if upstream else seen.branch


def _read_diff(cwd: str, path: str, cancel_scope: cancellation.CancelScope) -> GitResult:
    host.check_path(cwd, path)
    with _open_view(cwd, cancel_scope) as seen:
        wanted = [view.literal_pathspec(path)]
        names = view.split_names(seen.run_git("diff", *view.DIFF, "--name-only", "-z", "--", *wanted))
        left_out = view.list_secret_files(cwd, names, seen.found.top)
        wanted += [view.exclude_pathspec(name) for name in left_out]
        prefixes = ("--src-prefix=a/", "--dst-prefix=b/", "--relative")
        listed, is_cut = _collect_output(seen, "diff", *view.DIFF, *prefixes, "--", *wanted)
    note = "".join(f"# left out, because it may hold secrets: {safe_text.decode_name(name)!r}\n" for name in left_out)
    return GitResult(f"{listed}{note}", is_cut)


@contextmanager
def _open_view(cwd: str, cancel_scope: cancellation.CancelScope) -> Iterator[view.RepositoryView]:
    host.check_folder_exists(cwd)
    if not line_search.has_repository(cwd):
        raise host.OperationRefused("not a git repository")
    try:
        with view.open_view(cwd, cancel_scope) as seen:
            yield seen
    except outcome.ToolFailed as failed:
        raise host.OperationRefused(failed.message[:_LONGEST_COMPLAINT]) from failed
    except (OSError, plumbing.GitError) as error:
        raise host.OperationRefused("the repository cannot be read") from error


def _collect_output(seen: view.RepositoryView, *args: str) -> tuple[str, bool]:
    """Returns the start of git's output. The rest of a longer text is not waited for."""
    printed = bytearray()
    with seen.start(*args) as running:
        for chunk in running.read_output():
            printed += chunk
            if len(printed) > OUTPUT_LIMIT:
                break
        else:
            if running.exit_code != 0:
                raise host.OperationRefused(f"git could not do it: {running.error_text[-_LONGEST_COMPLAINT:]}")
    return safe_text.truncate_text(bytes(printed), OUTPUT_LIMIT, errors="replace")


COMMAND_TIME = 120.0
KEEP_BYTES = 64 * 1024
"""The most bytes of each stream that are kept: its start and its end."""
TIMED_OUT = 124
"""The exit code of the program `timeout`."""
_LONGEST_COMMAND = 100_000
"""The most bytes of a command. The system has no room for more than 128 KiB in one argument."""


class BashResult(Struct, frozen=True):
    stdout: str
    stderr: str
    exit_code: int
    truncated: bool


async def run_bash(
    cwd: str,
    cmd: str,
    run_id: str,
    *,
    timeout_s: float = COMMAND_TIME,
    environment: Mapping[str, str] | None = None,
    sandbox: Sandbox = LOCAL,
) -> BashResult:
    """When the time is up or this is cancelled, every process that the command started has ended before this returns or raises.
    `environment` replaces the default environment, as in `commands.run_command`.
    """
    _check(cmd)
    program = marks.find_program("bash")
    if program is None:
        raise host.OperationRefused("bash is not installed")
    try:
        finished = await commands.run_command(
            # relay: `bash -lc`. The two dashes keep a command that starts with one from being an option.
            [program, "-lc", "--", cmd],
            cwd=cwd,
            run_id=run_id,
            timeout_s=timeout_s,
            keep_bytes=KEEP_BYTES,
            environment=environment,
            errors_apart=True,
            sandbox=sandbox,
        )
    except OSError as error:
        raise host.OperationRefused(_describe_error(error)) from error
    stderr = finished.errors
    if finished.timed_out:
        newline = "\n" if stderr and not stderr.endswith("\n") else ""
        stderr += f"{newline}[killed after {timeout_s:g} s without an end]\n"
    return BashResult(
        stdout=finished.output,
        stderr=stderr,
        exit_code=TIMED_OUT if finished.timed_out else finished.exit_code,
        truncated=max(finished.output_bytes, finished.errors_bytes) > KEEP_BYTES,
    )


def _check(cmd: str) -> None:
    if not cmd.strip():
        raise host.OperationRefused("command is empty")
    if "\0" in cmd:
        raise host.OperationRefused("command contains a null character")
    try:
        size = len(cmd.encode())
    except UnicodeEncodeError:
        raise host.OperationRefused("command is not valid Unicode") from None
    if size > _LONGEST_COMMAND:
        raise host.OperationRefused("command is too long")


def _describe_error(error: OSError) -> str:
    if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.EACCES):
        return host.NO_CWD
    return "the command could not be started"
