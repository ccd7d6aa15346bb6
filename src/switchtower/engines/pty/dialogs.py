"""Finds dialogs of full-screen programs: questions with options near the bottom of a screen, wherever the cursor is. It does no
I/O.

The subject of a dialog is the text of a model, which may imitate a part of the dialog. So the dialog's parts are found by their
places: the options are the last block of rows that look like options, and the top is where the box, the bar or the full row of
lines around the question starts. Rows that scrolled off the screen belong to it. Where a part is missing, the dialog has a
`flaw`, and approving it is refused.
"""

import re
from collections.abc import Callable, Sequence

from msgspec import Struct

from switchtower.engines.pty import rules, screen_rows

_REACH = 60  # rows that a dialog may span on the screen
_WRAPPED = 2  # rows that one option may be wrapped over
_USUAL_ROWS = 24
_EDGE = re.compile(r"^\s*[│┃║▌▐|]")
_BARS = "┃▌▐"
_TOPS = "╭┌╔┏"
_BOTTOMS = "╰└╚┗╹"
_MARK = re.compile(r"^\s*[❯›●▶>→]")
_NUMBER = re.compile(r"^\s*(?:[❯›●○▶>→]\s*)?\[?(\d{1,2})[.)\]]")

NO_BEGINNING = "The beginning of what is asked about is not on the screen"
CUT = "The program shows only a part of what is asked about"
NOT_SHOWN = "The program does not show what it will do"
NOT_SELECTED = "The choice that approving would take is not the selected one"
AMBIGUOUS = "The text of the question is on the screen more than once"

Background = Callable[[int, int], str]
"""The colour behind the cell in this row and column of the screen."""


class ScreenDialog(Struct, frozen=True):
    question: str
    row: int
    about: list[str]
    options: list[str]
    flaw: str


