"""Times as relay spells them. Pure."""

from datetime import UTC, datetime
from functools import lru_cache


@lru_cache(maxsize=256)
def spelled(ts_ms: int) -> str:
    """RFC 3339 in UTC, to the millisecond."""
    return datetime.fromtimestamp(ts_ms / 1_000, UTC).strftime("%Y-%m-%dT%H:%M:%S.") + f"{ts_ms % 1_000:03}Z"


def read(stamp: object, otherwise: int) -> int:
    """Milliseconds of a stamp that another program wrote; when it cannot be read, or is absurd, the other value."""
    if not isinstance(stamp, str) or len(stamp) > 40:
        return otherwise
    try:
        moment = datetime.fromisoformat(stamp)
    except ValueError:
        return otherwise
    at_ms = round((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1_000)
    return at_ms if 0 < at_ms <= otherwise + 86_400_000 else otherwise
