"""Detects on a settled screen that the program waits for a user, and reports when that changes. It does no I/O: screens and rules
are arguments.

Only the end of the output counts: the text right before the cursor, or a dialog near the bottom. A prompt that was answered
higher up is history.
"""

import re
from collections.abc import Sequence
from typing import Literal

import msgspec
from msgspec import Struct

from switchtower.engines.pty import dialogs as pty_dialogs
from switchtower.engines.pty import rules, screen_rows

OPTIONS_LIMIT = 20
_REACH = 60  # rows that a menu may span
_BLOCK = 20  # rows above a line's prompt that may belong to it
_GAP = 2  # rows between a menu and its question
_WRAPPED = 5  # rows that one prompt may be wrapped over

TOO_LONG = "What is asked about is too long to be shown"


class ScreenPrompt(Struct, frozen=True):
    reason: rules.Reason
    prompt: str
    """One line for the user who decides, without the box around it."""
    rule: str
    approve_text: str | None = None
    deny_text: str | None = None
    details: str = ""
    """The subject of the prompt: the command in the box, or the rows above the question."""
    options: tuple[str, ...] = ()
    waits: Literal["behind", "below", "dialog"] = "behind"
    """The place of the cursor: behind the question, at the start of the next row, or anywhere."""
    row: int = 0
    """The row number, counted from the first row that the program wrote."""
    flaw: str = ""
    """The reason why approving it is refused: the subject is not shown completely, or approving would take another choice."""
    text: str = ""
    """The question in full: `prompt` is only its end when it is long."""
    takes_key: bool = False
    """The program takes the answer as a single key, without Enter."""

    def is_same_question(self, other: "ScreenPrompt") -> bool:
        return (self.rule, self.prompt, self.options) == (other.rule, other.prompt, other.options)

    def is_same_request(self, other: "ScreenPrompt") -> bool:
        """Returns whether both have the same text about the same subject."""
        return self.is_same_question(other) and (self.details, self.flaw) == (other.details, other.flaw)


def find_prompt(
    lines: Sequence[str],
    cursor: tuple[int, int],
    tool: str,
    ruleset: rules.PromptRules,
    *,
    columns: int | None = None,
    history: Sequence[str] = (),
    scrolled: int = 0,
    background: pty_dialogs.Background | None = None,
) -> ScreenPrompt | None:
    """Returns the prompt that the program shows, if any. With `columns`, a question wrapped over several rows is joined; with
    `history`, a dialog is read from its top when that has scrolled off the screen; `background` shows which option is selected.
    """
    candidates = ruleset.list_for_tool(tool)
    dialogs = pty_dialogs.DialogFinder(lines, columns=columns, history=history, background=background)
    tail = _find_tail(lines, cursor, columns)
    if tail is not None and any(ignored.search(tail.text[: screen_rows.ROW_LIMIT]) for ignored in ruleset.ignore):
        tail = None
    for each in candidates:
        if found := _match_dialog(each, dialogs) if each.rule.kind == "dialog" else _match_line(each, tail, lines, columns):
            return msgspec.structs.replace(found, row=found.row + scrolled)
    return None


def _match_dialog(each: rules.CompiledPromptRule, dialogs: pty_dialogs.DialogFinder) -> ScreenPrompt | None:
    dialog = dialogs.find(each)
    if dialog is None:
        return None
    text = screen_rows.join_rows(dialog.about)
    return ScreenPrompt(
        each.rule.reason,
        screen_rows.clean_question(dialog.question),
        each.rule.name,
        each.rule.approve,
        each.rule.deny,
        screen_rows.format_details(dialog.about),
        tuple(dialog.options[:OPTIONS_LIMIT]),
        "dialog",
        dialog.row,
        dialog.flaw or (TOO_LONG if len(text) > screen_rows.DETAILS_LIMIT else ""),
    )


# The line before the cursor


class _ScreenTail(Struct, frozen=True):
    text: str
    """The complete line; patterns search only its end."""
    first_row: int
    behind: bool
    is_cut: bool


def _find_tail(lines: Sequence[str], cursor: tuple[int, int], columns: int | None) -> _ScreenTail | None:
    row, column = cursor
    if not 0 <= row < len(lines) or any(line.strip() for line in lines[row + 1 :]):
        return None
    at = screen_rows.find_index(lines[row], column)
    before, after = lines[row][:at], lines[row][at:]
    if after.strip(" \u2500\u2502\u2503"):
        return None
    behind = bool(before.strip())
    if not behind:
        row -= 1
        before = lines[row] if row >= 0 else ""
        if not before.strip():
            return None
    first = row
    while columns and first > 0 and row - first < _WRAPPED and screen_rows.is_wrapped(lines[first - 1], before, columns):
        first -= 1
        before = lines[first] + before
    is_cut = len(before) > screen_rows.ROW_LIMIT or row - first == _WRAPPED
    return _ScreenTail(screen_rows.strip_boxes(before), first, behind, is_cut)


