"""The screen: what a program wrote stands there, rubbish never shows, floods are not drawn, a repaint is the same screen."""

import logging
import re
import subprocess
import sys

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from switchtower.engines.pty import screen, screen_grid


def render_text(text: str, *, cols: int = 40, rows: int = 6) -> screen.TerminalScreen:
    terminal = screen.TerminalScreen(cols, rows)
    terminal.feed(text)
    terminal.update()
    return terminal


def read_state(terminal: screen.TerminalScreen) -> object:
    return terminal.list_cells(), terminal.cursor, terminal.list_modes(), terminal.is_alternate, terminal.title


# What stands there


def test_text_lines_and_the_cursor():
    terminal = render_text("one\r\ntwo \x1b[1;31mred\x1b[0m")
    assert terminal.render_lines() == ["one", "two red", "", "", "", ""]
    assert terminal.render_text() == "one\ntwo red"
    assert terminal.cursor == (1, 7)
    cell = terminal.list_cells()[1][4]
    assert (cell.data, cell.fg, cell.bold) == ("r", "red", True)


def test_nothing_is_drawn_before_it_is_settled():
    terminal = screen.TerminalScreen(20, 3)
    terminal.feed("hello")
    assert not terminal.is_current
    assert terminal.render_text() == ""
    steps = list(terminal.update_in_steps())
    assert len(steps) == 1
    assert terminal.is_current
    assert terminal.render_text() == "hello"


def test_settling_goes_in_short_steps():
    terminal = screen.TerminalScreen(80, 24)
    terminal.feed("x" * 20_000)
    assert len(list(terminal.update_in_steps())) >= 20_000 // (4 * 1024)


def test_the_screen_scrolls_and_wraps():
    assert render_text("".join(f"{n}\r\n" for n in range(9)) + "end", rows=4).render_lines() == ["6", "7", "8", "end"]
    assert render_text("abcdefg", cols=4, rows=2).render_lines() == ["abcd", "efg"]
    assert render_text("\x1b[?7labcdefg", cols=4, rows=2).render_lines() == ["abcg", ""]


def test_deleting_and_inserting_rows_between_rows_that_were_never_written():
    assert render_text("one\r\n\ntwo\x1b[1;1H\x1b[M", rows=4).render_lines() == ["", "two", "", ""]
    assert render_text("one\r\n\ntwo\x1b[1;1H\x1b[L", rows=4).render_lines() == ["", "one", "", "two"]
    assert render_text("a\r\nb\r\nc\r\nd\x1b[2;3r\x1b[2;1H\x1b[9M", rows=4).render_lines() == ["a", "", "", "d"]


def test_a_tab_behind_the_last_column_stays_there():
    assert render_text("abcd\tx", cols=4, rows=2).render_lines() == ["abcd", "x"]


def test_the_title_is_plain_text():
    assert render_text("\x1b]0;my\ttitle\x07").title == "mytitle"
    assert render_text("\x1b]2;" + "x" * 5000 + "\x1b\\done").render_text() == "done"


def test_wide_characters_take_two_cells_and_wrap_whole():
    terminal = render_text("ab世界", cols=5, rows=2)
    assert terminal.render_lines() == ["ab世", "界"]
    assert [cell.data for cell in terminal.list_cells()[0]] == ["a", "b", "世", "", " "]


def test_half_a_wide_character_is_none():
    assert render_text("世界\x1b[1;2Hx").render_lines()[0] == " x界"
    assert render_text("世界\x1b[1;1Hx").render_lines()[0] == "x 界"


def test_combining_marks_and_joined_emoji_stay_with_their_letter():
    terminal = render_text("e\u0301x 👩\u200d💻!")
    assert terminal.render_lines()[0] == "e\u0301x 👩\u200d💻!"
    assert terminal.cursor == (0, 8)


def test_marks_without_end_are_bounded():
    terminal = render_text("e" + "\u0301" * 10_000 + "x")
    assert len(terminal.list_cells()[0][0].data) <= screen_grid.MARKS_LIMIT
    assert terminal.list_cells()[0][1].data == "x"


@pytest.mark.parametrize(
    ("codes", "underlined"), [("4", True), ("4:3", True), ("4:0", False), ("4;24", False), ("58;5;4", False)]
)
def test_underlines_of_every_kind(codes: str, underlined: bool):
    assert render_text(f"\x1b[{codes}mx").list_cells()[0][0].underscore is underlined


@pytest.mark.parametrize(
    ("codes", "colour"),
    [
        ("31", "red"),
        ("91", "brightred"),
        ("38;5;1", "red"),
        ("38;5;196", "ff0000"),
        ("38;2;1;2;3", "010203"),
        ("38:2::1:2:3", "010203"),
    ],
)
def test_colours_of_every_kind(codes: str, colour: str):
    assert render_text(f"\x1b[{codes}mx").list_cells()[0][0].fg == colour


