"""What a program's output does to a terminal besides showing text: modes that it leaves behind, questions that it asks. Pure."""

import re

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
