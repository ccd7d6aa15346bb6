"""Text that came from a model, a tool or a person, as a document may carry it. Pure.

What steers a terminal or turns the direction of writing is left out or spelled: whoever reads the file with `cat`, or reads a
command in it, sees what is there.
"""

import re

from switchtower.cli import console
from switchtower.core import invisible

_CONTROL_CHARACTERS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
"""Controls but tab and line feed, marks and overrides of direction, and halves of characters that no file can hold."""


def to_plain_text(text: str) -> str:
    return _CONTROL_CHARACTERS.sub(lambda found: invisible.format_escape(found[0]), console.strip_terminal_codes(text))


def to_exact_text(text: str) -> str:
    """What was decided about: here also the joiners and blanks that prose keeps are spelled."""
    return invisible.reveal(console.strip_terminal_codes(text), invisible.format_escape)


def to_plain_line(text: str) -> str:
    return " ".join(to_plain_text(text).split())
