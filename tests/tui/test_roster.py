"""The list of sessions."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from tests.tui import people
from tests.tui.told import T0

from switchtower.tui.state import roster


def row(session_id: str, state: str = "completed", updated_ms: int = T0, title: str = "", **more: Any) -> roster.Row:
    return roster.Row(session_id, state, updated_ms, "/work/orchard", title, **more)


def test_what_waits_for_somebody_is_first_and_then_the_latest() -> None:
    rows = [row("a", updated_ms=3), row("b", updated_ms=9), row("c", "awaiting_approval", updated_ms=1)]
    assert [one.session_id for one in roster.ordered(rows)] == ["c", "b", "a"]


def test_a_session_without_a_title_is_called_by_the_end_of_its_id() -> None:
    assert row("sess_01ABCDEF").name == "…ABCDEF"


def test_typing_filters_by_every_word_in_any_field() -> None:
    rows = [row("a", title="Fix the build"), row("b", title="fix docs", model="demo"), row("c", "awaiting_approval")]
    assert [one.session_id for one in roster.matching(rows, "fix DEMO")] == ["b"]
    assert [one.session_id for one in roster.matching(rows, "needs you")] == ["c"]
    assert roster.matching(rows, "") == rows


@given(st.text(max_size=10))
def test_no_filter_ever_fails(wanted: str) -> None:
    roster.matching([row("a", title="x")], wanted)


def test_a_session_is_found_by_id_end_or_title_and_never_by_guessing() -> None:
    rows = [row("sess_1X", title="one thing"), row("sess_2X", title="one other")]
    assert roster.find(rows, "sess_1X") == rows[0]
    assert roster.find(rows, "2x") == rows[1]
    assert roster.find(rows, "thing") == rows[0]
    assert roster.find(rows, "one") is None
    assert roster.find(rows, "nothing") is None


def test_a_row_takes_its_state_from_the_newer_list_and_the_rest_from_the_details() -> None:
    about = people.about(state="running", terminal=people.PROGRAM, engine="pty")
    one = roster.row(people.listed(state="completed"), about)
    assert (one.state, one.title, one.model, one.host, one.is_program) == ("completed", "fix the build", "htop", "attic", True)


def test_only_what_changed_is_asked_for_again_the_latest_first() -> None:
    listed = [people.listed("sess_a", updated_ms=1), people.listed("sess_b", updated_ms=2), people.listed("sess_c", updated_ms=3)]
    known = {"sess_a": (1, people.ABOUT), "sess_b": (1, people.ABOUT)}
    assert roster.stale(listed, known, most=5) == ["sess_c", "sess_b"]
    assert roster.stale(listed, {}, most=1) == ["sess_c"]
