"""Finds a run's processes wherever they went and ends them. Each carries the run's id in its environment, which survives
`setsid`, a double fork and the death of the daemon.

A process is signalled through a pidfd taken before its marker was checked, so a recycled pid is never hit. Without
`/proc` nothing is found here, and only a command's process group is ended.
"""

import logging
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager

from switchtower.tools import proc

MARKER = "TOWER_RUN"
_PATIENCE = 5.0
"""How long the killed may take to be gone: only one stuck in the kernel takes that long, and it dies on its way out."""
_QUIET_LOOKS = 2
"""A process can hand over to a child behind our back while we look; it would have to do so this often to be missed."""

log = logging.getLogger(__name__)


def kill_marked(run_id: str) -> int:
    """Kills every process of the run and whatever they start meanwhile, until none is left. Returns how many there were."""
    killed: set[int] = set()
    quiet_looks = 0
    deadline = time.monotonic() + _PATIENCE
    while quiet_looks < _QUIET_LOOKS:
        with _marked(run_id) as pidfds:
            quiet_looks = 0 if pidfds else quiet_looks + 1
            killed.update(pidfds)
            proc.send(pidfds.values(), signal.SIGKILL)
            proc.wait_for_end(pidfds.values(), deadline - time.monotonic())
        if time.monotonic() > deadline:
            log.warning("processes of %s do not go away: %s", run_id, sorted(killed))
            break
    return len(killed)


def signal_marked(run_id: str, number: signal.Signals, *, outside_group: int | None = None) -> None:
    """Signals every process of the run, except those of one process group."""
    with _marked(run_id) as pidfds:
        proc.send((pidfd for pid, pidfd in pidfds.items() if proc.group_of(pid) != outside_group), number)


def any_marked(run_id: str) -> bool:
    with _marked(run_id) as pidfds:
        return bool(pidfds)


@contextmanager
def _marked(run_id: str) -> Iterator[dict[int, int]]:
    """The run's living processes, pid → pidfd. A zombie has no environment any more and is not among them."""
    assert run_id, "an empty run id would match a stranger's empty marker"
    entry = f"{MARKER}={run_id}".encode()
    pidfds: dict[int, int] = {}
    try:
        for pid in proc.all_pids():
            if pid == os.getpid() or not _carries(pid, entry) or (pidfd := proc.pidfd_of(pid)) is None:
                continue
            # Once more now that the pidfd pins it: the first look may have been at a predecessor with the same pid.
            if _carries(pid, entry):
                pidfds[pid] = pidfd
            else:
                os.close(pidfd)
        yield pidfds
    finally:
        for pidfd in pidfds.values():
            os.close(pidfd)


def _carries(pid: int, entry: bytes) -> bool:
    return entry in (proc.environment_of(pid) or ())
