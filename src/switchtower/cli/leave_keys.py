"""The keys with which a person leaves a program running, picked out of all that is typed. Pure.

`Ctrl-]` leaves, and `Ctrl-\\` twice. A single `Ctrl-\\` is the program's, but only when it is clear that no second one comes.
"""

import re
from typing import NamedTuple

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
