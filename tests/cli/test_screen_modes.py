"""What a program leaves behind in a terminal is undone, and what it asked of another one is not asked again."""

import pytest

from switchtower.cli.terminal import raw_mode

TIDY = "\x1b[0m\x1b7\x1b[r\x1b8\x1b>"


def get_undo_sequence(*output: str) -> str:
    modes = raw_mode.TerminalModes()
    for piece in output:
        modes.on_output(piece)
    return modes.build_reset()


@pytest.mark.parametrize(
    ("output", "undo"),
    [
        (["\x1b[?1049h", "\x1b[?25l"], "\x1b[?25h\x1b[?1049l" + TIDY),
        (["\x1b[?1002;1006h text"], "\x1b[?1006l\x1b[?1002l" + TIDY),
        (["\x1b[?7l"], "\x1b[?7h" + TIDY),
    ],
)
def test_modes_that_are_still_on_are_undone_the_last_one_first(output: list[str], undo: str) -> None:
    assert get_undo_sequence(*output) == undo


@pytest.mark.parametrize("output", ["text \x1b[31mred", "\x1b[?1049h\x1b[?25l\x1b[?25h\x1b[?1049l", "\x1b[?25h", ""])
def test_a_program_that_tidied_up_leaves_nothing_to_do(output: str) -> None:
    assert get_undo_sequence(output) == ""


def test_what_was_undone_is_not_undone_twice() -> None:
    modes = raw_mode.TerminalModes()
    modes.on_output("\x1b[?1049h")

    assert modes.build_reset()
    assert modes.build_reset() == ""


def test_a_program_that_sets_ever_more_modes_takes_no_more_memory() -> None:
    modes = raw_mode.TerminalModes()
    for mode in range(10_000):
        modes.on_output(f"\x1b[?{mode + 3000}h")

    assert len(modes.build_reset()) < 2_000


@pytest.mark.parametrize(
    "question",
    [
        "\x1b[c",
        "\x1b[0c",
        "\x1b[>c",
        "\x1b[>0q",
        "\x1b[5n",
        "\x1b[6n",
        "\x1b[?6n",
        "\x1b[?u",
        "\x1b[?2026$p",
        "\x1b[18t",
        "\x1b]11;?\x07",
        "\x1b]10;?\x1b\\",
        "\x1b]4;5;?\x07",
        "\x1bP+q544e\x1b\\",
        "\x1bP$qm\x1b\\",
    ],
)
def test_a_question_to_the_terminal_is_left_out(question: str) -> None:
    assert raw_mode.strip_queries(f"before{question}after") == "beforeafter"


@pytest.mark.parametrize(
    "output", ["\x1b[1;6H", "\x1b[6m", "\x1b]11;#fff\x07", "\x1b]0;title?\x07", "\x1b[2J", "c 6n", "\x1b[?25h"]
)
def test_what_asks_nothing_stays(output: str) -> None:
    assert raw_mode.strip_queries(output) == output
