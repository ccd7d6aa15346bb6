"""Runs programs and shell commands in a workspace. Each gets its own session, marks that identify its run, an empty input, and
one pipe for its output, or two when its errors are separate; only the start and the end of the output are kept in memory.

When a command is cancelled or takes too long, every process that it started is ended before the call returns or raises.
Background processes that it leaves after a normal end may live on for the run's next commands, unless its sandbox ends with it;
`end_run` ends them. A caller that runs a command for a run calls `end_run` when the run is over.
"""

import asyncio
import errno
import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from switchtower.tools import concurrency, safe_text
from switchtower.tools.git import quarantine
from switchtower.tools.processes import marks, orphans, proc
from switchtower.tools.processes import output as processes_output
from switchtower.tools.sandboxes import launch
from switchtower.tools.sandboxes.sandbox import LOCAL, Sandbox

kill_marked = orphans.kill_marked
become_subreaper = orphans.become_subreaper

KEEP_BYTES = 64 * 1024
GRACE = 1.0
"""The seconds between SIGTERM and SIGKILL."""
_LAST_WAIT = 5.0
"""The seconds for killed processes to disappear: only one that is stuck in the kernel takes that long, and it dies on its way
out.
"""
_POLL = 0.02


class FinishedCommand(Struct, frozen=True):
    """The result of a command. A death by signal counts as 128 + its number, as in shells."""

    exit_code: int
    output: str
    timed_out: bool
    left_running: bool
    """A background process still held the pipe when the shell had ended."""
    output_bytes: int = 0
    """The total size of the output."""
    spilled_bytes: int = 0
    """The size of the part in the file given as `spill`; 0 when `output` has all of it."""
    errors: str = ""
    """The error output, when it is separate. Otherwise it is in `output`."""
    errors_bytes: int = 0


async def run_command(
    command: str | Sequence[str],
    *,
    cwd: str,
    run_id: str,
    timeout_s: float,
    keep_bytes: int = KEEP_BYTES,
    grace_s: float = GRACE,
    sandbox: Sandbox = LOCAL,
    workspace: str | None = None,
    environment: Mapping[str, str] | None = None,
    on_output: processes_output.OutputListener | None = None,
    spill: int | None = None,
    errors_apart: bool = False,
    is_client: bool = False,
) -> FinishedCommand:
    """Runs a command to its end: a string in a shell, a sequence as a program and its arguments. Raises `OSError` or `ValueError`
    when it cannot be started, and `SandboxUnavailable` when the sandbox cannot be built around the workspace.

    - `workspace` is the folder that a sandbox makes writable; the default is `cwd`.
    - `environment` replaces the default environment of commands; the marks and git's overrides are added to either.
    - `on_output` gets each piece of output, on the event loop. When it returns an awaitable, nothing more is read until that is
      done, and a program that continues to write has to wait.
    - `spill` is a descriptor open for writing. All output is written to it once it is more than `keep_bytes`; otherwise the file
      stays empty. It is used for as long as this runs and never closed here.
    - `errors_apart` keeps the error output separate, with the same limits. The order between the two streams is then unknown; the
      listener gets both, and only the normal output is spilled.
    - `is_client`: the program is a client of the daemon and acts for the user who started this process. It gets no number:
      the daemon would take it for a number that a process of a run has changed. The variables still mark it.
    """
    mark = marks.make_command_mark(run_id)
    argv = [_SHELL, "-c", command] if isinstance(command, str) else command
    process, pipes = _spawn(
        argv, cwd, mark, sandbox, workspace or cwd, environment, errors_apart=errors_apart, is_client=is_client
    )
    heard = processes_output.CommandOutput(pipes[0], safe_text.SpillingCapture(keep_bytes, spill), on_output)
    heard_apart = [processes_output.CommandOutput(pipe, safe_text.SpillingCapture(keep_bytes), on_output) for pipe in pipes[1:]]
    running = _RunningCommand(process, mark, grace_s, has_guard=sandbox.guard is not None)
    deadline = asyncio.get_running_loop().time() + timeout_s
    timed_out = False
    ended = False
    try:
        try:
            async with asyncio.timeout_at(deadline):
                await running.wait_for_exit()
        except TimeoutError:
            timed_out = True
            await concurrency.run_to_completion(running.end_tree())
        for channel in (heard, *heard_apart):
            await channel.drain(deadline)
        ended = True
    except asyncio.CancelledError:
        await concurrency.run_to_completion(running.end_tree())
        ended = True
        raise
    finally:
        if not ended:
            # The event loop is shutting down and has cancelled the cleanup too.
            running.kill_group(signal.SIGKILL)
            kill_marked(run_id)
        for channel in (heard, *heard_apart):
            channel.close()
        exit_code = running.reap()
    return FinishedCommand(
        exit_code=exit_code if exit_code >= 0 else 128 - exit_code,
        output=heard.kept.render() + _describe_set_aside(launch.list_set_aside(process)),
        timed_out=timed_out,
        left_running=not all(channel.closed.is_set() for channel in (heard, *heard_apart)),
        output_bytes=heard.kept.total,
        spilled_bytes=heard.kept.spilled,
        errors="".join(channel.kept.render() for channel in heard_apart),
        errors_bytes=sum(channel.kept.total for channel in heard_apart),
    )


