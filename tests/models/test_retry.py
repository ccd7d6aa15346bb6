"""Waiting before another attempt: longer each time, never all at once, and never sooner than the provider asked."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from switchtower.models import port, provider_errors

BACKOFF = provider_errors.Backoff(max_attempts=5, base=1.0, cap=10.0, longest_retry_after=60.0)


def make_transient_error(retry_after: float | None = None) -> port.ModelError:
    return port.ModelError("later", transient=True, retry_after=retry_after)


def test_the_wait_doubles_up_to_the_cap() -> None:
    patient = provider_errors.Backoff(max_attempts=99, base=1.0, cap=10.0)
    assert [patient.compute_delay(attempt, make_transient_error(), lambda: 1.0) for attempt in range(1, 7)] == [
        1,
        2,
        4,
        8,
        10,
        10,
    ]


def test_jitter_is_full_from_nothing_to_all_of_it() -> None:
    assert [BACKOFF.compute_delay(3, make_transient_error(), lambda share=share: share) for share in (0.0, 0.25, 0.5)] == [
        0,
        1,
        2,
    ]  # type: ignore[misc]


def test_after_the_last_attempt_there_is_no_other() -> None:
    assert BACKOFF.compute_delay(4, make_transient_error(), lambda: 0.5) is not None
    assert BACKOFF.compute_delay(5, make_transient_error(), lambda: 0.5) is None
    assert BACKOFF.compute_delay(6, make_transient_error(), lambda: 0.5) is None


def test_what_does_not_pass_is_not_tried_again() -> None:
    assert BACKOFF.compute_delay(1, port.ModelError("no", transient=False, retry_after=1.0), lambda: 0.5) is None


@pytest.mark.parametrize(("asked", "share", "waits"), [(0.0, 0.0, 0.0), (7.0, 0.0, 7.0), (7.0, 0.5, 7.5), (60.0, 0.0, 60.0)])
def test_a_provider_that_asks_for_time_gets_it_and_a_little_more(asked: float, share: float, waits: float) -> None:
    assert BACKOFF.compute_delay(1, make_transient_error(asked), lambda: share) == waits


def test_a_provider_that_asks_for_too_much_has_failed() -> None:
    assert BACKOFF.compute_delay(1, make_transient_error(60.1), lambda: 0.0) is None


@given(st.integers(1, 10_000), st.floats(0, 1, exclude_max=True), st.none() | st.floats(0, 1e9))
def test_every_wait_is_bounded_and_not_sooner_than_asked(attempt: int, share: float, asked: float | None) -> None:
    delay = provider_errors.Backoff(max_attempts=20_000).compute_delay(attempt, make_transient_error(asked), lambda: share)
    if delay is not None:
        assert (asked or 0.0) <= delay <= 601.0


def make_rate_limit_error(retry_after: float | None = None) -> port.ModelError:
    return port.ModelError("slow down", transient=True, status=429, retry_after=retry_after)


@pytest.mark.parametrize("share", [0.0, 0.999])
def test_a_rate_limit_without_a_time_is_waited_for_a_minute_in_all(share: float) -> None:
    backoff = provider_errors.Backoff()
    waits = [
        backoff.compute_delay(attempt, make_rate_limit_error(), lambda: share) or 0.0
        for attempt in range(1, backoff.max_attempts)
    ]
    assert 60 <= sum(waits) <= 75
    assert waits == sorted(waits)


def test_a_rate_limit_is_waited_for_as_long_as_the_server_asks_up_to_a_limit() -> None:
    assert provider_errors.Backoff().compute_delay(1, make_rate_limit_error(599.0), lambda: 0.0) == 599.0
    assert provider_errors.Backoff().compute_delay(1, make_rate_limit_error(601.0), lambda: 0.0) is None
