"""Finds a run's processes wherever they went and ends them: by the marks they carry (`marks`), and what dropped every mark
by where it ended up (`adoption`). Marks outlast `setsid`, a double fork, `env -i` and the daemon itself.

A process is signalled through a pidfd taken before its mark was checked, so a recycled pid is never hit. Without `/proc`
nothing is found here, and only a command's process group is ended.
"""

import logging
import os
import signal
import time
from collections.abc import Iterable, Iterator

from switchtower.tools.running import adoption, marks, proc

MARKER = marks.RUN_VARIABLE
_MARKED_KILL_TIMEOUT = 5.0
"""How long the killed may take to be gone: only one stuck in the kernel takes that long, and it dies on its way out."""
_ENOUGH, _CALM, _RESTLESS = 10, 5, 1
"""Nothing found in two looks: none is left. But a process can hand over to a child and go while we look. Where strangers
were gone before they could be looked at, it takes ten looks; where one of the run's own has just died, we begin again."""
_MOST_HELD = 512

log = logging.getLogger(__name__)


def kill_marked(run_id: str, *, command: int | None = None) -> int:
    """Kills every process of the run, or of one of its commands, and whatever they start meanwhile, until none is left.
    Returns how many there were."""
    sign = marks.ProcessMark(run_id, command).make_signature()
    killed: set[int] = set()
    dead: set[int] = set()
    strangers: set[int] = set()
    sureness = 0
    deadline = time.monotonic() + _MARKED_KILL_TIMEOUT
    while sureness < _ENOUGH:
        look = _MarkedProcesses(sign)
        pidfds: list[int] = []
        for pid, pidfd in look:
            proc.send_signal([pidfd], signal.SIGKILL)
            killed.add(pid)
            pidfds.append(pidfd)
            if len(pidfds) == _MOST_HELD:
                break
        proc.wait_for_end(pidfds, deadline - time.monotonic())
        _close(pidfds)
        if pidfds or not look.dead <= dead | killed:
            sureness = 0
        else:
            sureness += _CALM if look.missed <= strangers else _RESTLESS
        dead |= look.dead
        strangers |= look.strangers
        if time.monotonic() > deadline:
            log.warning("processes of %s do not go away: %s", run_id, sorted(killed))
            break
    return len(killed) + adoption.kill_unmarked_children()


def hold_marked(run_id: str, *, command: int | None = None) -> dict[int, int]:
    """The living processes, pid → pidfd. The caller closes them. Of very many, some."""
    held: dict[int, int] = {}
    for pid, pidfd in _MarkedProcesses(marks.ProcessMark(run_id, command).make_signature()):
        held[pid] = pidfd
        if len(held) == _MOST_HELD:
            break
    return held


def has_marked_processes(run_id: str) -> bool:
    held = hold_marked(run_id)
    _close(held.values())
    return bool(held)


class _MarkedProcesses:
    """One look at all processes for those with a mark. Whoever gets a pidfd closes it."""

    def __init__(self, sign: marks.MarkSignature) -> None:
        self._sign = sign
        self.dead: set[int] = set()
        """Those with the mark that wait to be reaped."""
        self.strangers: set[int] = set()
        self.missed: set[int] = set()
        """Those of which nothing could be seen any more."""

    def __iter__(self) -> Iterator[tuple[int, int]]:
        ourselves = os.getpid()
        for pid in proc.list_pids():
            if pid == ourselves or not self._is_marked(pid):
                continue
            pidfd = proc.open_pidfd(pid)
            if pidfd is None:
                self.missed.add(pid)
            # Once more now that the pidfd pins it: the first look may have been at a predecessor with the same pid.
            elif self._is_marked(pid) and not proc.has_ended(pidfd):
                yield pid, pidfd
            else:
                self.dead.add(pid)
                os.close(pidfd)

    def _is_marked(self, pid: int) -> bool:
        limits = proc.read_limits(pid)
        if limits is None:
            self.missed.add(pid)
            return False
        if self._sign.is_present(pid, limits):
            return True
        self.strangers.add(pid)
        return False


def _close(pidfds: Iterable[int]) -> None:
    for pidfd in pidfds:
        os.close(pidfd)