def test_line_drawing_characters():
    assert render_text("\x1b(0lqk\x1b(B q").render_lines()[0] == "┌─┐ q"


def test_erasing_takes_the_background_and_nothing_else():
    cell = render_text("\x1b[4;7;44m\x1b[2J").list_cells()[3][3]
    assert (cell.data, cell.bg, cell.underscore, cell.reverse) == (" ", "blue", False, False)


# The alternate screen


def test_the_alternate_screen_gives_the_main_one_back():
    terminal = render_text("shell$ vim\x1b[?1049h\x1b[H\x1b[2J~ file\x1b[5;1H:wq")
    assert terminal.is_alternate
    assert terminal.render_lines()[0] == "~ file"
    terminal.feed("\x1b[?1049l")
    terminal.update()
    assert not terminal.is_alternate
    assert terminal.render_text() == "shell$ vim"
    assert terminal.cursor == (0, 10)


@pytest.mark.parametrize("mode", ["47", "1047", "1049"])
def test_entering_twice_keeps_the_main_screen(mode: str):
    terminal = render_text(f"main\x1b[?{mode}hone\x1b[?{mode}htwo\x1b[?{mode}l")
    assert terminal.render_text() == "main"


def test_a_repaint_of_the_alternate_screen_carries_the_main_one():
    terminal = render_text("main\x1b[?1049h\x1b[Halt")
    again = render_text(terminal.render_repaint())
    assert read_state(again) == read_state(terminal)
    again.feed("\x1b[?1049l")
    again.update()
    assert again.render_text() == "main"


def test_each_of_the_two_screens_keeps_its_own_saved_cursor():
    terminal = render_text("abc\x1b7\x1b[?47h\x1b[4;9H\x1b7\x1b[H\x1b8")
    assert terminal.cursor == (3, 8)
    terminal.feed("\x1b[?47l\x1b8")
    terminal.update()
    assert terminal.cursor == (0, 3)


# Rubbish


@pytest.mark.parametrize(
    "rubbish",
    [
        "\x1b[>4;1m",
        "\x1b[?u",
        "\x1b[=1u",
        "\x1b[>1u",
        "\x1b[<u",
        "\x1b[?2026h",
        "\x1b[?4m",
        "\x1b[ q",
        "\x1b[2 q",
        "\x1b[?1$p",
        "\x1b[18t",
        "\x1b[c",
        "\x1b[>c",
        "\x1b[6n",
        "\x1b]8;id=1;https://example.com/\x1b\\",
        "\x1b]8;;\x07",
        "\x1b]52;c;c2VjcmV0\x07",
        "\x1b]133;A\x07",
        "\x1b]10;?\x1b\\",
        "\x1bPq#0;2;0;0;0#0~~@@vv$-\x1b\\",
        "\x1bP+q544e\x1b\\",
        "\x1bPtmux;\x1b\x1b]52;c;eA==\x07\x1b\\",
        "\x1b_Gf=24,s=1,v=1;AAAA\x1b\\",
        "\x1b^private\x1b\\",
        "\x1bXstring\x1b\\",
        "\x9b31m",
        "\x9d0;title\x9c",
        "\x1b[31;",
        "\x1b[" + "1;" * 300 + "m",
        "\x1b[" + "9" * 5000 + "m",
        "\x1b[38;5m",
        "\x1b[38;2;999;0;0m",
        "\x1b[38:2::1:2:3m",
        "\x1b[9J",
        "\x1b[7K",
        "\x1b(",
        "\x1b%G",
        "\x1b",
        "\x00\x7f\x07\x80",
    ],
)
def test_what_no_terminal_of_ours_knows_neither_raises_nor_shows(rubbish: str):
    # A sequence that never ended is ended by the next one.
    text = "before" + rubbish + "\x1b[0m after"
    expected = render_text(text)
    assert expected.render_text() == "before after"
    piecemeal = screen.TerminalScreen(40, 6)
    for char in text:
        piecemeal.feed(char)
        piecemeal.update()
    assert read_state(piecemeal) == read_state(expected)


def test_the_clipboard_never_reaches_the_screen_or_its_repaint():
    terminal = render_text("\x1b]52;c;c2VjcmV0\x07ok")
    assert "c2VjcmV0" not in terminal.render_repaint()


@pytest.mark.parametrize(("given_size", "size"), [((0, 0), (2, 1)), ((-5, 10**9), (2, 500)), ((10**9, 3), (1000, 3))])
def test_sizes_are_kept_within_reason(given_size: tuple[int, int], size: tuple[int, int]):
    terminal = screen.TerminalScreen(*given_size)
    terminal.feed("世界 hello\n")
    terminal.update()
    assert (terminal.cols, terminal.rows) == size


