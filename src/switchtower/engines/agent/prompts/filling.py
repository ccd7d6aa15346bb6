"""A prompt's places for arguments, and what a message puts there. Pure.

`$ARGUMENTS` and `{{args}}` are all that was written behind the name, `$1` to `$9` its single words; `$$1` is a plain `$1`.
Everything is filled in at one go: what an argument says is never looked at as a place.
"""

import re
from itertools import islice

LONGEST_ADDED = 1024 * 1024
"""By how many characters a filled prompt may be longer than its arguments: a short one can repeat them a thousand times."""

_PLACE = re.compile(r"\$(\$(?:ARGUMENTS|[1-9])(?![A-Za-z0-9_]))|\$(ARGUMENTS|[1-9])(?![A-Za-z0-9_])|\{\{[ \t]*(args)[ \t]*\}\}")
# A quote counts at the beginning of a word only: in `don't` it is an apostrophe.
_WORD = re.compile(r""""((?:[^"\\]++|\\.)*+)"(?!\S)|'([^']*+)'(?!\S)|(\S++)""", re.DOTALL)
_ESCAPED = re.compile(r"\\([\"\\])")


class PromptTooLong(Exception):
    """The filled prompt would be longer than anybody wants."""


def fill_template(text: str, arguments: str) -> str:
    """Arguments that the prompt has no place for follow it: what the user wrote is never lost."""
    given = split_arguments(arguments)
    places = list(_PLACE.finditer(text))
    values = [_get_value(place, arguments, given) for place in places]
    if sum(map(len, values)) > LONGEST_ADDED + len(arguments):
        raise PromptTooLong
    remaining = iter(values)
    filled = _PLACE.sub(lambda _: next(remaining), text)
    has_place = any(place[1] is None for place in places)
    return filled if has_place or not arguments else f"{filled}\n\n{arguments}"


def split_arguments(arguments: str) -> list[str]:
    """The first nine, split as a shell would, without ever complaining."""
    return [_unquote_word(word) for word in islice(_WORD.finditer(arguments), 9)]


def _get_value(place: re.Match[str], arguments: str, given: list[str]) -> str:
    if place[1] is not None:
        return place[1]
    if place[3] or place[2] == "ARGUMENTS":
        return arguments
    number = int(place[2])
    return given[number - 1] if number <= len(given) else ""


def _unquote_word(word: re.Match[str]) -> str:
    if word[1] is not None:
        return _ESCAPED.sub(r"\1", word[1])
    return word[3] if word[2] is None else word[2]
