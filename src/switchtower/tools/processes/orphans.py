"""The daemon as the parent of orphans. A process whose ancestors have died comes back to the nearest subreaper, so what
slipped out of a run is our child in the end, whatever it did to its marks.

Two things follow. Adopted children that die have nobody else to reap them. And one that carries neither a run's mark nor
the daemon's own number can only have dropped it on purpose: `kill_outcasts` ends those. Nobody else's child is touched:

- what the daemon starts is in its session, or leads one of its own, and inherits its number;
- what `keep` started is waited for by whoever started it.

Finds a run's processes wherever they went and ends them: by the marks they carry (`marks`), and what dropped every mark
by where it ended up (`adoption`). Marks outlast `setsid`, a double fork, `env -i` and the daemon itself.

A process is signalled through a pidfd taken before its mark was checked, so a recycled pid is never hit. Without `/proc`
nothing is found here, and only a command's process group is ended."""

import ctypes
import logging
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress

from switchtower.tools.processes import marks, proc, watchdog

_PR_SET_CHILD_SUBREAPER = 36
_TICK = 0.25
"""How often the dead are collected while runs are under way. A hostile run can leave them by the thousand."""
_KILL_TIMEOUT = 5.0
_LATELY = 30.0

log = logging.getLogger(__name__)

_lock = threading.Lock()
"""Held while a child is started, so that it is known as kept before anybody could take it for an adopted one."""
_kept: dict[int, str] = {}
"""The run of each child that was started for one, by its pid."""
_runs: set[str] = set()
_ended_at: dict[str, float] = {}
"""Runs that have ended lately, and when."""
_runs_changed = threading.Condition()
_limit: marks.ResourceLimit | None = None
_before: dict[int, int | None] = {}
"""Children from before we had our number, and when each was started. They have none, and are no outcasts."""
_is_subreaper = False
_watchdog = watchdog.Watchdog()
"""Ends what this process leaves when it is killed: no process is left that could adopt orphans."""


def become_subreaper() -> bool:
    """Orphans come to this process from now on, for the rest of its life. To be called once, before anything is started.
    Returns whether the system can do it."""
    global _is_subreaper, _limit, _before
    if sys.platform != "linux" or _is_subreaper:
        return _is_subreaper
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        log.warning("orphans cannot be adopted: %s", os.strerror(ctypes.get_errno()))
        return False
    _before = {child: proc.read_start_time(child) for child in proc.list_children(os.getpid())}
    limit = marks.find_free_limit()
    if limit is not None:
        with suppress(OSError, ValueError):  # some containers forbid it; then nobody can be told an outcast
            resource.setrlimit(limit.number, (marks.UNCLAIMED, marks.UNCLAIMED))
            _limit = limit
    _is_subreaper = True
    threading.Thread(target=_reap_while_runs_last, name="tower-reaper", daemon=True).start()
    return True


def start_kept_child(run_id: str, start: Callable[[], "subprocess.Popen[bytes]"]) -> "subprocess.Popen[bytes]":
    """Starts a child that carries the run's mark and that its starter waits for. `let_go` when it is reaped."""
    with _lock:
        process = start()
        _kept[process.pid] = run_id
    return process


def release_child(pid: int) -> None:
    _kept.pop(pid, None)


def register_run(run_id: str) -> None:
    """The run has processes from now on; orphans may come."""
    if _is_subreaper and run_id not in _runs:
        _watchdog.watch(run_id, marks.ProcessMark(run_id).make_run_digits())
        with _runs_changed:
            _runs.add(run_id)
            _runs_changed.notify()


def unregister_run(run_id: str) -> None:
    if _is_subreaper:
        # In this order: at no moment is it in neither, or another thread takes a connection of its processes for the owner's.
        _ended_at[run_id] = time.monotonic()
        _runs.discard(run_id)
        _watchdog.forget(run_id)
        for old in [ended for ended, at in _ended_at.items() if at < time.monotonic() - _LATELY]:
            _ended_at.pop(old, None)
        reap_adopted()


def active_runs() -> frozenset[str]:
    """Those that may have processes now."""
    return frozenset(_runs)


