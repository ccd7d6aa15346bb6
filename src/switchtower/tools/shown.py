"""Foreign text made safe to look at: nothing in it moves a cursor, hides a line or turns the reading direction, and all of it
can be written down. Pure.
"""

import re

from switchtower.core import invisible

# Two marks are missing here that stand inside of words and join or part letters: names of files have them in good faith.
_UNSEEN_IN_NAMES = re.compile("[\x00-\x1f\x7f-\x9f\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ud800-\udfff\ufeff]")
_BYTES = range(0xDC80, 0xDD00)
"""How Python holds the bytes of a name that are no text."""


def escape_control_characters(text: str) -> str:
    """Characters that cannot be seen, and those that reorder or hide text, as escapes. Newlines and tabs stay."""
    return invisible.reveal(text, _escape_character)


def escape_to_one_line(name: str) -> str:
    """A name that cannot pass for two, nor for another."""
    return _UNSEEN_IN_NAMES.sub(_escape, name)


def _escape(found: re.Match[str]) -> str:
    return _escape_character(found[0])


def _escape_character(character: str) -> str:
    code = ord(character)
    return f"\\x{code - 0xDC00:02x}" if code in _BYTES else invisible.format_escape(character)
