"""Questions with options near the bottom of a screen, wherever the cursor is: the dialogs of full-screen programs. Pure."""

import re
from collections.abc import Sequence

from msgspec import Struct

from switchtower.engines.pty import prompts_rows, rules

_REACH = 60  # rows that a dialog may span
_EDGES = re.compile(r"^\s*[│┃║▌▐|]\s?|\s?[│┃║▌▐|]\s*$")
_BORDER = re.compile(r"^\s*[╭╰┌└╔╚├╞╠]?[─━═╌┄╴▔▁▀▄╍┅]{3,}.*$")
_MARK = re.compile(r"^\s*[❯›●▶>]")


class Dialog(Struct, frozen=True):
    question: str
    row: int
    about: list[str]
    options: list[str]


class Dialogs:
    """The screen's rows without boxes, cut once for all rules."""

    def __init__(self, lines: Sequence[str]) -> None:
        last = max((row for row, line in enumerate(lines) if line.strip()), default=-1)
        self._first = max(0, last + 1 - _REACH)
        self._inner = [_EDGES.sub("", line) for line in lines[self._first : last + 1]]
        self._texts = [
            "" if _BORDER.match(inner) else prompts_rows.plain(inner)[: prompts_rows.ROW_LIMIT] for inner in self._inner
        ]
        self._rows = range(len(self._texts))

    def find(self, each: rules.Compiled) -> Dialog | None:
        assert each.options is not None, "a dialog's rule has options: `load` saw to it"
        rule = each.rule
        labels = {row: found for row in self._rows if (found := prompts_rows.labels(each.options, self._texts[row]))}
        if not labels or self._count_after(max(labels)) > rule.trailing:
            return None
        for question in reversed(self._rows):
            text = self._texts[question]
            if not text or not each.match.search(text):
                continue
            option_rows = [row for row in labels if row > question]
            options = [label for row in option_rows for label in labels[row]]
            if len(options) < rule.least:
                continue
            if rule.marked and not any(_MARK.match(self._texts[row]) for row in option_rows):
                continue
            rows = [self._texts[row] for row in self._rows if row >= question]
            if each.needs and not any(each.needs.search(row) for row in rows):
                continue
            if each.unless and any(each.unless.search(row) for row in rows):
                continue
            return Dialog(text, self._first + question, self._about(rule, question, option_rows[0]), options)
        return None

    def _count_after(self, row: int) -> int:
        return sum(bool(text) for text in self._texts[row + 1 :])

    def _about(self, rule: rules.Rule, question: int, first_option: int) -> list[str]:
        between = self._texts[question + 1 : first_option]
        if rule.details == "none":
            return []
        return between if rule.details == "between" else self._above(question) + between

    def _above(self, question: int) -> list[str]:
        """Up to the top of the box that the question stands in; boxes inside it belong to it."""
        inside = 0
        above: list[str] = []
        for row in range(question - 1, max(-1, question - _REACH), -1):
            inner = self._inner[row].strip()
            if _BORDER.match(inner):
                if inner[0] in "╰└╚":
                    inside += 1
                elif inside and inner[0] in "╭┌╔":
                    inside -= 1
                elif not inside:
                    return above
            else:
                above.insert(0, self._texts[row])
        # No box: the paragraph before the question.
        while above and not above[-1]:
            above.pop()
        gap = max((row for row, text in enumerate(above) if not text), default=-1)
        return above[gap + 1 :]
