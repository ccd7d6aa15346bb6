"""Process information of the system: `/proc` to find processes, pidfds to hold and signal them. It decides nothing.

A pidfd names one process for as long as it is held, even when its pid is reused. Systems other than Linux have neither; there
nothing is found and nothing is held.

`Descendants` holds every process below another by pidfds, so that they can be ended later, when parents have died and the
relations are lost. It is for programs that the mark and the process group miss because they dropped both.
"""

import os
import select
import signal
import sys
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

_STATE, _PARENT, _FLAGS, _STARTED, _ENVIRONMENT_END = 0, 1, 6, 19, 48
"""Fields of `/proc/PID/stat`, counted behind the name."""
_GONE = frozenset({b"Z", b"X"})
_EXITING_OR_KERNEL = 0x4 | 0x200000
_EXEC_LOOKS = 200
_EXEC_PAUSE = 0.001
_READ = 64 * 1024


def list_pids() -> list[int]:
    """Returns the pids in descending order, roughly newest first: the newest processes disappear first."""
    try:
        return sorted((int(name) for name in os.listdir("/proc") if name.isdigit()), reverse=True)  # noqa: PTH208 - hot
    except OSError:
        return []


def list_children(pid: int) -> list[int]:
    """Returns its children, including dead ones that are not reaped yet."""
    try:
        listed = [(task / "children").read_bytes() for task in Path(f"/proc/{pid}/task").iterdir()]
    except OSError:
        # Not every kernel keeps that list.
        return [child for child in list_pids() if find_parent(child) == pid]
    return [int(child) for line in listed for child in line.split()]


def read_environment(pid: int) -> list[bytes] | None:
    """Returns the variables that a process was started with; `None` when it has ended or may not be read."""
    for _ in range(_EXEC_LOOKS):
        environment = _read(pid, "environ")
        if environment is None:
            return None
        if environment or not _is_between_programs(pid):
            return environment.split(b"\0")
        time.sleep(_EXEC_PAUSE)
    return None


def read_limits(pid: int) -> bytes | None:
    """Returns the table of its resource limits, which every user may read; `None` when it has ended. Dead processes keep theirs
    until they are reaped.
    """
    return _read(pid, "limits")


def find_parent(pid: int) -> int | None:
    fields = _read_status(pid)
    return int(fields[_PARENT]) if fields else None


def read_start_time(pid: int) -> int | None:
    """Returns its start time, in the kernel's ticks; `None` when it has ended or cannot be seen."""
    fields = _read_status(pid)
    return None if fields is None or fields[_STATE] in _GONE else int(fields[_STARTED])


def list_open_files(pid: int) -> frozenset[str] | None:
    """Returns the targets of its descriptors; `None` when they may not be read."""
    folder = f"/proc/{pid}/fd"
    files = set()
    try:
        numbers = os.listdir(folder)  # noqa: PTH208 - of a process that may end at any moment
    except OSError:
        return None
    for number in numbers:
        with suppress(OSError):  # closed meanwhile
            files.add(os.readlink(f"{folder}/{number}"))  # noqa: PTH115
    return frozenset(files)


def wait_for_exit_code(pid: int) -> int:
    """Waits for the end of a child and returns its exit code. A death by signal counts as 128 + its number. The child is not
    reaped: until then its pid cannot be reused.
    """
    ended = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    assert ended is not None
    return ended.si_status if ended.si_code == os.CLD_EXITED else 128 + ended.si_status


def find_group(pid: int) -> int | None:
    try:
        return os.getpgid(pid)
    except OSError:
        return None


def find_session(pid: int) -> int | None:
    try:
        return os.getsid(pid)
    except OSError:
        return None


def is_signal_ignored(pid: int, number: signal.Signals) -> bool:
    """Returns whether the signal would have no effect on it. A program that catches it does not ignore it."""
    return _has_in_mask(pid, b"SigIgn", number)


def is_signal_caught(pid: int, number: signal.Signals) -> bool:
    """Returns whether it has its own handler for the signal."""
    return _has_in_mask(pid, b"SigCgt", number)


def _has_in_mask(pid: int, name: bytes, number: signal.Signals) -> bool:
    status = _read(pid, "status") or b""
    mask = status.partition(b"\n%b:" % name)[2].split(maxsplit=1)
    return bool(mask) and bool(int(mask[0], 16) >> (number - 1) & 1)


