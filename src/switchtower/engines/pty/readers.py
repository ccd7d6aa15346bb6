"""Whether a program waits for input from its terminal, by the system call that each of its processes is in.

A line that looks like a question is a question only when the program reads the answer. Linux says in `/proc/PID/syscall`
where a process waits. Other systems, other machines and the processes of other users do not say it: the answer is then
"perhaps", which is enough for a line that the cursor stands behind, and not for a line that is closed by a newline.
"""

import enum
import os
import platform
import stat
from pathlib import Path

from switchtower.tools.running import proc

_READS = {"x86_64": frozenset({0, 19}), "aarch64": frozenset({63, 65})}
"""`read` and `readv`: the first argument is the descriptor."""
_WAITS = {"x86_64": frozenset({7, 23, 232, 270, 271, 281, 426, 441}), "aarch64": frozenset({22, 72, 73, 426, 441})}
"""`poll`, `select`, `epoll_wait`, `io_uring_enter` and their relatives: they wait for several things at once."""
_CONTROLLING_TERMINAL = os.makedev(5, 0)
"""`/dev/tty`"""


class ReadingState(enum.Enum):
    YES = "yes"
    """A process is in `read` on the terminal."""
    PERHAPS = "perhaps"
    """A process waits for something that may be the terminal, or cannot be looked at."""
    BUSY = "busy"
    """A process computes; it may read a moment later."""
    NO = "no"
    """Each process sleeps, or waits for something else."""


_RANK = (ReadingState.NO, ReadingState.BUSY, ReadingState.PERHAPS, ReadingState.YES)


def find_reading_state(program: int, foreground: int, terminal: int) -> ReadingState:
    """`program` is the pid of the session's leader, `foreground` the terminal's foreground group, `terminal` its device number.

    Processes in the foreground count, and those that a sandbox has put into a session of their own with the terminal as
    their standard input."""
    machine = platform.machine()
    if machine not in _READS:
        return ReadingState.PERHAPS
    session = proc.find_session(program)
    members = [pid for pid in proc.list_pids() if proc.find_group(pid) == foreground]
    if not members:
        return ReadingState.PERHAPS  # no `/proc`, or the group has just changed
    detached = [pid for pid in _list_descendants(program) if proc.find_session(pid) != session and _is_terminal(pid, 0, terminal)]
    return max((_inspect_process(pid, terminal, machine) for pid in (*members, *detached)), key=_RANK.index)


def _inspect_process(pid: int, terminal: int, machine: str) -> ReadingState:
    """The most that one of its threads does."""
    try:
        threads = list(Path(f"/proc/{pid}/task").iterdir())
    except OSError:
        return ReadingState.NO  # it has ended
    return max((_inspect_thread(pid, thread, terminal, machine) for thread in threads), key=_RANK.index, default=ReadingState.NO)


def _inspect_thread(pid: int, thread: Path, terminal: int, machine: str) -> ReadingState:
    try:
        words = (thread / "syscall").read_text().split()
    except PermissionError:
        return ReadingState.PERHAPS
    except OSError:
        return ReadingState.NO
    if words[:1] == ["running"]:
        return ReadingState.BUSY
    if len(words) < 3 or not words[0].isdecimal():
        return ReadingState.NO  # in the kernel without a system call
    number = int(words[0])
    if number in _READS[machine] and _is_terminal(pid, int(words[1], 16), terminal):
        return ReadingState.YES
    return ReadingState.PERHAPS if number in _WAITS[machine] else ReadingState.NO


def _is_terminal(pid: int, descriptor: int, terminal: int) -> bool:
    try:
        status = os.stat(f"/proc/{pid}/fd/{descriptor}")  # noqa: PTH116 - hot
    except OSError:
        return False
    return stat.S_ISCHR(status.st_mode) and status.st_rdev in (terminal, _CONTROLLING_TERMINAL)


def _list_descendants(pid: int) -> list[int]:
    found: list[int] = []
    below = proc.list_children(pid)
    while below:
        child = below.pop()
        found.append(child)
        below += proc.list_children(child)
    return found
