"""The person's own terminal, handed over to a program elsewhere: keys without a meaning of their own, and its size. Whatever
happens in between, it is given back as it was."""

import os
import termios
import tty
from contextlib import suppress
from typing import Any, Self

MAX_WINDOW_CELLS = 1_000
"""Columns or rows; more is no window, and the daemon would refuse it."""


class RawTerminal:
    """To be used with `with`. `restore` may be called at any time, also from a signal's handler, and more than once."""

    def __init__(self, descriptor: int = 0) -> None:
        self._descriptor = descriptor
        self._before: list[Any] | None = None

    def __enter__(self) -> Self:
        self._before = termios.tcgetattr(self._descriptor)
        # Not `TCSAFLUSH`, which is usual: what somebody has typed ahead is for the program.
        tty.setraw(self._descriptor, termios.TCSANOW)
        return self

    def __exit__(self, *_: object) -> None:
        self.restore()

    def restore(self) -> None:
        if self._before is not None:
            with suppress(termios.error):  # the terminal has gone
                # At once: waiting for its output to be read may take for ever.
                termios.tcsetattr(self._descriptor, termios.TCSANOW, self._before)
            self._before = None


def has_terminal() -> bool:
    return os.isatty(0)


def get_window_size() -> tuple[int, int] | None:
    """Columns and rows of the window, wherever one is; None without one, or when it has not been told its size."""
    for descriptor in (0, 1, 2):
        with suppress(OSError):
            cols, rows = os.get_terminal_size(descriptor)
            if cols and rows:
                return min(cols, MAX_WINDOW_CELLS), min(rows, MAX_WINDOW_CELLS)
    return None
