"""The kind `shell`: a command in the run's folder, when the run allows it. Processes that it leaves running end with the run."""

from collections.abc import Mapping
from functools import partial
from typing import Any, ClassVar

from switchtower.engines.flow.runtime import failures, values
from switchtower.engines.flow.runtime.kinds import port
from switchtower.tools.processes import commands

_NO_LIMIT = 366 * 24 * 3600.0
"""A step's own limit cancels the command; this one only satisfies the function that runs it, which requires a number."""
_LONGEST_COMPLAINT = 2000


class ShellKind:
    summary = "Run a command in the run's folder; needs `--allow-shell`"
    inputs: ClassVar[Mapping[str, str]] = {
        "command": "for the shell",
    }
    outputs: ClassVar[Mapping[str, str]] = {
        "exit_code": "0; any other fails the step",
        "stdout": "its beginning and its end when it is long",
        "stderr": "likewise",
    }

    async def run(self, given: Mapping[str, Any], context: port.StepContext) -> Mapping[str, Any]:
        setting = context.setting
        assert setting.allow_shell, "a run without `allow_shell` is refused at its start"
        command = values.get_text(given, "command")
        setting.closings["shell"] = partial(commands.end_run, setting.run_id)
        try:
            finished = await commands.run_command(
                command, cwd=setting.workspace, run_id=setting.run_id, timeout_s=_NO_LIMIT, errors_apart=True
            )
        except (OSError, ValueError) as error:
            raise failures.StepFailed(f"the command could not be started ({type(error).__name__})") from error
        if finished.exit_code:
            raise failures.StepFailed(
                f"the command ended with {finished.exit_code}",
                retriable=True,
                details={"exit_code": finished.exit_code, "stderr": finished.errors[-_LONGEST_COMPLAINT:]},
            )
        return {"exit_code": 0, "stdout": finished.output, "stderr": finished.errors}
