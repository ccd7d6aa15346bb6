"""Ages, tokens, money, meters, portraits."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.tui import people, told

from switchtower import config
from switchtower.presentation import formats, session_details
from switchtower.protocols.push import extension_messages, messages
from switchtower.tui.state import session
from switchtower.tui.state.session import SessionDraft


@pytest.mark.parametrize(("seconds", "shown"), [(-5, "0s"), (59, "59s"), (60, "1m"), (7_300, "2h"), (200_000, "2d")])
def test_an_age_has_one_unit(seconds: float, shown: str) -> None:
    assert formats.format_short_age(seconds) == shown


@pytest.mark.parametrize(("count", "shown"), [(0, "0"), (999, "999"), (1_500, "1.5k"), (123_456, "123k"), (2_500_000, "2.5M")])
def test_tokens_are_short(count: int, shown: str) -> None:
    assert formats.format_tokens(count) == shown


@pytest.mark.parametrize(("ms", "shown"), [(12, "12 ms"), (1_500, "1.5 s"), (65_000, "1:05"), (3_700_000, "1:01:40")])
def test_a_duration_fits_its_size(ms: float, shown: str) -> None:
    assert formats.format_duration(ms) == shown


@given(st.integers(0, 10**9), st.integers(1, 10**7))
def test_the_meter_is_always_as_long(used: int, window: int) -> None:
    assert len(session.format_bar(used, window)) == session.BAR_WIDTH


def test_the_meter_shows_what_was_spent_and_how_full_it_is() -> None:
    shown = session.make_meter(people.ABOUT)
    assert shown == ("demo-1", "ask", "local", "↑12.3k ↓678 $0.0421", "▰▰▰▰▱▱▱▱▱▱ 45%", False)
    assert session.make_meter(people.make_session_info(contextTokens=19_000)).is_nearly_full


def test_a_price_that_is_not_fully_known_says_so() -> None:
    usage = extension_messages.Usage(3, 10, 10, 0, 0, 0.5, 1)
    assert session.make_meter(people.make_session_info(usage=usage)).spent == "↑10 ↓10 ≥$0.5000"


def test_before_there_is_a_session_the_wish_is_shown() -> None:
    assert session.make_meter(None, provider="auto", model=None, policy="ask").model == "auto"


def test_a_portrait_leaves_out_what_is_not_there() -> None:
    shown = dict(session_details.list_brief_details(people.ABOUT, now_ms=told.T0 + 20_000))
    assert shown["tokens"] == "12,345 in, 678 out in 3 calls, $0.0421"
    assert shown["context"] == "9,000 of 20,000 tokens (45%)"
    assert "preset" not in shown
    assert "program" in dict(
        session_details.list_brief_details(people.make_session_info(terminal=people.PROGRAM), now_ms=told.T0)
    )


def test_a_session_begins_as_configured() -> None:
    wish = SessionDraft.from_settings(config.Settings(provider="work", model="m", policy="auto"), "/w")
    request = wish.build_request(messages.Repo("/w", "main", "main"))
    assert (request.provider, request.model, request.policy, request.mode) == ("work", "m", "auto", "interactive")


def test_an_unchosen_policy_is_left_to_the_daemon() -> None:
    assert SessionDraft.from_settings(config.Settings(), "/w").policy is None


def test_a_preset_says_the_rest_but_never_lifts_the_strictest_policy() -> None:
    strict, loose = SessionDraft("/w", provider="work", model="m", policy="read-only"), SessionDraft("/w", policy="yolo")
    assert strict.with_preset("review") == SessionDraft("/w", policy="read-only", preset="review")
    assert loose.with_preset("review").build_request(messages.Repo("/w", "", "")).policy is None


def test_a_program_gets_the_window_that_it_will_be_seen_in() -> None:
    request = SessionDraft("/w").build_request(messages.Repo("/w", "", ""), command="htop", size=(100, 30))
    assert (request.engine, request.command, request.cols, request.rows) == ("pty", "htop", 100, 30)
