"""How long to wait before a failed model call is tried again, and when not to. Pure: it computes and nothing more.

Exponential backoff with full jitter, so that many sessions that failed together do not come back together.
"""

from collections.abc import Callable

from msgspec import Struct

from switchtower.models import port

_DOUBLINGS = 32
"""More would only make the number larger than any cap."""


_RATE_LIMIT_FACTOR = 5.0
"""Limits are counted by the minute: without a word of the provider, the waits of one call add up to at least one."""
_RATE_LIMIT_JITTER = 0.2


class Backoff(Struct, frozen=True):
    """Times are in seconds."""

    max_attempts: int = 5
    """Calls in all, the first one included."""
    base: float = 1.0
    cap: float = 30.0
    longest_retry_after: float = 600.0
    """A provider that asks for more patience than this has failed."""
    longest_pause: float = 900.0
    """How long one call waits in all for a provider that is paused."""

    def compute_delay(self, attempt: int, error: port.ModelError, random: Callable[[], float]) -> float | None:
        """How long to wait after the attempt of this number, the first being 1; None when the call has failed.

        `random` gives numbers from 0 up to 1.
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
        """Never sooner than asked; a little later each, so that sessions that wait for the same moment do not share it."""
        return None if asked > self.longest_retry_after else asked + random() * min(self.cap, self.base)
