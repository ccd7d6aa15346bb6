"""How long a provider asks to wait, in every spelling that is in use."""

import pytest

from switchtower.models import provider_errors

NOW = 1_760_000_000.0


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"Retry-After": "20"}, 20.0),
        ({"retry-after-ms": "250", "retry-after": "9"}, 0.25),
        ({"retry-after": "Thu, 09 Oct 2025 08:54:00 GMT"}, 1_760_000_040.0 - NOW),
        ({"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"}, 0.0),
        ({"retry-after": "3", "x-ratelimit-reset-requests": "9s", "x-ratelimit-remaining-requests": "0"}, 3.0),
        ({"x-ratelimit-reset-requests": "1s", "x-ratelimit-reset-tokens": "6m0s"}, 1.0),
        (
            {
                "x-ratelimit-reset-requests": "1s",
                "x-ratelimit-remaining-requests": "59",
                "x-ratelimit-reset-tokens": "6m0.5s",
                "x-ratelimit-remaining-tokens": "0",
            },
            360.5,
        ),
        ({"x-ratelimit-reset-tokens": "20ms"}, 0.02),
        ({"x-ratelimit-reset": "1760000030"}, 30.0),
        ({"x-ratelimit-reset": "1760000030000"}, 30.0),
        ({"anthropic-ratelimit-requests-reset": "2025-10-09T08:54:00Z", "anthropic-ratelimit-requests-remaining": "0"}, 40.0),
        ({"retry-after": "soon", "x-ratelimit-reset-tokens": "later"}, None),
        ({"retry-after": "-5"}, None),
        ({"retry-after": "inf"}, None),
        ({}, None),
    ],
)
def test_the_time_to_wait_is_read_from_headers(headers: dict[str, str], seconds: float | None) -> None:
    assert provider_errors.compute_retry_after(headers, "", NOW) == pytest.approx(seconds)


def test_the_time_to_wait_is_read_from_googles_body() -> None:
    assert provider_errors.compute_retry_after({}, "{'details': [{'retryDelay': '34s'}]}", NOW) == 34.0