def test_a_fault_of_the_emulator_costs_the_picture_and_is_logged_once(caplog: pytest.LogCaptureFixture):
    class Faulty(screen.TerminalScreen):
        def _reset(self) -> None:
            super()._reset()
            draw = self._emulator.draw

            def failing(data: str) -> None:
                if "boom" in data:
                    raise ZeroDivisionError
                draw(data)

            self._emulator.draw = failing  # type: ignore[method-assign]

    terminal = Faulty(20, 3)
    with caplog.at_level(logging.WARNING):
        for text in ("old", "boom", "boom", "new"):
            terminal.feed(text)
            terminal.update()
    assert terminal.render_text() == "new"
    assert len(caplog.records) == 1


# Floods


def test_a_flood_shows_only_its_end():
    terminal = screen.TerminalScreen(20, 4)
    for n in range(200_000):
        terminal.feed(f"{n}\r\n")
    terminal.update()
    assert terminal.render_lines() == ["199997", "199998", "199999", ""]


def test_a_flood_in_one_text_shows_only_its_end():
    terminal = screen.TerminalScreen(20, 4)
    terminal.feed("y\r\n" * 500_000 + "end")
    assert sum(map(len, terminal._waiting)) <= screen.WAITING_LIMIT
    terminal.update()
    assert terminal.render_lines() == ["y", "y", "y", "end"]


def test_nothing_from_before_a_flood_is_left_beside_it():
    terminal = render_text("old\r\nold\r\nold")
    terminal.feed("\x1b[1;1Hspinning" * 10_000)
    terminal.update()
    assert terminal.render_text() == "spinning"


def test_modes_set_in_the_skipped_part_hold():
    terminal = render_text("main")
    terminal.feed("\x1b[?1049h\x1b[?25l\x1b[?2004h\x1b[?1;1006h\x1b[?1l" + "x\r\n" * 50_000 + "\x1b[Hend")
    terminal.update()
    assert terminal.is_alternate
    assert {2004, 1006} <= terminal.list_modes()
    assert not {1, 25} & terminal.list_modes()


def test_a_reset_in_the_skipped_part_forgets_what_was_before():
    terminal = render_text("\x1b[?2004h\x1b]2;title\x07")
    terminal.feed("\x1b[?1049h\x1b[?1h\x1bc\x1b[?25l" + "x\r\n" * 50_000)
    terminal.update()
    assert not terminal.is_alternate
    assert terminal.list_modes() == {7}


def test_a_picture_longer_than_the_flood_limit_never_shows():
    terminal = screen.TerminalScreen(20, 4)
    terminal.feed("before\x1bPq" + "#0~~@@\n" * 40_000)
    terminal.update()
    assert terminal.render_text() == ""
    terminal.feed("~~~\x1b\\after")
    terminal.update()
    assert terminal.render_text() == "after"


def test_a_flood_while_settling_is_bounded_too():
    terminal = screen.TerminalScreen(20, 4)
    terminal.feed("x" * 60_000)
    steps = terminal.update_in_steps()
    next(steps)
    terminal.feed("y\r\n" * 100_000 + "end")
    for _ in steps:
        pass
    assert terminal.render_lines()[-1] == "end"


# Resizing


def test_resizing_keeps_the_cursors_row_on_the_screen():
    terminal = render_text("one\r\ntwo\r\nthree\r\nfour", rows=6)
    terminal.resize(20, 2)
    assert terminal.render_lines() == ["three", "four"]
    assert terminal.cursor == (1, 4)
    terminal.resize(3, 5)
    assert terminal.render_lines() == ["thr", "fou", "", "", ""]


def test_resizing_the_alternate_screen_keeps_the_main_one():
    terminal = render_text("main\x1b[?1049h\x1b[6;30Halt")
    terminal.resize(10, 3)
    terminal.feed("\x1b[?1049l")
    terminal.update()
    assert terminal.render_text() == "main"
    assert terminal.cursor == (0, 4)


# Repainting

