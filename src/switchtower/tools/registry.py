"""The tools by name. Every action of an agent is a call of `Toolbox.execute`, which always returns an output: a model reads about
a wrong argument, an unknown tool or a bug in one, and the run continues.

This module does not decide whether a call may run.
"""

import asyncio
import logging
from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from switchtower.tools import concurrency, outcome
from switchtower.tools.files import files
from switchtower.tools.files import tools as file_tools
from switchtower.tools.git import tools as git_tools
from switchtower.tools.processes import tools as run_tool
from switchtower.tools.search import tools as search_tool

CANCEL_TIMEOUT = 1.0

log = logging.getLogger(__name__)


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
