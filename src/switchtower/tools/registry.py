"""The tools by name. Every action of an agent is a call of `Toolbox.execute`, which always returns an output: a model reads about
a wrong argument, an unknown tool or a bug in one, and the run continues.

This module does not decide whether a call may run.

Previews what a call would do, in full, for the user who decides about it. It only reads; a problem is returned as text, never
raised.

A change that cannot be shown in full, such as one of a binary file, is a problem."""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, Protocol

import msgspec

from switchtower.tools import concurrency, outcome, safe_text
from switchtower.tools.files import edits, files, scope
from switchtower.tools.files import tools as file_tools
from switchtower.tools.git import tools as git_tools
from switchtower.tools.git import view
from switchtower.tools.processes import cancellation
from switchtower.tools.processes import tools as run_tool
from switchtower.tools.search import workspace_search as search_tool

LONGEST_DIFF = 128 * 1024
"""The most bytes of a diff. A longer one is more than a person reads."""
TIME_LIMIT = 10.0
_MOST_NAMES = 100

log = logging.getLogger(__name__)


async def make_preview(name: str, args: Mapping[str, Any], context: outcome.ToolContext) -> dict[str, object]:
    """Returns a `diff` for changes of files; for a commit its size and, as `diff`, a list of files that ends with the hash of
    what would be committed. So the same `diff` later means that the effect would still be the same. Empty for tools without a
    preview.
    """
    try:
        async with asyncio.timeout(TIME_LIMIT):
            match name:
                case "write_file":
                    written = msgspec.convert(dict(args), file_tools.WriteFileArguments)
                    return await concurrency.run_in_thread(
                        _translate_failure, partial(_preview_write, context.workspace, written)
                    )
                case "edit_file":
                    edited = msgspec.convert(dict(args), file_tools.EditFileArguments)
                    return await concurrency.run_in_thread(_translate_failure, partial(_preview_edit, context.workspace, edited))
                case "git_commit":
                    committed = msgspec.convert(dict(args), git_tools.GitCommitArguments)
                    measured = partial(_preview_commit, context.workspace, committed)
                    return await cancellation.run_in_cancel_scope(
                        context.run_id, lambda held: _translate_failure(partial(measured, held))
                    )
                case _:
                    return {}
    except msgspec.ValidationError as error:
        return {"problem": safe_text.escape_control_characters(f"invalid arguments: {error}")}
    except TimeoutError:
        return {"problem": f"a look at what would change took more than {TIME_LIMIT:.0f} s"}
    except Exception:
        log.exception("a preview of %s failed", name)
        return {"problem": "what would change cannot be shown"}


def _translate_failure(look: Callable[[], dict[str, object]]) -> dict[str, object]:
    try:
        return look()
    except outcome.ToolFailed as failed:
        return {"problem": safe_text.escape_control_characters(failed.message)}


def _preview_write(root: str, arguments: file_tools.WriteFileArguments) -> dict[str, object]:
    size = len(arguments.content.encode(errors="replace"))
    with files.translate_os_errors(arguments.path, outcome.ToolErrorType.UNKNOWN):
        try:
            with scope.locate(root, arguments.path) as place:
                before = files.read_whole(place).content
        except FileNotFoundError:
            return {"new": True, "bytes": size, "diff": _make_diff(arguments.path, None, arguments.content)}
    try:
        text = before.decode()
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text or "\0" in arguments.content:
        return {"new": False, "bytes": size, "problem": "a binary file is not shown"}
    return {"new": False, "bytes": size, "diff": _make_diff(place.path, text, arguments.content)}


def _preview_edit(root: str, arguments: file_tools.EditFileArguments) -> dict[str, object]:
    wanted = edits.FileEdit(arguments.old, arguments.new, arguments.replace_all, arguments.expected_hash)
    with files.translate_os_errors(arguments.path, outcome.ToolErrorType.UNKNOWN), scope.locate(root, arguments.path) as place:
        applied = edits.apply_edit(place.path, files.read_whole(place).content, wanted)
    return {"replacements": applied.places, "diff": _make_diff(place.path, applied.before, applied.after)}


def _preview_commit(
    root: str, arguments: git_tools.GitCommitArguments, cancel_scope: cancellation.CancelScope
) -> dict[str, object]:
    plan, measured = view.measure_commit(root, arguments.paths, cancel_scope)
    names = [safe_text.escape_to_one_line(name) for name in measured.files]
    more = [f"[… {len(names) - _MOST_NAMES} more …]"] if len(names) > _MOST_NAMES else []
    preview: dict[str, object] = {
        "files": len(names),
        "insertions": measured.insertions,
        "deletions": measured.deletions,
        "diff": "\n".join([*names[:_MOST_NAMES], *more, f"[tree {measured.tree}]"]),
    }
    if plan.left_out:
        preview["left_out"] = [safe_text.escape_to_one_line(name) for name in plan.left_out]
    return preview


