"""Redacts text that arrives in pieces: most pieces pass at once, suspicious ones go to the scanner, and the output does not
depend on how the text was cut. It also finds the daemon's own configured values anywhere in the text.

This is the hottest path of the daemon: for an ordinary word, `feed` costs one search by one pattern.
"""

import json
import re
from collections.abc import Callable, Iterator
from functools import lru_cache
from urllib.parse import quote
from weakref import WeakSet

from switchtower.core.redact import names, patterns, start_patterns
from switchtower.core.redact.patterns import CONTEXT, MARK
from switchtower.core.redact.scanner import SecretScanner
from switchtower.core.redact.start_patterns import LAST, OPEN_TAILS

SHORTEST_LITERAL = 8
"""Shorter values would occur by chance."""
_SHORTEST_BEGINNING = 3


class SecretLiterals:
    """A set of values, each also in the notation of JSON and of URLs."""

    def __init__(self) -> None:
        self._values: dict[str, tuple[str, ...]] = {}
        self._spellings: list[str] = []
        self._whole: re.Pattern[str] | None = None
        self._first: re.Pattern[str] | None = None

    def __bool__(self) -> bool:
        return self._whole is not None

    def add(self, value: str) -> bool:
        """Returns whether the value was new, and long enough to be searched for."""
        # A value within the mark itself would be found in every redacted text again.
        if len(value) < SHORTEST_LITERAL or value in patterns.MARK or value in self._spellings:
            return False
        spellings = {value, json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1], quote(value, safe="")}
        self._values[value] = tuple(spellings)
        self._compile()
        return True

    def remove(self, value: str) -> None:
        if self._values.pop(value, None) is not None:
            self._compile()

    def copy(self) -> "SecretLiterals":
        other = SecretLiterals()
        other._values = dict(self._values)
        other._spellings, other._whole, other._first = self._spellings, self._whole, self._first
        return other

    def _compile(self) -> None:
        # At the same place the longest wins: a value may start with another.
        spellings = {spelling for held in self._values.values() for spelling in held}
        ordered = sorted(spellings, key=lambda spelling: (-len(spelling), spelling))
        if not ordered:
            self._whole = None
            return
        whole = re.compile("|".join(map(re.escape, ordered)))
        # `_whole` is set last: another thread that sees it sees the others too.
        self._first = re.compile("|".join(sorted({re.escape(spelling[0]) for spelling in ordered})))
        self._spellings = ordered
        self._whole = whole

    def list_beginnings(self) -> list[str]:
        """Returns, for each value, as many characters as a search needs to stop where it starts."""
        return [spelling[:SHORTEST_LITERAL] for spelling in self._spellings]

    def is_beginning(self, text: str) -> bool:
        """Returns whether the text is so much of a value that it is held back however long the rest takes."""
        return len(text) >= _SHORTEST_BEGINNING and any(spelling.startswith(text) for spelling in self._spellings)

    def find_first_end(self, text: str, before: int) -> int:
        """Returns the end of the first value that starts before this position; 0 when there is none."""
        found = self._whole.search(text) if self._whole is not None else None
        return found.end() if found is not None and found.start() < before else 0

    def release(self, text: str) -> tuple[str, str]:
        """Returns the text without the values, as far as it is certain; and the end of it that may still become one."""
        if self._whole is None:
            return text, ""
        released: list[str] = []
        position = 0
        while True:
            found = self._whole.search(text, position)
            open_from = self._find_open_start(text, position)
            if found is None or open_from <= found.start():
                released.append(text[position:open_from])
                return "".join(released), text[open_from:]
            released += (text[position : found.start()], patterns.MARK)
            position = found.end()

    def replace(self, text: str) -> str:
        """Returns the text without the values, when no more text follows."""
        return text if self._whole is None else self._whole.sub(patterns.MARK, text)

    def find_spans(self, text: str) -> Iterator[tuple[int, int]]:
        """Yields the spans of the values."""
        if self._whole is not None:
            yield from (found.span() for found in self._whole.finditer(text))

    def _find_open_start(self, text: str, position: int) -> int:
        assert self._first is not None
        longest = len(self._spellings[0])
        for candidate in self._first.finditer(text, max(position, len(text) - longest + 1)):
            tail = text[candidate.start() :]
            if any(len(tail) < len(spelling) and spelling.startswith(tail) for spelling in self._spellings):
                return candidate.start()
        return len(text)


_Search = Callable[..., re.Match[str] | None]

