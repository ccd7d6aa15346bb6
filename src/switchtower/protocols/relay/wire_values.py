"""Ids, times and frame lengths on relay's wire. Pure.

Relay's ids are any text up to 128 characters, and an approval's is a UUID if we may choose; the core's have a kind in front and
few characters. Both conversions are lossless. A frame between a host and its hub that is too long is shortened: an event keeps
its number and loses the end of its longest texts, an answer loses the end of its longest field.
"""

import re
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any
from uuid import UUID

import msgspec

from switchtower.core import events, ids
from switchtower.protocols.relay import errors

MAX_ID_LENGTH = 128
_MAX_CORE_ID_LENGTH = 250
_CORE_ID = re.compile(r"sess_[A-Za-z0-9._:-]{1,200}", re.ASCII)
_ULID = re.compile(r"[0-7][0-9A-HJKMNP-TV-Z]{25}", re.ASCII)
_PLAIN = re.compile(rb"[A-Za-z0-9.-]")
_ESCAPED = re.compile(r":([0-9A-F]{2})", re.ASCII)
_FOREIGN_PREFIX = "r."
"""The prefix of the body of another program's id."""


class InvalidRelayId(ValueError):
    """A text cannot be an id of relay's."""


def parse_run_id(run_id: str) -> str:
    """Returns the core's id of a relay run. Raises `InvalidRelayId`."""
    _check_id(run_id)
    if _CORE_ID.fullmatch(run_id) and not run_id.startswith(f"sess_{_FOREIGN_PREFIX}"):
        return run_id
    return _check_length(f"sess_{_FOREIGN_PREFIX}{_escape(run_id)}")


def format_run_id(session_id: str) -> str:
    body = session_id.removeprefix("sess_")
    return _unescape(body.removeprefix(_FOREIGN_PREFIX)) if body.startswith(_FOREIGN_PREFIX) else session_id


def make_core_run_id(session_id: str) -> str:
    """Returns the id of the one run of a session on another host."""
    return f"run_{session_id.removeprefix('sess_')}"


def parse_request_id(request_id: str) -> str:
    """Returns the core's id of the approval with this relay id. Raises `InvalidRelayId`."""
    _check_id(request_id)
    try:
        uuid = UUID(request_id)
    except ValueError:
        uuid = None
    if uuid is not None and str(uuid) == request_id:
        return ids.parse_uuid("appr", uuid)
    return _check_length(f"appr_{_FOREIGN_PREFIX}{_escape(request_id)}")


def format_request_id(approval_id: str) -> str:
    body = approval_id.removeprefix("appr_")
    if body.startswith(_FOREIGN_PREFIX):
        return _unescape(body.removeprefix(_FOREIGN_PREFIX))
    return str(ids.to_uuid(approval_id)) if _ULID.fullmatch(body) else approval_id


def _check_id(text: str) -> None:
    if not 0 < len(text) <= MAX_ID_LENGTH:
        raise InvalidRelayId(f"an id has 1 to {MAX_ID_LENGTH} characters")


def _check_length(text: str) -> str:
    if len(text) > _MAX_CORE_ID_LENGTH:
        raise InvalidRelayId("the id is too long when spelled in ASCII")
    return text


def _escape(text: str) -> str:
    try:
        spelled = text.encode()
    except UnicodeEncodeError:
        raise InvalidRelayId("an id is text") from None
    return "".join(chr(byte) if _PLAIN.match(bytes((byte,))) else f":{byte:02X}" for byte in spelled)


def _unescape(text: str) -> str:
    return _ESCAPED.sub(lambda match: chr(int(match[1], 16)), text).encode("latin-1").decode(errors="replace")


_MAX_TIMESTAMP_LENGTH = 40
_DAY_MS = 86_400_000


@lru_cache(maxsize=256)
def format_timestamp(ts_ms: int) -> str:
    """RFC 3339 in UTC, to the millisecond."""
    return datetime.fromtimestamp(ts_ms / 1_000, UTC).strftime("%Y-%m-%dT%H:%M:%S.") + f"{ts_ms % 1_000:03}Z"


def parse_timestamp(stamp: object, default: int) -> int:
    """Parses another program's time as milliseconds; an unreadable or absurd one gives the default."""
    at_ms = _parse_timestamp(stamp) if isinstance(stamp, str) and len(stamp) <= _MAX_TIMESTAMP_LENGTH else 0
    return at_ms if 0 < at_ms <= default + _DAY_MS else default


