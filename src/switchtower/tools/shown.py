"""Foreign text made safe to look at: nothing in it moves a cursor, hides a line or turns the reading direction. Pure."""

import re

_UNSEEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]")
_ON_ONE_LINE = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")


def visibly(text: str) -> str:
    """Control characters, and those that reorder or hide text, as escapes. Newlines and tabs stay."""
    return _UNSEEN.sub(_escape, text)


def on_one_line(name: str) -> str:
    """A name that cannot pass for two."""
    return _ON_ONE_LINE.sub(_escape, name)


def _escape(found: re.Match[str]) -> str:
    return found.group().encode("unicode_escape").decode()