def list_recent_runs() -> frozenset[str]:
    """Those that have ended a short time ago: a connection that one of their processes made may still wait to be accepted."""
    since = time.monotonic() - _LATELY
    return frozenset(run_id for run_id, at in dict(_ended_at).items() if at > since)


def find_run_of_child(pid: int) -> str | None:
    """The run that a child of ours was started for. No process can change this, whatever it does to its marks."""
    return _kept.get(pid)


def was_started_before(pid: int) -> bool:
    """Whether it was a child of this process before any run was."""
    return pid in _before and _before[pid] == proc.read_start_time(pid)


def reap_adopted() -> None:
    """Collects the adopted that have died, and nobody's exit code."""
    if not _is_subreaper:
        return
    with _lock, suppress(ChildProcessError):
        while dead := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT):
            if not _is_adopted(dead.si_pid):
                break  # it stands in front of the others until its starter has waited for it: look behind it
            os.waitid(os.P_PID, dead.si_pid, os.WEXITED | os.WNOHANG)
        else:
            return
        for pid in proc.list_children(os.getpid()):
            if _is_adopted(pid):
                with suppress(ChildProcessError):
                    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG)


def kill_unmarked_children() -> int:
    """Kills adopted children that have dropped every mark, and what they start meanwhile. Returns how many there were."""
    killed = 0
    deadline = time.monotonic() + _KILL_TIMEOUT
    while _is_subreaper and _limit is not None and time.monotonic() < deadline:
        outcasts = [pid for pid in proc.list_children(os.getpid()) if _is_unmarked(pid) and _kill_if_outcast(pid, deadline)]
        if not outcasts:
            break
        killed += len(outcasts)
    return killed


def _kill_if_outcast(pid: int, deadline: float) -> bool:
    pidfd = proc.open_pidfd(pid)
    if pidfd is None:
        return False
    try:
        # Once more now that the pidfd pins it. Children that have ended are left to `reap`.
        if proc.has_ended(pidfd) or not _is_unmarked(pid):
            return False
        proc.send_signal([pidfd], signal.SIGKILL)
        if proc.wait_for_end([pidfd], deadline - time.monotonic()):
            with suppress(ChildProcessError):
                os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG)
        return True
    finally:
        os.close(pidfd)


def _is_unmarked(pid: int) -> bool:
    return _has_lost_mark(pid) and not marks.is_run_number(_read_mark_number(pid)) and proc.find_parent(pid) == os.getpid()


def _is_adopted(pid: int) -> bool:
    """Certainly so, not just possibly. A child that we started is in our session or leads one; nobody can join another."""
    return proc.find_session(pid) not in (None, pid, os.getsid(0)) or _has_lost_mark(pid)


def _has_lost_mark(pid: int) -> bool:
    """Then it was started in a run: what we start for ourselves keeps the number."""
    if pid in _kept or pid in _before:
        return False
    return _read_mark_number(pid) not in (None, marks.UNCLAIMED)


def _read_mark_number(pid: int) -> int | None:
    """`None` when it is gone, or when numbers cannot be had here. No limit at all is 0."""
    limits = proc.read_limits(pid) if _limit is not None else None
    return None if limits is None or _limit is None else _limit.parse_limit(limits) or 0


def _reap_while_runs_last() -> None:
    while True:
        with _runs_changed:
            _runs_changed.wait_for(lambda: _runs)
        try:
            reap_adopted()
        except Exception:
            log.exception("the dead could not be collected")
        time.sleep(_TICK)


MARKER = marks.RUN_VARIABLE
_MARKED_KILL_TIMEOUT = 5.0
"""How long the killed may take to be gone: only one stuck in the kernel takes that long, and it dies on its way out."""
_ENOUGH, _CALM, _RESTLESS = 10, 5, 1
"""Nothing found in two looks: none is left. But a process can hand over to a child and go while we look. Where strangers
were gone before they could be looked at, it takes ten looks; where one of the run's own has just died, we begin again."""
_MOST_HELD = 512


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
    return len(killed) + kill_unmarked_children()


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
