"""At a real terminal: colours, questions, and text that tries to steer it."""

from typing import Any

import pytest
from tests.cli.terminal import Terminal


@pytest.mark.parametrize(
    ("answer", "code", "written"), [("y", 0, True), ("a", 0, True), ("n", 0, False), ("d", 3, False), ("", 3, False)]
)
def test_without_headless_the_person_at_the_terminal_is_asked(shared: Any, answer: str, code: int, written: bool) -> None:
    terminal = Terminal(shared, "run", "write notes.txt: some text")
    terminal.until("approve? [y/a/n/D]")
    assert "notes.txt" in terminal.shown

    terminal.type(answer)

    assert terminal.end() == code, terminal.shown
    assert (shared.folder / "notes.txt").exists() is written


def test_a_decision_made_elsewhere_ends_the_question(shared: Any) -> None:
    terminal = Terminal(shared, "run", "write notes.txt: some text")
    terminal.until("approve? [y/a/n/D]")
    session_id = terminal.shown.split("session ")[1].split()[0]

    assert shared("approve", session_id).code == 0

    assert terminal.end() == 0
    assert (shared.folder / "notes.txt").exists()


def test_headless_asks_nothing_even_at_a_terminal(shared: Any) -> None:
    terminal = Terminal(shared, "run", "--headless", "write notes.txt: some text")

    assert terminal.end() == 3
    assert "approve?" not in terminal.shown


def test_colour_on_a_terminal_unless_no_color_is_set(shared: Any) -> None:
    coloured, plain = Terminal(shared, "run", "say: hi"), Terminal(shared, "run", "say: hi", NO_COLOR="1")

    assert (coloured.end(), plain.end()) == (0, 0)
    assert "\x1b[32m= success" in coloured.shown
    assert "\x1b[" not in plain.shown


def test_what_the_model_says_cannot_steer_the_terminal(shared: Any) -> None:
    terminal = Terminal(shared, "run", "say: \x1b]0;owned\x07 \x1b[31mred", NO_COLOR="1")

    assert terminal.end() == 0
    assert "\x1b" not in terminal.shown
    assert "red" in terminal.shown


def test_a_pipe_gets_the_text_unchanged(shared: Any) -> None:
    assert shared("run", "--headless", "say: \x1b[31mred").stdout == b"\x1b[31mred\n"
