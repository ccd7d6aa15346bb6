"""Retention: removes entries that a later event repeats, once they are old enough or far enough back, and deletes whole
sessions. Decisions and results stay.

It runs in the writer thread, on a bounded range of one session at a time, each in its own transaction, so that appends run in
between. Pruning advances from `pruned_through`: below it nothing prunable is left, so it is both where to continue and what a
cursor has missed.
"""

import sqlite3
from collections.abc import Generator, Iterator, Mapping

from switchtower.core.ports import journal
from switchtower.stores import packed_rows

_STRETCH = 1_000


def prune_entries(
    connection: sqlite3.Connection,
    retention: journal.Retention,
    now_ms: int,
    session_id: str | None,
    keep_from: Mapping[str, int] = journal.NOTHING_KEPT,
) -> Generator[None, None, int]:
    pruned = 0
    if retention.keep_entries or retention.keep_ms:
        floors = {sid: seq for kept, seq in keep_from.items() for sid in _iterate_sids(connection, kept)}
        for sid in _iterate_sids(connection, session_id):
            pruned += yield from _prune_session(connection, sid, retention, now_ms, floors.get(sid))
            yield
    while connection.execute(
        "DELETE FROM receipts WHERE (scope, key) IN (SELECT scope, key FROM receipts WHERE expires_at_ms <= ? LIMIT ?)",
        (now_ms, _STRETCH),
    ).rowcount:
        yield
    return pruned


def _iterate_sids(connection: sqlite3.Connection, session_id: str | None) -> Iterator[int]:
    """Yields sessions by one lookup at a time: a query left open between the steps would keep the log from being checkpointed."""
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


def _prune_session(
    connection: sqlite3.Connection, sid: int, retention: journal.Retention, now_ms: int, keep_from: int | None
) -> Generator[None, None, int]:
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
    if keep_from is not None:
        last = min(last, keep_from - 1)
    beyond_count = head - retention.keep_entries if retention.keep_entries else 0
    old_before_ms = now_ms - retention.keep_ms if retention.keep_ms else 0
    pruned = 0
    while after < last:
        rows = connection.execute(
            "SELECT seq, count, ts_ms, kind FROM events WHERE sid = ? AND seq > ? ORDER BY seq LIMIT ?", (sid, after, _STRETCH)
        ).fetchall()
        stretch = _PruneRange()
        # The first row of which retention keeps something ends the pruning.
        swept = all(stretch.add_row(row, last, beyond_count, old_before_ms) for row in rows)
        pruned += stretch.commit(connection, sid)
        after = rows[-1][0] if rows and swept else last
        yield
    return pruned


class _PruneRange:
    """The removals of one transaction: whole rows, and the first entries of the row that the retention boundary divides."""

    def __init__(self) -> None:
        self._whole: list[int] = []
        self._beheaded: tuple[int, int] | None = None
        self._through = 0
        self._count = 0

    def add_row(self, row: tuple[int, int, int, str], last: int, beyond_count: int, old_before_ms: int) -> bool:
        """Marks what may be removed of a row. False: something prunable of it stays, or the row is beyond `last`."""
        seq, count, ts_ms, kind = row
        first = seq - count + 1
        if first > last:
            return False
        if kind not in packed_rows.PACKED:
            return True
        through = min(seq, last if ts_ms < old_before_ms else min(last, beyond_count))
        if through >= first:
            self._count += through - first + 1
            self._through = through
            if through == seq:
                self._whole.append(seq)
            else:
                self._beheaded = seq, through - first + 1
        return through == seq

    def commit(self, connection: sqlite3.Connection, sid: int) -> int:
        if not self._count:
            return 0
        connection.execute("BEGIN")
        connection.executemany("DELETE FROM events WHERE sid = ? AND seq = ?", [(sid, seq) for seq in self._whole])
        if self._beheaded is not None:
            seq, entries = self._beheaded
            (data,) = connection.execute("SELECT data FROM events WHERE sid = ? AND seq = ?", (sid, seq)).fetchone()
            connection.execute(
                "UPDATE events SET count = count - ?, data = ? WHERE sid = ? AND seq = ?",
                (entries, packed_rows.drop_first_entries(data, entries), sid, seq),
            )
        connection.execute("UPDATE sessions SET pruned_through = ? WHERE sid = ?", (self._through, sid))
        connection.execute("COMMIT")
        return self._count


_PIECE = 2_000


def delete_session(connection: sqlite3.Connection, session_id: str) -> Generator[None, None, int]:
    """Removes the session's row last: until then a restart finds it and continues. Returns the number of removed entries."""
    row = connection.execute("SELECT sid FROM sessions WHERE session_id = ?", (session_id,)).fetchone()
    if row is None:
        return 0
    (sid,) = row
    removed = 0
    while True:
        rows = connection.execute("SELECT seq, count FROM events WHERE sid = ? ORDER BY seq LIMIT ?", (sid, _PIECE)).fetchall()
        if not rows:
            break
        connection.execute("DELETE FROM events WHERE sid = ? AND seq <= ?", (sid, rows[-1][0]))
        removed += sum(count for _, count in rows)
        yield
    connection.execute("BEGIN IMMEDIATE")
    connection.execute("DELETE FROM snapshots WHERE sid = ?", (sid,))
    connection.execute("DELETE FROM receipts WHERE scope = ?", (session_id,))
    connection.execute("DELETE FROM sessions WHERE sid = ?", (sid,))
    connection.execute("COMMIT")
    return removed