def _match_line(
    each: rules.CompiledPromptRule, tail: _ScreenTail | None, lines: Sequence[str], columns: int | None
) -> ScreenPrompt | None:
    rule = each.rule
    if tail is None:
        return None
    end = tail.text[-screen_rows.ROW_LIMIT :]
    if not (tail.behind or rule.below) or not each.match.search(end) or (each.unless and each.unless.search(end)):
        return None
    options: tuple[str, ...] = ()
    if each.options is not None:
        options = _find_options_above(each.options, lines, tail.first_row, gap=0 if rule.adjacent else _GAP)
        options = options or tuple(screen_rows.extract_labels(each.options, end)[:OPTIONS_LIMIT])
        if len(options) < rule.least:
            return None
    # A question that is too long for a title is shown in full with its details.
    long = [tail.text] if len(tail.text.strip()) > screen_rows.PROMPT_LIMIT else []
    return ScreenPrompt(
        rule.reason,
        screen_rows.clean_question(tail.text),
        rule.name,
        rule.approve,
        rule.deny,
        screen_rows.format_details([*_find_block_above(lines, tail.first_row, columns), *long]),
        options,
        "behind" if tail.behind else "below",
        tail.first_row,
        pty_dialogs.NOT_SHOWN if rule.partial else TOO_LONG if tail.is_cut else "",
        text=tail.text,
        takes_key=rule.key,
    )


def _find_options_above(option: re.Pattern[str], lines: Sequence[str], row: int, *, gap: int) -> tuple[str, ...]:
    found: list[str] = []
    for line in reversed(lines[max(0, row - _REACH) : row]):
        labels = screen_rows.extract_labels(option, screen_rows.strip_boxes(line))
        if not labels:
            gap -= 1
            if gap < 0 or found:
                break
        found = labels + found
    return tuple(found[:OPTIONS_LIMIT])


def _find_block_above(lines: Sequence[str], row: int, columns: int | None) -> list[str]:
    block: list[str] = []
    for line in reversed(lines[max(0, row - _BLOCK) : row]):
        if not line.strip():
            break
        block.insert(0, line)
    # Wrapped lines are joined: the rest of a secret that is cut in two would not be recognised.
    return [screen_rows.strip_boxes(line) for line in screen_rows.join_wrapped(block, columns)]


# Changes


class PromptChange(Struct, frozen=True):
    new: ScreenPrompt | None = None
    gone: ScreenPrompt | None = None


class PromptWatcher:
    """Reports once that a prompt has appeared, and once that it has disappeared; the same text after that is a new prompt."""

    def __init__(self) -> None:
        self._reported: ScreenPrompt | None = None
        self._entered: ScreenPrompt | None = None
        self._typed = False

    @property
    def current_prompt(self) -> ScreenPrompt | None:
        return self._reported

    def on_input(self) -> None:
        """Notes input to the program: the same line on another row is then another question. A dialog may be redrawn anywhere, so
        it stays the same one until it has been off the screen.
        """
        self._typed = True

    def is_reported(self, found: ScreenPrompt) -> bool:
        """Returns whether it is the prompt that was reported."""
        return self._reported is not None and self._is_still(self._reported, found)

    def update(self, found: ScreenPrompt | None) -> PromptChange:
        self._entered = self._find_entered_prompt(found)
        if self._entered is not None:
            found = None
        before = self._reported
        if found is not None and before is not None and self._is_still(before, found):
            return PromptChange()
        self._reported, self._typed = found, False
        return PromptChange(found, before) if found is not before else PromptChange()

    def _is_still(self, before: ScreenPrompt, found: ScreenPrompt) -> bool:
        if not before.is_same_question(found):
            return False
        if found.approve_text is not None and not before.is_same_request(found):
            return False  # an approval is bound to what will run: the same text about another command is another question
        return found.waits == "dialog" or not self._typed or before.row == found.row

    def _find_entered_prompt(self, found: ScreenPrompt | None) -> ScreenPrompt | None:
        """Returns the reported prompt when Enter was pressed at it: the cursor was behind the question and is below it now,
        while the program works.
        """
        asked = self._reported or self._entered
        if found is None or asked is None or (asked.waits, found.waits) != ("behind", "below"):
            return None
        return asked if asked.is_same_question(found) else None
