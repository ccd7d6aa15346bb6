"""Retention: removes what a later event holds again, once it is old enough or far enough back. Decisions and results stay.

Runs in the writer thread, a bounded stretch of one session at a time, each in its own transaction. Sweeping goes forward
from `pruned_through`: below it nothing that is prunable is left, so it is both where to go on and what a cursor has missed.
"""

import json
import sqlite3
from collections.abc import Generator, Iterator

from switchtower.core import events, journal

_STRETCH = 1_000
_PRUNABLE = json.dumps([kind for kind, event_type in events.BY_KIND.items() if event_type.prunable])


def prune(
    connection: sqlite3.Connection, retention: journal.Retention, now_ms: int, session_id: str | None
) -> Generator[None, None, int]:
    pruned = 0
    if retention.keep_entries or retention.keep_ms:
        for sid in _sids(connection, session_id):
            pruned += yield from _sweep(connection, sid, retention, now_ms)
            yield
    while connection.execute(
        "DELETE FROM receipts WHERE (scope, key) IN (SELECT scope, key FROM receipts WHERE expires_at_ms <= ? LIMIT ?)",
        (now_ms, _STRETCH),
    ).rowcount:
        yield
    return pruned


def _sids(connection: sqlite3.Connection, session_id: str | None) -> Iterator[int]:
    """Sessions one look-up at a time: a query left open between the steps would keep the log from being checkpointed."""
    if session_id is not None:
        for (sid,) in connection.execute("SELECT sid FROM sessions WHERE session_id = ?", (session_id,)).fetchall():
            yield sid
        return
    sid = 0
    while row := connection.execute(
        "SELECT sid FROM sessions JOIN snapshots USING (sid) WHERE sid > ? AND pruned_through < seq ORDER BY sid LIMIT 1", (sid,)
    ).fetchone():
        (sid,) = row
        yield sid


def _sweep(connection: sqlite3.Connection, sid: int, retention: journal.Retention, now_ms: int) -> Generator[None, None, int]:
    """Removes one session's prunable entries up to the first that retention keeps."""
    standing = connection.execute(
        "SELECT pruned_through, seq, (SELECT max(seq) FROM events WHERE sid = ?1)"
        " FROM sessions JOIN snapshots USING (sid) WHERE sid = ?1",
        (sid,),
    ).fetchone()
    if standing is None:
        return 0
    after, snapshot_seq, head = standing
    last = min(snapshot_seq, head - 1)
    beyond_count = head - retention.keep_entries if retention.keep_entries else 0
    old_before_ms = now_ms - retention.keep_ms if retention.keep_ms else 0
    pruned = 0
    while after < last:
        upto = min(after + _STRETCH, last)
        (kept,) = connection.execute(
            "SELECT min(seq) FROM events WHERE sid = ? AND seq > ? AND seq <= ? AND ts_ms >= ?"
            " AND kind IN (SELECT value FROM json_each(?))",
            (sid, max(after, beyond_count), upto, old_before_ms, _PRUNABLE),
        ).fetchone()
        if kept is not None:
            upto = last = kept - 1
        newest, count = connection.execute(
            "SELECT max(seq), count(*) FROM events WHERE sid = ? AND seq > ? AND seq <= ?"
            " AND kind IN (SELECT value FROM json_each(?))",
            (sid, after, upto, _PRUNABLE),
        ).fetchone()
        if count:
            connection.execute("BEGIN")
            connection.execute(
                "DELETE FROM events WHERE sid = ? AND seq > ? AND seq <= ? AND kind IN (SELECT value FROM json_each(?))",
                (sid, after, upto, _PRUNABLE),
            )
            connection.execute("UPDATE sessions SET pruned_through = ? WHERE sid = ?", (newest, sid))
            connection.execute("COMMIT")
            pruned += count
        after = upto
        yield
    return pruned
