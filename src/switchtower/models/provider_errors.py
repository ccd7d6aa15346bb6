"""Translates the exceptions of a provider's library to a `ModelError`: whether it may be temporary, whether the conversation is
too long, and the remedy; and computes when to retry.

The sentence is for people: one line, bounded, with a remedy where one is known, and never with a key. The provider's own message
is quoted after redaction, because it is often the most precise.

Providers state the wait in many ways: `Retry-After` in seconds or as an HTTP date, `retry-after-ms`, the reset times of exhausted
limits (`x-ratelimit-reset-*`, `anthropic-ratelimit-*-reset`), or a delay in the body. Retries use exponential backoff with full
jitter, so that many sessions that failed together do not retry together.
"""

import contextlib
import email.utils
import logging
import math
import re
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from typing import TYPE_CHECKING

from msgspec import Struct

from switchtower.core import redact
from switchtower.models import port

if TYPE_CHECKING:
    from pydantic_ai import exceptions


log = logging.getLogger(__name__)

LONGEST = 500
_LONGEST_QUOTE = 300
_LONGEST_BODY = 8_192

MAY_PASS = frozenset({408, 409, 425, 429, 499, 500, 502, 503, 504, 520, 521, 522, 523, 524, 529})

# Each server has its own message for a conversation that is too long, and few have a code for it.
_OVERFLOW = re.compile(
    r"context[_ ](?:length|window|size|limit)|maximum (?:context|prompt) length|(?:prompt|input|request) (?:is )?too long"
    r"|request too large"
    r"|input token count|exceeds? (?:the )?(?:max|maximum|available|model)[\w' ]{0,24}(?:length|tokens|context|size)"
    r"|too many (?:input )?tokens|reduce the length|greater than the context|request_too_large|exceed_context_size"
    r"|tokens? must be reduced|inputs? tokens? \+",
    re.IGNORECASE,
)
_NOT_OVERFLOW = frozenset({401, 402, 403, 404, 405})


class ErrorOrigin(Struct, frozen=True):
    """The provider and model of a call, as far as an error has to name them."""

    name: str
    model: str
    key_hint: str
    """The source of the key, for a user who has to fix it."""
    base_url: str
    redactor: redact.Redactor

    def __repr__(self) -> str:
        return f"Origin({self.name!r}, {self.model!r})"


def translate_error(error: Exception, origin: ErrorOrigin) -> port.ModelError:
    from pydantic_ai import exceptions

    match error:
        case port.ModelError():
            return error
        case exceptions.ModelHTTPError():
            return _translate_response(error, origin)
        case exceptions.ModelRequestTimeout() | exceptions.ModelTimeoutError() | TimeoutError():
            return _make_error(origin, "no answer in time", transient=True)
        case exceptions.ModelConnectionError(phase="connect" | "pool"):
            return _make_error(
                origin, f"cannot connect to {origin.base_url}", hint="check the address and the network", transient=True
            )
        case exceptions.ModelConnectionError():
            return make_cut_off_error(origin)
        case exceptions.ModelContextWindowExceededError():
            return _make_overflow_error(origin, error.body, None)
        case exceptions.ModelQuotaExceededError():
            return _make_error(origin, "no quota left", error.body, hint="check the account's billing", transient=False)
        case exceptions.ModelRequestRejectedError() | exceptions.UserError():
            return _make_error(origin, "request refused", getattr(error, "body", None) or str(error), transient=False)
        case exceptions.ModelAPIError() if error.in_stream:
            return _make_error(origin, "error in the middle of the answer", error.body or str(error), transient=True)
        case exceptions.ModelAPIError() | exceptions.UnexpectedModelBehavior():
            return _make_error(origin, "unreadable answer", transient=True)
        case _:
            return _translate_unexpected(error, origin)


def make_cut_off_error(origin: ErrorOrigin) -> port.ModelError:
    return _make_error(origin, "connection lost before the answer was complete", transient=True)


def make_withheld_error(origin: ErrorOrigin, reason: str | None) -> port.ModelError:
    return _make_error(origin, "answer withheld by a content filter", reason, transient=False)


def make_too_long_error(origin: ErrorOrigin, characters: int) -> port.ModelError:
    return _make_error(origin, f"answer longer than {characters} characters", transient=False)


def make_context_error(origin: ErrorOrigin) -> port.ModelError:
    return _make_overflow_error(origin, None, None)


def _translate_response(error: "exceptions.ModelHTTPError", origin: ErrorOrigin) -> port.ModelError:
    from pydantic_ai import exceptions

    status = error.status_code
    if isinstance(error, exceptions.ModelContextWindowExceededError) or _is_overflow(status, error.body):
        return _make_overflow_error(origin, error.body, status)
    match error:
        case exceptions.ModelAuthenticationError() if status == 401 or "API_KEY" in str(error.body):
            # The body is not quoted: some providers repeat the key that they refuse.
            return _make_error(origin, "API key refused", hint=origin.key_hint, transient=False, status=status)
        case exceptions.ModelAuthenticationError():
            return _make_error(
                origin, f"access denied (HTTP {status})", error.body, hint=origin.key_hint, transient=False, status=status
            )
        case exceptions.ModelQuotaExceededError():
            return _make_error(
                origin, "no quota left", error.body, hint="check the account's billing", transient=False, status=status
            )
        case exceptions.ModelNotFoundError():
            hint = f"check the model's name and the address {origin.base_url}"
            if error.suggested_model_id:
                hint += f"; there is `{error.suggested_model_id.partition(':')[2]}`"
            return _make_error(origin, f"unknown model `{origin.model}`", error.body, hint=hint, transient=False, status=status)
    retry_after = compute_retry_after(error.headers or {}, _to_text(error.body), time.time())
    may_pass = status in MAY_PASS or status >= 500
    if error.provider_retry_hint is not None:
        may_pass = error.provider_retry_hint
    if status == 429:
        return _make_error(origin, "rate limited (429)", error.body, transient=may_pass, status=status, retry_after=retry_after)
    said = f"server error (HTTP {status})" if may_pass else f"request refused (HTTP {status})"
    return _make_error(origin, said, error.body, transient=may_pass, status=status, retry_after=retry_after)


