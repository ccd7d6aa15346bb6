"""Ends the processes of runs when the daemon is killed: this is the daemon's side of a small process beside it
(`watchdog_process`).

A pair of sockets connects the two. The kernel closes the daemon's end however the daemon ends, and no other process can open
either end, as it could open a pipe under `/proc/PID/fd`. The watchdog inherits nothing else from the daemon: no descriptor, no
environment, no terminal.
"""

import atexit
import os
import socket
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path

_PROGRAM = Path(__file__).with_name("watchdog_process.py")
_END_TIMEOUT = 5.0


class Watchdog:
    """Starts with the first run that has processes, and ends with the daemon."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._channel: socket.socket | None = None
        self._runs: dict[str, str] = {}

    def watch(self, run_id: str, sign: str) -> None:
        """Registers the run: its processes end with this process. `sign` is the common first digits of its marks' numbers."""
        with self._lock:
            self._runs[run_id] = sign
            if not self._send(f"+{run_id} {sign}"):
                self._start()

    def forget(self, run_id: str) -> None:
        with self._lock:
            if self._runs.pop(run_id, None) is not None:
                self._send(f"-{run_id}")

    def close(self) -> None:
        """Ends the watchdog, and the processes of the runs that are still watched. Waits for that."""
        with self._lock:
            process, channel, self._process, self._channel = self._process, self._channel, None, None
        if process is not None and channel is not None:
            channel.close()
            with suppress(subprocess.TimeoutExpired):
                process.wait(2 * _END_TIMEOUT)

    def _send(self, message: str) -> bool:
        """Returns whether the watchdog will get the message. False when it was killed, or stopped for so long that messages pile
        up.
        """
        if self._channel is None:
            return False
        try:
            self._channel.send(message.encode(errors="surrogateescape"))
        except OSError:
            return False
        return True

    def _start(self) -> None:
        if self._process is None:
            atexit.register(self.close)
        else:
            self._replace(self._process)
        with suppress(OSError):  # without a watchdog, the next daemon ends the remaining processes
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            ours.setblocking(False)
            self._channel = ours
            with theirs:
                self._process = subprocess.Popen(  # noqa: S603 - our own file
                    [sys.executable, "-I", "-S", os.fspath(_PROGRAM)],
                    stdin=theirs.fileno(),
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    env={},
                    cwd="/",
                    start_new_session=True,
                )
            for run_id, sign in self._runs.items():
                self._send(f"+{run_id} {sign}")

    def _replace(self, process: "subprocess.Popen[bytes]") -> None:
        """Kills it before its socket is closed: a watchdog that was only stopped would take that for the daemon's end."""
        process.kill()
        with suppress(subprocess.TimeoutExpired):
            process.wait(_END_TIMEOUT)
        if self._channel is not None:
            self._channel.close()
            self._channel = None
