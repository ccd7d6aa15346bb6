"""Ends what runs have started when the daemon is killed: a small process beside it, which watches a pipe of the daemon's.

The kernel closes the pipe however the daemon ends. The watchdog then kills every process that carries the mark of a run that
was active (`marks`), as the next daemon would at its start. A process that dropped all of its marks is not found.

This file is also the watchdog's program. It runs by itself, without the package and its imports, so that it costs little.
"""

import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

_STARTED_WITHIN = 0.2
"""Seconds after the daemon's end. What was started later is a new daemon's, which may have taken up the same run."""
_PATIENCE = 5.0
_PAUSE = 0.02
_START_TIME = 19
"""The place in `/proc/PID/stat`, counted behind the name."""


class Watchdog:
    """The daemon's side. There is a watchdog for as long as runs have processes."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._runs: dict[str, str] = {}

    def watch(self, run_id: str, sign: str) -> None:
        """From now on the run's processes end with this process. `sign` is how a mark's number begins."""
        with self._lock:
            self._runs[run_id] = sign
            if not self._tell(f"+{run_id} {sign}"):
                self._start()

    def forget(self, run_id: str) -> None:
        with self._lock:
            if self._runs.pop(run_id, None) is None:
                return
            self._tell(f"-{run_id}")
            if not self._runs:
                self._stop()

    def _stop(self) -> None:
        process, self._process = self._process, None
        if process is not None and process.stdin is not None:
            process.stdin.close()
            with suppress(subprocess.TimeoutExpired):
                process.wait(_PATIENCE)

    def _tell(self, line: str) -> bool:
        if self._process is None or self._process.stdin is None:
            return False
        try:
            os.write(self._process.stdin.fileno(), line.encode() + b"\n")
        except OSError:
            return False  # it was killed
        return True

    def _start(self) -> None:
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()
        with suppress(OSError):  # without one, the next daemon ends what is left
            self._process = subprocess.Popen(  # noqa: S603 - our own file
                [sys.executable, "-I", "-S", __file__],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env={},
                cwd="/",
                start_new_session=True,
                bufsize=0,
            )
            assert self._process.stdin is not None
            os.set_blocking(self._process.stdin.fileno(), False)
        for run_id, sign in self._runs.items():
            self._tell(f"+{run_id} {sign}")


# The watchdog's own side


def read_runs(pipe: int) -> dict[str, str]:
    """The runs that were active when the pipe's other end was closed."""
    runs: dict[str, str] = {}
    with os.fdopen(pipe, "r", encoding="utf-8") as lines:
        for line in lines:
            run_id, _, sign = line[1:].rstrip("\n").partition(" ")
            if line.startswith("+"):
                runs[run_id] = sign
            else:
                runs.pop(run_id, None)
    return runs


def end_processes(runs: dict[str, str]) -> None:
    """Kills every process of these runs that was started by now, until none is left."""
    latest = (float(Path("/proc/uptime").read_text().split()[0]) + _STARTED_WITHIN) * os.sysconf("SC_CLK_TCK")
    numbers = [f" {sign}".encode() for sign in runs.values() if sign]
    variables = [f"TOWER_RUN={run_id}".encode() for run_id in runs]
    deadline = time.monotonic() + _PATIENCE
    calm = 0
    while calm < 2 and time.monotonic() < deadline:
        killed = [pid for pid in _pids() if _kill(pid, numbers, variables, latest)]
        calm = 0 if killed else calm + 1
        time.sleep(_PAUSE)


def _pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]  # noqa: PTH208


def _kill(pid: int, numbers: list[bytes], variables: list[bytes], latest: float) -> bool:
    """Whether it was a living process of the runs. The pidfd pins it: a recycled pid is never hit."""
    with suppress(OSError):
        pidfd = os.pidfd_open(pid)
        try:
            if pid != os.getpid() and _is_of_runs(pid, numbers, variables, latest):
                signal.pidfd_send_signal(pidfd, signal.SIGKILL)
                return True
        finally:
            os.close(pidfd)
    return False


def _is_of_runs(pid: int, numbers: list[bytes], variables: list[bytes], latest: float) -> bool:
    folder = Path(f"/proc/{pid}")
    fields = (folder / "stat").read_bytes().rpartition(b")")[2].split()
    if fields[0] in (b"Z", b"X") or int(fields[_START_TIME]) > latest:
        return False
    limits = (folder / "limits").read_bytes()
    if any(number in limits for number in numbers):
        return True
    environment = (folder / "environ").read_bytes().split(b"\0")
    return any(variable in environment for variable in variables)


if __name__ == "__main__":
    if active := read_runs(sys.stdin.fileno()):
        end_processes(active)
