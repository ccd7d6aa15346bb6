"""Runs a program for a tool: in the session's sandbox, with its output told on the way, kept at both ends, and whole in a
file when it is long. How that is done is `processes`'s business; this joins it to a tool's context.
"""

from collections.abc import Mapping, Sequence

from msgspec import Struct

from switchtower.core import errors
from switchtower.tools import outcome
from switchtower.tools.files import outputs
from switchtower.tools.running import processes, progress, threads
from switchtower.tools.sandboxes import sandbox


class Ended(Struct, frozen=True):
    exit_code: int
    output: str
    timed_out: bool
    left_running: bool


async def run(
    argv: Sequence[str] | str,
    context: outcome.ToolContext,
    *,
    timeout_s: float,
    network: bool,
    environment: Mapping[str, str] | None = None,
) -> Ended:
    """A string is a shell command. Raises `outcome.Failed` when it cannot be started."""
    start = processes.run_command if isinstance(argv, str) else processes.run_program
    file = await threads.call(outputs.OutputFile, context.workspace, context.call_id)
    try:
        where = await threads.call(sandbox.choose, context.sandbox, network=network)
        async with progress.Progress(context.progress) as watching:
            finished = await start(
                argv,  # type: ignore[arg-type] # each takes what it was chosen for
                cwd=context.workspace,
                run_id=context.run_id,
                timeout_s=timeout_s,
                sandbox=where,
                environment=environment,
                on_output=watching.hear,
                spill=file.descriptor,
            )
        output = finished.output
        if finished.spilled_bytes:
            path = await threads.call(file.keep)
            output = outputs.with_whereabouts(output, finished.output_bytes, finished.spilled_bytes, processes.KEEP_BYTES, path)
    except errors.SandboxUnavailable as error:
        raise outcome.Failed(outcome.ErrorType.SANDBOX_UNREACHABLE, error.message) from error
    except FileNotFoundError as error:
        raise outcome.Failed(
            outcome.ErrorType.SANDBOX_UNREACHABLE, f"the workspace `{context.workspace}` cannot be entered"
        ) from error
    except (OSError, ValueError) as error:
        raise outcome.Failed(outcome.ErrorType.UNKNOWN, f"the command could not be started: {error}") from error
    finally:
        file.close()
    return Ended(finished.exit_code, output, finished.timed_out, finished.left_running)
