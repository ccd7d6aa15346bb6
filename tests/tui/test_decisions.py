"""What somebody sees who decides."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from tests.tui import people, told

from switchtower.presentation import approval_text
from switchtower.protocols.push import messages

VALUES = st.recursive(st.none() | st.booleans() | st.integers() | st.text(max_size=20), lambda inner: st.lists(inner, max_size=3))


def make_approval(**details: Any) -> messages.ApprovalRequired:
    type, payload = told.make_approval(**details)
    return people.make_inbox_item(told.make_event(1, type, payload)).approval


@given(st.dictionaries(st.text(max_size=8), VALUES, max_size=6))
def test_every_detail_is_shown_whatever_it_is(details: dict[str, Any]) -> None:
    request = messages.ApprovalRequired("appr_1", "exec", "t", "s", details, ["approve", "deny"], 1)
    shown = {part.name for part in approval_text.list_details(request)}
    assert shown == details.keys() - {"always", "destructive"}


def test_the_command_and_the_diff_come_first() -> None:
    names = [part.name for part in approval_text.list_details(make_approval(cwd="/", diff="@@", command="ls"))]
    assert names == ["command", "diff", "cwd"]


def test_what_cannot_be_seen_in_a_command_is_shown() -> None:
    (part,) = approval_text.list_details(make_approval(command="ls\x1b[2K \u202erm"))
    assert part.text == "ls␛[2K ⟨U+202E⟩rm"


def test_there_is_a_rule_only_where_the_daemon_offers_one() -> None:
    assert approval_text.format_safe_always_rule(make_approval(command="ls")) is None
    assert approval_text.format_safe_always_rule(make_approval(command="ls", always=False)) is None
    assert approval_text.format_safe_always_rule(make_approval(command="ls", always="allow run ls")) == "allow run ls"


def test_no_goes_on_with_a_reason_and_deny_stops() -> None:
    assert approval_text.make_denial("  use make  ") == ("deny", "use make", "once", None)
    assert approval_text.make_denial().comment == approval_text.DEFAULT_DENIAL
    assert (approval_text.DENY_AND_STOP.comment, approval_text.DENY_AND_STOP.stop) == (None, True)


def test_only_what_says_so_is_destructive() -> None:
    assert approval_text.is_destructive(make_approval(command="rm", destructive=True))
    assert not approval_text.is_destructive(make_approval(command="rm", destructive="no"))


def test_a_countdown_is_read_at_a_glance() -> None:
    assert approval_text.format_countdown(0) == "expired"
    assert approval_text.format_countdown(65) == "1:05 left"
    assert approval_text.format_countdown(3_661) == "1:01:01 left"
    assert approval_text.format_countdown(3 * 86_400) == "3 days left"
