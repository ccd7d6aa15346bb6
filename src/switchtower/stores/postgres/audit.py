"""Reads decisions over all sessions of all nodes, by two small indexes of the journal's table."""

from typing import Any

import msgspec

from switchtower.core import events
from switchtower.core.ports import journal
from switchtower.stores import audit
from switchtower.stores.postgres import database
from switchtower.stores.postgres.pool import LazyPool, Pool

RETRY_TIMEOUT = 5.0
_LARGEST = 2**63 - 1
_LIKELY = 4
"""The number of requests that may contain the approval's id; the first that has it is the right one."""

# The conditions on `kind` repeat those of the indexes literally: otherwise the indexes are not used.
_DECIDED = """
SELECT ts_ms, sid, seq, kind, data FROM events
WHERE kind IN ('approval.decided', 'approval.expired') AND (ts_ms, sid, seq) < ($1, $2, $3) AND ts_ms >= $4
ORDER BY ts_ms DESC, sid DESC, seq DESC LIMIT $5
"""
_SESSIONS = "SELECT sid, session_id, card FROM sessions WHERE sid = ANY ($1) AND state <> 'deleted'"
_ASKED = """
SELECT decided.sid, decided.seq, asked.data
FROM unnest($1::bigint[], $2::bigint[], $3::bytea[]) AS decided (sid, seq, needle), LATERAL (
    SELECT last.data FROM (
        SELECT events.seq, events.data FROM events
        WHERE kind = 'approval.requested' AND events.sid = decided.sid AND events.seq < decided.seq
        ORDER BY events.seq DESC LIMIT $4) AS last
    WHERE position(decided.needle IN last.data) > 0 ORDER BY last.seq DESC LIMIT $5) AS asked
"""


class PostgresAudit:
    """Implements `journal.Audit`. Opens by itself when it is first used."""

    def __init__(self, dsn: str, *, timeout: float = RETRY_TIMEOUT) -> None:
        self._pool = LazyPool(dsn, most=1, timeout=timeout)

    async def read_page(self, limit: int, *, before: str | None = None, since_ms: int = 0) -> journal.AuditPage:
        start = audit.END_CURSOR if before is None else audit.decode_cursor(before)
        since_ms = max(-_LARGEST, min(since_ms, _LARGEST))
        with database.translate_errors():
            pool = await self._pool.get()
            rows = await pool.fetch(_DECIDED, *start, since_ms, limit + 1)
            found = await _make_records(pool, rows[:limit])
        is_more = len(rows) > limit
        return journal.AuditPage(found, audit.encode_cursor(*tuple(rows[limit - 1])[:3]) if is_more else None)

    async def close(self) -> None:
        await self._pool.close()


async def _make_records(pool: Pool, rows: list[Any]) -> list[journal.AuditRecord]:
    decided = [((ts_ms, sid, seq), audit.decode_decision(kind, data)) for ts_ms, sid, seq, kind, data in rows]
    sessions = {
        sid: (database.unescape_nul(session_id), card)
        for sid, session_id, card in await pool.fetch(_SESSIONS, list({sid for (_, sid, _), _ in decided}))
    }
    asked: dict[tuple[int, int], list[events.Approval]] = {}
    for sid, seq, data in await pool.fetch(
        _ASKED,
        [sid for (_, sid, _), _ in decided],
        [seq for (_, _, seq), _ in decided],
        [msgspec.json.encode(event.approval_id) for _, event in decided],  # as an entry encodes it
        *(audit.MOST_LOOKED_BACK, _LIKELY),
    ):
        asked.setdefault((sid, seq), []).append(audit.decode_request(data))
    return [
        audit.make_record(at, event, *sessions[at[1]], _find_request(asked.get(at[1:], []), event.approval_id))
        for at, event in decided
        if at[1] in sessions  # otherwise the session is being deleted
    ]


def _find_request(asked: list[events.Approval], approval_id: str) -> events.Approval | None:
    return next((one for one in asked if one.id == approval_id), None)
