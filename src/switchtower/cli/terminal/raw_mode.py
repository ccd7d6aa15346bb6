r"""The user's terminal in raw mode for a remote program: keys, window size, terminal modes, and bytes from stdin.

The terminal is always restored. `Ctrl-]` detaches, and so does `Ctrl-\` twice; a single `Ctrl-\` goes to the program once it is
clear that no second one follows. Modes that a program leaves behind are reset, and stdin has one reader at a time.
"""

import asyncio
import os
import re
import termios
import tty
from contextlib import suppress
from typing import Any, NamedTuple, Self

MAX_WINDOW_CELLS = 1_000
"""The maximum number of columns or rows; the daemon refuses more."""


class RawTerminal:
    """A context manager. `restore` may be called at any time, even from a signal handler, and more than once."""

    def __init__(self, descriptor: int = 0) -> None:
        self._descriptor = descriptor
        self._before: list[Any] | None = None

    def __enter__(self) -> Self:
        self._before = termios.tcgetattr(self._descriptor)
        # `TCSAFLUSH` is usual, but it would discard typed-ahead input, which is for the program.
        tty.setraw(self._descriptor, termios.TCSANOW)
        return self

    def __exit__(self, *_: object) -> None:
        self.restore()

    def restore(self) -> None:
        if self._before is not None:
            with suppress(termios.error):  # the terminal was closed
                # `TCSANOW`: waiting until the output is read may take forever.
                termios.tcsetattr(self._descriptor, termios.TCSANOW, self._before)
            self._before = None


def has_terminal() -> bool:
    return os.isatty(0)


def get_window_size() -> tuple[int, int] | None:
    """Returns the window's columns and rows from any standard stream; None without a window or while its size is unknown."""
    for descriptor in (0, 1, 2):
        with suppress(OSError):
            cols, rows = os.get_terminal_size(descriptor)
            if cols and rows:
                return min(cols, MAX_WINDOW_CELLS), min(rows, MAX_WINDOW_CELLS)
    return None


HOLD_SECONDS = 0.5
"""Seconds that a first `Ctrl-\\` waits for its second."""

# Programs may ask terminals to encode these keys, in one of two ways.
_DETACH_KEY = rb"\x1d|\x1b\[93;5(?::1)?u|\x1b\[27;5;93~"
_QUIT_KEY = rb"\x1c|\x1b\[92;5(?::1)?u|\x1b\[27;5;92~"
_KEYS = re.compile(rb"(?P<leave>" + _DETACH_KEY + rb")|" + _QUIT_KEY)


class KeyInput(NamedTuple):
    """`keys` are for the program; `left` means that the user detached after them."""

    keys: bytes
    left: bool


class DetachKeys:
    def __init__(self, *, extra_keys: bytes = b"") -> None:
        """`extra_keys` are single keys that detach too."""
        self._extra_keys = extra_keys
        self._held = b""

    @property
    def is_holding(self) -> bool:
        return bool(self._held)

    def feed(self, data: bytes) -> KeyInput:
        if any(key in data for key in self._extra_keys):
            return KeyInput(b"", left=True)
        passed, at = self._held, 0  # a held key is always the last byte that is passed on
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
        """Returns the held key, because no second one followed."""
        held, self._held = self._held, b""
        return held


_MODE = re.compile(r"\x1b\[\?([0-9;]{1,64})([hl])")
_ON_BY_DEFAULT = frozenset({"7", "25"})
"""Line wrapping and the visible cursor; all other modes are off by default."""
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
    """Tracks the modes that differ from a terminal's defaults after the output so far."""

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
        """Returns the sequences that restore a terminal for a user who detaches in the middle."""
        back = [f"\x1b[?{mode}{'h' if mode in _ON_BY_DEFAULT else 'l'}" for mode in reversed(self._changed)]
        self._changed = {}
        # Resetting colours, the scrolling region (without moving the cursor) and the keypad is harmless.
        return "".join((*back, "\x1b[0m\x1b7\x1b[r\x1b8\x1b>")) if back else ""


def strip_queries(output: str) -> str:
    """Removes terminal queries from replayed output: they were answered before, and a new answer would be typed as keys."""
    return _QUERY.sub("", output)


_READ_BYTES = 4 * 1024
"""The size of a terminal's own buffer: a program reads no more at once."""


async def read_stdin(timeout: float | None = None) -> bytes | None:
    """Returns the next bytes; empty at the end of input, and None after the timeout."""
    loop = asyncio.get_running_loop()
    there = asyncio.Event()
    try:
        loop.add_reader(0, there.set)
    except (PermissionError, FileExistsError):
        return _read_available()  # stdin is a file, which never blocks
    except (OSError, ValueError):
        return b""  # stdin is closed
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
    except OSError:  # the terminal was closed
        return b""
