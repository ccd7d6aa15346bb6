"""Ends all that a program in a terminal has started, wherever it went: politely first, then for certain."""

import asyncio
import os
import signal
import subprocess
from collections.abc import Mapping
from contextlib import suppress

from switchtower.tools.running import descendants, marks, orphans, proc, processes

LAST_WAIT = 5.0
"""For the killed to be gone: only one stuck in the kernel takes that long, and it dies on its way out."""
LEADER_GRACE = 1.0
"""For the first process, when it is asked after all others."""


async def end_tree(process: "subprocess.Popen[bytes]", mark: marks.ProcessMark, grace_s: float) -> None:
    """Returns when nothing with the program's mark is left. The program itself must not be reaped meanwhile: its pid, which
    is also its group's, could become somebody else's."""
    strays = descendants.Descendants(process.pid)
    try:
        await asyncio.to_thread(strays.refresh)
        if grace_s > 0:
            await _terminate_gracefully(process.pid, mark, grace_s)
        await asyncio.to_thread(strays.refresh)
        kill_group(process)
        await asyncio.to_thread(strays.kill, LAST_WAIT)
        await asyncio.to_thread(orphans.kill_marked, mark.run_id, command=mark.command)
    finally:
        strays.close()


async def _terminate_gracefully(leader: int, mark: marks.ProcessMark, grace_s: float) -> None:
    """The end of a session's leader makes the kernel send SIGHUP to the foreground programs, which would take their time from
    them. So a leader that does not handle SIGTERM itself, such as a shell that runs a line, is asked last. Until then it is
    held, or it would start the next command of its line."""
    pidfd = proc.open_pidfd(leader)
    if pidfd is None:
        await processes.terminate_gracefully(mark, grace_s, tell=_send_hangup)
        return
    try:
        if proc.has_ended(pidfd) or proc.is_signal_caught(leader, signal.SIGTERM):
            await processes.terminate_gracefully(mark, grace_s, tell=_send_hangup)
            return
        proc.send_signal([pidfd], signal.SIGSTOP)
        try:
            await processes.terminate_gracefully(mark, grace_s, unaffected_pid=leader, tell=_send_hangup)
        finally:
            _send_hangup({leader: pidfd})
        with suppress(TimeoutError):
            async with asyncio.timeout(min(grace_s, LEADER_GRACE)):
                await processes.wait_for_all([pidfd])
    finally:
        os.close(pidfd)


def end_tree_now(process: "subprocess.Popen[bytes]", mark: marks.ProcessMark) -> None:
    """For when the event loop goes down and cannot wait any more."""
    kill_group(process)
    orphans.kill_marked(mark.run_id, command=mark.command)


def kill_group(process: "subprocess.Popen[bytes]") -> None:
    if process.returncode is None:
        for kill in (os.killpg, os.kill):  # before it has a session of its own, there is no group of that number
            with suppress(ProcessLookupError, PermissionError):
                kill(process.pid, signal.SIGKILL)


def _send_hangup(pidfds: Mapping[int, int]) -> None:
    """Each gets one signal: at a second some programs drop their cleaning up. Interactive shells ignore SIGTERM; they get
    what a terminal sends when it is closed. The stopped are continued, so that they can hear it."""
    for pid, pidfd in pidfds.items():
        proc.send_signal([pidfd], signal.SIGHUP if proc.is_signal_ignored(pid, signal.SIGTERM) else signal.SIGTERM)
    proc.send_signal(pidfds.values(), signal.SIGCONT)
