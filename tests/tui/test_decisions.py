"""What somebody sees who decides."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from tests.tui import people, told

from switchtower.protocols.push import messages
from switchtower.tui.state import decisions

VALUES = st.recursive(st.none() | st.booleans() | st.integers() | st.text(max_size=20), lambda inner: st.lists(inner, max_size=3))


def make_approval(**details: Any) -> messages.ApprovalRequired:
    type, payload = told.make_approval(**details)
    return people.make_inbox_item(told.make_event(1, type, payload)).approval


@given(st.dictionaries(st.text(max_size=8), VALUES, max_size=6))
def test_every_detail_is_shown_whatever_it_is(details: dict[str, Any]) -> None:
    request = messages.ApprovalRequired("appr_1", "exec", "t", "s", details, ["approve", "deny"], 1)
    shown = {part.name for part in decisions.list_details(request)}
    assert shown == details.keys() - {"always", "destructive"}


def test_the_command_and_the_diff_come_first() -> None:
    names = [part.name for part in decisions.list_details(make_approval(cwd="/", diff="@@", command="ls"))]
    assert names == ["command", "diff", "cwd"]


def test_what_cannot_be_seen_in_a_command_is_shown() -> None:
    (part,) = decisions.list_details(make_approval(command="ls\x1b[2K \u202erm"))
    assert part.text == "ls␛[2K ⟨U+202E⟩rm"


def test_there_is_a_rule_only_where_the_daemon_offers_one() -> None:
    assert decisions.format_safe_always_rule(make_approval(command="ls")) is None
    assert decisions.format_safe_always_rule(make_approval(command="ls", always=False)) is None
    assert decisions.format_safe_always_rule(make_approval(command="ls", always="allow run ls")) == "allow run ls"


def test_no_goes_on_with_a_reason_and_deny_stops() -> None:
    assert decisions.make_denial("  use make  ") == ("deny", "use make", "once", None)
    assert decisions.make_denial().comment == decisions.DEFAULT_DENIAL
    assert (decisions.DENY_AND_STOP.comment, decisions.DENY_AND_STOP.stop) == (None, True)


def test_only_what_says_so_is_destructive() -> None:
    assert decisions.is_destructive(make_approval(command="rm", destructive=True))
    assert not decisions.is_destructive(make_approval(command="rm", destructive="no"))


def test_a_countdown_is_read_at_a_glance() -> None:
    assert decisions.format_countdown(0) == "expired"
    assert decisions.format_countdown(65) == "1:05 left"
    assert decisions.format_countdown(3_661) == "1:01:01 left"
    assert decisions.format_countdown(3 * 86_400) == "3 days left"
