"""Finds a run's processes wherever they went and ends them. Each carries the run's id in its environment, which survives
`setsid`, a double fork and the death of the daemon; `/proc` shows it.

A process is signalled through a pidfd taken before its marker was checked, so a recycled pid is never hit. Without
`/proc` (other systems than Linux) nothing is found here, and only a command's process group is ended.
"""

import logging
import os
import select
import signal
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

MARKER = "TOWER_RUN"
_PATIENCE = 5.0
"""How long the killed may take to be gone: only one stuck in the kernel takes that long, and it dies on its way out."""

log = logging.getLogger(__name__)


def kill_marked(run_id: str) -> int:
    """Kills every process of the run and whatever they start meanwhile, until none is left. Returns how many there were."""
    killed: set[int] = set()
    deadline = time.monotonic() + _PATIENCE
    while True:
        with _marked(run_id) as pidfds:
            if not pidfds:
                return len(killed)
            killed.update(pidfds)
            _send(pidfds.values(), signal.SIGKILL)
            _wait_for_end(pidfds.values(), deadline)
        if time.monotonic() > deadline:
            log.warning("processes of %s do not go away: %s", run_id, sorted(killed))
            return len(killed)


def signal_marked(run_id: str, number: signal.Signals, *, outside_group: int | None = None) -> None:
    """Signals every process of the run, except those of one process group."""
    with _marked(run_id) as pidfds:
        _send((pidfd for pid, pidfd in pidfds.items() if _group_of(pid) != outside_group), number)


def any_marked(run_id: str) -> bool:
    with _marked(run_id) as pidfds:
        return bool(pidfds)


class Descendants:
    """Everything below a process at one moment, to be killed later: some may have dropped the marker and the group."""

    def __init__(self, ancestor: int) -> None:
        self._pidfds: list[int] = []
        for pid, parent in _below(ancestor):
            if (pidfd := _pidfd(pid)) is None:
                continue
            if _parent_of(pid) == parent:
                self._pidfds.append(pidfd)
            else:
                os.close(pidfd)

    def kill(self) -> None:
        _send(self._pidfds, signal.SIGKILL)

    def close(self) -> None:
        while self._pidfds:
            os.close(self._pidfds.pop())


@contextmanager
def _marked(run_id: str) -> Iterator[dict[int, int]]:
    """The run's living processes, pid → pidfd. A zombie has no environment any more and is not among them."""
    assert run_id, "an empty run id would match a stranger's empty marker"
    entry = f"{MARKER}={run_id}".encode()
    pidfds: dict[int, int] = {}
    try:
        for pid in _all_pids():
            if pid == os.getpid() or not _carries(pid, entry) or (pidfd := _pidfd(pid)) is None:
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


def _all_pids() -> list[int]:
    try:
        return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]
    except OSError:
        return []


def _carries(pid: int, entry: bytes) -> bool:
    try:
        return entry in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return False


def _below(ancestor: int) -> list[tuple[int, int]]:
    """All descendants, each with its parent."""
    children: dict[int, list[int]] = {}
    for pid in _all_pids():
        if (parent := _parent_of(pid)) is not None:
            children.setdefault(parent, []).append(pid)
    below: list[tuple[int, int]] = []
    todo = [ancestor]
    while todo:
        parent = todo.pop()
        for pid in children.get(parent, []):
            below.append((pid, parent))
            todo.append(pid)
    return below


def _parent_of(pid: int) -> int | None:
    try:
        # The name in parentheses may hold anything, parentheses too: the parent is the second field behind the last one.
        return int(Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[1])
    except (OSError, IndexError):
        return None


def _group_of(pid: int) -> int | None:
    try:
        return os.getpgid(pid)
    except OSError:
        return None


if sys.platform == "linux":

    def _pidfd(pid: int) -> int | None:
        try:
            return os.pidfd_open(pid)
        except OSError:
            return None

    def _send(pidfds: Iterable[int], number: signal.Signals) -> None:
        for pidfd in pidfds:
            with suppress(OSError):
                signal.pidfd_send_signal(pidfd, number)

else:

    def _pidfd(pid: int) -> int | None:
        return None

    def _send(pidfds: Iterable[int], number: signal.Signals) -> None:
        assert not list(pidfds), "there are no pidfds on this system"


def _wait_for_end(pidfds: Iterable[int], deadline: float) -> None:
    """A pidfd turns readable when its process ends."""
    poll = select.poll()
    waiting = set(pidfds)
    for pidfd in waiting:
        poll.register(pidfd, select.POLLIN)
    while waiting and (left := deadline - time.monotonic()) > 0:
        for pidfd, _ in poll.poll(left * 1000):
            poll.unregister(pidfd)
            waiting.discard(pidfd)
