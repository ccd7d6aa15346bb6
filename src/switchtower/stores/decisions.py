"""Decisions as the audit tells them, put together from what a journal's rows hold. Pure: the stores' audits find the rows."""

from typing import Any

import msgspec

from switchtower.core import audit, codec, events, journal, mirrors
from switchtower.core.session import summarize_approval

AuditCursor = tuple[int, int, int]
"""When, whose and where: the order of the whole log."""

END_CURSOR: AuditCursor = (2**62, 2**62, 2**62)
MOST_LOOKED_BACK = 64
"""Questions of one session that are looked through for the one that was decided: nearly always it is the last."""

DecidingEvent = events.ApprovalDecided | events.ApprovalExpired
_decode_card = msgspec.json.Decoder(journal.Card).decode


def encode_cursor(ts_ms: int, sid: int, seq: int) -> str:
    return f"{ts_ms}-{sid}-{seq}"


def decode_cursor(text: str) -> AuditCursor:
    parts = text.split("-")
    if len(parts) != 3 or not all(part.isascii() and part.isdecimal() and len(part) <= 18 for part in parts):
        raise audit.InvalidAuditCursor(text[:64])
    ts_ms, sid, seq = map(int, parts)
    return ts_ms, sid, seq


def decode_decision(kind: str, data: bytes) -> DecidingEvent:
    event = codec.decode(kind, data)
    assert isinstance(event, DecidingEvent), "the query asks for no other"
    return event


def decode_request(data: bytes) -> events.Approval:
    event = codec.decode(events.ApprovalRequested.kind, data)
    assert isinstance(event, events.ApprovalRequested), "the query asks for no other"
    return event.approval


def make_record(
    at: AuditCursor, event: DecidingEvent, session_id: str, card: bytes, asked: events.Approval | None
) -> audit.AuditRecord:
    listed = _decode_card(card)
    decided: dict[str, Any] = {"verdict": "expired", "by": "", "via": "", "client": None, "comment": None, "rule": None}
    if isinstance(event, events.ApprovalDecided):
        by = event.by if listed.host is None else mirrors.attribute(event.by, listed.host)
        decided = {
            "verdict": event.verdict.value,
            "by": by.name,
            "via": by.via,
            "client": by.client,
            "device": by.device,
            "address": by.address,
            "claims": by.claims,
            "comment": event.comment,
            "rule": None if event.rule is None else _format_rule(event.rule),
        }
    return audit.AuditRecord(
        place=encode_cursor(*at),
        ts_ms=at[0],
        session_id=session_id,
        seq=at[2],
        session_title=listed.title,
        host=listed.host,
        approval_id=event.approval_id,
        tool="" if asked is None else summarize_approval(asked).tool,
        title="" if asked is None else asked.title,
        summary="" if asked is None else asked.summary,
        **decided,
    )


def _format_rule(rule: events.Rule) -> str:
    return " ".join(part for part in (rule.effect, rule.tool, rule.path, rule.command) if part)
