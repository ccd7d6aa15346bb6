"""The watchdog's own program. It waits until the daemon's end of a socket is closed, and then kills every process that carries
the mark of a run which was active (`marks`), as the next daemon would at its start.

It runs as a file, without the package and with few modules of Python's, so that it costs little. It reads only its standard
input, which only the daemon can write to, and writes nothing.
"""

import os
import signal
import sys
import time

_LONGEST = 4096
_STARTED_WITHIN = 0.2
"""Seconds after the daemon's end. Later processes belong to a new daemon, which may have resumed the same run."""
_KILL_TIMEOUT = 5.0
_PAUSE = 0.02
_START_TIME = 19
"""The field of `/proc/PID/stat`, counted behind the name."""


def read_runs(channel: int) -> dict[bytes, bytes]:
    """Returns the runs that were active when the other end was closed, with the first digits of their numbers. One read is one
    message.
    """
    runs: dict[bytes, bytes] = {}
    while message := os.read(channel, _LONGEST):
        run_id, _, sign = message[1:].partition(b" ")
        if message.startswith(b"+"):
            runs[run_id] = sign
        else:
            runs.pop(run_id, None)
    return runs


def end_processes(runs: dict[bytes, bytes]) -> None:
    """Kills every process of these runs that was started by now, until none is left."""
    # The clock of start times. `/proc/uptime` may be a container's own.
    latest = (time.clock_gettime(time.CLOCK_BOOTTIME) + _STARTED_WITHIN) * os.sysconf("SC_CLK_TCK")
    numbers = [b" " + sign for sign in runs.values() if sign]
    variables = [b"TOWER_RUN=" + run_id for run_id in runs]
    deadline = time.monotonic() + _KILL_TIMEOUT
    calm = 0
    while calm < 2 and time.monotonic() < deadline:
        pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]  # noqa: PTH208 - without pathlib
        killed = [pid for pid in pids if pid != os.getpid() and _kill(pid, numbers, variables, latest)]
        calm = 0 if killed else calm + 1
        time.sleep(_PAUSE)


def _kill(pid: int, numbers: list[bytes], variables: list[bytes], latest: float) -> bool:
    """Returns whether it was a living process of the runs. The pidfd pins it: a recycled pid is never hit."""
    try:
        pidfd = os.pidfd_open(pid)
    except OSError:
        return False
    try:
        if not _is_of_runs(pid, numbers, variables, latest):
            return False
        signal.pidfd_send_signal(pidfd, signal.SIGKILL)
    except OSError:
        return False  # it has ended, or belongs to another user
    finally:
        os.close(pidfd)
    return True


def _is_of_runs(pid: int, numbers: list[bytes], variables: list[bytes], latest: float) -> bool:
    fields = _read(pid, "stat").rpartition(b")")[2].split()
    if fields[0] in (b"Z", b"X") or int(fields[_START_TIME]) > latest:
        return False
    limits = _read(pid, "limits")
    if any(number in limits for number in numbers):
        return True
    environment = _read(pid, "environ").split(b"\0")
    return any(variable in environment for variable in variables)


def _read(pid: int, name: str) -> bytes:
    with open(f"/proc/{pid}/{name}", "rb", buffering=0) as file:  # noqa: PTH123 - without pathlib
        return file.read()


if __name__ == "__main__":
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    if active := read_runs(sys.stdin.fileno()):
        end_processes(active)
