"""The tool that runs shell commands."""

from typing import Annotated

from msgspec import Meta, Struct

from switchtower.tools import outcome, tool
from switchtower.tools.running import command


class RunToolArguments(Struct, frozen=True, forbid_unknown_fields=True):
    command: Annotated[str, Meta(min_length=1, description="A shell command, run in the workspace")]
    timeout_seconds: Annotated[int, Meta(ge=1, le=3600, description="When to give up on it")] = 120


class RunTool(tool.CoreTool[RunToolArguments]):
    name = "run"
    description = (
        "Run a shell command in the workspace and get its output and exit code; background processes end with the run. "
        "Of a long output the middle is left out and the whole is in a file that is named"
    )
    effect = outcome.ToolEffect.EXECUTE
    arguments = RunToolArguments
    time_limit = None
    settles = True

    def __init__(self, *, network: bool = False) -> None:
        self._commands = command.ToolCommands(network=network)

    async def run(self, arguments: RunToolArguments, context: outcome.ToolContext) -> outcome.ToolOutput:
        ended = await self._commands.run(arguments.command, context, timeout_s=arguments.timeout_seconds)
        return _make_output(ended, arguments.timeout_seconds)

    async def end_run(self, run_id: str) -> None:
        await self._commands.end_run(run_id)


def _make_output(ended: command.CommandResult, timeout_seconds: int) -> outcome.ToolOutput:
    if ended.timed_out:
        ending = f"[killed after {timeout_seconds} s without an end]"
    elif ended.left_running:
        ending = f"[exit code {ended.exit_code}; a process in the background is still running]"
    else:
        ending = f"[exit code {ended.exit_code}]"
    newline = "\n" if ended.output and not ended.output.endswith("\n") else ""
    text = f"{ended.output}{newline}{ending}"
    if ended.timed_out:
        message = f"the command did not end within {timeout_seconds} s and was killed"
        return outcome.make_failure(outcome.ToolErrorType.EXEC_TIMEOUT, message, text=text, retryable=True)
    if ended.exit_code != 0:
        message = f"the command ended with exit code {ended.exit_code}"
        return outcome.make_failure(outcome.ToolErrorType.EXEC_NON_ZERO_EXIT, message, text=text)
    return outcome.ToolOutput(text)