def _describe_set_aside(set_aside: Sequence[str]) -> str:
    if not set_aside:
        return ""
    names = ", ".join(f"`{name}`" for name in set_aside)
    return f"\n[set aside because git would run what it names: {names}; the file is kept beside it as `{quarantine.ASIDE}`]\n"


async def end_run(run_id: str, *, grace_s: float = GRACE) -> None:
    """Ends the run's remaining processes, with SIGTERM first. It runs to its end even when cancelled."""
    await concurrency.run_to_completion(_end_run(run_id, grace_s))


async def _end_run(run_id: str, grace_s: float) -> None:
    await terminate_gracefully(marks.ProcessMark(run_id), grace_s)
    await asyncio.to_thread(kill_marked, run_id)
    await asyncio.to_thread(orphans.unregister_run, run_id)


def _spawn(
    argv: Sequence[str],
    cwd: str,
    mark: marks.ProcessMark,
    sandbox: Sandbox,
    workspace: str,
    given: Mapping[str, str] | None,
    *,
    errors_apart: bool,
    is_client: bool,
) -> tuple[subprocess.Popen[bytes], list[int]]:
    """Returns the process and the read ends of its pipes: its output, and its errors when they are separate."""
    variables = {
        **(marks.current_environment() if given is None else given),
        "PWD": cwd,
        **mark.environment_variables(),
    }
    check_program(argv, cwd, variables)
    # The mark comes first, so that every later process has it, including the sandbox's guard.
    inside = sandbox.wrap(argv, workspace)
    wrapped = inside if is_client else marks.wrap_with_mark(inside, mark)
    orphans.register_run(mark.run_id)
    pipes = [os.pipe() for _ in range(2 if errors_apart else 1)]
    read_ends, write_ends = [read for read, _ in pipes], [write for _, write in pipes]
    try:
        process = orphans.start_kept_child(
            mark.run_id,
            lambda: launch.popen(
                wrapped,
                cwd=cwd,
                env=variables,
                stdin=subprocess.DEVNULL,
                stdout=write_ends[0],
                stderr=write_ends[-1],
                start_new_session=True,
            ),
        )
    except BaseException:
        for read_end in read_ends:
            os.close(read_end)
        raise
    finally:
        for write_end in write_ends:
            os.close(write_end)
    return process, read_ends


def check_program(argv: Sequence[str], cwd: str, variables: Mapping[str, str]) -> None:
    """The first process is not the program itself, so its absence would not be reported otherwise."""
    if not argv:
        raise ValueError("there is no program to run")
    program = str(Path(cwd, argv[0])) if "/" in argv[0] else argv[0]
    if shutil.which(program, path=variables.get("PATH")) is None:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), argv[0])


