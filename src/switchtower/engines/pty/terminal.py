"""A pseudo-terminal, seen from the user's side: its output, its input and its size. It knows nothing about the program at its
other side, except whether the program waits for input.

We keep the program's side open too. A program may close its terminal and open it again; otherwise that would look like its end,
and its last output could not be distinguished from it.

A line that looks like a question is a question only when the program reads the answer. On Linux, `/proc/PID/syscall` shows the
system call that a process waits in. On other systems and machines, and for the processes of other users, it is unknown: the
answer is then "perhaps", which is enough for a line that the cursor is behind, and not for a line that ends with a newline.
"""

import asyncio
import enum
import fcntl
import os
import platform
import stat
import struct
import sys
import termios
from pathlib import Path

from switchtower.tools.processes import proc

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
    """A process waits for something that may be the terminal, or cannot be inspected."""
    BUSY = "busy"
    """A process computes; it may read a moment later."""
    NO = "no"
    """Each process sleeps, or waits for something else."""


_RANK = (ReadingState.NO, ReadingState.BUSY, ReadingState.PERHAPS, ReadingState.YES)


def find_reading_state(program: int, foreground: int, terminal: int) -> ReadingState:
    """`program` is the pid of the session's leader, `foreground` the terminal's foreground group, `terminal` its device number.

    Processes in the foreground count, and those that a sandbox has put into another session with the terminal as their standard
    input.
    """
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
    """Returns the state of its most active thread."""
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


MOST_WAITING = 1024 * 1024
"""The most bytes that were typed but not yet accepted by the terminal."""
_MOST_AT_ONCE = 64 * 1024
_READ = 4096
"""The kernel never has more ready at once."""
_LARGEST = 0xFFFF
_INPUT_IS_UTF8 = 0x4000
_LOCAL_FLAGS = 3


class InputFull(Exception):
    """The program does not read what is typed; hint: wait until it does, or stop it"""

    def __init__(self) -> None:
        super().__init__(InputFull.__doc__)


class PseudoTerminal:
    def __init__(self, *, cols: int, rows: int) -> None:
        self._loop = asyncio.get_running_loop()
        self._typed = bytearray()
        self._waiting: asyncio.Future[None] | None = None
        self._is_hung_up = False
        """A privileged program hung the terminal up: no output or input is possible any more, and the kernel would call us
        without end.
        """
        self._ours, self.theirs = os.openpty()
        """`theirs` is the program's side."""
        try:
            os.set_blocking(self._ours, False)
            self.resize(cols=cols, rows=rows)
            _erase_whole_characters(self.theirs)
        except BaseException:
            self.close()
            raise

    @property
    def is_closed(self) -> bool:
        return self._ours == -1

    def read_available(self) -> bytes:
        """Returns the unread output, up to 64 KiB; empty when there is none now."""
        taken = []
        room = _MOST_AT_ONCE
        while room >= _READ and not self.is_closed:
            try:
                part = os.read(self._ours, _READ)
            except BlockingIOError:
                break
            except OSError:
                self._is_hung_up = True
                break
            taken.append(part)
            room -= len(part)
        return b"".join(taken)

    async def wait_readable(self) -> None:
        """Waits until there is output, or `wake`. We watch the descriptor only while a task waits here; otherwise the terminal
        fills up, and the program has to wait.
        """
        assert self._waiting is None, "only one reads"
        if self.is_closed:
            return
        self._waiting = self._loop.create_future()
        if not self._is_hung_up:
            self._loop.add_reader(self._ours, self.wake)
        try:
            await self._waiting
        finally:
            self._waiting = None
            if not self.is_closed:
                self._loop.remove_reader(self._ours)

    def wake(self) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    def write(self, data: bytes) -> None:
        """Writes in order as the terminal accepts it. Raises `InputFull`, without accepting any of it, when too much waits."""
        if self.is_closed:
            return
        if len(self._typed) + len(data) > MOST_WAITING:
            raise InputFull
        was_waiting = bool(self._typed)
        self._typed += data
        if not was_waiting:
            self._write()
            if self._typed:
                self._loop.add_writer(self._ours, self._write)

    def resize(self, *, cols: int, rows: int) -> None:
        """Resizes the terminal; the program gets SIGWINCH. Impossible sizes are clamped."""
        size = struct.pack("HHHH", *(max(1, min(length, _LARGEST)) for length in (rows, cols)), 0, 0)
        if not self.is_closed:
            fcntl.ioctl(self._ours, termios.TIOCSWINSZ, size)

    def has_echo(self) -> bool:
        """False while the program asks for a line without echo: a password. A program that draws for itself takes keys one by one
        and does not count.
        """
        if self.is_closed:
            return True
        flags = termios.tcgetattr(self.theirs)[_LOCAL_FLAGS]
        return bool(flags & termios.ECHO) or not flags & termios.ICANON

    def is_canonical(self) -> bool:
        """True when the kernel hands over whole lines. A program that takes keys one by one has switched that off."""
        return self.is_closed or bool(termios.tcgetattr(self.theirs)[_LOCAL_FLAGS] & termios.ICANON)

    def has_output(self) -> bool:
        """True when there is output that has not been read yet."""
        return not self.is_closed and not self._is_hung_up and _count_waiting_bytes(self._ours) > 0

    def count_unread(self) -> int:
        """Returns the number of typed bytes that the program could read now, and has not read."""
        return 0 if self.is_closed else len(self._typed) + _count_waiting_bytes(self.theirs)

    def flush_input(self) -> None:
        """Discards input that was typed and not read."""
        if self.is_closed:
            return
        if self._typed:
            self._typed.clear()
            self._loop.remove_writer(self._ours)
        # This is the program's side: the queue of our side is the program's output.
        termios.tcflush(self.theirs, termios.TCIFLUSH)

    def find_reading_state(self, program: int) -> ReadingState:
        """Returns whether the program, whose first process has this pid, waits for input from the terminal."""
        if self.is_closed:
            return ReadingState.NO
        try:
            foreground = os.tcgetpgrp(self._ours)
        except OSError:
            return ReadingState.PERHAPS
        return find_reading_state(program, foreground, os.fstat(self.theirs).st_rdev)

    def close(self) -> None:
        if self.is_closed:
            return
        self._loop.remove_reader(self._ours)
        self._loop.remove_writer(self._ours)
        os.close(self._ours)
        os.close(self.theirs)
        self._ours = self.theirs = -1
        self._typed.clear()
        self.wake()

    def _write(self) -> None:
        try:
            while self._typed:
                # A slice, not everything that waits: it is copied.
                written = os.write(self._ours, self._typed[:_MOST_AT_ONCE])
                del self._typed[:written]
        except BlockingIOError:
            return
        except OSError:
            self._typed.clear()
            self._is_hung_up = True
        self._loop.remove_writer(self._ours)


def _count_waiting_bytes(terminal: int) -> int:
    try:
        return int.from_bytes(fcntl.ioctl(terminal, termios.FIONREAD, b"\0\0\0\0"), sys.byteorder)
    except OSError:
        return 0


def _erase_whole_characters(terminal: int) -> None:
    """Makes Backspace in a line delete a character, not a byte."""
    attributes = termios.tcgetattr(terminal)
    attributes[0] |= _INPUT_IS_UTF8
    termios.tcsetattr(terminal, termios.TCSANOW, attributes)
