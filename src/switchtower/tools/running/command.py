"""Runs programs for a tool: in the session's sandbox, with its output told on the way, kept at both ends, and whole in a
file when it is long. How that is done is `processes`'s business; this joins it to a tool's context.
"""

from collections.abc import Mapping, Sequence

from msgspec import Struct

from switchtower.core import errors
from switchtower.tools import outcome
from switchtower.tools.files import outputs
from switchtower.tools.running import processes, progress, threads
from switchtower.tools.sandboxes import sandbox


class CommandResult(Struct, frozen=True):
    exit_code: int
    output: str
    timed_out: bool
    left_running: bool


class ToolCommands:
    """Those of one tool. What they leave running in the background ends with the run."""

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
        """A text is run in a shell. Raises `outcome.Failed` when it cannot be started."""
        self._runs.add(context.run_id)
        file = await threads.run_in_thread(outputs.OutputFile, context.workspace, context.call_id)
        try:
            where = await threads.run_in_thread(sandbox.choose_sandbox, context.sandbox, network=self._network)
            async with progress.OutputProgress(context.progress) as watching:
                finished = await processes.run_command(
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
                path = await threads.run_in_thread(file.publish)
                output = outputs.add_output_path(
                    output, finished.output_bytes, finished.spilled_bytes, processes.KEEP_BYTES, path
                )
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
            await processes.end_run(run_id)
            self._runs.discard(run_id)