class DialogFinder:
    """The screen's rows, split once for all rules. `history` has the rows that scrolled off above them."""

    def __init__(
        self,
        lines: Sequence[str],
        *,
        columns: int | None = None,
        history: Sequence[str] = (),
        background: Background | None = None,
    ) -> None:
        last = max((row for row, line in enumerate(lines) if line.strip()), default=-1)
        self._first = len(history) + max(0, last + 1 - _REACH)
        self._lines = [*history, *lines[: last + 1]]
        self._above_screen = len(history)
        self._columns = columns
        self._screen_rows = len(lines)
        self._background = background
        self._rows = range(self._first, len(self._lines))
        self._texts = {row: screen_rows.strip_box(self._lines[row])[: screen_rows.ROW_LIMIT] for row in self._rows}

    def find(self, each: rules.CompiledPromptRule) -> ScreenDialog | None:
        assert each.options is not None, "a dialog's rule has options: `load` saw to it"
        rule = each.rule
        block = self._find_options(each)
        if block is None:
            return None
        first, last, options = block
        if len(options) < rule.least or self._count_rows_after(last) > rule.trailing:
            return None
        below = [self._texts[row] for row in self._rows if row >= first]
        if rule.marked and not any(_MARK.match(self._texts[row]) for row in range(first, last + 1)):
            return None
        if each.needs and not any(each.needs.search(text) for text in below):
            return None
        # Options that share one row have their hints in it too.
        if each.footer and not any(each.footer.search(line) for line in self._lines[last + (first < last) :]):
            return None
        question = self._find_question(each, first)
        if question is None:
            return None
        if each.unless and any(each.unless.search(self._get_text(row)) for row in range(question, len(self._lines))):
            return None
        about, flaw = self._read_subject(each, question, first)
        flaw = flaw or _find_cut(each, about, below, self._screen_rows) or self._find_selection_flaw(each, first, last)
        return ScreenDialog(self._get_text(question), question - self._above_screen, about, options, flaw)

    # The parts of a dialog

    def _find_options(self, each: rules.CompiledPromptRule) -> tuple[int, int, list[str]] | None:
        """Returns the first and the last row of the last block of options, and their labels. A row between two options continues
        the upper one.
        """
        assert each.options is not None
        labels = {row: found for row in self._rows if (found := screen_rows.extract_labels(each.options, self._texts[row]))}
        if not labels:
            return None
        last = first = max(labels)
        options = list(labels[last])
        number = _read_number(self._texts[last])
        continued: list[str] = []
        for row in range(last - 1, self._first - 1, -1):
            text = self._texts[row]
            if number == 1 or not text.strip():
                break
            if row not in labels:
                continued.insert(0, text.strip())
                if len(continued) > _WRAPPED:
                    break
                continue
            if continued and not self._is_wrapped(row, continued[0]):
                continued = []
            if number is not None:
                number -= 1
                if _read_number(text) != number:
                    break
            found = labels[row]
            options[:0] = [*found[:-1], screen_rows.shorten(" ".join((found[-1], *continued)))]
            first, continued = row, []
        return first, last, options

    def _is_wrapped(self, row: int, rest: str) -> bool:
        """Returns whether the next word did not fit into the row."""
        word = rest.split(maxsplit=1)[0]
        return screen_rows.measure_width(self._texts[row]) + screen_rows.measure_width(word) + 1 > (self._columns or 80) - 8

    def _find_question(self, each: rules.CompiledPromptRule, first_option: int) -> int | None:
        """Returns the last row that asks; in a box whose text is below the question, the first row of the box."""
        rows = range(first_option)
        found = [row for row in rows if (text := self._get_text(row)) and each.match.search(text)]
        if not found:
            return None
        if each.rule.details == "between":
            for row in reversed(found):
                edge = self._find_edge(row)
                if edge is not None and self._is_first_in_box(row, edge):
                    return row
        return found[-1]

    def _read_subject(self, each: rules.CompiledPromptRule, question: int, first_option: int) -> tuple[list[str], str]:
        rule = each.rule
        between = self._lines[question + 1 : first_option]
        edge = self._find_edge(question)
        if rule.details == "none":
            return [], ""
        if rule.details == "between":
            above: list[str] = []
            flaw = ""
            if edge is not None and not self._is_first_in_box(question, edge):
                flaw = NO_BEGINNING
            elif edge is None and any(each.match.search(self._texts[row]) for row in self._rows if row < question):
                flaw = AMBIGUOUS
        else:
            top = self._find_top(each, question, edge)
            if top is None and rule.approve is None:
                top = self._find_paragraph(question)
            above = self._lines[(0 if top is None else top) : question]
            flaw = NO_BEGINNING if top is None else ""
        about = screen_rows.strip_dialog_box([*above, *between], edge)
        return ([f"[{NO_BEGINNING.lower()}]", *about] if flaw == NO_BEGINNING else about), flaw

    def _find_top(self, each: rules.CompiledPromptRule, question: int, edge: int | None) -> int | None:
        """Returns the first row of the dialog; None when it is no longer available."""
        for row in range(question - 1, -1, -1):
            line = self._lines[row]
            if each.top is not None:
                if each.top.search(line):
                    return row
            elif edge is not None:
                at = line[edge : edge + 1]
                if at and at in _TOPS:
                    return row + 1
                if not at or not _EDGE.match(at):
                    return row + 1 if self._lines[question][edge] in _BARS else None
            elif screen_rows.is_full_divider(line, self._columns):
                return row + 1
        return None

    def _find_paragraph(self, question: int) -> int:
        """Returns the paragraph's first row, which is enough where nothing is approved."""
        above = [row for row in self._rows if row < question]
        while above and not self._texts[above[-1]].strip():
            above.pop()
        return max((row + 1 for row in above if not self._texts[row].strip()), default=self._first)

    def _find_edge(self, row: int) -> int | None:
        """Returns the column of the box or bar that contains the row."""
        found = _EDGE.match(self._lines[row])
        return found.end() - 1 if found else None

    def _is_first_in_box(self, question: int, edge: int) -> bool:
        for row in range(question - 1, -1, -1):
            line = self._lines[row]
            at = line[edge : edge + 1]
            if at and at in _TOPS:
                return True
            if not at or not _EDGE.match(at):
                return self._lines[question][edge] in _BARS
            if self._get_text(row).strip():
                return False
        return False

    def _get_text(self, row: int) -> str:
        return self._texts[row] if row in self._texts else screen_rows.strip_box(self._lines[row])[: screen_rows.ROW_LIMIT]

    def _count_rows_after(self, row: int) -> int:
        return sum(bool(self._texts[after].strip()) for after in self._rows if after > row)

    def _find_selection_flaw(self, each: rules.CompiledPromptRule, first: int, last: int) -> str:
        """Returns a flaw unless the wanted option is selected: the selected one is the only one with its own background."""
        wanted = each.rule.selected
        if wanted is None:
            return ""
        if self._background is None or each.options is None:
            return NOT_SELECTED
        colours: dict[str, set[str]] = {}
        for row in range(first, last + 1):
            line = self._lines[row]
            for found in each.options.finditer(line):
                start, end = (screen_rows.measure_width(line[:at]) for at in found.span())
                place = row - self._above_screen
                colours[found.group()] = {self._background(place, column) for column in range(start, end)}
        own = colours.pop(wanted, set())
        others = set().union(*colours.values())
        return "" if len(own) == 1 and len(others) == 1 and own != others else NOT_SELECTED


def _read_number(text: str) -> int | None:
    found = _NUMBER.match(text)
    return int(found[1]) if found else None


def _find_cut(each: rules.CompiledPromptRule, about: Sequence[str], below: Sequence[str], screen_rows: int) -> str:
    rule = each.rule
    if rule.partial or (each.shows is not None and not each.shows.search("\n".join(about))):
        return NOT_SHOWN
    if each.cut is not None and any(each.cut.search(row) for row in (*about, *below)):
        return CUT
    if (
        rule.rows is not None
        and sum(bool(row.strip()) for row in about) > rule.rows * min(screen_rows, _USUAL_ROWS) // _USUAL_ROWS
    ):
        return CUT
    if each.counts is not None and not _has_all_changes(each.counts, about):
        return CUT
    return ""


def _has_all_changes(counts: re.Pattern[str], about: Sequence[str]) -> bool:
    """Returns whether as many lines of a diff are shown as its headings count."""
    announced = [found for row in about[:1] for found in counts.finditer(row)]
    if not announced:
        return False
    added, removed = (sum(int(found[name]) for found in announced) for name in ("added", "removed"))
    shown = [found[1] for row in about if (found := re.match(r"^\s*\d+ ([+-])", row))]
    return (shown.count("+"), shown.count("-")) == (added, removed)