@lru_cache(maxsize=256)
def _parse_timestamp(stamp: str) -> int:
    try:
        moment = datetime.fromisoformat(stamp)
        return round((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1_000)
    except (ValueError, OverflowError):
        return 0


DEFAULT_MAX_FRAME_BYTES = 16 * 1024 * 1024
"""The limit for one frame in either direction, unless the setting `host_max_frame_bytes` overrides it."""
MAX_EVENT_BYTES = 1_000_000
"""A hub that refuses an event gets it again after each reconnect, and nothing after it. So events fit into the mebibyte that
older hubs read at most, whatever the setting is."""
_OVERHEAD_BYTES = 200
"""Bytes that a shortened value gains: quotes, the mark and `truncated`."""
_ELLIPSIS = "…"
_TRUNCATED_APPROVAL_HINT = "it is too long to be shown in full at the hub; decide it on its host"

_encode = msgspec.json.Encoder().encode


def format_frame_too_long(size: int, limit: int) -> str:
    """Formats the error for a frame that was discarded."""
    return f"a frame of {size:,} bytes was discarded; the limit is {limit:,} bytes"


def check_frame_length(frame: bytes, limit: int) -> None:
    """Raises `FrameTooLong` for a frame that its host would not read."""
    if len(frame) > limit:
        raise errors.FrameTooLong(len(frame), limit)


def shorten_event(frame: bytes, limit: int) -> bytes | None:
    """Returns the same event within the limit, with `truncated` in its data. None for a screen: a part of it would paint
    nonsense, and the output around it is sent anyway."""
    envelope: dict[str, Any] = msgspec.json.decode(frame)
    if envelope["type"] == "run.screen":
        return None
    data = envelope["data"] | {"truncated": True}
    if envelope["type"] == "run.permission_requested":
        data.setdefault(events.CANNOT_APPROVE, _TRUNCATED_APPROVAL_HINT)
    head = len(_encode({**envelope, "data": {}}))
    return _encode({**envelope, "data": _shorten_fields(data, limit - head)})


def shorten_result(result: Any, limit: int, *, keeps_end: bool) -> Any:
    """Shortens the result of a call, which may be a struct. `keeps_end` is for logs, whose last lines count. Raises `RelayError`
    for one that cannot be shortened."""
    size = len(_encode(result))
    if size <= limit:
        return result
    fields = msgspec.to_builtins(result)
    shortened = _shorten_fields({**fields, "truncated": True}, limit, keeps_end=keeps_end) if isinstance(fields, dict) else fields
    if len(_encode(shortened)) > limit:
        raise errors.RelayError(f"the answer has {size:,} bytes, and a frame to the hub has at most {limit:,}")
    return shortened


def _shorten_fields(fields: dict[str, Any], limit: int, *, keeps_end: bool = False) -> dict[str, Any]:
    """Shortens the longest field, then the next, until all fit."""
    sizes = {name: len(_encode(value)) for name, value in fields.items()}
    shortened = dict(fields)
    excess = len(_encode(fields)) - limit
    for name in sorted(sizes, key=lambda name: -sizes[name]):
        if excess <= 0:
            break
        budget = max(sizes[name] - excess - _OVERHEAD_BYTES, 0)
        shortened[name] = _shorten_value(fields[name], budget, keeps_end=keeps_end)
        excess -= sizes[name] - len(_encode(shortened[name]))
    return shortened


def _shorten_value(value: Any, budget: int, *, keeps_end: bool) -> Any:
    match value:
        case str():
            return _shorten_text(value, budget, keeps_end=keeps_end)
        case list():
            kept = list(value)
            while kept and len(_encode(kept)) > budget:
                kept = kept[: len(kept) // 2]
            return kept
        case dict():
            return {"truncated": _shorten_text(_encode(value).decode(), budget, keeps_end=False)}
        case _:
            return value


def _shorten_text(text: str, budget: int, *, keeps_end: bool) -> str:
    """Returns as much of the text as fits into `budget` bytes of JSON."""
    count = min(len(text), budget)
    while count and (size := len(_encode(text[-count:] if keeps_end else text[:count]))) > budget:
        count = min(count * budget // size, count - 1)
    if keeps_end:
        return _ELLIPSIS + text[len(text) - count :]
    return text[:count] + _ELLIPSIS
