"""What the daemon checks with the outside world: whether a folder can be worked in, and whether a run did what was wanted."""

from pathlib import Path

from switchtower.core import errors, events
from switchtower.tools.running import processes
from switchtower.tools.sandboxes import sandbox

CRITERION_TIMEOUT = 120.0
CRITERION_OUTPUT_LIMIT = 2_000


def check_folder(root: str) -> None:
    path = Path(root)
    if not path.is_absolute():
        raise errors.SandboxUnavailable(f"the workspace `{path}` is not an absolute path")
    if not _is_folder(path):
        raise errors.SandboxUnavailable(f"the workspace `{path}` is not a folder", hint="create it, or name another")


def _is_folder(root: Path) -> bool:
    try:
        return root.is_dir()
    except OSError:
        return False  # a name too long for any file, or in a folder that may not be looked into


async def check_criterion(
    criterion: events.Criterion,
    workspace: events.Workspace,
    run_id: str,
    timeout_s: float = CRITERION_TIMEOUT,
    *,
    sandbox_: sandbox.Sandbox = sandbox.LOCAL,
) -> events.CriterionResult:
    """Runs one acceptance check in the workspace. One that cannot be started or takes too long has not passed."""
    try:
        finished = await processes.run_command(
            criterion.check, cwd=workspace.root, run_id=run_id, timeout_s=timeout_s, sandbox=sandbox_
        )
    except (OSError, ValueError) as problem:
        return events.CriterionResult(criterion.id, passed=False, exit_code=126, output=str(problem)[:CRITERION_OUTPUT_LIMIT])
    finally:
        await processes.end_run(run_id)  # what a check leaves in the background ends with it
    output = finished.output
    if finished.timed_out:
        output = f"not finished after {timeout_s:g} s\n{output}"
    passed = not finished.timed_out and finished.exit_code == criterion.exit_code
    return events.CriterionResult(criterion.id, passed, finished.exit_code, output[:CRITERION_OUTPUT_LIMIT])
