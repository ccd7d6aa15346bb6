"""Decisions in the journal's file, by two small indices of it. Reads in a thread of its own, with a connection of its own."""

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec

from switchtower.core import audit, codec, events, journal
from switchtower.core.session import question_of
from switchtower.stores import connections, troubles

_MOST_LOOKED_BACK = 64
"""Questions of one session that are looked through for the one that was decided: nearly always it is the last."""
_END = (2**62, 2**62, 2**62)

# The conditions on `kind` are the indices' own, word by word: else SQLite does not use them.
_DECIDED = """
SELECT ts_ms, sid, seq, kind, data FROM events INDEXED BY events_decided
WHERE kind IN ('approval.decided', 'approval.expired') AND (ts_ms, sid, seq) < (?, ?, ?) AND ts_ms >= ?
ORDER BY ts_ms DESC, sid DESC, seq DESC LIMIT ?
"""
_ASKED = """
SELECT data FROM events INDEXED BY events_asked
WHERE kind = 'approval.requested' AND sid = ? AND seq < ? ORDER BY seq DESC LIMIT ?
"""
_SESSION = "SELECT session_id, card FROM sessions WHERE sid = ? AND state != 'deleted'"

_decode_card = msgspec.json.Decoder(journal.Card).decode


class SqliteAudit:
    """Implements `audit.Audit`."""

    def __init__(self, journal_path: Path) -> None:
        self._journal_path = journal_path

    async def page(self, limit: int, *, before: str | None = None, since_ms: int = 0) -> audit.Page:
        start = _END if before is None else _read_place(before)
        return await asyncio.to_thread(self._page, limit, start, since_ms)

    def _page(self, limit: int, start: tuple[int, int, int], since_ms: int) -> audit.Page:
        try:
            with closing(connections.for_reading(self._journal_path)) as connection:
                connection.execute("BEGIN")  # all of it is of one moment
                rows = connection.execute(_DECIDED, (*start, since_ms, limit + 1)).fetchall()
                decisions = [told for row in rows[:limit] if (told := _decision(connection, *row)) is not None]
        except sqlite3.Error as problem:
            raise troubles.told(problem) from problem
        is_more = len(rows) > limit
        return audit.Page(decisions, _place(*rows[limit - 1][:3]) if is_more else None)


def _place(ts_ms: int, sid: int, seq: int) -> str:
    return f"{ts_ms}-{sid}-{seq}"


def _read_place(text: str) -> tuple[int, int, int]:
    parts = text.split("-")
    if len(parts) != 3 or not all(part.isascii() and part.isdecimal() and len(part) <= 18 for part in parts):
        raise audit.BadPlace(text[:64])
    ts_ms, sid, seq = map(int, parts)
    return ts_ms, sid, seq


def _decision(connection: sqlite3.Connection, ts_ms: int, sid: int, seq: int, kind: str, data: bytes) -> audit.Decision | None:
    """None for one of a session that is being deleted."""
    session: tuple[str, bytes] | None = connection.execute(_SESSION, (sid,)).fetchone()
    if session is None:
        return None
    card = _decode_card(session[1])
    event = codec.decode(kind, data)
    assert isinstance(event, events.ApprovalDecided | events.ApprovalExpired), "the query asks for no other"
    asked = _question(connection, sid, seq, event.approval_id)
    decided: dict[str, Any] = {"verdict": "expired", "by": "", "via": "", "client": None, "comment": None, "rule": None}
    if isinstance(event, events.ApprovalDecided):
        decided = {
            "verdict": event.verdict.value,
            "by": event.by.name,
            "via": event.by.via,
            "client": event.by.client,
            "comment": event.comment,
            "rule": None if event.rule is None else _rule(event.rule),
        }
    return audit.Decision(
        place=_place(ts_ms, sid, seq),
        ts_ms=ts_ms,
        session_id=session[0],
        seq=seq,
        session_title=card.title,
        host=card.host,
        approval_id=event.approval_id,
        tool="" if asked is None else question_of(asked).tool,
        title="" if asked is None else asked.title,
        summary="" if asked is None else asked.summary,
        **decided,
    )


def _question(connection: sqlite3.Connection, sid: int, seq: int, approval_id: str) -> events.Approval | None:
    for (data,) in connection.execute(_ASKED, (sid, seq, _MOST_LOOKED_BACK)):
        event = codec.decode(events.ApprovalRequested.kind, data)
        assert isinstance(event, events.ApprovalRequested), "the query asks for no other"
        if event.approval.id == approval_id:
            return event.approval
    return None


def _rule(rule: events.Rule) -> str:
    return " ".join(part for part in (rule.effect, rule.tool, rule.path, rule.command) if part)