def _make_diff(path: str, before: str | None, after: str) -> str:
    diff = edits.make_unified_diff(path, before, after, limit=None)
    size = len(diff.encode(errors="replace"))
    if size > LONGEST_DIFF:
        raise outcome.ToolFailed(
            outcome.ToolErrorType.UNKNOWN, f"the change has {size:,} bytes, more than {LONGEST_DIFF:,}; make it in parts"
        )
    return diff


CANCEL_TIMEOUT = 1.0


class Tool(Protocol):
    """An action that an agent can take."""

    @property
    def name(self) -> str: ...

    @property
    def description(self) -> str: ...

    @property
    def schema(self) -> dict[str, Any]:
        """The JSON schema of the arguments."""
        ...

    @property
    def effect(self) -> outcome.ToolEffect: ...

    def check(self, args: Mapping[str, Any], context: outcome.ToolContext) -> None:
        """Raises `outcome.ToolFailed` for a call that cannot succeed, so that no approval is requested for it. Has no effect."""
        ...

    async def execute(self, args: Mapping[str, Any], context: outcome.ToolContext) -> outcome.ToolOutput: ...

    async def end_run(self, run_id: str) -> None:
        """Releases what the run still holds. It runs to its end even when cancelled."""
        ...


class Toolbox:
    """The tools of a run, our own and others'. It is cheap enough to make one for each run."""

    def __init__(self, tools: Iterable[Tool]) -> None:
        self._tools = {tool.name: tool for tool in tools}

    @property
    def tools(self) -> tuple[Tool, ...]:
        return tuple(self._tools.values())

    def get_effect(self, name: str) -> outcome.ToolEffect | None:
        """Returns None for a tool that does not exist."""
        tool = self._tools.get(name)
        return None if tool is None else tool.effect

    def check(self, name: str, args: Mapping[str, Any], context: outcome.ToolContext) -> outcome.ToolOutput | None:
        """Returns the reason why this call cannot succeed, or `None` when it may."""
        try:
            self._get_tool(name).check(args, context)
        except Exception as error:
            return _make_failure(name, error)
        return None

    async def execute(self, name: str, args: Mapping[str, Any], context: outcome.ToolContext) -> outcome.ToolOutput:
        try:
            output = await _execute_guarded(self._get_tool(name), args, context)
        except Exception as error:
            output = _make_failure(name, error)
        # A file's name can contain bytes that are not valid text; the journal stores only text.
        return outcome.ToolOutput(_replace_surrogates(output.text), output.is_error, output.error, output.result)

    async def end_run(self, run_id: str) -> None:
        for tool in self._tools.values():
            await tool.end_run(run_id)

    def _get_tool(self, name: str) -> Tool:
        try:
            return self._tools[name]
        except KeyError:
            known = ", ".join(f"`{known}`" for known in self._tools)
            raise outcome.ToolFailed(outcome.ToolErrorType.UNKNOWN, f"there is no tool `{name}`; there are {known}") from None


def make_core_toolbox(*, network: bool = False) -> Toolbox:
    """Makes our own tools. `network` gives sandboxed commands network access. The tools remember what each session has read, so
    one set serves all runs.
    """
    known_files = files.KnownFiles()
    return Toolbox(
        [
            file_tools.ListDirTool(),
            file_tools.ReadFileTool(known_files),
            search_tool.SearchTool(),
            file_tools.WriteFileTool(known_files),
            file_tools.EditFileTool(known_files),
            run_tool.RunTool(network=network),
            git_tools.GitStatusTool(),
            git_tools.GitDiffTool(),
            git_tools.GitCommitTool(network=network),
        ]
    )


async def _execute_guarded(tool: Tool, args: Mapping[str, Any], context: outcome.ToolContext) -> outcome.ToolOutput:
    """Executes a tool. A cancelled run does not wait for a tool that does not stop, unless the tool promises to settle."""
    call = asyncio.create_task(tool.execute(args, context))
    try:
        await asyncio.wait([call])
    except asyncio.CancelledError:
        call.cancel()
        if getattr(tool, "settles", False):
            await concurrency.run_to_completion(_wait_settled(call, None))
        elif not await _wait_settled(call, CANCEL_TIMEOUT):
            log.warning("the tool %s does not stop when it is cancelled; it is left alone", tool.name)
        raise
    if call.cancelled():
        raise outcome.ToolFailed(outcome.ToolErrorType.UNKNOWN, f"the tool `{tool.name}` gave up")
    return call.result()


async def _wait_settled(call: "asyncio.Task[outcome.ToolOutput]", timeout_s: float | None) -> bool:
    await asyncio.wait([call], timeout=timeout_s)
    if call.done() and not call.cancelled():
        call.exception()  # retrieved, so that asyncio does not report it as never retrieved
    return call.done()


def _make_failure(name: str, error: Exception) -> outcome.ToolOutput:
    if isinstance(error, outcome.ToolFailed):
        return outcome.make_failure(error.type, _replace_surrogates(error.message), retryable=error.retryable)
    log.error("the tool %s has a bug", name, exc_info=error)
    return outcome.make_failure(outcome.ToolErrorType.UNKNOWN, f"the tool `{name}` failed ({type(error).__name__})")


def _replace_surrogates(text: str) -> str:
    return text.encode(errors="replace").decode()