_SEQUENCES = st.one_of(
    st.text(alphabet="ab ~世界é👩", min_size=1, max_size=12),
    st.sampled_from(
        ["\r\n", "\n", "\r", "\t", "\b", "\u0301", "\u200d", "\x0e", "\x0f", "\x1b7", "\x1b8", "\x1bM", "\x1bD", "\x1bE"]
    ),
    st.sampled_from(["\x1b(0", "\x1b(B", "\x1b)0", "\x1b=", "\x1b>", "\x1b#8", "\x1b[!p", "\x1bc", "\x1bH", "\x1b]2;title\x07"]),
    st.builds(
        lambda mode, switch: f"\x1b[?{mode}{switch}",
        st.sampled_from([1, 5, 6, 7, 25, 47, 1000, 1006, 1047, 1048, 1049, 2004, 9999]),
        st.sampled_from("hl"),
    ),
    st.builds(
        lambda numbers, final: f"\x1b[{';'.join(map(str, numbers))}{final}",
        st.lists(st.integers(0, 12), max_size=3),
        st.sampled_from("ABCDEFGHIJKLMPSTXZ@`abcdefghlrsu"),
    ),
    st.sampled_from(["\x1b[4h", "\x1b[4l", "\x1b[20h", "\x1b[20l"]),
    st.builds(
        lambda codes: f"\x1b[{';'.join(codes)}m",
        st.lists(
            st.one_of(
                st.integers(0, 110).map(str),
                st.integers(0, 255).map(lambda n: f"38;5;{n}"),
                st.tuples(*[st.integers(0, 255)] * 3).map(lambda rgb: "48;2;{};{};{}".format(*rgb)),
            ),
            max_size=4,
        ),
    ),
)


@given(st.lists(_SEQUENCES, max_size=40), st.integers(2, 12), st.integers(1, 6))
@example(["ab", "世", "\x1b[1;2H", "x"], 5, 2)
@example(["aaaa", "\x1b[?1049h"], 4, 2)
@settings(max_examples=120, deadline=None)
def test_a_repaint_gives_the_same_screen(pieces: list[str], cols: int, rows: int):
    terminal = render_text("".join(pieces), cols=cols, rows=rows)
    again = render_text(terminal.render_repaint(), cols=cols, rows=rows)
    assert read_state(again) == read_state(terminal)
    assert again.render_repaint() == terminal.render_repaint()


@pytest.mark.parametrize(
    ("before", "more"),
    [
        ("\x1b)0\x0e", "q"),
        ("\x1b(0", "q"),
        ("\x1b[2;4r\x1b[?6h\x1b[2;3H", "x"),
        ("\x1b[4habc\r", "x"),
        ("\x1b[31;7m", "x"),
        ("\x1b[?7l", "y" * 99),
    ],
)
def test_what_the_program_had_set_up_holds_after_a_repaint(before: str, more: str):
    terminal = render_text(before)
    again = render_text(terminal.render_repaint())
    for each in (terminal, again):
        each.feed(more)
        each.update()
    assert read_state(again) == read_state(terminal)


# Saved cursors, tab stops and the character drawn last are not part of a repaint.
_NOT_REPAINTED = re.compile(r"\x1b[78H]|\t|\x1b\[[0-9;]*[sugIZb]|\x1b\[\?(?:47|1047|1048)[hl]")


@given(st.lists(_SEQUENCES.filter(lambda piece: not _NOT_REPAINTED.search(piece)), min_size=1, max_size=30))
@settings(max_examples=120, deadline=None)
def test_after_a_repaint_the_program_goes_on_as_before(pieces: list[str]):
    *before, more = pieces
    terminal = render_text("".join(before), cols=9, rows=4)
    again = render_text(terminal.render_repaint(), cols=9, rows=4)
    for each in (terminal, again):
        each.feed(more)
        each.update()
    assert read_state(again) == read_state(terminal)


@given(st.text(alphabet=st.characters(codec="utf-8"), max_size=200), st.integers(2, 20), st.integers(1, 5))
@settings(max_examples=100, deadline=None)
def test_any_text_leaves_a_screen_that_can_be_repainted(text: str, cols: int, rows: int):
    terminal = render_text(text, cols=cols, rows=rows)
    assert read_state(render_text(terminal.render_repaint(), cols=cols, rows=rows)) == read_state(terminal)


@given(
    st.text(alphabet="\x1b[]P\\?>;:0123456789mhlHJKucX^_\x07\x18\x9b\x9d\x9cab\n ", max_size=120),
    st.randoms(use_true_random=False),
)
@settings(max_examples=100, deadline=None)
def test_output_split_anywhere_gives_the_same_screen(text: str, random):
    whole = render_text(text, cols=12, rows=4)
    parts = screen.TerminalScreen(12, 4)
    at = 0
    while at < len(text):
        size = random.randint(1, 5)
        parts.feed(text[at : at + size])
        parts.update()
        at += size
    assert read_state(parts) == read_state(whole)


def test_importing_the_room_does_not_pay_for_the_emulator():
    code = "import sys; from switchtower.engines.pty import prompts, rules, screen; print('pyte' in sys.modules)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "False"


def test_a_screen_remembers_no_more_than_it_shows():
    terminal = screen.TerminalScreen(20, 4)
    for n in range(20_000):
        terminal.feed(f"\x1b7\x1b[38;5;{n % 256}m\x1b]2;{n}\x07{chr(0x4E00 + n % 9000)}\x1b[?{n}h\x1b8\x1b[L")
    terminal.update()
    assert len(terminal.render_repaint()) < 20_000
