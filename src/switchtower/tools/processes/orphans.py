"""The daemon as the parent of orphans, and the end of a run's processes. A process whose ancestors have died is reparented to the
nearest subreaper, so a process that escaped from a run becomes our child in the end, whatever it did to its marks.

Adopted children that die must be reaped here. And an adopted child that carries neither a run's mark nor the daemon's own number
can only have dropped it on purpose: `kill_unmarked_children` ends those. No other child is touched:

- a process that the daemon starts is in its session, or leads its own, and inherits its number;
- the caller of `start_kept_child` waits for the child.

A run's processes are found by their marks (`marks`), which outlast `setsid`, a double fork, `env -i` and the daemon itself. A
process is signalled through a pidfd taken before its mark was checked, so a recycled pid is never hit. Without `/proc` nothing is
found here, and only a command's process group is ended.

Ends the processes of runs when the daemon is killed: this is the daemon's side of a small process beside it
(`watchdog_process`).

A pair of sockets connects the two. The kernel closes the daemon's end however the daemon ends, and no other process can open
either end, as it could open a pipe under `/proc/PID/fd`. The watchdog inherits nothing else from the daemon: no descriptor, no
environment, no terminal."""

import atexit
import ctypes
import logging
import os
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from switchtower.tools.processes import marks, proc

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


_PR_SET_CHILD_SUBREAPER = 36
_TICK = 0.25
"""The seconds between two collections of dead children while runs are active. A hostile run can leave them by the thousand."""
_KILL_TIMEOUT = 5.0
_LATELY = 30.0

log = logging.getLogger(__name__)

_lock = threading.Lock()
"""This lock is held while a child is started, so that it is registered as kept before it could be taken for an adopted one."""
_kept: dict[int, str] = {}
"""The run of each child that was started for one, by its pid."""
_runs: set[str] = set()
_ended_at: dict[str, float] = {}
"""The runs that have ended recently, and when."""
_runs_changed = threading.Condition()
_limit: marks.ResourceLimit | None = None
_before: dict[int, int | None] = {}
"""Children from before we had our number, and when each was started. They have none, and do not count as unmarked."""
_is_subreaper = False
_watchdog = Watchdog()
"""Ends the processes that this process leaves when it is killed: then no subreaper is left."""


def become_subreaper() -> bool:
    """Makes this process the parent of orphans for the rest of its life. Call it once, before anything is started. Returns
    whether the system supports it.
    """
    global _is_subreaper, _limit, _before
    if sys.platform != "linux" or _is_subreaper:
        return _is_subreaper
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        log.warning("orphans cannot be adopted: %s", os.strerror(ctypes.get_errno()))
        return False
    _before = {child: proc.read_start_time(child) for child in proc.list_children(os.getpid())}
    limit = marks.find_free_limit()
    if limit is not None:
        with suppress(OSError, ValueError):  # some containers forbid it; then unmarked processes cannot be recognised
            resource.setrlimit(limit.number, (marks.UNCLAIMED, marks.UNCLAIMED))
            _limit = limit
    _is_subreaper = True
    threading.Thread(target=_reap_while_runs_last, name="tower-reaper", daemon=True).start()
    return True


def start_kept_child(run_id: str, start: Callable[[], "subprocess.Popen[bytes]"]) -> "subprocess.Popen[bytes]":
    """Starts a child that carries the run's mark and that its starter waits for. Call `release_child` when it is reaped."""
    with _lock:
        process = start()
        _kept[process.pid] = run_id
    return process


def release_child(pid: int) -> None:
    _kept.pop(pid, None)


def register_run(run_id: str) -> None:
    """Notes that the run has processes from now on; orphans may follow."""
    if _is_subreaper and run_id not in _runs:
        _watchdog.watch(run_id, marks.ProcessMark(run_id).make_run_digits())
        with _runs_changed:
            _runs.add(run_id)
            _runs_changed.notify()


