"""A program's screen and the keys that are typed into it."""

from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.tui import people, told

from switchtower.presentation.program_screen import ProgramScreen
from switchtower.tui.state.session import SessionModel
from switchtower.tui.widgets import terminal


def draw_screen(*pieces: str) -> ProgramScreen:
    screen = ProgramScreen(20, 4)
    for piece in pieces:
        screen.feed(piece)
    return screen


def test_output_is_drawn_where_the_program_wants_it() -> None:
    assert draw_screen("\x1b[2;3Hhello\x1b[1;1Htop").read_lines()[:2] == ["top", "  hello"]


def test_colours_reach_the_cells() -> None:
    cell = next(draw_screen("\x1b[1;31mx").read_row(0))
    assert (cell.text, cell.fg, cell.bold) == ("x", "red", True)


@pytest.mark.parametrize(
    "noise", ["\x1b[>4;1m", "\x1b[?u", "\x1b]0;title\x07", "\x1bPq#0\x1b\\", "\x1b[2 q", "\x1b[22;0t", "\x1b[=1;1u"]
)
def test_what_the_emulator_does_not_know_leaves_no_marks(noise: str) -> None:
    assert draw_screen(f"a{noise}b").read_lines()[0] == "ab"


def test_the_alternate_screen_gives_the_first_one_back() -> None:
    screen = draw_screen("shell\x1b[?1049h\x1b[Hvim")
    assert screen.read_lines()[0] == "vim"
    screen.feed("\x1b[?1049l")
    assert screen.read_lines()[0] == "shell"


SAID = ["a", "b", "\n", "\r", "é", "💡", "\x1b[2J", "\x1b[H", "\x1b[1;31m", "\x1b[?1049h", "\x1b[?1049l", "\x1b[K", "\x1b[2;3H"]
SAID += [
    "\x1b]0;t\x07",
    "\x1b]8;;x\x1b\\",
    "\x1b[10K",
    "\x1b[;P",
    "\x9b2K",
    "\x1bPq\x1b\\",
    "\x1b[>4;1m",
    "\x1bc",
    "\x1b7",
    "\x1b8",
]


@given(st.lists(st.sampled_from(SAID), max_size=30).map("".join), st.lists(st.integers(0, 120), max_size=4))
def test_output_that_is_cut_anywhere_draws_the_same(text: str, cuts: list[int]) -> None:
    edges = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    parts = draw_screen(*(text[start:end] for start, end in pairwise(edges)))
    assert parts.read_lines() == draw_screen(text).read_lines()


@given(st.lists(st.text(st.sampled_from("ab\n\r\x1b[]?1049hlmHK;0\x07\x9bP\\💡é\x00\x9c"), max_size=40), max_size=5))
@example(["\x1b\n", "\x1b[m"])
def test_rubbish_never_fails_and_stays_within_its_window(pieces: list[str]) -> None:
    lines = draw_screen(*pieces).read_lines()
    assert len(lines) == 4
    assert all(len(line) <= 20 for line in lines)


def test_a_flood_is_bounded_and_ends_with_its_end() -> None:
    assert draw_screen("x\r\n" * 500_000 + "end").read_lines()[-1] == "end"


def test_a_window_may_have_any_size() -> None:
    for size in ((0, 0), (100_000, 100_000), (1, 1)):
        screen = ProgramScreen(*size)
        screen.resize(size[1], size[0])
        screen.feed("hello")


@pytest.mark.parametrize(
    ("key", "character", "sent"),
    [
        ("a", "a", "a"),
        ("enter", "\r", "\r"),
        ("ctrl+c", "\x03", "\x03"),
        ("escape", "\x1b", "\x1b"),
        ("up", None, "\x1b[A"),
        ("ctrl+right", None, "\x1b[1;5C"),
        ("f5", None, "\x1b[15~"),
        ("backspace", "\x7f", "\x7f"),
        ("alt+x", None, "\x1bx"),
        ("plus", "+", "+"),
        ("upper_a", "A", "A"),
        ("f99", None, None),
    ],
)
def test_a_key_types_what_a_terminal_would_send(key: str, character: str | None, sent: str | None) -> None:
    assert terminal.encode_key(key, character) == sent


def test_cursor_keys_follow_the_program() -> None:
    assert terminal.encode_key("up", None, application_cursor=draw_screen("\x1b[?1h").application_cursor) == "\x1bOA"


def test_the_screen_is_painted_once_and_then_kept_by_output() -> None:
    conversation = SessionModel(people.make_session_info(terminal=people.PROGRAM))
    screen = told.make_status("Screen", "<painted>", "tool")
    assert conversation.collect_output(told.make_story(screen, told.make_output("more"), screen)) == "<painted>more"
    assert conversation.collect_output(told.make_story(told.make_output("and"), screen, first=4)) == "and"
    assert (
        conversation.collect_output(told.make_story(told.make_warning("EVENT_GAP", "gap", "x"), screen, first=6)) == "<painted>"
    )


def test_a_changed_window_is_noticed() -> None:
    conversation = SessionModel(people.make_session_info(terminal=people.PROGRAM))
    assert conversation.find_resize(told.make_story(told.make_status("Terminal resized", "100x30"))) == (100, 30)
    assert conversation.find_resize(told.make_story(told.make_status("Terminal resized", "wide"))) is None


def test_a_run_is_under_way_from_its_beginning_to_its_end() -> None:
    conversation = SessionModel(people.ABOUT)
    conversation.extend(told.make_story(told.make_user_message("go"), told.make_thinking("hm")))
    assert (conversation.is_running, conversation.describe_activity()) == (True, "thinks")
    conversation.extend(told.make_story(told.call("sandbox_exec", command="ls"), first=3))
    assert conversation.describe_activity() == "runs a tool"
    conversation.extend(told.make_story(told.make_approval(command="ls"), first=4))
    assert conversation.describe_activity() == "needs approval: Ctrl-T"
    conversation.extend(told.make_story(told.complete(), first=5))
    assert not conversation.is_running
