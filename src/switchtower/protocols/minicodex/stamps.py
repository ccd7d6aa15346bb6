"""How entries are named on MiniCodex's wire: event ids, times and run ids. Pure."""

from datetime import UTC, datetime
from functools import lru_cache
from uuid import NAMESPACE_OID, uuid5

from switchtower.core import ids

FRAMES_PER_ENTRY = 4_096
"""Frames that one entry can become, at most."""
LAST_FRAME_INDEX = FRAMES_PER_ENTRY - 1


def make_event_id(seq: int, frame_index: int) -> int:
    """Strictly monotonic over a session's frames, and it says where to go on."""
    return seq * FRAMES_PER_ENTRY + frame_index


def parse_event_id(last_event_id: int) -> tuple[int, int]:
    """The entry that a client has seen last, and the place of the last frame of it that it has seen."""
    return divmod(last_event_id, FRAMES_PER_ENTRY)


def format_timestamp(ts_ms: int) -> bytes:
    """RFC 3339, in UTC, to the millisecond."""
    second, ms = divmod(ts_ms, 1_000)
    return b"%b.%03dZ" % (_format_second(second), ms)


@lru_cache(maxsize=256)
def _format_second(second: int) -> bytes:
    return datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%S").encode()


@lru_cache(maxsize=256)
def make_run_uuid(run_id: str) -> bytes:
    """The run's id as the UUID that MiniCodex wants; one that is no ULID gets a UUID made from its name."""
    try:
        return str(ids.to_uuid(run_id)).encode()
    except (KeyError, ValueError):
        return str(uuid5(NAMESPACE_OID, run_id)).encode()
