"""Text that arrives in pieces: most pass at once, the suspicious go to the scanner. However it was cut, the same comes out.

This is the hottest path of the daemon: for an ordinary word, `feed` costs one search by one pattern.
"""

import re
from collections.abc import Callable
from functools import cache

from switchtower.core.redact import starts
from switchtower.core.redact.literals import SHORTEST, Literals
from switchtower.core.redact.scanner import Scanner
from switchtower.core.redact.shapes import CONTEXT

_TRIM_FROM = 6 * CONTEXT


class Rules:
    """What the streams of one redactor share: its literals, and the searches that say whether text is of interest at all."""

    def __init__(self) -> None:
        self.literals = Literals()
        self._tokens = _compiled(starts.ANY)
        self._known: Callable[..., re.Match[str] | None] | None = None

    def learn(self, value: str) -> None:
        if self.literals.add(value):
            hint = self.literals.hint()
            self._known = re.compile(hint).search if hint else None

    def is_suspicious(self, text: str) -> bool:
        """Whether something in the text has to be decided about; it is whole."""
        return self.harmless_to(text, 0) < 0 or (self._known is not None and self._known(text) is not None)

    def harmless_to(self, text: str, start: int) -> int:
        """-1 when something in the text from `start` on has to be decided about, with what stands before it in mind. Otherwise
        how far nothing has: at the end there may be the beginning of something."""
        if self._tokens(text, start) is not None:
            return -1
        end = starts.open_from(text, start)
        if self._known is not None and (known := self._known(text, start)) is not None:
            if known.end() < len(text) or known.end() - known.start() >= SHORTEST:
                return -1
            end = min(end, known.start())
        if (text.find("=", start) >= 0 or text.find(":", start) >= 0) and _has_hint(text, max(0, start - CONTEXT)):
            return -1
        return end


@cache
def _compiled(pattern: str) -> Callable[..., re.Match[str] | None]:
    return re.compile(pattern, re.ASCII).search


def _has_hint(text: str, start: int) -> bool:
    lower = text[start:].lower()
    return any(hint in lower for hint in starts.HINTS)


class StreamRedactor:
    """One text as it arrives. `feed` returns what may be let go now, `close` the rest; then it is as new."""

    __slots__ = ("_decided", "_literal", "_rules", "_scanner", "_text")

    def __init__(self, rules: Rules) -> None:
        self._rules = rules
        self._scanner: Scanner | None = None
        """At work from something suspicious on until it has settled."""
        self._literal = ""
        """Not yet given to the scanner, because it may be the beginning of a literal."""
        self._text = ""
        """Without a scanner: what was let go but may still be looked back at, and a few characters that may begin something."""
        self._decided = 0
        """Where in `_text` these few characters begin."""

    def feed(self, delta: str) -> str:
        if self._scanner is None:
            before = self._text
            decided = self._decided
            text = before + delta
            end = self._rules.harmless_to(text, decided)
            if end >= 0:
                unneeded = 0 if len(text) < _TRIM_FROM else end - CONTEXT
                self._text = text[unneeded:]
                self._decided = end - unneeded
                return delta if decided == len(before) and end == len(text) else text[decided:end]
            self._scanner = Scanner(text[:decided])
            delta = text[decided:]
        released, self._literal = self._rules.literals.release(self._literal + delta)
        redacted = self._scanner.scan(released)
        context = self._scanner.settled()
        if context is not None:
            self._text = context + self._literal
            self._decided = len(context)
            self._literal = ""
            self._scanner = None
        return redacted

    def close(self) -> str:
        if self._scanner is None and self._decided == len(self._text):
            self._text = ""
            self._decided = 0
            return ""  # nothing is held back
        scanner = self._scanner or Scanner(self._text[: self._decided])
        held = self._literal if self._scanner else self._text[self._decided :]
        redacted = scanner.scan(self._rules.literals.replace(held), final=True)
        self._scanner = None
        self._literal = self._text = ""
        self._decided = 0
        return redacted
