"""Retention: removes entries that a later event repeats, once they are old enough or far enough back, and deletes whole
sessions. Decisions and results stay.

Each transaction is short: it handles a bounded range of one session. Pruning advances from `pruned_through`: below it nothing
prunable is left, so it is both where to continue and what a cursor has missed. Nodes that prune one session at once take turns
at its row.
"""

from collections.abc import AsyncIterator, Mapping
from typing import NamedTuple

from switchtower.core.ports import journal
from switchtower.stores import packed_rows
from switchtower.stores.postgres import database
from switchtower.stores.postgres.database import PostgresConnection
from switchtower.stores.postgres.pool import Pool

_STRETCH = 1_000
_FORGOTTEN_WRITERS = "DELETE FROM writers WHERE since < now() - interval '30 days'"


class _RetentionBoundary(NamedTuple):
    """The boundary of what retention keeps."""

    retention: journal.Retention
    now_ms: int
    keep_from: int | None

    def compute_last(self, snapshot_seq: int, head: int) -> int:
        last = min(snapshot_seq, head - 1)
        return last if self.keep_from is None else min(last, self.keep_from - 1)

    def compute_limit(self, ts_ms: int, last: int, head: int) -> int:
        """Returns the highest seq that may be removed for an entry of this time."""
        if self.retention.keep_ms and ts_ms < self.now_ms - self.retention.keep_ms:
            return last
        return min(last, head - self.retention.keep_entries) if self.retention.keep_entries else 0


async def prune_entries(
    pool: Pool, retention: journal.Retention, now_ms: int, session_id: str | None, keep_from: Mapping[str, int]
) -> int:
    pruned = 0
    if retention.keep_entries or retention.keep_ms:
        async for sid, name in _iterate_sessions(pool, session_id):
            line = _RetentionBoundary(retention, now_ms, keep_from.get(database.unescape_nul(name)))
            pruned += await _prune_session(pool, sid, line)
    while await pool.run_transaction(lambda connection: _delete_expired_receipts(connection, now_ms)):
        pass
    await pool.run_transaction(lambda connection: connection.execute(_FORGOTTEN_WRITERS))
    return pruned


async def _prune_session(pool: Pool, sid: int, line: _RetentionBoundary) -> int:
    """Removes one session's prunable entries up to the first that retention keeps."""
    pruned = 0
    while True:
        stretch = await pool.run_transaction(lambda connection: _prune_range(connection, sid, line))
        pruned += stretch.pruned
        if not stretch.goes_on:
            return pruned


async def _iterate_sessions(pool: Pool, session_id: str | None) -> AsyncIterator[tuple[int, str]]:
    if session_id is not None:
        for row in await pool.fetch(
            "SELECT sid, session_id FROM sessions WHERE session_id = $1", database.escape_nul(session_id)
        ):
            yield tuple(row)
        return
    sid = 0
    while rows := await pool.fetch(
        "SELECT sid, session_id FROM sessions JOIN snapshots USING (sid) WHERE sid > $1 AND pruned_through < seq"
        " ORDER BY sid LIMIT 100",
        sid,
    ):
        for row in rows:
            yield tuple(row)
        sid = rows[-1][0]


async def _delete_expired_receipts(connection: PostgresConnection, now_ms: int) -> bool:
    deleted = await connection.execute(
        "DELETE FROM receipts WHERE identity = ANY (ARRAY (SELECT identity FROM receipts WHERE expires_at_ms <= $1 LIMIT $2))",
        *(now_ms, _STRETCH),
    )
    return not deleted.endswith(" 0")


class _PruneStep(NamedTuple):
    pruned: int
    goes_on: bool


