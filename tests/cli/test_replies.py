"""What somebody types as the answer to a dialog, and what is sent for it."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.cli.dialogs import QUESTIONS

from switchtower.client.frames import InterviewItem, PushDialog
from switchtower.presentation import dialog_form
from switchtower.presentation.dialog_form import DialogReply

OPTIONS = ("tabs", "Spaces", "spaces", "2", "with, comma")
names = st.text(min_size=1, max_size=20)


@pytest.mark.parametrize(
    ("typed", "chosen"),
    [
        ("tabs", "tabs"),
        (" TABS ", "tabs"),
        ("1", "tabs"),
        ("2", "2"),
        ("3", "spaces"),
        ("5", "with, comma"),
        ("spaces", "spaces"),
        ("SPACES", None),
        ("0", None),
        ("6", None),
        ("²", None),
        ("-1", None),
        ("", None),
    ],
)
def test_an_option_is_chosen_by_its_text_and_else_by_its_number(typed: str, chosen: str | None) -> None:
    assert dialog_form.parse_choice(typed, OPTIONS) == chosen


@pytest.mark.parametrize(
    ("typed", "chosen"),
    [
        ("1 3", ["tabs", "spaces"]),
        ("1,3,1", ["tabs", "spaces"]),
        ("tabs, 3", ["tabs", "spaces"]),
        ("with, comma", ["with, comma"]),
        ("tabs, unheard of", None),
        ("1 9", None),
        (",", None),
    ],
)
def test_several_options_are_chosen_with_commas_or_by_numbers(typed: str, chosen: list[str] | None) -> None:
    assert dialog_form.parse_choices(typed, OPTIONS) == chosen


@given(st.lists(names, min_size=1, max_size=20, unique=True), st.data())
def test_every_option_can_be_chosen_by_its_own_text(options: list[str], data: st.DataObject) -> None:
    option = data.draw(st.sampled_from(options))

    assert dialog_form.parse_choice(option, options) == option
    assert dialog_form.parse_choices(option, options) == [option]


@given(st.text(max_size=50), st.lists(names, max_size=8, unique=True))
def test_whatever_is_typed_chooses_an_option_or_none(typed: str, options: list[str]) -> None:
    assert dialog_form.parse_choice(typed, options) in {None, *options}
    assert set(dialog_form.parse_choices(typed, options) or []) <= set(options)


INTERVIEW = PushDialog("dlg_1", "interview", questions=msgspec.convert(QUESTIONS, tuple[InterviewItem, ...]))
FULL = {"goal": "x", "size": "small", "where": ["src"], "plan": False}


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({}, None),
        ({"size": "huge"}, "`size` is not one of its options"),
        ({"where": "src"}, "`where` is not a list of its options"),
        ({"where": ["src", 7]}, "`where` is not a list of its options"),
        ({"plan": 1}, "`plan` is not true or false"),
        ({"goal": " "}, "`goal` needs an answer"),
        ({"goal": "x" * 70_000}, "`goal` is not a text of at most 65536 characters"),
        ({"gaol": "x"}, "no question has the id `gaol`"),
    ],
)
def test_a_mistake_in_an_interview_is_found_before_it_is_sent(changes: dict[str, Any], problem: str | None) -> None:
    assert dialog_form.find_reply_problem(INTERVIEW, DialogReply(responses={**FULL, **changes})) == problem


@pytest.mark.parametrize(
    ("method", "reply", "is_answer"),
    [
        ("select", DialogReply(value="tabs"), True),
        ("select", DialogReply(value="TABS"), False),
        ("select", DialogReply(confirmed=True), False),
        ("confirm", DialogReply(confirmed=False), True),
        ("confirm", DialogReply(value="yes"), False),
        ("input", DialogReply(value=""), True),
        ("input", DialogReply(value="x" * (dialog_form.MAX_REPLY_CHARS + 1)), False),
        ("editor", DialogReply(responses={}), False),
        ("interview", DialogReply(value="x"), False),
        *((method, dialog_form.DISMISSED, True) for method in ("select", "confirm", "input", "editor", "interview")),
    ],
)
def test_a_reply_of_another_kind_is_no_answer(method: str, reply: DialogReply, is_answer: bool) -> None:
    assert (dialog_form.find_reply_problem(PushDialog("dlg_1", method, options=OPTIONS), reply) is None) is is_answer


@given(names, st.text(max_size=60), st.lists(names, max_size=4), st.sampled_from(["select", "interview", "input"]))
def test_nothing_in_a_dialog_begins_a_line_of_its_own(title: str, message: str, options: list[str], method: str) -> None:
    asked = PushDialog("dlg_1", method, title=title, message=message, options=tuple(options), placeholder=title, prefill=message)
    lines = [line for line, _ in dialog_form.format_dialog(asked)]

    assert all(line.startswith(("? ", "  ")) and "\n" not in line for line in lines)


def test_a_long_text_is_shown_in_part() -> None:
    asked = PushDialog("dlg_1", "editor", title="Edit", prefill="\n".join(map(str, range(1_000))))

    lines = [line for line, _ in dialog_form.format_dialog(asked)]

    assert lines[-2:] == ["  | 19", "  | … 980 more lines"]
