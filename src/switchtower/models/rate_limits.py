"""How long a provider asks a client to wait, read from the headers and the body of its refusal. Pure.

Providers spell it in many ways: `Retry-After` in seconds or as an HTTP date, `retry-after-ms`, the reset times of the limits
that are used up (`x-ratelimit-reset-*`, `anthropic-ratelimit-*-reset`), or a delay in the body.
"""

import contextlib
import email.utils
import math
import re
from collections.abc import Iterator, Mapping
from datetime import datetime

_GOOGLE_DELAY = re.compile(r"""retryDelay['"]\s*:\s*['"](\d+(?:\.\d+)?)s""")
_RESET = re.compile(r"x-ratelimit-reset(?:-(?P<limit>[a-z-]+))?|anthropic-ratelimit-(?P<theirs>[a-z-]+)-reset")
_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0}
_EPOCH_SECONDS = 1e9
"""A plain number from here on is a time of day, and from a thousand times that on one in milliseconds."""
_LONGEST_VALUE = 100


def compute_retry_after(headers: Mapping[str, str], body: str, now: float) -> float | None:
    """None when the provider names no time that can be read."""
    lower = {name.lower(): value.strip()[:_LONGEST_VALUE] for name, value in headers.items()}
    for name, unit in (("retry-after-ms", 1_000.0), ("retry-after", 1.0)):
        if (number := _parse_number(lower.get(name, ""))) is not None:
            return number / unit
    with contextlib.suppress(ValueError, OverflowError):
        return max(0.0, email.utils.parsedate_to_datetime(lower.get("retry-after", "")).timestamp() - now)
    if found := _GOOGLE_DELAY.search(body):
        return float(found[1])
    return _find_reset(lower, now)


def _find_reset(headers: Mapping[str, str], now: float) -> float | None:
    """When the limits that are used up are reset; if no limit is marked as used up, the first reset of all."""
    used_up: list[float] = []
    others: list[float] = []
    for wait, remaining in _iterate_resets(headers, now):
        (used_up if _parse_number(remaining) == 0 else others).append(wait)
    return max(used_up) if used_up else min(others, default=None)


def _iterate_resets(headers: Mapping[str, str], now: float) -> Iterator[tuple[float, str]]:
    for name, value in headers.items():
        if (named := _RESET.fullmatch(name)) is None or (wait := _parse_wait(value, now)) is None:
            continue
        if (theirs := named["theirs"]) is not None:
            yield wait, headers.get(f"anthropic-ratelimit-{theirs}-remaining", "")
        else:
            yield wait, headers.get("x-ratelimit-remaining" + (f"-{named['limit']}" if named["limit"] else ""), "")


def _parse_wait(value: str, now: float) -> float | None:
    """`6m0s`, `20ms`, seconds, a time of day in seconds or milliseconds, or one in ISO 8601."""
    if (number := _parse_number(value)) is not None:
        if number < _EPOCH_SECONDS:
            return number
        return max(0.0, (number / 1_000 if number >= _EPOCH_SECONDS * 1_000 else number) - now)
    parts = _DURATION.findall(value)
    if parts and "".join(amount + unit for amount, unit in parts) == value:
        return sum(float(amount) * _SECONDS[unit] for amount, unit in parts)
    with contextlib.suppress(ValueError, OverflowError):
        at = datetime.fromisoformat(value)
        if at.tzinfo is not None:
            return max(0.0, at.timestamp() - now)
    return None


def _parse_number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) and number >= 0 else None
