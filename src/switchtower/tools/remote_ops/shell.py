"""Runs a user's command in the run's folder, in a login shell, with separate output and error streams. `commands` runs it and
ends all of its processes.
"""

import errno
from collections.abc import Mapping

from msgspec import Struct

from switchtower.tools.processes import command_environment, commands
from switchtower.tools.remote_ops import paths
from switchtower.tools.sandboxes.sandbox import LOCAL, Sandbox

COMMAND_TIME = 120.0
KEEP_BYTES = 64 * 1024
"""The most bytes of each stream that are kept: its start and its end."""
TIMED_OUT = 124
"""The exit code of the program `timeout`."""
_LONGEST_COMMAND = 100_000
"""The most bytes of a command. The system has no room for more than 128 KiB in one argument."""


class BashResult(Struct, frozen=True):
    stdout: str
    stderr: str
    exit_code: int
    truncated: bool


async def run_bash(
    cwd: str,
    cmd: str,
    run_id: str,
    *,
    timeout_s: float = COMMAND_TIME,
    environment: Mapping[str, str] | None = None,
    sandbox: Sandbox = LOCAL,
) -> BashResult:
    """When the time is up or this is cancelled, every process that the command started has ended before this returns or raises.
    `environment` replaces the default environment, as in `commands.run_command`.
    """
    _check(cmd)
    program = command_environment.find_program("bash")
    if program is None:
        raise paths.OperationRefused("bash is not installed")
    try:
        finished = await commands.run_command(
            # relay: `bash -lc`. The two dashes keep a command that starts with one from being an option.
            [program, "-lc", "--", cmd],
            cwd=cwd,
            run_id=run_id,
            timeout_s=timeout_s,
            keep_bytes=KEEP_BYTES,
            environment=environment,
            errors_apart=True,
            sandbox=sandbox,
        )
    except OSError as error:
        raise paths.OperationRefused(_describe_error(error)) from error
    stderr = finished.errors
    if finished.timed_out:
        newline = "\n" if stderr and not stderr.endswith("\n") else ""
        stderr += f"{newline}[killed after {timeout_s:g} s without an end]\n"
    return BashResult(
        stdout=finished.output,
        stderr=stderr,
        exit_code=TIMED_OUT if finished.timed_out else finished.exit_code,
        truncated=max(finished.output_bytes, finished.errors_bytes) > KEEP_BYTES,
    )


def _check(cmd: str) -> None:
    if not cmd.strip():
        raise paths.OperationRefused("command is empty")
    if "\0" in cmd:
        raise paths.OperationRefused("command contains a null character")
    try:
        size = len(cmd.encode())
    except UnicodeEncodeError:
        raise paths.OperationRefused("command is not valid Unicode") from None
    if size > _LONGEST_COMMAND:
        raise paths.OperationRefused("command is too long")


def _describe_error(error: OSError) -> str:
    if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.EACCES):
        return paths.NO_CWD
    return "the command could not be started"
