"""The daemon as the parent of orphans. A process whose ancestors have died comes back to the nearest subreaper, so what
slipped out of a run is our child in the end, whatever it did to its marks.

Two things follow. Adopted children that die have nobody else to reap them. And one that carries neither a run's mark nor
the daemon's own number can only have dropped it on purpose: `kill_outcasts` ends those. Nobody else's child is touched:

- what the daemon starts is in its session, or leads one of its own, and inherits its number;
- what `keep` started is waited for by whoever started it.
"""

import ctypes
import logging
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress

from switchtower.tools.running import marks, proc, watchdog

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
