"""The tools that inspect a git repository and commit to it.

`git.view` does the inspection, outside any sandbox and without the repository's own configuration. A commit is ordinary git, with
the repository's filters and hooks, in the session's sandbox.
"""

import asyncio
from functools import partial
from typing import Annotated

from msgspec import Meta, Struct

from switchtower.tools import outcome, safe_text, tool
from switchtower.tools.files import files, scope
from switchtower.tools.git import view
from switchtower.tools.processes import cancellation, marks, tools

KEEP_BYTES = 64 * 1024
COMMIT_TIME = 300.0
"""Hooks may run tests and formatters."""

_ELSEWHERE = frozenset(
    {
        "GIT_DIR",
        "GIT_WORK_TREE",
        "GIT_INDEX_FILE",
        "GIT_OBJECT_DIRECTORY",
        "GIT_ALTERNATE_OBJECT_DIRECTORIES",
        "GIT_COMMON_DIR",
        "GIT_NAMESPACE",
        "GIT_PREFIX",
    }
)
"""Variables by which a daemon that was itself started by git would lead it to another repository."""


class GitStatusArguments(Struct, frozen=True, forbid_unknown_fields=True):
    pass


class GitDiffArguments(Struct, frozen=True, forbid_unknown_fields=True):
    path: Annotated[str | None, Meta(description="Only this file or folder, relative to the workspace")] = None
    staged: Annotated[bool, Meta(description="What is staged for the next commit, instead of what is not")] = False


class GitCommitArguments(Struct, frozen=True, forbid_unknown_fields=True):
    message: Annotated[str, Meta(min_length=1, max_length=20_000, description="The commit message")]
    paths: Annotated[
        Annotated[list[str], Meta(min_length=1, max_length=1000)] | None,
        Meta(description='Files and folders to commit as they are now, ["."] for all; without it, what is staged'),
    ] = None


class GitStatusTool(tool.CoreTool[GitStatusArguments]):
    name = "git_status"
    description = "Show the branch and the changed files: one `XY path` a line as `git status --short` has it"
    effect = outcome.ToolEffect.READ
    arguments = GitStatusArguments
    time_limit = tool.GIT_TIME

    async def run(self, arguments: GitStatusArguments, context: outcome.ToolContext) -> outcome.ToolOutput:
        return outcome.ToolOutput(await cancellation.run_in_cancel_scope(context.run_id, partial(_read_status, context)))


class GitDiffTool(tool.CoreTool[GitDiffArguments]):
    name = "git_diff"
    description = "Show what changed since the last `git add`, or what is staged, as a diff. New files are in git_status only"
    effect = outcome.ToolEffect.READ
    arguments = GitDiffArguments
    time_limit = tool.GIT_TIME

    def check_arguments(self, arguments: GitDiffArguments, context: outcome.ToolContext) -> None:
        if arguments.path is not None:
            scope.check_path(context.workspace, arguments.path)

    async def run(self, arguments: GitDiffArguments, context: outcome.ToolContext) -> outcome.ToolOutput:
        path = "." if arguments.path is None else scope.to_relative(context.workspace, arguments.path)
        return outcome.ToolOutput(
            await cancellation.run_in_cancel_scope(context.run_id, partial(_read_diff, context, path, staged=arguments.staged))
        )


class GitCommitTool(tool.CoreTool[GitCommitArguments]):
    name = "git_commit"
    description = "Commit to the current branch; the repository's hooks run"
    effect = outcome.ToolEffect.EXECUTE
    arguments = GitCommitArguments
    time_limit = None
    settles = True

    def __init__(self, *, network: bool = False) -> None:
        self._commands = tools.ToolCommands(network=network)

    def check_arguments(self, arguments: GitCommitArguments, context: outcome.ToolContext) -> None:
        for path in arguments.paths or ():
            scope.check_path(context.workspace, path)
        if "\0" in arguments.message:
            raise outcome.ToolFailed(outcome.ToolErrorType.UNKNOWN, "a commit message cannot hold a null character")

    async def run(self, arguments: GitCommitArguments, context: outcome.ToolContext) -> outcome.ToolOutput:
        self.check_arguments(arguments, context)
        try:
            async with asyncio.timeout(tool.GIT_TIME):
                plan = await cancellation.run_in_cancel_scope(
                    context.run_id, lambda held: view.plan_commit(context.workspace, arguments.paths, held)
                )
        except TimeoutError as error:
            message = f"the repository could not be looked at within {tool.GIT_TIME:.0f} s; nothing was changed"
            raise outcome.ToolFailed(outcome.ToolErrorType.EXEC_TIMEOUT, message, retryable=True) from error
        if plan.paths:
            added = await self._run_git(context, "add", "--all", "--", *plan.paths)
            if added.timed_out or added.exit_code != 0:
                return _make_output("add", added, plan)
        # Only these paths are committed, whatever else a user may have staged.
        only = [] if plan.during_merge or not plan.paths else ["--only", "--", *plan.paths]
        return _make_output("commit", await self._run_git(context, "commit", f"--message={arguments.message}", *only), plan)

    async def end_run(self, run_id: str) -> None:
        await self._commands.end_run(run_id)

    async def _run_git(self, context: outcome.ToolContext, *args: str) -> tools.CommandResult:
        variables = {name: value for name, value in marks.current_environment().items() if name not in _ELSEWHERE}
        argv = [view.find_git(), "--no-pager", "-c", "core.quotePath=false", *args]
        return await self._commands.run(argv, context, timeout_s=COMMIT_TIME, environment=variables)


