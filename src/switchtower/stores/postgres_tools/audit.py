"""Decisions over all sessions of all nodes, by two small indices of the journal's table. It only reads."""

from typing import Any

import msgspec

from switchtower.core import audit, events
from switchtower.stores import decisions
from switchtower.stores.postgres import connections, names
from switchtower.stores.postgres.late_pool import LatePool
from switchtower.stores.postgres.pool import Pool

PATIENCE = 5.0
_LARGEST = 2**63 - 1
_LIKELY = 4
"""Questions that name the approval's id; the first that has it is the one."""

# The conditions on `kind` are the indices' own, word by word: else they are not used.
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
    """Implements `audit.Audit`. Opens by itself when it is first used."""

    def __init__(self, dsn: str, *, patience: float = PATIENCE) -> None:
        self._pool = LatePool(dsn, most=1, patience=patience)

    async def page(self, limit: int, *, before: str | None = None, since_ms: int = 0) -> audit.Page:
        start = decisions.BEHIND_THE_LAST if before is None else decisions.read_place(before)
        since_ms = max(-_LARGEST, min(since_ms, _LARGEST))
        with connections.telling():
            pool = await self._pool.get()
            rows = await pool.fetch(_DECIDED, *start, since_ms, limit + 1)
            found = await _told(pool, rows[:limit])
        is_more = len(rows) > limit
        return audit.Page(found, decisions.place(*tuple(rows[limit - 1])[:3]) if is_more else None)

    async def close(self) -> None:
        await self._pool.close()


async def _told(pool: Pool, rows: list[Any]) -> list[audit.Decision]:
    decided = [((ts_ms, sid, seq), decisions.read(kind, data)) for ts_ms, sid, seq, kind, data in rows]
    sessions = {
        sid: (names.got(session_id), card)
        for sid, session_id, card in await pool.fetch(_SESSIONS, list({sid for (_, sid, _), _ in decided}))
    }
    asked: dict[tuple[int, int], list[events.Approval]] = {}
    for sid, seq, data in await pool.fetch(
        _ASKED,
        [sid for (_, sid, _), _ in decided],
        [seq for (_, _, seq), _ in decided],
        [msgspec.json.encode(event.approval_id) for _, event in decided],  # as an entry spells it
        *(decisions.MOST_LOOKED_BACK, _LIKELY),
    ):
        asked.setdefault((sid, seq), []).append(decisions.asked_in(data))
    return [
        decisions.told(at, event, *sessions[at[1]], _the_one(asked.get(at[1:], []), event.approval_id))
        for at, event in decided
        if at[1] in sessions  # else it is being deleted
    ]


def _the_one(asked: list[events.Approval], approval_id: str) -> events.Approval | None:
    return next((one for one in asked if one.id == approval_id), None)
