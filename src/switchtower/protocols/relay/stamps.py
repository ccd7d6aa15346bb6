"""Times as relay spells them. Pure."""

from datetime import UTC, datetime
from functools import lru_cache

_MAX_TIMESTAMP_LENGTH = 40
_DAY_MS = 86_400_000


@lru_cache(maxsize=256)
def format_timestamp(ts_ms: int) -> str:
    """RFC 3339 in UTC, to the millisecond."""
    return datetime.fromtimestamp(ts_ms / 1_000, UTC).strftime("%Y-%m-%dT%H:%M:%S.") + f"{ts_ms % 1_000:03}Z"


def parse_timestamp(stamp: object, default: int) -> int:
    """Milliseconds of a stamp that another program wrote; when it cannot be read, or is absurd, the other value."""
    at_ms = _parse_timestamp(stamp) if isinstance(stamp, str) and len(stamp) <= _MAX_TIMESTAMP_LENGTH else 0
    return at_ms if 0 < at_ms <= default + _DAY_MS else default


@lru_cache(maxsize=256)
def _parse_timestamp(stamp: str) -> int:
    try:
        moment = datetime.fromisoformat(stamp)
        return round((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1_000)
    except (ValueError, OverflowError):
        return 0