_MANY_SIGNS = 256
"""In longer text, one search for all hints costs less than a lookbehind from each sign."""
_TRIM_FROM = 4 * CONTEXT
MOST_FOUND = 64
"""The number of values that one session remembers."""


class RedactionRules:
    """The state that the streams of one redactor share: its literals, and the searches that decide whether text is of interest
    at all.
    """

    def __init__(self) -> None:
        self.literals = SecretLiterals()
        self.search_any: _Search = self._compile_and_search
        """The first place that has to be decided or inspected more closely: None for nearly every word, so this one search is
        the cost of an ordinary word.
        """
        self._search_known: _Search | None = None
        self._children: WeakSet[SessionRedactionRules] = WeakSet()

    def learn(self, value: str) -> None:
        """Adds one of the daemon's own values."""
        if self.literals.add(value):
            self.recompile()
        for child in self._children:
            child.learn(value)

    def add_found(self, value: str) -> None:
        """Takes each hidden secret; only the rules of a session remember some of them."""

    def for_session(self) -> "SessionRedactionRules":
        child = SessionRedactionRules(self)
        self._children.add(child)
        return child

    def recompile(self) -> None:
        beginnings = self.literals.list_beginnings()
        self._search_known = re.compile(start_patterns.build_start_pattern(beginnings)).search if beginnings else None
        self.search_any = self._compile_and_search

    def _compile_and_search(self, text: str, start: int = 0) -> re.Match[str] | None:
        """Compiles the pattern at the first text: that takes long, and values are often added one after the other."""
        self.search_any = _compile(start_patterns.build_sign_pattern(self.literals.list_beginnings()))
        return self.search_any(text, start)

    def is_suspicious(self, text: str) -> bool:
        """Returns whether something in the text has to be decided; the text is complete."""
        found = self.search_any(text)
        if found is None or self.find_harmless_end(text, 0, found) >= 0:
            return self._search_known is not None and self._search_known(text) is not None
        return True

    def find_harmless_end(self, text: str, start: int, found: re.Match[str]) -> int:
        """Returns -1 when something in the text from `start` on has to be decided, in the context of the text before it.
        Otherwise returns the position up to which nothing has: the end may be the start of something. `found` is the first
        place of interest.
        """
        place: re.Match[str] | None = found
        if found.lastgroup is not None and len(text) - start > _MANY_SIGNS and not _has_hint(text, max(0, start - CONTEXT)):
            place = self._search_all_but_signs(text, start)
        while place is not None and place.lastgroup is not None:
            at = place.start()
            if _is_named(text, at):
                return -1
            place = self.search_any(text, at + 1)
        end = start_patterns.find_open_start(text, start)
        if place is None:
            return end
        at = place.start()
        if place.lastindex is None or place.end() < len(text) or len(text) - at >= SHORTEST_LITERAL:
            return -1  # a token or a value
        return at if at < end else end  # the first characters of a value, at the end

    def _search_all_but_signs(self, text: str, start: int) -> re.Match[str] | None:
        found = _compile(start_patterns.ANY)(text, start)
        return self._search_known(text, start) if found is None and self._search_known is not None else found


class SessionRedactionRules(RedactionRules):
    """The daemon's rules, and the values that were hidden once in the session: the latest of them, in memory only."""

    def __init__(self, daemons: RedactionRules) -> None:
        super().__init__()
        self.literals = daemons.literals.copy()
        self._daemons = daemons
        self._found: dict[str, None] = {}
        self.recompile()

    def add_found(self, value: str) -> None:
        if value in self._found or not names.is_worth_keeping(value) or not self.literals.add(value):
            return
        self._found[value] = None
        if len(self._found) > MOST_FOUND:
            oldest = next(iter(self._found))
            del self._found[oldest]
            self.literals.remove(oldest)
        self.recompile()

    def _compile_and_search(self, text: str, start: int = 0) -> re.Match[str] | None:
        """The daemon's pattern is not compiled again for the values of a session; they cost a separate search."""
        if not self._found:
            return super()._compile_and_search(text, start)
        found = self._daemons.search_any(text, start)
        known = self._search_known(text, start) if self._search_known is not None else None
        return known if found is None or (known is not None and known.start() < found.start()) else found


@lru_cache(maxsize=8)
def _compile(pattern: str) -> _Search:
    return re.compile(pattern, re.ASCII).search


def _has_hint(text: str, start: int) -> bool:
    lower = text[start:].lower()
    for hint in start_patterns.HINTS:  # noqa: SIM110 - hot, and a generator takes twice as long
        if hint in lower:
            return True
    return False


