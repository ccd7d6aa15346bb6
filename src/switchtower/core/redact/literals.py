"""The values that the daemon was itself configured with, found anywhere and in any piece of text. Knows nothing of shapes."""

import json
import re
from collections.abc import Iterator
from urllib.parse import quote

from switchtower.core.redact import shapes

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
        if len(value) < SHORTEST_LITERAL or value in shapes.MARK or value in self._spellings:
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
            released += (text[position : found.start()], shapes.MARK)
            position = found.end()

    def replace(self, text: str) -> str:
        """The text without the values, when no more will come."""
        return text if self._whole is None else self._whole.sub(shapes.MARK, text)

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