def _is_between_programs(pid: int) -> bool:
    """In the middle of an `exec`, a process has no environment for a moment, which looks like an empty one."""
    fields = _read_status(pid)
    return (
        fields is not None
        and fields[_STATE] not in _GONE
        and not int(fields[_FLAGS]) & _EXITING_OR_KERNEL
        and int(fields[_ENVIRONMENT_END]) == 0
    )


def _read_status(pid: int) -> list[bytes] | None:
    status = _read(pid, "stat")
    if status is None:
        return None
    # The name in parentheses may contain anything, even parentheses: the fields start behind the last one.
    fields = status.rpartition(b")")[2].split()
    return fields if len(fields) > _ENVIRONMENT_END else None


def _read(pid: int, name: str) -> bytes | None:
    # Bare calls are used: one scan makes hundreds of them, and the faster the scan, the less escapes it.
    try:
        file = os.open(f"/proc/{pid}/{name}", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        content = part = os.read(file, _READ)
        while len(part) == _READ:
            part = os.read(file, _READ)
            content += part
        return content
    except OSError:
        return None
    finally:
        os.close(file)


if sys.platform == "linux":

    def open_pidfd(pid: int) -> int | None:
        try:
            return os.pidfd_open(pid)
        except OSError:
            return None

    def send_signal(pidfds: Iterable[int], number: signal.Signals) -> None:
        for pidfd in pidfds:
            with suppress(OSError):
                signal.pidfd_send_signal(pidfd, number)

else:

    def open_pidfd(pid: int) -> int | None:
        return None

    def send_signal(pidfds: Iterable[int], number: signal.Signals) -> None:
        assert not list(pidfds), "there are no pidfds on this system"


def has_ended(pidfd: int) -> bool:
    """Returns whether all of its threads have ended. A process of which only the first thread has ended appears dead in `/proc`,
    but is not.
    """
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    return bool(poll.poll(0))


def wait_for_end(pidfds: Iterable[int], timeout_s: float) -> bool:
    """Returns whether all have ended within that time. A pidfd becomes readable when its process ends."""
    deadline = time.monotonic() + timeout_s
    poll = select.poll()
    waiting = set(pidfds)
    for pidfd in waiting:
        poll.register(pidfd, select.POLLIN)
    while waiting:
        for pidfd, _ in poll.poll(max(0.0, deadline - time.monotonic()) * 1000):
            poll.unregister(pidfd)
            waiting.discard(pidfd)
        if time.monotonic() >= deadline:
            break
    return not waiting


class Descendants:
    def __init__(self, ancestor: int) -> None:
        """The ancestor must be a child of ours that is not reaped yet, so that its pid cannot be reused."""
        self._ancestor = ancestor
        self._pidfds: dict[int, int] = {}

    def refresh(self) -> None:
        """Adds the current descendants, including those below earlier ones whose own parents have ended."""
        children: dict[int, list[int]] = {}
        for pid in list_pids():
            if (parent := find_parent(pid)) is not None:
                children.setdefault(parent, []).append(pid)
        parents = [self._ancestor, *self._pidfds]
        while parents:
            parent = parents.pop()
            for pid in children.get(parent, ()):
                if pid not in self._pidfds and self._hold(pid, parent):
                    parents.append(pid)

    def kill(self, timeout_s: float) -> None:
        """Kills them all and waits until they have ended, or until the time is up."""
        send_signal(self._pidfds.values(), signal.SIGKILL)
        wait_for_end(self._pidfds.values(), timeout_s)

    def close(self) -> None:
        while self._pidfds:
            os.close(self._pidfds.popitem()[1])

    def _hold(self, pid: int, parent: int) -> bool:
        """Returns whether it is, now that a pidfd pins it, still a child of that parent, and the parent still the same
        process.
        """
        pidfd = open_pidfd(pid)
        if pidfd is None:
            return False
        if find_parent(pid) == parent and (parent == self._ancestor or not wait_for_end([self._pidfds[parent]], 0)):
            self._pidfds[pid] = pidfd
            return True
        os.close(pidfd)
        return False
