"""At a real terminal: colours, questions, and text that tries to steer it."""

import pytest
from tests.cli.conftest import TowerCommand
from tests.cli.terminal import TerminalDriver


@pytest.mark.parametrize(
    ("answer", "code", "written"), [("y", 0, True), ("a", 0, True), ("n", 0, False), ("d", 3, False), ("", 3, False)]
)
def test_without_headless_the_person_at_the_terminal_is_asked(
    shared_command: TowerCommand, answer: str, code: int, written: bool
) -> None:
    terminal = TerminalDriver(shared_command, "run", "write notes.txt: some text")
    terminal.wait_for("approve? [y/a/n/D]")
    assert "notes.txt" in terminal.shown

    terminal.type(answer)

    assert terminal.end() == code, terminal.shown
    assert (shared_command.folder / "notes.txt").exists() is written


def test_a_decision_made_elsewhere_ends_the_question(shared_command: TowerCommand) -> None:
    terminal = TerminalDriver(shared_command, "run", "write notes.txt: some text")
    terminal.wait_for("approve? [y/a/n/D]")
    session_id = terminal.shown.split("session ")[1].split()[0]

    assert shared_command("approve", session_id).code == 0

    assert terminal.end() == 0
    assert (shared_command.folder / "notes.txt").exists()


def test_headless_asks_nothing_even_at_a_terminal(shared_command: TowerCommand) -> None:
    terminal = TerminalDriver(shared_command, "run", "--headless", "write notes.txt: some text")

    assert terminal.end() == 3
    assert "approve?" not in terminal.shown


def test_colour_on_a_terminal_unless_no_color_is_set(shared_command: TowerCommand) -> None:
    coloured, plain = (
        TerminalDriver(shared_command, "run", "say: hi"),
        TerminalDriver(shared_command, "run", "say: hi", NO_COLOR="1"),
    )

    assert (coloured.end(), plain.end()) == (0, 0)
    assert "\x1b[32m= success" in coloured.shown
    assert "\x1b[" not in plain.shown


def test_what_the_model_says_cannot_steer_the_terminal(shared_command: TowerCommand) -> None:
    terminal = TerminalDriver(shared_command, "run", "say: \x1b]0;owned\x07 \x1b[31mred", NO_COLOR="1")

    assert terminal.end() == 0
    assert "\x1b" not in terminal.shown
    assert "red" in terminal.shown


def test_a_pipe_gets_the_text_unchanged(shared_command: TowerCommand) -> None:
    assert shared_command("run", "--headless", "say: \x1b[31mred").stdout == b"\x1b[31mred\n"