def _read_status(context: outcome.ToolContext, cancel_scope: cancellation.CancelScope) -> str:
    with view.open_view(context.workspace, cancel_scope) as seen:
        if seen.branch is None:
            head = f"HEAD is detached at {(seen.commit or '')[:12]}"
        else:
            head = f"On branch {safe_text.escape_to_one_line(seen.branch)}" + ("" if seen.commit else ", which has no commit yet")
        under_way = "".join(f"\n[{what} is under way]" for what in seen.found.list_unfinished_operations())
        options = ("-c", "status.relativePaths=true", "status", "--short", "--no-column", "--ignore-submodules=dirty")
        listed = _collect_output(seen, (*options, "--untracked-files=normal", "--", "."), context)
    return f"{head}{under_way}\n{listed or '[nothing changed]'}"


def _read_diff(context: outcome.ToolContext, path: str, cancel_scope: cancellation.CancelScope, *, staged: bool) -> str:
    with view.open_view(context.workspace, cancel_scope) as seen:
        diff = ("diff", *(["--cached"] if staged else []), *view.DIFF)
        paths = [view.literal_pathspec(path)]
        names = view.split_names(seen.run_git(*diff, "--name-only", "-z", "--", *paths))
        left_out = view.list_secret_files(context.workspace, names, seen.found.top)
        paths += [view.exclude_pathspec(name) for name in left_out]
        prefixes = ("--src-prefix=a/", "--dst-prefix=b/", "--relative")
        text = _collect_output(seen, (*diff, *prefixes, "--", *paths), context)
    note = _describe_left_out(left_out)
    return "\n".join(part for part in (text or "[no difference]", note) if part)


def _collect_output(seen: view.RepositoryView, args: tuple[str, ...], context: outcome.ToolContext) -> str:
    """Returns git's output; when it is long, its middle is stored in a file."""
    file = files.OutputFile(context.workspace, context.call_id)
    kept = safe_text.SpillingCapture(KEEP_BYTES, file.descriptor)
    try:
        with seen.start(*args) as running:
            for chunk in running.read_output():
                kept.add(chunk)
            if running.exit_code != 0:
                raise outcome.ToolFailed(outcome.ToolErrorType.UNKNOWN, f"git could not do it: {running.error_text}")
        text = kept.render().rstrip("\n")
        return files.add_output_path(text, kept.total, kept.spilled, KEEP_BYTES, file.publish() if kept.spilled else None)
    finally:
        file.close()


def _make_output(what: str, ended: tools.CommandResult, plan: view.CommitPlan) -> outcome.ToolOutput:
    text = "\n".join(part for part in (ended.output.rstrip("\n"), _describe_left_out(plan.left_out)) if part)
    if ended.timed_out:
        message = f"`git {what}` did not end within {COMMIT_TIME:.0f} s and was killed"
        return outcome.make_failure(outcome.ToolErrorType.EXEC_TIMEOUT, message, text=f"{text}\n[{message}]", retryable=True)
    if ended.exit_code != 0:
        message = f"`git {what}` ended with exit code {ended.exit_code}"
        return outcome.make_failure(outcome.ToolErrorType.EXEC_NON_ZERO_EXIT, message, text=f"{text}\n[{message}]")
    return outcome.ToolOutput(text)


def _describe_left_out(names: tuple[str, ...] | list[str]) -> str:
    listed = ", ".join(f"`{safe_text.escape_to_one_line(name)}`" for name in names)
    return f"[left out, because they may hold secrets: {listed}]" if names else ""
