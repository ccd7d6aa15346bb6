"""Kills what the tests of one process have left behind, once that process has ended, also when it was killed.

A test process marks its environment with `guard`, and everything that it starts inherits the mark: daemons, what they run, and
what a fork server makes. The sweeper is a process outside of it all that waits for the end of the marked one.
"""

import os
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path

VARIABLE = "TEST_PROCESS_MARK"
ROUNDS = 200
PAUSE = 0.02
QUIET_ROUNDS = 3
"""Rounds in a row without a process, before the sweeper believes that none is left: one may just be starting another."""


def guard() -> "subprocess.Popen[bytes]":
    """Marks this process and starts its sweeper, which waits until no process has the other end of its pipe."""
    mark = uuid.uuid4().hex
    unmarked = {name: value for name, value in os.environ.items() if name != VARIABLE}
    sweeper = subprocess.Popen(
        [sys.executable, "-IS", __file__, mark],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=unmarked,
        start_new_session=True,
    )
    os.environ[VARIABLE] = mark
    return sweeper


def find_marked(mark: str) -> list[int]:
    wanted = f"{VARIABLE}={mark}".encode()
    found = []
    for name in os.listdir("/proc"):  # noqa: PTH208 - a pid may be gone when it is looked at
        if name.isdecimal():
            try:
                variables = Path(f"/proc/{name}/environ").read_bytes().split(b"\0")
            except OSError:
                continue
            if wanted in variables:
                found.append(int(name))
    return found


def sweep(mark: str) -> None:
    quiet = 0
    for _ in range(ROUNDS):
        found = find_marked(mark)
        quiet = 0 if found else quiet + 1
        if quiet == QUIET_ROUNDS:
            return
        for pid in found:
            try:
                os.kill(pid, signal.SIGKILL)
            except OSError:
                continue
        time.sleep(PAUSE)


def main() -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    os.read(0, 1)
    sweep(sys.argv[1])


if __name__ == "__main__":
    main()