def _is_overflow(status: int, body: object) -> bool:
    if status in _NOT_OVERFLOW:
        return False
    text = _to_text(body)
    if status == 429:
        return "must be reduced" in text  # larger than a whole minute's limit: waiting does not help
    return status == 413 or _OVERFLOW.search(text) is not None


def _make_overflow_error(origin: ErrorOrigin, body: object, status: int | None) -> port.ModelError:
    return _make_error(origin, "conversation too long for this model", body, transient=False, status=status, overflow=True)


def _translate_unexpected(error: Exception, origin: ErrorOrigin) -> port.ModelError:
    """The libraries raise many different exceptions for an unexpected response. The log has the details."""
    if type(error).__module__.partition(".")[0] in ("httpx2", "httpcore2", "httpx", "anyio", "ssl") or isinstance(error, OSError):
        return make_cut_off_error(origin)
    log.error("%s answered in a way nobody foresaw", origin.name, exc_info=error)
    return _make_error(origin, "unreadable answer", transient=True)


def _to_text(body: object) -> str:
    return str(body)[:_LONGEST_BODY] if body is not None else ""


def _quote_body(body: object, origin: ErrorOrigin) -> str:
    """Returns the provider's message, on one line, without secrets."""
    said: object = body
    for _ in range(3):
        if isinstance(said, Mapping):
            said = said.get("error") or said.get("message") or said.get("detail") or ""
        elif isinstance(said, list) and said:
            said = said[0]
    text = " ".join(_to_text(said if isinstance(said, str) else "").split())
    if text.startswith("<"):
        return ""  # an HTML page of a proxy in front of the provider
    text = origin.redactor.redact_text(text).strip(" .")
    return text if len(text) <= _LONGEST_QUOTE else f"{text[:_LONGEST_QUOTE]}…"


def _make_error(
    origin: ErrorOrigin,
    what: str,
    body: object = None,
    *,
    transient: bool,
    hint: str = "",
    status: int | None = None,
    retry_after: float | None = None,
    overflow: bool = False,
) -> port.ModelError:
    quote = _quote_body(body, origin)
    sentence = f"{origin.name}: {what}" + (f": {quote}" if quote else "") + (f"; hint: {hint}" if hint else "")
    if len(sentence) > LONGEST:
        sentence = f"{sentence[: LONGEST - 1]}…"
    return port.ModelError(sentence, transient=transient, retry_after=retry_after, overflow=overflow, status=status)


_GOOGLE_DELAY = re.compile(r"""retryDelay['"]\s*:\s*['"](\d+(?:\.\d+)?)s""")
_RESET = re.compile(r"x-ratelimit-reset(?:-(?P<limit>[a-z-]+))?|anthropic-ratelimit-(?P<theirs>[a-z-]+)-reset")
_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0}
_EPOCH_SECONDS = 1e9
"""A plain number from here on is a time of day, and from a thousand times that on one in milliseconds."""
_LONGEST_VALUE = 100


def compute_retry_after(headers: Mapping[str, str], body: str, now: float) -> float | None:
    """Returns None when the provider names no time that can be parsed."""
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
    """Returns when the exhausted limits are reset; if no limit is marked as exhausted, the first reset of all."""
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
    """Parses `6m0s`, `20ms`, seconds, a time of day in seconds or milliseconds, or one in ISO 8601."""
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


_DOUBLINGS = 32
"""More would only make the number larger than any cap."""


_RATE_LIMIT_FACTOR = 5.0
"""Limits are counted by the minute: when the provider names no time, the waits of one call add up to at least one."""
_RATE_LIMIT_JITTER = 0.2


class Backoff(Struct, frozen=True):
    """Times are in seconds."""

    max_attempts: int = 5
    """The number of calls, the first one included."""
    base: float = 1.0
    cap: float = 30.0
    longest_retry_after: float = 600.0
    """A provider that asks for a longer wait than this counts as failed."""
    longest_pause: float = 900.0
    """The most seconds that one call waits in total for a provider that is paused."""

    def compute_delay(self, attempt: int, error: port.ModelError, random: Callable[[], float]) -> float | None:
        """Returns the seconds to wait after the attempt of this number, the first being 1; None when the call has failed.

        `random` returns numbers from 0 up to 1.
        """
        if not error.transient or attempt >= self.max_attempts:
            return None
        doubled = self.base * 2.0 ** min(attempt - 1, _DOUBLINGS)
        ceiling = min(self.cap, doubled)
        if error.retry_after is not None:
            return self.add_jitter(error.retry_after, random)
        if error.is_rate_limit:
            longest = min(self.longest_retry_after, _RATE_LIMIT_FACTOR * doubled)
            return longest * (1 - _RATE_LIMIT_JITTER * random())
        return random() * ceiling

    def add_jitter(self, asked: float, random: Callable[[], float]) -> float | None:
        """Returns a wait that is never shorter than requested, and a little longer each time, so that sessions that wait for the
        same moment do not retry at once.
        """
        return None if asked > self.longest_retry_after else asked + random() * min(self.cap, self.base)
