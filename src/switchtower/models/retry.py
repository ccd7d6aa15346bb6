"""How long to wait before a failed model call is tried again, and when not to. Pure: it computes and nothing more.

Exponential backoff with full jitter, so that many sessions that failed together do not come back together.
"""

from collections.abc import Callable

from msgspec import Struct

from switchtower.models import port

_DOUBLINGS = 32
"""More would only make the number larger than any cap."""


class Backoff(Struct, frozen=True):
    """Times are in seconds."""

    max_attempts: int = 5
    """Calls in all, the first one included."""
    base: float = 1.0
    cap: float = 30.0
    longest_retry_after: float = 120.0
    """A provider that asks for more patience than this has failed."""

    def delay(self, attempt: int, trouble: port.ModelTrouble, random: Callable[[], float]) -> float | None:
        """How long to wait after the attempt of this number, the first being 1; None when there shall be no other.

        `random` gives numbers from 0 up to 1.
        """
        if not trouble.transient or attempt >= self.max_attempts:
            return None
        ceiling = min(self.cap, self.base * 2.0 ** min(attempt - 1, _DOUBLINGS))
        if trouble.retry_after is None:
            return random() * ceiling
        if trouble.retry_after > self.longest_retry_after:
            return None
        # Never sooner than asked; a little later each, so that those who were told the same moment do not share it.
        return trouble.retry_after + random() * min(ceiling, self.base)
