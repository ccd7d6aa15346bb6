"""What the daemon checks with the outside world: whether a session could work at all, and whether a run did what was wanted."""

from pathlib import Path

from switchtower.core import commands, errors, events
from switchtower.models import registry
from switchtower.tools import processes

CRITERION_TIMEOUT = 120.0
CRITERION_OUTPUT_LIMIT = 2_000


def check_start(command: commands.StartSession) -> None:
    registry.open_model(command.provider, command.model)  # opening does no I/O; an unknown provider is refused
    if command.sandbox != "local":
        raise errors.SandboxUnavailable(
            f"`{command.sandbox}` is not configured", hint="use `local`, which runs in the workspace itself"
        )
    root = Path(command.workspace.root)
    if not root.is_absolute():
        raise errors.SandboxUnavailable(f"the workspace `{root}` is not an absolute path")
    if not _is_folder(root):
        raise errors.SandboxUnavailable(f"the workspace `{root}` is not a folder", hint="create it, or name another")


def _is_folder(root: Path) -> bool:
    try:
        return root.is_dir()
    except OSError:
        return False  # a name too long for any file, or in a folder that may not be looked into


async def check_criterion(
    criterion: events.Criterion, workspace: events.Workspace, run_id: str, timeout_s: float = CRITERION_TIMEOUT
) -> events.CriterionResult:
    """Runs one acceptance check in the workspace. One that cannot be started or takes too long has not passed."""
    try:
        finished = await processes.run_command(criterion.check, cwd=workspace.root, run_id=run_id, timeout_s=timeout_s)
    except (OSError, ValueError) as problem:
        return events.CriterionResult(criterion.id, passed=False, exit_code=126, output=str(problem)[:CRITERION_OUTPUT_LIMIT])
    finally:
        await processes.end_run(run_id)  # what a check leaves in the background ends with it
    output = finished.output
    if finished.timed_out:
        output = f"not finished after {timeout_s:g} s\n{output}"
    passed = not finished.timed_out and finished.exit_code == criterion.exit_code
    return events.CriterionResult(criterion.id, passed, finished.exit_code, output[:CRITERION_OUTPUT_LIMIT])
