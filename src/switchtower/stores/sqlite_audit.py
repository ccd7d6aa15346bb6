"""Decisions in the journal's file, by two small indices of it. Reads in a thread of its own, with a connection of its own."""

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

from switchtower.core import audit, events
from switchtower.stores import connections, decisions, troubles

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


class SqliteAudit:
    """Implements `audit.Audit`."""

    def __init__(self, journal_path: Path) -> None:
        self._journal_path = journal_path

    async def read_page(self, limit: int, *, before: str | None = None, since_ms: int = 0) -> audit.AuditPage:
        start = decisions.END_CURSOR if before is None else decisions.decode_cursor(before)
        return await asyncio.to_thread(self._read_page, limit, start, since_ms)

    def _read_page(self, limit: int, start: decisions.AuditCursor, since_ms: int) -> audit.AuditPage:
        try:
            with closing(connections.open_for_reading(self._journal_path)) as connection:
                connection.execute("BEGIN")  # all of it is of one moment
                rows = connection.execute(_DECIDED, (*start, since_ms, limit + 1)).fetchall()
                found = [told for row in rows[:limit] if (told := _make_decision(connection, *row)) is not None]
        except sqlite3.Error as problem:
            raise troubles.translate_error(problem) from problem
        is_more = len(rows) > limit
        return audit.AuditPage(found, decisions.encode_cursor(*rows[limit - 1][:3]) if is_more else None)


def _make_decision(
    connection: sqlite3.Connection, ts_ms: int, sid: int, seq: int, kind: str, data: bytes
) -> audit.AuditRecord | None:
    """None for one of a session that is being deleted."""
    session: tuple[str, bytes] | None = connection.execute(_SESSION, (sid,)).fetchone()
    if session is None:
        return None
    event = decisions.decode_decision(kind, data)
    return decisions.make_record((ts_ms, sid, seq), event, *session, _find_request(connection, sid, seq, event.approval_id))


def _find_request(connection: sqlite3.Connection, sid: int, seq: int, approval_id: str) -> events.Approval | None:
    for (data,) in connection.execute(_ASKED, (sid, seq, decisions.MOST_LOOKED_BACK)):
        asked = decisions.decode_request(data)
        if asked.id == approval_id:
            return asked
    return None
