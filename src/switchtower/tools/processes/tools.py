"""The tool that runs shell commands, and the way other tools run programs: in the session's sandbox, with progress, with both
ends of the output kept, and with the whole output in a file when it is long. `commands` runs the processes; this module connects
it to a tool's context.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated

from msgspec import Meta, Struct

from switchtower.core import errors
from switchtower.tools import concurrency, outcome, tool
from switchtower.tools.files import files
from switchtower.tools.processes import commands
from switchtower.tools.processes import output as processes_output
from switchtower.tools.sandboxes import sandbox


class CommandResult(Struct, frozen=True):
    exit_code: int
    output: str
    timed_out: bool
    left_running: bool


class ToolCommands:
    """The commands of one tool. Background processes that they leave end with the run."""

    def __init__(self, *, network: bool) -> None:
        self._network = network
        self._runs: set[str] = set()

    async def run(
        self,
        command: str | Sequence[str],
        context: outcome.ToolContext,
        *,
        timeout_s: float,
        environment: Mapping[str, str] | None = None,
    ) -> CommandResult:
        """Runs the command; a string is run in a shell. Raises `outcome.ToolFailed` when it cannot be started."""
        self._runs.add(context.run_id)
        file = await concurrency.run_in_thread(files.OutputFile, context.workspace, context.call_id)
        try:
            where = await concurrency.run_in_thread(sandbox.choose_sandbox, context.sandbox, network=self._network)
            async with processes_output.OutputProgress(context.progress) as watching:
                finished = await commands.run_command(
                    command,
                    cwd=context.workspace,
                    run_id=context.run_id,
                    timeout_s=timeout_s,
                    sandbox=where,
                    environment=environment,
                    on_output=watching.add_output,
                    spill=file.descriptor,
                )
            output = finished.output
            if finished.spilled_bytes:
                path = await concurrency.run_in_thread(file.publish)
                output = files.add_output_path(output, finished.output_bytes, finished.spilled_bytes, commands.KEEP_BYTES, path)
        except errors.SandboxUnavailable as error:
            raise outcome.ToolFailed(outcome.ToolErrorType.SANDBOX_UNREACHABLE, error.message) from error
        except FileNotFoundError as error:
            raise outcome.ToolFailed(
                outcome.ToolErrorType.SANDBOX_UNREACHABLE,
                f"the workspace `{context.workspace}` cannot be entered; hint: see whether the folder is still there",
            ) from error
        except (OSError, ValueError) as error:
            raise outcome.ToolFailed(outcome.ToolErrorType.UNKNOWN, f"the command could not be started: {error}") from error
        finally:
            file.close()
        return CommandResult(finished.exit_code, output, finished.timed_out, finished.left_running)

    async def end_run(self, run_id: str) -> None:
        if run_id in self._runs:
            await commands.end_run(run_id)
            self._runs.discard(run_id)


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
        self._commands = ToolCommands(network=network)

    async def run(self, arguments: RunToolArguments, context: outcome.ToolContext) -> outcome.ToolOutput:
        ended = await self._commands.run(arguments.command, context, timeout_s=arguments.timeout_seconds)
        return _make_output(ended, arguments.timeout_seconds)

    async def end_run(self, run_id: str) -> None:
        await self._commands.end_run(run_id)


def _make_output(ended: CommandResult, timeout_seconds: int) -> outcome.ToolOutput:
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