def _is_named(text: str, sign: int) -> bool:
    """Returns whether a name that promises a secret, or a user's name in a URL, is before this sign."""
    if text[sign - 1 : sign] in start_patterns.SIGNS:
        return False  # it belongs to the sign before it, or is at the very start
    behind = text[max(0, sign - CONTEXT) : sign][::-1]
    if text[sign] == ":" and "//:" in behind and patterns.USER_BEHIND.match(behind):
        return True
    named = patterns.NAME_BEHIND.match(behind)
    return named is not None and names.classify_name(named[1][::-1]) is not None


class StreamRedactor:
    """One text as it arrives. `feed` returns what may be released now, `close` the rest; then it is as new."""

    __slots__ = ("_context", "_decided", "_literal", "_rules", "_scanner", "_text")

    def __init__(self, rules: RedactionRules) -> None:
        self._rules = rules
        self._scanner: SecretScanner | None = None
        """The scanner, from the first suspicious text until it has settled."""
        self._literal = ""
        """With a scanner: the end of the text, which may be the start of a literal."""
        self._text = ""
        """Without a scanner: released text that a decision may still depend on, and a few characters that may start something."""
        self._decided = 0
        """The position of these few characters in `_text`."""
        self._context = 0
        """The number of these few characters that were released nevertheless; with a scanner, the number of characters of
        `_literal` that it has.
        """

    def feed(self, delta: str) -> str:
        if self._scanner is None:
            before, decided = self._text, self._decided
            text = before + delta
            found = self._rules.search_any(text, decided)
            if found is not None:
                end = self._rules.find_harmless_end(text, decided, found)
            else:
                try:
                    end = len(text) - OPEN_TAILS[text[LAST]]
                except KeyError:
                    end = start_patterns.find_open_start(text, decided)
                if decided <= end < _TRIM_FROM and not self._context:  # nearly every piece
                    self._text = text
                    self._decided = end
                    return delta if decided == len(before) and end == len(text) else text[decided:end]
                end = start_patterns.find_open_start(text, decided)
            if end >= 0:
                shown = decided + self._context
                self._context = shown - end if shown > end else 0
                if len(text) < _TRIM_FROM or end < CONTEXT:
                    self._text, self._decided = text, end
                else:
                    self._text, self._decided = text[end - CONTEXT :], CONTEXT
                return text[shown:end]
            self._start(text)
        else:
            self._literal += delta
        return self._scan()

    def settle(self) -> str:
        """Releases held text although more may follow, unless a secret has started in it. What it may introduce is remembered:
        nothing of a secret that follows is released.
        """
        if self._scanner is None:
            held = self._text[self._decided :]
            if self._rules.literals.is_beginning(held):
                return ""
            released, self._context = held[self._context :], len(held)
            return released
        released = ""
        if not self._rules.literals.is_beginning(self._literal):
            released = self._scanner.scan(self._literal[self._context :])
            self._context = len(self._literal)
        return released + self._scanner.settle()

    def close(self) -> str:
        if self._scanner is None and self._decided + self._context == len(self._text):
            redacted = ""  # nothing is held back
        else:
            if self._scanner is None:
                self._start(self._text)
            redacted = self._scan(final=True)
        self._scanner = None
        self._literal = self._text = ""
        self._decided = self._context = 0
        return redacted

    def _start(self, text: str) -> None:
        decided = self._decided
        self._scanner = SecretScanner(text[max(0, decided - CONTEXT) : decided], text[decided : decided + self._context])
        self._literal = text[decided:]

    def _scan(self, *, final: bool = False) -> str:
        scanner, literals, shown = self._scanner, self._rules.literals, self._context
        assert scanner is not None, "it was started"
        redacted = ""
        if shown and (end := literals.find_first_end(self._literal, shown)):
            # Its start was released as harmless; the rest is not.
            redacted = scanner.scan(MARK)
            self._literal = self._literal[end:]
            shown = 0
        if final:
            released, self._literal = literals.replace(self._literal), ""
        else:
            released, self._literal = literals.release(self._literal)
        redacted += scanner.scan(released[shown:], final=final)
        if scanner.found:
            for secret in scanner.found:
                self._rules.add_found(secret)
            scanner.found.clear()
        self._context = max(0, shown - len(released))
        context = scanner.take_context()
        if context is not None and not self._context:
            self._text = context + self._literal
            self._decided = len(context)
            self._literal = ""
            self._scanner = None
        return redacted
