"""What the owner wants hidden besides: any pattern. Text in pieces is let go a line at a time: a line is looked at whole."""

import re
from collections.abc import Iterator

from switchtower.core.redact.shapes import MARK
from switchtower.core.redact.stream import RedactionRules, StreamRedactor

LONGEST_LINE = 4_096
"""A longer one is let go in parts; a match across two of them is not found."""


class PatternStreamRedactor(StreamRedactor):
    __slots__ = ("_line", "_line_released", "_pattern")

    def __init__(self, rules: RedactionRules, pattern: re.Pattern[str]) -> None:
        super().__init__(rules)
        self._pattern = pattern
        self._line = ""
        self._line_released = 0
        """How much of the line was let go because nothing more came for a while."""

    def feed(self, delta: str) -> str:
        self._line += super().feed(delta)
        end = self._line.rfind("\n") + 1
        if not end and len(self._line) >= LONGEST_LINE:
            end = len(self._line)
        return self._release(end)

    def settle(self) -> str:
        self._line += super().settle()
        if self._pattern.search(self._line, self._line.rfind("\n") + 1):
            return ""  # it may match more when more has come
        released, self._line_released = self._line[self._line_released :], len(self._line)
        return released

    def close(self) -> str:
        self._line += super().close()
        return self._release(len(self._line))

    def _release(self, end: int) -> str:
        line, shown = self._line[:end], self._line_released
        if not shown:
            released = redact_pattern(self._pattern, line)
        else:
            parts, done = list[str](), shown
            for start, stop in find_pattern_spans(self._pattern, line):
                if stop > done:
                    parts += (line[done:start], MARK)
                    done = stop
            released = "".join((*parts, line[done:]))
        self._line, self._line_released = self._line[end:], max(0, shown - end)
        return released


def redact_pattern(pattern: re.Pattern[str], text: str) -> str:
    """Each line by itself: `^`, `$` and what matches line ends must not depend on how many lines came together."""
    return "\n".join(pattern.sub(MARK, line) if line else line for line in text.split("\n"))


def find_pattern_spans(pattern: re.Pattern[str], text: str) -> Iterator[tuple[int, int]]:
    """Where in the text the pattern matches, line by line as `hidden` looks."""
    start = 0
    for line in text.split("\n"):
        if line:
            yield from ((start + found.start(), start + found.end()) for found in pattern.finditer(line) if found[0])
        start += len(line) + 1
