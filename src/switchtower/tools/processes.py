"""Shell commands in a workspace. A command gets a session of its own, the run's id in its environment, nothing to read,
and one pipe for what it writes; only the beginning and the end of that are kept.

When a command is cancelled or takes too long, all that it started goes with it before `run_command` returns or raises.
What it leaves in the background after a normal end may live on for the run's next commands; `end_run` ends it.
"""

import asyncio
import os
import signal
import subprocess
from contextlib import suppress

from msgspec import Struct

from switchtower.tools import capture, descendants, orphans, patience, proc

kill_marked = orphans.kill_marked

KEEP_BYTES = 64 * 1024
GRACE = 1.0
"""Between the polite signal and the final one."""
_LINGER = 0.25
"""How long output may still come after the shell has ended, from a background process that holds the pipe."""
_LAST_WAIT = 5.0
"""For the killed to be gone: only one stuck in the kernel takes that long, and it dies on its way out."""
_POLL = 0.02
_CHUNK = 64 * 1024
_MOST_LAST_READS = 16


class Finished(Struct, frozen=True):
    """How a command ended. A death by signal counts as 128 + its number, as shells have it."""

    exit_code: int
    output: str
    timed_out: bool
    left_running: bool
    """Something in the background still held the pipe when the shell had ended."""


async def run_command(
    command: str, *, cwd: str, run_id: str, timeout_s: float, keep_bytes: int = KEEP_BYTES, grace_s: float = GRACE
) -> Finished:
    """Runs a command to its end. Raises `OSError` or `ValueError` when it cannot even be started."""
    process, pipe = _spawn(command, cwd, run_id)
    output = _Output(pipe, keep_bytes)
    pidfd = proc.pidfd_of(process.pid)
    timed_out = False
    ended = False
    try:
        try:
            async with asyncio.timeout(timeout_s):
                await _exit_of(process, pidfd)
        except TimeoutError:
            timed_out = True
            await patience.to_the_end(_end_tree(process, pidfd, run_id, grace_s))
        with suppress(TimeoutError):
            async with asyncio.timeout(_LINGER):
                await output.closed.wait()
        ended = True
    except asyncio.CancelledError:
        await patience.to_the_end(_end_tree(process, pidfd, run_id, grace_s))
        ended = True
        raise
    finally:
        if not ended:
            # The event loop is going down and has cancelled the cleaning too.
            _kill_group(process, signal.SIGKILL)
            kill_marked(run_id)
        output.close()
        if pidfd is not None:
            os.close(pidfd)
        exit_code = _reap(process)
    return Finished(
        exit_code=exit_code if exit_code >= 0 else 128 - exit_code,
        output=output.kept.text(),
        timed_out=timed_out,
        left_running=not output.closed.is_set(),
    )


async def end_run(run_id: str, *, grace_s: float = GRACE) -> None:
    """Ends whatever processes the run still has, politely first. Goes to its end even when cancelled."""
    await patience.to_the_end(_end_marked(run_id, grace_s))


def _spawn(command: str, cwd: str, run_id: str) -> tuple[subprocess.Popen[bytes], int]:
    read_end, write_end = os.pipe()
    try:
        process = subprocess.Popen(  # noqa: S603 - running what was asked for, after approval, is this room's purpose
            [_SHELL, "-c", command],
            cwd=cwd,
            env={**os.environ, orphans.MARKER: run_id},
            stdin=subprocess.DEVNULL,
            stdout=write_end,
            stderr=write_end,
            start_new_session=True,
        )
    except BaseException:
        os.close(read_end)
        raise
    finally:
        os.close(write_end)
    return process, read_end


class _Output:
    """Reads the pipe as it fills, so that a command never waits for us."""

    def __init__(self, pipe: int, keep_bytes: int) -> None:
        self.kept = capture.HeadAndTail(keep_bytes)
        self.closed = asyncio.Event()
        self._pipe = pipe
        self._loop = asyncio.get_running_loop()
        os.set_blocking(pipe, False)
        self._loop.add_reader(pipe, self._read)

    def _read(self) -> None:
        try:
            chunk = os.read(self._pipe, _CHUNK)
        except BlockingIOError:
            return
        if chunk:
            self.kept.add(chunk)
        else:
            self._loop.remove_reader(self._pipe)
            self.closed.set()

    def close(self) -> None:
        """What the shell wrote before its end is in the pipe already, so it is not lost even when the loop was too busy
        to read. Bounded: a background process may be writing without end."""
        for _ in range(_MOST_LAST_READS):
            if self.closed.is_set():
                break
            self._read()
        self._loop.remove_reader(self._pipe)
        os.close(self._pipe)


async def _exit_of(process: subprocess.Popen[bytes], pidfd: int | None) -> None:
    """Waits for the process to end, without reaping it where the system can."""
    if pidfd is None:
        while process.poll() is None:  # noqa: ASYNC110 - there is nothing to wait on without a pidfd
            await asyncio.sleep(_POLL)
        return
    exited = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_reader(pidfd, exited.set)
    try:
        await exited.wait()
    finally:
        loop.remove_reader(pidfd)


async def _end_tree(process: subprocess.Popen[bytes], pidfd: int | None, run_id: str, grace_s: float) -> None:
    strays = descendants.Descendants(process.pid)
    try:
        await asyncio.to_thread(strays.look)
        _kill_group(process, signal.SIGTERM)
        await _await_end_of_marked(run_id, grace_s, group=process.pid)
        await asyncio.to_thread(strays.look)
        _kill_group(process, signal.SIGKILL)
        await asyncio.to_thread(strays.kill, _LAST_WAIT)
        await asyncio.to_thread(kill_marked, run_id)
    finally:
        strays.close()
    with suppress(TimeoutError):
        async with asyncio.timeout(_LAST_WAIT):
            await _exit_of(process, pidfd)


async def _end_marked(run_id: str, grace_s: float) -> None:
    await _await_end_of_marked(run_id, grace_s, group=None)
    await asyncio.to_thread(kill_marked, run_id)


async def _await_end_of_marked(run_id: str, grace_s: float, *, group: int | None) -> None:
    """Tells the run's processes to stop and gives them time. `group` has been told already: at a second signal some
    programs drop their cleaning up."""
    await asyncio.to_thread(orphans.signal_marked, run_id, signal.SIGTERM, outside_group=group)
    with suppress(TimeoutError):
        async with asyncio.timeout(grace_s):
            while await asyncio.to_thread(orphans.any_marked, run_id):  # noqa: ASYNC110 - nobody tells when they are gone
                await asyncio.sleep(_POLL)


def _kill_group(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    if process.returncode is None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, number)


def _reap(process: subprocess.Popen[bytes]) -> int:
    """Only at the very end: until then its pid, which is also the group's, cannot become anybody else's."""
    try:
        return process.wait(timeout=_POLL)
    except subprocess.TimeoutExpired:
        return -signal.SIGKILL


_SHELL = next((shell for shell in ("/bin/bash", "/usr/bin/bash") if os.access(shell, os.X_OK)), "/bin/sh")