class _RunningCommand:
    """A started command, until it is reaped."""

    def __init__(self, process: subprocess.Popen[bytes], mark: marks.ProcessMark, grace_s: float, *, has_guard: bool) -> None:
        self._process = process
        self._mark = mark
        self._grace_s = grace_s
        self._has_guard = has_guard
        self._pidfd = proc.open_pidfd(process.pid)

    async def wait_for_exit(self) -> None:
        """Waits for the process to end, without reaping it where the system supports that."""
        if self._pidfd is not None:
            await wait_for_all([self._pidfd])
            return
        while self._process.poll() is None:  # noqa: ASYNC110 - there is nothing to wait on without a pidfd
            await asyncio.sleep(_POLL)

    async def end_tree(self) -> None:
        strays = proc.Descendants(self._process.pid)
        try:
            await asyncio.to_thread(strays.refresh)
            if self._has_guard:
                # The guard itself gets no signal: its end would leave the processes inside no time to clean up.
                await terminate_gracefully(self._mark, self._grace_s, except_pid=self._process.pid)
            else:
                self.kill_group(signal.SIGTERM)
                await terminate_gracefully(self._mark, self._grace_s, except_group=self._process.pid)
            await asyncio.to_thread(strays.refresh)
            self.kill_group(signal.SIGKILL)
            await asyncio.to_thread(strays.kill, _LAST_WAIT)
            await asyncio.to_thread(kill_marked, self._mark.run_id, command=self._mark.command)
        finally:
            strays.close()
        with suppress(TimeoutError):
            async with asyncio.timeout(_LAST_WAIT):
                await self.wait_for_exit()

    def kill_group(self, number: signal.Signals) -> None:
        if self._process.returncode is None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, number)

    def reap(self) -> int:
        """Must be called at the very end: until then its pid, which is also the group's, cannot be reused."""
        if self._pidfd is not None:
            os.close(self._pidfd)
        try:
            return self._process.wait(timeout=_POLL)
        except subprocess.TimeoutExpired:
            return -signal.SIGKILL
        finally:
            orphans.release_child(self._process.pid)


def _send_sigterm(pidfds: Mapping[int, int]) -> None:
    proc.send_signal(pidfds.values(), signal.SIGTERM)


async def terminate_gracefully(
    mark: marks.ProcessMark,
    grace_s: float,
    *,
    except_pid: int | None = None,
    except_group: int | None = None,
    unaffected_pid: int | None = None,
    tell: Callable[[Mapping[int, int]], None] = _send_sigterm,
) -> None:
    """Signals the processes to stop and gives them time, with those that they start meanwhile. Excepted ones get no signal: at a
    second signal some programs abandon their cleanup. `unaffected_pid` gets no signal and is not waited for. `tell` gets the
    processes as pid → pidfd, and is called once.
    """
    is_told = False
    with suppress(TimeoutError):
        async with asyncio.timeout(grace_s):
            while held := await asyncio.to_thread(orphans.hold_marked, mark.run_id, command=mark.command):
                try:
                    if not is_told:
                        tell(
                            {
                                pid: pidfd
                                for pid, pidfd in held.items()
                                if pid not in (except_pid, unaffected_pid) and proc.find_group(pid) != except_group
                            }
                        )
                        is_told = True
                    awaited = [pidfd for pid, pidfd in held.items() if pid != unaffected_pid]
                    if not awaited:
                        return
                    await wait_for_all(awaited)
                finally:
                    for pidfd in held.values():
                        os.close(pidfd)


async def wait_for_all(pidfds: Collection[int]) -> None:
    """Waits for the end of these processes. Only one task may wait on the same pidfd."""
    loop = asyncio.get_running_loop()
    waiting = set(pidfds)
    nobody_left = asyncio.Event()

    def note(pidfd: int) -> None:
        loop.remove_reader(pidfd)
        waiting.discard(pidfd)
        if not waiting:
            nobody_left.set()

    for pidfd in pidfds:
        loop.add_reader(pidfd, note, pidfd)
    try:
        await nobody_left.wait()
    finally:
        for pidfd in waiting:
            loop.remove_reader(pidfd)


_SHELL = next((shell for shell in ("/bin/bash", "/usr/bin/bash") if os.access(shell, os.X_OK)), "/bin/sh")
