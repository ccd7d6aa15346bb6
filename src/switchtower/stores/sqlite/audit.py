"""The audit in SQLite: the chain in the journal's or the registry's file, and the decisions of the journal, by two small
indexes. Functions on the chain run in their caller's transaction; decisions are read in a separate thread, with its own
connection.
"""

import asyncio
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path

from switchtower.core import events
from switchtower.core.ports import journal
from switchtower.stores import audit
from switchtower.stores.audit import AuditLink
from switchtower.stores.sqlite import database

_PAGE = 1_000
_INSERT = "INSERT INTO audit (number, ts_ms, session_id, seq, kind, digest, record, hash) VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
_HEAD = "INSERT INTO audit_head VALUES (1, ?, ?) ON CONFLICT (one) DO UPDATE SET number = excluded.number, hash = excluded.hash"

# Two lists, so that both use their indexes.
_DECIDED_BEFORE = """
SELECT ts_ms, session_id, seq, kind, data FROM (
    SELECT ts_ms, sid, seq, kind, data FROM events WHERE kind = 'approval.requested'
    UNION ALL SELECT ts_ms, sid, seq, kind, data FROM events WHERE kind IN ('approval.decided', 'approval.expired')
    UNION ALL SELECT ts_ms, sid, seq, kind, data FROM events WHERE kind = 'session.deleted'
        AND sid IN (SELECT sid FROM sessions WHERE state = 'deleted')
) JOIN sessions USING (sid) ORDER BY ts_ms, sid, seq
"""

ChainedEvent = tuple[int, str, int, str, bytes]
"""Time, session, seq, kind and data."""


def read_chain_head(connection: sqlite3.Connection) -> tuple[int, bytes] | None:
    """None: nothing was ever recorded."""
    row: tuple[int, bytes] | None = connection.execute("SELECT number, hash FROM audit_head").fetchone()
    return row


def adopt_past_decisions(connection: sqlite3.Connection) -> None:
    """Runs once per journal: adds the decisions from before the chain existed. Uses a separate transaction."""
    if read_chain_head(connection) is not None:
        return
    connection.execute("BEGIN IMMEDIATE")
    try:
        if read_chain_head(connection) is None and connection.execute("SELECT 1 FROM audit LIMIT 1").fetchone() is None:
            store_chain_head(connection, 0, audit.FIRST_HASH)
            extend_chain(connection, connection.execute(_DECIDED_BEFORE))
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def extend_chain(connection: sqlite3.Connection, happenings: Iterable[ChainedEvent]) -> None:
    number, previous = read_chain_head(connection) or _read_last_link(connection) or (0, audit.FIRST_HASH)
    links: list[AuditLink] = []
    for happening in happenings:
        number += 1
        links.append(audit.make_link(previous, number, *happening))
        previous = links[-1].hash
    if links:
        insert_links(connection, links)
        store_chain_head(connection, number, previous)


def insert_links(connection: sqlite3.Connection, links: Iterable[AuditLink]) -> None:
    connection.executemany(_INSERT, links)


def store_chain_head(connection: sqlite3.Connection, number: int, hash_: bytes) -> None:
    connection.execute(_HEAD, (number, hash_))


def _read_last_link(connection: sqlite3.Connection) -> tuple[int, bytes] | None:
    row: tuple[int, bytes] | None = connection.execute("SELECT number, hash FROM audit ORDER BY number DESC LIMIT 1").fetchone()
    return row


def read_links(connection: sqlite3.Connection) -> Iterator[AuditLink]:
    """Yields all links, in order, one page at a time."""
    after = -(2**63)
    while rows := connection.execute(
        "SELECT number, ts_ms, session_id, seq, kind, digest, record, hash FROM audit WHERE number > ? ORDER BY number LIMIT ?",
        (after, _PAGE),
    ).fetchall():
        yield from map(AuditLink._make, rows)
        after = rows[-1][0]


# The conditions on `kind` repeat those of the indexes literally: otherwise SQLite does not use them.
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
    """Implements `journal.Audit`."""

    def __init__(self, journal_path: Path) -> None:
        self._journal_path = journal_path

    async def read_page(self, limit: int, *, before: str | None = None, since_ms: int = 0) -> journal.AuditPage:
        start = audit.END_CURSOR if before is None else audit.decode_cursor(before)
        return await asyncio.to_thread(self._read_page, limit, start, since_ms)

    def _read_page(self, limit: int, start: audit.AuditCursor, since_ms: int) -> journal.AuditPage:
        try:
            with closing(database.open_for_reading(self._journal_path)) as connection:
                connection.execute("BEGIN")  # all reads see one moment
                rows = connection.execute(_DECIDED, (*start, since_ms, limit + 1)).fetchall()
                found = [told for row in rows[:limit] if (told := _make_decision(connection, *row)) is not None]
        except sqlite3.Error as problem:
            raise database.translate_error(problem) from problem
        is_more = len(rows) > limit
        return journal.AuditPage(found, audit.encode_cursor(*rows[limit - 1][:3]) if is_more else None)


def _make_decision(
    connection: sqlite3.Connection, ts_ms: int, sid: int, seq: int, kind: str, data: bytes
) -> journal.AuditRecord | None:
    """None: the decision belongs to a session that is being deleted."""
    session: tuple[str, bytes] | None = connection.execute(_SESSION, (sid,)).fetchone()
    if session is None:
        return None
    event = audit.decode_decision(kind, data)
    return audit.make_record((ts_ms, sid, seq), event, *session, _find_request(connection, sid, seq, event.approval_id))


def _find_request(connection: sqlite3.Connection, sid: int, seq: int, approval_id: str) -> events.Approval | None:
    for (data,) in connection.execute(_ASKED, (sid, seq, audit.MOST_LOOKED_BACK)):
        asked = audit.decode_request(data)
        if asked.id == approval_id:
            return asked
    return None
