"""The keys with which a person leaves a program running, picked out of all that is typed. Pure.

`Ctrl-]` leaves, and `Ctrl-\\` twice. A single `Ctrl-\\` is the program's, but only when it is clear that no second one comes.
"""

import re
from typing import NamedTuple

HOLD = 0.5
"""Seconds that a first `Ctrl-\\` waits for its second."""

# Programs may ask terminals to spell these keys out, in one of two ways.
_LEAVE = rb"\x1d|\x1b\[93;5(?::1)?u|\x1b\[27;5;93~"
_QUIT = rb"\x1c|\x1b\[92;5(?::1)?u|\x1b\[27;5;92~"
_KEYS = re.compile(rb"(?P<leave>" + _LEAVE + rb")|" + _QUIT)


class Typed(NamedTuple):
    """`keys` are for the program; with `left`, nothing behind them is."""

    keys: bytes
    left: bool


class LeaveKeys:
    def __init__(self, *, also: bytes = b"") -> None:
        """`also` are single keys that leave too."""
        self._also = also
        self._held = b""

    @property
    def holds(self) -> bool:
        return bool(self._held)

    def feed(self, data: bytes) -> Typed:
        if any(key in data for key in self._also):
            return Typed(b"", left=True)
        passed, at = self._held, 0  # a held key is always the last of what is passed on
        for key in _KEYS.finditer(data):
            if between := data[at : key.start()]:
                passed += between
                self._held = b""
            if key["leave"] or self._held:
                return Typed(passed.removesuffix(self._held), left=True)
            passed += key[0]
            self._held, at = key[0], key.end()
        if rest := data[at:]:
            self._held = b""
            return Typed(passed + rest, left=False)
        return Typed(passed.removesuffix(self._held), left=False)

    def release(self) -> bytes:
        """The key that was held: no second one has come."""
        held, self._held = self._held, b""
        return held
