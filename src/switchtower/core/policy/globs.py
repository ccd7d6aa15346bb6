r"""Wildcards over plain text: `*`, `?`, `[a-z]`, `[!a]`, and `\` before a character that means itself. Knows nothing of paths,
words or rules.

Matching takes time in proportion to pattern times text, whatever the pattern: a regular expression could backtrack without
bound.
"""

from functools import lru_cache

from msgspec import Struct


class CharMatcher(Struct, frozen=True):
    """Matches one character: any, one within these ranges, or one outside of them."""

    ranges: tuple[tuple[str, str], ...] | None = None
    negated: bool = False

    def matches(self, char: str) -> bool:
        if self.ranges is None:
            return True
        return any(first <= char <= last for first, last in self.ranges) != self.negated


GlobPart = str | CharMatcher | None
"""A character that means itself, one character of a class, or (None) any number of any characters."""
Glob = tuple[GlobPart, ...]

_MOST_TO_COMPARE = 128


def parse_glob(pattern: str) -> Glob:
    tokens: list[GlobPart] = []
    at = 0
    while at < len(pattern):
        char = pattern[at]
        at += 1
        if char == "*":
            if not tokens or tokens[-1] is not None:
                tokens.append(None)
        elif char == "?":
            tokens.append(CharMatcher())
        elif char == "[" and (end := _find_class_end(pattern, at)) is not None:
            tokens.append(_parse_class(pattern[at:end]))
            at = end + 1
        elif char == "\\" and at < len(pattern):
            tokens.append(pattern[at])
            at += 1
        else:
            tokens.append(char)
    return tuple(tokens)


parse_rule_glob = lru_cache(maxsize=512)(parse_glob)
"""The cache is for patterns of a configuration, which repeat; text that a model writes is not worth caching."""


def escape_glob(text: str) -> str:
    """Returns a pattern that matches this text and no other."""
    return "".join(f"\\{char}" if char in "*?[\\" else char for char in text)


def is_literal(glob: Glob) -> bool:
    return all(isinstance(token, str) for token in glob)


def can_match(glob: Glob, text: str) -> bool:
    """Returns whether the first character matches."""
    first = glob[0] if glob else ""
    return first == text[:1] or not isinstance(first, str)


def match_glob(glob: Glob, text: str) -> bool:
    """Returns whether the whole text matches. Only the last star is ever widened, which is enough and keeps the time bounded."""
    first = glob[0] if glob else ""
    if isinstance(first, str) and first != text[:1]:
        return False  # most patterns end here
    here = at = 0
    star, star_at = -1, 0
    size, tokens = len(text), len(glob)
    while at < size:
        token = glob[here] if here < tokens else ""
        if token is None:
            star, star_at = here, at
            here += 1
        elif token == text[at] or (isinstance(token, CharMatcher) and token.matches(text[at])):
            here += 1
            at += 1
        elif star >= 0:
            star_at += 1
            here, at = star + 1, star_at
        else:
            return False
    return all(token is None for token in glob[here:])


def can_overlap(left: Glob, right: Glob) -> bool:
    """Returns whether some text matches both patterns. Errs towards yes."""
    if len(left) > _MOST_TO_COMPARE or len(right) > _MOST_TO_COMPARE:
        return True
    # For each prefix of `left`: the prefixes of `right` that have a text in common with it.
    row = [True, *([False] * len(right))]
    for at, other in enumerate(right, start=1):
        row[at] = row[at - 1] and other is None
    for one in left:
        above, row = row, [row[0] and one is None]
        for at, other in enumerate(right, start=1):
            if one is None or other is None:
                row.append(above[at] or row[at - 1])
            else:
                row.append(above[at - 1] and _can_share_character(one, other))
    return row[-1]


def _can_share_character(one: str | CharMatcher, other: str | CharMatcher) -> bool:
    if isinstance(one, str) and isinstance(other, str):
        return one == other
    if isinstance(one, str) and isinstance(other, CharMatcher):
        return other.matches(one)
    if isinstance(one, CharMatcher) and isinstance(other, str):
        return one.matches(other)
    return True


def _find_class_end(pattern: str, at: int) -> int | None:
    first = at + 1 if pattern[at : at + 1] in ("!", "^") else at
    # A bracket that comes first is one of the characters.
    end = pattern.find("]", first + 1)
    return None if end < 0 else end


def _parse_class(body: str) -> CharMatcher:
    negated = body[:1] in ("!", "^")
    chars = body[1:] if negated else body
    ranges = []
    at = 0
    while at < len(chars):
        if chars[at + 1 : at + 2] == "-" and at + 2 < len(chars):
            ranges.append((chars[at], chars[at + 2]))
            at += 3
        else:
            ranges.append((chars[at], chars[at]))
            at += 1
    return CharMatcher(tuple(ranges), negated)
