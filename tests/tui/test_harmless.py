"""Strangers' text on the screen: nothing in it steers, hides or reorders."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from switchtower.presentation import safe_text

ANYTHING = st.text(st.characters(codec=None), max_size=200)
STEERING = {"Cc", "Cs", "Zl", "Zp"}
BIDI = set("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


@given(ANYTHING)
def test_prose_has_nothing_that_steers_a_terminal_or_turns_text_round(text: str) -> None:
    left = safe_text.escape_prose(text)
    assert not [c for c in left if c != "\n" and (unicodedata.category(c) in STEERING or c in BIDI)]
    assert left.count("\n") == text.count("\n")


@given(ANYTHING)
def test_what_will_run_has_only_characters_that_can_be_seen(text: str) -> None:
    left = safe_text.escape_exact(text)
    assert all(c.isprintable() for c in left if c != "\n")


@given(ANYTHING)
def test_what_a_program_wrote_has_nothing_that_steers(text: str) -> None:
    left = safe_text.clean_program_output(text)
    assert not [c for c in left if c != "\n" and (unicodedata.category(c) in STEERING or c in BIDI)]


@given(ANYTHING)
def test_one_line_is_one_line(text: str) -> None:
    assert "\n" not in safe_text.to_safe_line(text)


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b]0;title\x07text", "text"),
        ("\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("10%\r50%\r100%\n", "100%\n"),
        ("done\r\nnext", "done\nnext"),
        ("bell\x07", "bell␇"),
    ],
)
def test_output_is_shown_as_it_ended(raw: str, shown: str) -> None:
    assert safe_text.clean_program_output(raw) == shown


def test_a_command_that_hides_its_order_shows_its_signs() -> None:
    assert safe_text.escape_exact("rm \u202e/ fr-\u200b x") == "rm ⟨U+202E⟩/ fr-⟨U+200B⟩ x"


def test_languages_keep_their_joiners_in_prose() -> None:
    assert safe_text.escape_prose("می\u200cخواهم 👩\u200d💻") == "می\u200cخواهم 👩\u200d💻"


@given(ANYTHING)
def test_one_place_of_a_screen_holds_only_what_can_be_seen(text: str) -> None:
    assert safe_text.clean_cell(text).isprintable()
