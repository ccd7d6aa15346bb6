"""Finds the run that a process belongs to, for a connection that it makes to the daemon. It fails closed: a process that cannot
be attributed raises `ProcessUnattributed`, and its connection is refused.

Three properties are checked, because a process of a run can change some of them:

- its ancestors. The daemon is the subreaper, so every process that a run has started is below the daemon, and the daemon knows
  the pids of those that it started for a run. No process can change this.
- its number (`marks`). A process can lower it, so any unknown number is refused, and an orphan's number counts
  only where no other run could have lowered its own to it.
- the variables in its environment, which a process can drop: they can only show that it belongs to a run.
"""

import os
import pwd
import sys
from collections import deque

from switchtower.core.roles import ProcessUnattributed
from switchtower.tools.processes import marks, orphans, proc

SHELL_PREFIX = "sh_"
"""The prefix of the ids of users' own commands: processes that they start act for the user."""

_DEEPEST = 4_096
_TRIES = 20
"""The number of times that a walk is restarted because a process on its path has ended meanwhile."""
_holders: deque[int] = deque(maxlen=8)
"""The last processes that had a socket: a browser or a proxy connects again."""
_VARIABLE = f"{marks.RUN_VARIABLE}=".encode()


def find_run(pid: int, started_at: int | None = None) -> str | None:
    """Returns the run that the process belongs to; None for a process of the owner. `started_at` distinguishes it from a later
    process with its pid. Raises `ProcessUnattributed`.
    """
    if pid == 0 or sys.platform != "linux":
        # This is a process of a PID namespace that is not below ours: no run of this daemon has started it.
        return None
    for _ in range(_TRIES):
        start = proc.read_start_time(pid)
        if start is None or (started_at is not None and start != started_at):
            raise ProcessUnattributed(f"process {pid} has ended")
        ancestry = _find_ancestry(pid)
        if ancestry is None:
            continue
        run_id = _attribute(*ancestry)
        if proc.read_start_time(pid) == start:
            return run_id
    raise ProcessUnattributed(f"the ancestors of process {pid} keep changing")


def find_run_of_socket(inode: int, uid: int) -> str | None:
    """Returns the run whose process has this socket among its files; None when only processes of the owner have it. `uid` is the
    owner of the socket according to the kernel. Raises `ProcessUnattributed`.
    """
    if sys.platform != "linux" or not has_recent_runs():
        return None
    name = f"socket:[{inode}]"
    below = _list_descendants()
    for pid in below:
        if _has_file(pid, name) and (run_id := find_run(pid)) is not None:
            return run_id
    # No process of a run has it. Some process must have it, because a descriptor in transit to another process is in none.
    for pid in dict.fromkeys((os.getpid(), *_holders, *proc.list_pids())):
        if _has_file(pid, name):
            if pid not in _holders:
                _holders.append(pid)
            return find_run(pid)
    if _is_other_user(uid):
        return None
    raise ProcessUnattributed(f"no process can be seen that has the socket {inode}")


def _list_descendants() -> list[int]:
    """Returns every process below us, where all of a run's processes are."""
    found: list[int] = []
    waiting = [os.getpid()]
    while waiting:
        children = proc.list_children(waiting.pop())
        found += children
        waiting += children
    return found


def _has_file(pid: int, name: str) -> bool:
    files = proc.list_open_files(pid)
    return files is not None and name in files


def _is_other_user(uid: int) -> bool:
    """Returns whether a socket with this uid cannot be a run's, although no visible process has it. A run's processes have our
    uid, or in a user namespace one that belongs to no account; and as root we see the files of every process.
    """
    if os.geteuid() in (0, uid):
        return False
    try:
        pwd.getpwuid(uid)
    except KeyError:
        return False
    return True


def has_recent_runs() -> bool:
    """Returns whether a process of a run may be at the other end of a new connection: a run has processes, or had some
    recently.
    """
    return bool(_exclude_shells(orphans.active_runs() | orphans.list_recent_runs()))


def _find_ancestry(pid: int) -> tuple[list[int], bool] | None:
    """Returns the process and its ancestors, nearest first, up to a child of ours or to the first that cannot be seen; and
    whether the last one is our child. None when one of them has ended meanwhile.
    """
    ours = os.getpid()
    line = [pid]
    while len(line) < _DEEPEST:
        child = line[-1]
        if child == ours:
            return line, False
        parent = proc.find_parent(child)
        if parent is None:
            return None
        if parent == ours:
            return line, True
        is_seen = proc.read_start_time(parent) is not None
        # A pid is not reused for as long as it is the parent of another process.
        if proc.find_parent(child) != parent:
            return None
        if parent == 0 or not is_seen:
            return line, False
        line.append(parent)
    raise ProcessUnattributed(f"process {pid} has too many ancestors")


def _attribute(line: list[int], is_below_us: bool) -> str | None:
    pid = line[0]
    if pid == os.getpid():
        return None
    if is_below_us and (run_id := orphans.find_run_of_child(line[-1])) is not None and not run_id.startswith(SHELL_PREFIX):
        return run_id
    named = _find_named(pid)
    number = _read_mark_number(pid)
    run_id = None if number is None else _find_numbered(number)
    if run_id is not None and not run_id.startswith(SHELL_PREFIX):
        _check_sole(run_id, number)
        return run_id
    if named is not None:
        return named
    if number is not None and run_id is None:
        raise ProcessUnattributed(f"process {pid} has changed its mark")
    if not is_below_us or orphans.was_started_before(line[-1]) or orphans.find_run_of_child(line[-1]) is not None:
        return None
    # An orphan, or a process that has dropped every sign of its run. A process that a user left behind cannot be distinguished
    # from it.
    if run_id is not None and not has_recent_runs():
        return None
    raise ProcessUnattributed(f"process {pid} is below the daemon and belongs to no run that is known")


def _find_named(pid: int) -> str | None:
    """Returns the run that its environment names."""
    runs = _exclude_shells(orphans.active_runs())
    for entry in proc.read_environment(pid) or () if runs else ():
        if entry.startswith(_VARIABLE) and (run_id := os.fsdecode(entry[len(_VARIABLE) :])) in runs:
            return run_id
    return None


def _read_mark_number(pid: int) -> int | None:
    """Returns None for a process that never had a number, or has the daemon's own."""
    limit = marks.find_free_limit()
    limits = None if limit is None else proc.read_limits(pid)
    if limit is None:
        return None
    if limits is None:
        raise ProcessUnattributed(f"process {pid} has ended")
    number = limit.parse_limit(limits)
    return None if number == marks.UNCLAIMED else number


def _find_numbered(number: int) -> str | None:
    return next((run_id for run_id in orphans.active_runs() if marks.ProcessMark(run_id).is_number(number)), None)


def _check_sole(run_id: str, number: int | None) -> None:
    """Raises `ProcessUnattributed` when a process of another run could have this number too: by lowering its own, or, as root, by
    any change.
    """
    assert number is not None
    for other in orphans.active_runs() - {run_id}:
        if os.geteuid() == 0 or marks.ProcessMark(other, 0).make_number() > number:
            raise ProcessUnattributed(f"the number {number} may be of {run_id} or of {other}")


def _exclude_shells(runs: frozenset[str]) -> frozenset[str]:
    return frozenset(run_id for run_id in runs if not run_id.startswith(SHELL_PREFIX))
