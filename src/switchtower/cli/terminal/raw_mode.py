r"""The person's own terminal, handed over to a program elsewhere: keys without a meaning of their own, and its size. Whatever
happens in between, it is given back as it was.

The keys with which a person leaves a program running, picked out of all that is typed. Pure.

`Ctrl-]` leaves, and `Ctrl-\` twice. A single `Ctrl-\` is the program's, but only when it is clear that no second one comes.

What a program's output does to a terminal besides showing text: modes that it leaves behind, questions that it asks. Pure.

Bytes from stdin as they come: from a terminal, a pipe or a file. One reader at a time."""

import asyncio
import os
import re
import termios
import tty
from contextlib import suppress
from typing import Any, NamedTuple, Self

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


HOLD_SECONDS = 0.5
"""Seconds that a first `Ctrl-\\` waits for its second."""

# Programs may ask terminals to spell these keys out, in one of two ways.
_DETACH_KEY = rb"\x1d|\x1b\[93;5(?::1)?u|\x1b\[27;5;93~"
_QUIT_KEY = rb"\x1c|\x1b\[92;5(?::1)?u|\x1b\[27;5;92~"
_KEYS = re.compile(rb"(?P<leave>" + _DETACH_KEY + rb")|" + _QUIT_KEY)


class KeyInput(NamedTuple):
    """`keys` are for the program; with `left`, nothing behind them is."""

    keys: bytes
    left: bool


class DetachKeys:
    def __init__(self, *, extra_keys: bytes = b"") -> None:
        """`also` are single keys that leave too."""
        self._extra_keys = extra_keys
        self._held = b""

    @property
    def is_holding(self) -> bool:
        return bool(self._held)

    def feed(self, data: bytes) -> KeyInput:
        if any(key in data for key in self._extra_keys):
            return KeyInput(b"", left=True)
        passed, at = self._held, 0  # a held key is always the last of what is passed on
        for key in _KEYS.finditer(data):
            if between := data[at : key.start()]:
                passed += between
                self._held = b""
            if key["leave"] or self._held:
                return KeyInput(passed.removesuffix(self._held), left=True)
            passed += key[0]
            self._held, at = key[0], key.end()
        if rest := data[at:]:
            self._held = b""
            return KeyInput(passed + rest, left=False)
        return KeyInput(passed.removesuffix(self._held), left=False)

    def release_held(self) -> bytes:
        """The key that was held: no second one has come."""
        held, self._held = self._held, b""
        return held


_MODE = re.compile(r"\x1b\[\?([0-9;]{1,64})([hl])")
_ON_BY_DEFAULT = frozenset({"7", "25"})
"""Wrapping, and a visible cursor: what the others are not unless somebody wants them."""
_MAX_MODES = 100

_QUERY = re.compile(
    r"""\x1b(?:
        \[ (?: [>=]?0?c | \??[56]n | \?u | >0?q | \??[0-9]+\$p | 1[1-9]t | 2[01]t )    # who, where, how large are you
      | \](?: 1[0-9] | [45];[0-9]+ );\?(?:\x07|\x1b\\)                               # which colours have you
      | P[$+]q[^\x1b\x07]{0,256}\x1b\\                                               # what can you do
    )""",
    re.VERBOSE,
)


class TerminalModes:
    """The modes that are not as a terminal has them by itself, after the output so far."""

    def __init__(self) -> None:
        self._changed: dict[str, None] = {}

    def on_output(self, output: str) -> None:
        for numbers, switch in _MODE.findall(output):
            for mode in numbers.split(";"):
                if (switch == "h") == (mode in _ON_BY_DEFAULT):
                    self._changed.pop(mode, None)
                elif len(self._changed) < _MAX_MODES:
                    self._changed[mode] = None

    def build_reset(self) -> str:
        """What brings a terminal back to text, for whoever leaves in the middle."""
        back = [f"\x1b[?{mode}{'h' if mode in _ON_BY_DEFAULT else 'l'}" for mode in reversed(self._changed)]
        self._changed = {}
        # Colours, the scrolling region (without moving the cursor) and the keypad cost nothing to put right.
        return "".join((*back, "\x1b[0m\x1b7\x1b[r\x1b8\x1b>")) if back else ""


def strip_queries(output: str) -> str:
    """Output that is shown again: what it asked a terminal was answered then, and an answer now would be typed as keys."""
    return _QUERY.sub("", output)


_READ_BYTES = 4 * 1024
"""A terminal's own measure: a program's takes no more at once."""


async def read_stdin(timeout: float | None = None) -> bytes | None:
    """What is there next; empty at the end, and None when nothing came in time."""
    loop = asyncio.get_running_loop()
    there = asyncio.Event()
    try:
        loop.add_reader(0, there.set)
    except (PermissionError, FileExistsError):
        return _read_available()  # a file, which is never waited for
    except (OSError, ValueError):
        return b""  # closed
    try:
        async with asyncio.timeout(timeout):
            await there.wait()
    except TimeoutError:
        return None
    finally:
        loop.remove_reader(0)
    return _read_available()


def _read_available() -> bytes:
    try:
        return os.read(0, _READ_BYTES)
    except OSError:  # the terminal has gone
        return b""
