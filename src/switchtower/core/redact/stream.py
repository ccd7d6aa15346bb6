"""Text that arrives in pieces: most pass at once, the suspicious go to the scanner. However it was cut, the same comes out.

This is the hottest path of the daemon: for an ordinary word, `feed` costs one search by one pattern.
"""

import re
from collections.abc import Callable

from switchtower.core.redact import starts
from switchtower.core.redact.literals import Literals
from switchtower.core.redact.scanner import Scanner
from switchtower.core.redact.shapes import CONTEXT

_TRIM_FROM = 6 * CONTEXT
_SHORTEST_FIND = 8
"""Within fewer characters nothing but a sign is decided: the search has only found what may become a secret."""


class Rules:
    """What the streams of one redactor share: its literals, and one search that says whether text is of interest at all."""

    def __init__(self) -> None:
        self.literals = Literals()
        self.suspicious: Callable[..., re.Match[str] | None]
        self._compile()

    def learn(self, value: str) -> None:
        if self.literals.add(value):
            self._compile()

    def _compile(self) -> None:
        hint = self.literals.hint()
        self.suspicious = re.compile(f"{starts.ANY}|{hint}" if hint else starts.ANY, re.ASCII).search


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
            found = self._rules.suspicious(text, decided)
            if found is None:
                self._text = kept = text if len(text) < _TRIM_FROM else text[-CONTEXT:]
                self._decided = len(kept)
                return delta if decided == len(before) else text[decided:]
            start = found.start()
            if len(text) - start < _SHORTEST_FIND and text[start] not in starts.SIGNS:
                unneeded = max(0, start - CONTEXT)
                self._text = text[unneeded:]
                self._decided = start - unneeded
                return text[decided:start]
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
