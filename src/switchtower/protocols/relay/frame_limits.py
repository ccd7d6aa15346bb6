"""How long a frame between a host and its hub may be, and how what is longer is shortened: an event keeps its number and loses
the end of its longest texts, an answer loses the end of its longest field. Pure."""

from typing import Any

import msgspec

from switchtower.core import events
from switchtower.protocols.relay import errors

DEFAULT_MAX_FRAME_BYTES = 16 * 1024 * 1024
"""For one frame in either direction, unless the setting `host_max_frame_bytes` says otherwise."""
MAX_EVENT_BYTES = 1_000_000
"""A hub that refuses an event gets it again after each reconnect, and nothing behind it. So events fit into the mebibyte that
older hubs read at most, whatever the setting is."""
_OVERHEAD_BYTES = 200
"""For what a shortened value gains: quotes, the mark and `truncated`."""
_ELLIPSIS = "…"
_TRUNCATED_APPROVAL_HINT = "it is too long to be shown in full at the hub; decide it on its host"

_encode = msgspec.json.Encoder().encode


def format_frame_too_long(size: int, limit: int) -> str:
    """The error for a frame that was discarded."""
    return f"a frame of {size:,} bytes was discarded; the limit is {limit:,} bytes"


def check_frame_length(frame: bytes, limit: int) -> None:
    """Raises `FrameTooLong` for a frame that its host would not read."""
    if len(frame) > limit:
        raise errors.FrameTooLong(len(frame), limit)


def shorten_event(frame: bytes, limit: int) -> bytes | None:
    """The same event within the limit, with `truncated` in its data. None for a screen: a part of it would paint nonsense, and
    the output around it is sent anyway."""
    envelope: dict[str, Any] = msgspec.json.decode(frame)
    if envelope["type"] == "run.screen":
        return None
    data = envelope["data"] | {"truncated": True}
    if envelope["type"] == "run.permission_requested":
        data.setdefault(events.CANNOT_APPROVE, _TRUNCATED_APPROVAL_HINT)
    head = len(_encode({**envelope, "data": {}}))
    return _encode({**envelope, "data": _shorten_fields(data, limit - head)})


def shorten_result(result: Any, limit: int, *, keeps_end: bool) -> Any:
    """The result of a call, which may be a struct. `keeps_end` is for logs, whose last lines count. Raises `Refused` for one
    that cannot be shortened."""
    size = len(_encode(result))
    if size <= limit:
        return result
    fields = msgspec.to_builtins(result)
    shortened = _shorten_fields({**fields, "truncated": True}, limit, keeps_end=keeps_end) if isinstance(fields, dict) else fields
    if len(_encode(shortened)) > limit:
        raise errors.RelayError(f"the answer has {size:,} bytes, and a frame to the hub has at most {limit:,}")
    return shortened


def _shorten_fields(fields: dict[str, Any], limit: int, *, keeps_end: bool = False) -> dict[str, Any]:
    """Cuts the longest field, then the next, until all fit."""
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
    """As much of it as has at most so many bytes in JSON."""
    count = min(len(text), budget)
    while count and (size := len(_encode(text[-count:] if keeps_end else text[:count]))) > budget:
        count = min(count * budget // size, count - 1)
    if keeps_end:
        return _ELLIPSIS + text[len(text) - count :]
    return text[:count] + _ELLIPSIS
