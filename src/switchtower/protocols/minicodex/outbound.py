"""Frames that are about no event of the session: greetings, answers, errors, and how the connection does."""

from collections.abc import Sequence
from typing import Any, Literal

from msgspec import json

from switchtower.protocols.minicodex import messages
from switchtower.protocols.minicodex.snapshot import TranscriptSnapshot

_encode = json.Encoder().encode


def encode_welcome(snapshot: TranscriptSnapshot, capabilities: Sequence[str], req_id: str | None) -> bytes:
    state = snapshot.make_session_state(capabilities)
    return _encode(_drop_nulls({"type": "welcome", "v": messages.VERSION, "session_state": state, "req_id": req_id}))


def encode_accepted(req_id: str | None) -> bytes:
    return _encode(_drop_nulls({"type": "accepted", "req_id": req_id}))


def encode_error(code: str, message: str, req_id: str | None = None, details: dict[str, Any] | None = None) -> bytes:
    return _encode(_drop_nulls({"type": "error", "code": code, "message": message, "req_id": req_id, "details": details}))


def encode_replay_gap(last_seen_event_id: int, earliest_event_id: int | None, req_id: str | None = None) -> bytes:
    details = {"last_seen_event_id": last_seen_event_id, "earliest_event_id": earliest_event_id}
    return encode_error("REPLAY_GAP", "what was missed cannot be replayed; send `get_snapshot`", req_id, details)


def encode_heartbeat(interval_ms: int) -> bytes:
    return _encode({"type": "heartbeat", "interval_ms": interval_ms})


def encode_backpressure(state: Literal["drain", "ok"]) -> bytes:
    return _encode({"type": "backpressure", "state": state})


def _drop_nulls(frame: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in frame.items() if value is not None}
