"""A person's own command, run for them in the session's workspace and sandbox. Whoever types it has decided about it."""

from switchtower.core import errors, events, workshop
from switchtower.tools.running import processes
from switchtower.tools.sandboxes import sandbox

MAX_SHELL_SECONDS = 24 * 3600.0
"""Whoever asked for it ends it when they have had enough; this is for when nobody is left to."""


async def run_shell_command(
    command: str, workspace: events.Workspace, shell_id: str, *, where: sandbox.Sandbox = sandbox.LOCAL
) -> workshop.ShellResult:
    try:
        finished = await processes.run_command(
            command, cwd=workspace.root, run_id=shell_id, timeout_s=MAX_SHELL_SECONDS, sandbox=where
        )
    except (OSError, ValueError) as problem:
        raise errors.InvalidCommand(f"the command could not be started: {problem}") from problem
    finally:
        await processes.end_run(shell_id)  # also what it left in the background
    return workshop.ShellResult(finished.exit_code, finished.output)
