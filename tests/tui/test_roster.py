"""The list of sessions."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from tests.tui import people
from tests.tui.told import T0

from switchtower.tui.state import session_rows


def make_row(
    session_id: str, state: str = "completed", updated_ms: int = T0, title: str = "", **more: Any
) -> session_rows.SessionListRow:
    return session_rows.SessionListRow(session_id, state, updated_ms, "/work/orchard", title, **more)


def test_what_waits_for_somebody_is_first_and_then_the_latest() -> None:
    rows = [make_row("a", updated_ms=3), make_row("b", updated_ms=9), make_row("c", "awaiting_approval", updated_ms=1)]
    assert [one.session_id for one in session_rows.sort_rows(rows)] == ["c", "b", "a"]


def test_a_session_without_a_title_is_called_by_the_end_of_its_id() -> None:
    assert make_row("sess_01ABCDEF").name == "…ABCDEF"


def test_typing_filters_by_every_word_in_any_field() -> None:
    rows = [
        make_row("a", title="Fix the build"),
        make_row("b", title="fix docs", model="demo"),
        make_row("c", "awaiting_approval"),
    ]
    assert [one.session_id for one in session_rows.filter_rows(rows, "fix DEMO")] == ["b"]
    assert [one.session_id for one in session_rows.filter_rows(rows, "needs you")] == ["c"]
    assert session_rows.filter_rows(rows, "") == rows


@given(st.text(max_size=10))
def test_no_filter_ever_fails(wanted: str) -> None:
    session_rows.filter_rows([make_row("a", title="x")], wanted)


def test_a_session_is_found_by_id_end_or_title_and_never_by_guessing() -> None:
    rows = [make_row("sess_1X", title="one thing"), make_row("sess_2X", title="one other")]
    assert session_rows.find_row(rows, "sess_1X") == rows[0]
    assert session_rows.find_row(rows, "2x") == rows[1]
    assert session_rows.find_row(rows, "thing") == rows[0]
    assert session_rows.find_row(rows, "one") is None
    assert session_rows.find_row(rows, "nothing") is None


def test_a_row_takes_its_state_from_the_newer_list_and_the_rest_from_the_details() -> None:
    about = people.make_session_info(state="running", terminal=people.PROGRAM, engine="pty")
    one = session_rows.make_row(people.make_listed_session(state="completed"), about)
    assert (one.state, one.title, one.model, one.host, one.is_program) == ("completed", "fix the build", "htop", "attic", True)


def test_only_what_changed_is_asked_for_again_the_latest_first() -> None:
    listed = [
        people.make_listed_session("sess_a", updated_ms=1),
        people.make_listed_session("sess_b", updated_ms=2),
        people.make_listed_session("sess_c", updated_ms=3),
    ]
    known = {"sess_a": (1, people.ABOUT), "sess_b": (1, people.ABOUT)}
    assert session_rows.find_stale(listed, known, most=5) == ["sess_c", "sess_b"]
    assert session_rows.find_stale(listed, {}, most=1) == ["sess_c"]
