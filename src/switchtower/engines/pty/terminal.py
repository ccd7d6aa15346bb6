"""A pseudo-terminal, seen from the side where a person would sit: what is shown, what is typed, how large it is.
It knows nothing about the program at its other side.

We keep that other side open too. A program may close its terminal and open it again; without us that would look like
an end, and its last output could not be told from it.
"""

import asyncio
import fcntl
import os
import struct
import sys
import termios

from switchtower.engines.pty import readers

MOST_WAITING = 1024 * 1024
"""Typed but not yet taken by the terminal."""
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
        """By a privileged program: nothing can be shown or typed any more, and the kernel would call us without end."""
        self._ours, self.theirs = os.openpty()
        """`theirs` is what the program gets."""
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
        """What is shown and not yet taken, up to 64 KiB; empty when there is nothing now."""
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
        """Waits until there is something to take, or `wake`. Only while somebody waits do we listen, so the terminal fills up
        when nobody does, and the program waits."""
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
        """Written in order as the terminal takes it. Raises `InputFull`, having taken nothing of it, when too much waits."""
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
        """The program is told by SIGWINCH. What no terminal can be is brought to what is nearest."""
        size = struct.pack("HHHH", *(max(1, min(length, _LARGEST)) for length in (rows, cols)), 0, 0)
        if not self.is_closed:
            fcntl.ioctl(self._ours, termios.TIOCSWINSZ, size)

    def has_echo(self) -> bool:
        """Not while it asks for a line without showing what is typed: a password. A program that draws for itself takes keys
        one by one and is not meant."""
        if self.is_closed:
            return True
        flags = termios.tcgetattr(self.theirs)[_LOCAL_FLAGS]
        return bool(flags & termios.ECHO) or not flags & termios.ICANON

    def is_canonical(self) -> bool:
        """Whether the kernel hands over whole lines. A program that takes keys one by one has switched that off."""
        return self.is_closed or bool(termios.tcgetattr(self.theirs)[_LOCAL_FLAGS] & termios.ICANON)

    def has_output(self) -> bool:
        """Whether something is shown that was not taken yet."""
        return not self.is_closed and not self._is_hung_up and _count_waiting_bytes(self._ours) > 0

    def count_unread(self) -> int:
        """Bytes that were typed and that the program could read now, and has not read."""
        return 0 if self.is_closed else len(self._typed) + _count_waiting_bytes(self.theirs)

    def flush_input(self) -> None:
        """Takes back what was typed and not read."""
        if self.is_closed:
            return
        if self._typed:
            self._typed.clear()
            self._loop.remove_writer(self._ours)
        # The program's side: the queue of our side is the program's output.
        termios.tcflush(self.theirs, termios.TCIFLUSH)

    def find_reading_state(self, program: int) -> readers.ReadingState:
        """Whether the program, whose first process has this pid, waits for input from the terminal."""
        if self.is_closed:
            return readers.ReadingState.NO
        try:
            foreground = os.tcgetpgrp(self._ours)
        except OSError:
            return readers.ReadingState.PERHAPS
        return readers.find_reading_state(program, foreground, os.fstat(self.theirs).st_rdev)

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
                # A slice, not all that waits: it is copied.
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
    """Backspace in a line takes a character, not a byte."""
    attributes = termios.tcgetattr(terminal)
    attributes[0] |= _INPUT_IS_UTF8
    termios.tcsetattr(terminal, termios.TCSANOW, attributes)