def unregister_run(run_id: str) -> None:
    if _is_subreaper:
        # The order matters: the run is always in one of the two, or another thread would take a connection of its processes for
        # the owner's.
        _ended_at[run_id] = time.monotonic()
        _runs.discard(run_id)
        _watchdog.forget(run_id)
        for old in [ended for ended, at in _ended_at.items() if at < time.monotonic() - _LATELY]:
            _ended_at.pop(old, None)
        reap_adopted()


def active_runs() -> frozenset[str]:
    """Returns the runs that may have processes now."""
    return frozenset(_runs)


def list_recent_runs() -> frozenset[str]:
    """Returns the runs that ended a short time ago: a connection that one of their processes made may still wait to be
    accepted.
    """
    since = time.monotonic() - _LATELY
    return frozenset(run_id for run_id, at in dict(_ended_at).items() if at > since)


def find_run_of_child(pid: int) -> str | None:
    """Returns the run that a child of ours was started for. No process can change this, whatever it does to its marks."""
    return _kept.get(pid)


def was_started_before(pid: int) -> bool:
    """Returns whether it was a child of this process before any run was."""
    return pid in _before and _before[pid] == proc.read_start_time(pid)


def reap_adopted() -> None:
    """Reaps adopted children that have died, and never a child whose starter waits for its exit code."""
    if not _is_subreaper:
        return
    with _lock, suppress(ChildProcessError):
        while dead := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT):
            if not _is_adopted(dead.si_pid):
                break  # it hides the others until its starter has waited for it: search behind it
            os.waitid(os.P_PID, dead.si_pid, os.WEXITED | os.WNOHANG)
        else:
            return
        for pid in proc.list_children(os.getpid()):
            if _is_adopted(pid):
                with suppress(ChildProcessError):
                    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG)


def kill_unmarked_children() -> int:
    """Kills adopted children that have dropped every mark, and the processes they start meanwhile. Returns their number."""
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
        # This is checked again now that the pidfd pins it. Children that have ended are left to `reap_adopted`.
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
    """Returns True only when it is certain. A child that we started is in our session or leads one; no process can join another
    session.
    """
    return proc.find_session(pid) not in (None, pid, os.getsid(0)) or _has_lost_mark(pid)


def _has_lost_mark(pid: int) -> bool:
    """Such a process was started in a run: our own helpers keep the number."""
    if pid in _kept or pid in _before:
        return False
    return _read_mark_number(pid) not in (None, marks.UNCLAIMED)


def _read_mark_number(pid: int) -> int | None:
    """Returns `None` when the process has ended, or when the system has no such numbers. No limit at all is 0."""
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
"""The seconds for killed processes to disappear: only one that is stuck in the kernel takes that long, and it dies on its way
out.
"""
_ENOUGH, _CALM, _RESTLESS = 10, 5, 1
"""When two scans find nothing, no process is left. But a process can fork and exit during a scan. When unknown processes
disappeared before they could be checked, it takes ten scans; when one of the run's own has just died, the count starts again.
"""
_MOST_HELD = 512


def kill_marked(run_id: str, *, command: int | None = None) -> int:
    """Kills every process of the run, or of one of its commands, and every process they start meanwhile, until none is left.
    Returns their number.
    """
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
    """Returns the living processes, pid → pidfd; of very many, only some. The caller closes the pidfds."""
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
    """One scan of all processes for those with a mark. The caller closes each pidfd that it gets."""

    def __init__(self, sign: marks.MarkSignature) -> None:
        self._sign = sign
        self.dead: set[int] = set()
        """Those with the mark that wait to be reaped."""
        self.strangers: set[int] = set()
        self.missed: set[int] = set()
        """Those that disappeared before they could be checked."""

    def __iter__(self) -> Iterator[tuple[int, int]]:
        ourselves = os.getpid()
        for pid in proc.list_pids():
            if pid == ourselves or not self._is_marked(pid):
                continue
            pidfd = proc.open_pidfd(pid)
            if pidfd is None:
                self.missed.add(pid)
            # This is checked again now that the pidfd pins it: the first check may have seen a predecessor with the same pid.
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