async def _prune_range(connection: PostgresConnection, sid: int, line: _RetentionBoundary) -> _PruneStep:
    """Removes whole rows, and the first entries of the row that the retention boundary divides."""
    standing = await connection.fetchrow(
        "SELECT pruned_through, snapshots.seq, homes.head FROM sessions JOIN snapshots USING (sid)"
        " JOIN homes USING (session_id) WHERE sessions.sid = $1 FOR UPDATE OF sessions",
        sid,
    )
    if standing is None:
        return _PruneStep(0, goes_on=False)
    after, snapshot_seq, head = standing
    last = line.compute_last(snapshot_seq, head)
    # Below `pruned_through` only entries that stay are left; a range of such rows is skipped in the same transaction.
    while after < last:
        rows = await connection.fetch(
            "SELECT seq, count, ts_ms, kind FROM events WHERE sid = $1 AND seq > $2 ORDER BY seq LIMIT $3", sid, after, _STRETCH
        )
        whole: list[int] = []
        beheaded: tuple[int, int] | None = None
        through, pruned, is_open = 0, 0, bool(rows)
        for seq, count, ts_ms, kind in rows:
            first = seq - count + 1
            if first > last:
                is_open = False
                break
            if kind not in packed_rows.PACKED:
                continue
            reach = min(seq, line.compute_limit(ts_ms, last, head))
            if reach >= first:
                pruned, through = pruned + reach - first + 1, reach
                if reach == seq:
                    whole.append(seq)
                else:
                    beheaded = seq, reach - first + 1
            if reach < seq:
                is_open = False
                break
        if pruned:
            await _remove(connection, sid, whole, beheaded)
            await connection.execute("UPDATE sessions SET pruned_through = $2 WHERE sid = $1", sid, through)
            return _PruneStep(pruned, goes_on=is_open)
        if not is_open:
            break
        after = rows[-1][0]
    return _PruneStep(0, goes_on=False)


async def _remove(connection: PostgresConnection, sid: int, whole: list[int], beheaded: tuple[int, int] | None) -> None:
    await connection.execute("DELETE FROM events WHERE sid = $1 AND seq = ANY ($2)", sid, whole)
    if beheaded is not None:
        seq, entries = beheaded
        data = await connection.fetchval("SELECT data FROM events WHERE sid = $1 AND seq = $2", sid, seq)
        await connection.execute(
            "UPDATE events SET count = count - $3, data = $4 WHERE sid = $1 AND seq = $2",
            *(sid, seq, entries, packed_rows.drop_first_entries(data, entries)),
        )


_PIECE = 2_000


async def delete_session(pool: Pool, session_id: str) -> int:
    """Removes the session's row last: until then a restart finds it and continues. Returns the number of removed entries."""
    rows = await pool.fetch("SELECT sid FROM homes WHERE session_id = $1", database.escape_nul(session_id))
    if not rows:
        return 0
    sid = rows[0][0]
    removed = 0
    while piece := await pool.run_transaction(lambda connection: _delete_piece(connection, sid)):
        removed += piece
    await pool.run_transaction(lambda connection: _delete_rest(connection, sid, database.escape_nul(session_id)))
    return removed


async def _delete_piece(connection: PostgresConnection, sid: int) -> int:
    entries: int | None = await connection.fetchval(
        "WITH gone AS (DELETE FROM events WHERE sid = $1 AND seq <= (SELECT max(seq) FROM"
        " (SELECT seq FROM events WHERE sid = $1 ORDER BY seq LIMIT $2) AS piece) RETURNING count) SELECT sum(count) FROM gone",
        *(sid, _PIECE),
    )
    return entries or 0


async def _delete_rest(connection: PostgresConnection, sid: int, name: str) -> None:
    await connection.execute("DELETE FROM homes WHERE sid = $1 AND session_id = $2", sid, name)
    await connection.execute("DELETE FROM events WHERE sid = $1", sid)  # entries that arrived in between
    for table in ("snapshots", "words", "words_read", "sessions"):
        await connection.execute(f"DELETE FROM {table} WHERE sid = $1", sid)  # noqa: S608 - the names are written here
    await connection.execute("DELETE FROM receipts WHERE scope = $1", name)
