"""The values that the daemon was itself configured with, found anywhere and in any piece of text. Knows nothing of shapes.

Text that arrives in pieces: most pass at once, the suspicious go to the scanner. However it was cut, the same comes out.

This is the hottest path of the daemon: for an ordinary word, `feed` costs one search by one pattern."""

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
"""Shorter values would turn up by chance."""
_SHORTEST_BEGINNING = 3


class SecretLiterals:
    """A set of values, each also as JSON and URLs spell it."""

    def __init__(self) -> None:
        self._values: dict[str, tuple[str, ...]] = {}
        self._spellings: list[str] = []
        self._whole: re.Pattern[str] | None = None
        self._first: re.Pattern[str] | None = None

    def __bool__(self) -> bool:
        return self._whole is not None

    def add(self, value: str) -> bool:
        """Whether this was new, and long enough to be looked for."""
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
        # At the same place the longest wins: a value may begin with another.
        spellings = {spelling for held in self._values.values() for spelling in held}
        ordered = sorted(spellings, key=lambda spelling: (-len(spelling), spelling))
        if not ordered:
            self._whole = None
            return
        whole = re.compile("|".join(map(re.escape, ordered)))
        # `_whole` last: another thread that sees it sees the others too.
        self._first = re.compile("|".join(sorted({re.escape(spelling[0]) for spelling in ordered})))
        self._spellings = ordered
        self._whole = whole

    def list_beginnings(self) -> list[str]:
        """Of each value, as many characters as a search needs to stop where it begins."""
        return [spelling[:SHORTEST_LITERAL] for spelling in self._spellings]

    def is_beginning(self, text: str) -> bool:
        """Whether it is so much of a value that it is held back however long the rest takes."""
        return len(text) >= _SHORTEST_BEGINNING and any(spelling.startswith(text) for spelling in self._spellings)

    def find_first_end(self, text: str, before: int) -> int:
        """Where the first value ends that begins before this place; 0 when none does."""
        found = self._whole.search(text) if self._whole is not None else None
        return found.end() if found is not None and found.start() < before else 0

    def release(self, text: str) -> tuple[str, str]:
        """The text without the values, as far as it is certain; and the end of it that may yet become one."""
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
        """The text without the values, when no more will come."""
        return text if self._whole is None else self._whole.sub(patterns.MARK, text)

    def find_spans(self, text: str) -> Iterator[tuple[int, int]]:
        """Where the values are."""
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
"""In text that is longer, one search for all hints costs less than a look back from each sign."""
_TRIM_FROM = 4 * CONTEXT
MOST_FOUND = 64
"""Values that one session remembers."""


class RedactionRules:
    """What the streams of one redactor share: its literals, and the searches that say whether text is of interest at all."""

    def __init__(self) -> None:
        self.literals = SecretLiterals()
        self.search_any: _Search = self._compile_and_search
        """The first place that has to be decided about or looked at more closely: None for nearly every word, so this one search
        is what an ordinary word costs."""
        self._search_known: _Search | None = None
        self._children: WeakSet[SessionRedactionRules] = WeakSet()

    def learn(self, value: str) -> None:
        """A value of the daemon's own."""
        if self.literals.add(value):
            self.recompile()
        for child in self._children:
            child.learn(value)

    def add_found(self, value: str) -> None:
        """A secret was hidden. Which of these are remembered, a session's rules say."""

    def for_session(self) -> "SessionRedactionRules":
        child = SessionRedactionRules(self)
        self._children.add(child)
        return child

    def recompile(self) -> None:
        beginnings = self.literals.list_beginnings()
        self._search_known = re.compile(start_patterns.build_start_pattern(beginnings)).search if beginnings else None
        self.search_any = self._compile_and_search

    def _compile_and_search(self, text: str, start: int = 0) -> re.Match[str] | None:
        """Compiles the pattern when text first comes: that takes long, and values are often learned one after the other."""
        self.search_any = _compile(start_patterns.build_sign_pattern(self.literals.list_beginnings()))
        return self.search_any(text, start)

    def is_suspicious(self, text: str) -> bool:
        """Whether something in the text has to be decided about; it is whole."""
        found = self.search_any(text)
        if found is None or self.find_harmless_end(text, 0, found) >= 0:
            return self._search_known is not None and self._search_known(text) is not None
        return True

    def find_harmless_end(self, text: str, start: int, found: re.Match[str]) -> int:
        """-1 when something in the text from `start` on has to be decided about, with what stands before it in mind. Otherwise
        how far nothing has: at the end there may be the beginning of something. `found` is the first place of interest."""
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
    """Those of the daemon, and the values that were hidden once in the session: the latest of them, in memory only."""

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
        """The daemon's pattern is not compiled once more for the values of a session; they cost a search of their own."""
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
    """Whether a name that promises a secret, or a user's name in a URL, stands before this sign."""
    if text[sign - 1 : sign] in start_patterns.SIGNS:
        return False  # It belongs to the sign before it, or stands at the very beginning.
    behind = text[max(0, sign - CONTEXT) : sign][::-1]
    if text[sign] == ":" and "//:" in behind and patterns.USER_BEHIND.match(behind):
        return True
    named = patterns.NAME_BEHIND.match(behind)
    return named is not None and names.classify_name(named[1][::-1]) is not None


class StreamRedactor:
    """One text as it arrives. `feed` returns what may be let go now, `close` the rest; then it is as new."""

    __slots__ = ("_context", "_decided", "_literal", "_rules", "_scanner", "_text")

    def __init__(self, rules: RedactionRules) -> None:
        self._rules = rules
        self._scanner: SecretScanner | None = None
        """At work from something suspicious on until it has settled."""
        self._literal = ""
        """With a scanner: the end of the text, which may be the beginning of a literal."""
        self._text = ""
        """Without a scanner: what was let go but may still be looked back at, and a few characters that may begin something."""
        self._decided = 0
        """Where in `_text` these few characters begin."""
        self._context = 0
        """How many of these few characters were let go all the same; with a scanner, how many of `_literal` it has."""

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
        """Lets go of what is held back although more may come, unless a secret has begun in it. What it may introduce is
        remembered: of a secret that follows, nothing is let go."""
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
            # Its beginning was let go as harmless; the rest is not.
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
