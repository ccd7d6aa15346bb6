"""What a journal's file holds, in numbers: sessions, entries, kinds, sizes. Reads only."""

import sqlite3
from pathlib import Path

from msgspec import Struct

from switchtower.stores import sqlite_look
from switchtower.stores.looking import StoreUnreadable

MOST_LISTED = 10


class KindStats(Struct, frozen=True):
    kind: str
    entries: int
    bytes: int


class LargeSession(Struct, frozen=True):
    session_id: str
    entries: int
    bytes: int


class JournalStats(Struct, frozen=True, kw_only=True):
    path: str
    schema: int
    file_bytes: int
    log_bytes: int
    """Of the write-ahead log beside it."""
    free_bytes: int
    """In the file, for what comes next."""
    sessions: int
    states: dict[str, int]
    entries: int
    entry_bytes: int
    snapshots: int
    receipts: int
    pruned_sessions: int
    oldest_ms: int | None
    newest_ms: int | None
    kinds: list[KindStats]
    largest: list[LargeSession]


def collect_journal_stats(path: Path) -> JournalStats:
    """Raises `CannotLook`, also for what breaks on the way."""
    with sqlite_look.open_readonly(path) as connection:
        try:
            connection.execute("BEGIN")  # all numbers are of one moment
            return _collect(connection, path)
        except sqlite3.Error as problem:
            raise StoreUnreadable(f"`{path}` cannot be read: {problem}", hint="see `tower journal verify`") from None


def _collect(connection: sqlite3.Connection, path: Path) -> JournalStats:
    def one(sql: str) -> int:
        return int(connection.execute(sql).fetchone()[0] or 0)

    kinds = [
        KindStats(*row)
        for row in connection.execute("SELECT kind, sum(count), sum(length(data)) FROM events GROUP BY kind ORDER BY 3 DESC")
    ]
    largest = connection.execute(
        "SELECT session_id, sum(count), sum(length(data)) FROM events JOIN sessions USING (sid)"
        " GROUP BY sid ORDER BY 3 DESC LIMIT ?",
        (MOST_LISTED,),
    )
    oldest_ms, newest_ms = connection.execute("SELECT min(created_at_ms), max(updated_at_ms) FROM sessions").fetchone()
    log = path.with_name(f"{path.name}-wal")
    return JournalStats(
        path=str(path),
        schema=sqlite_look.read_schema_version(connection),
        file_bytes=path.stat().st_size,
        log_bytes=log.stat().st_size if log.exists() else 0,
        free_bytes=one("PRAGMA freelist_count") * one("PRAGMA page_size"),
        sessions=one("SELECT count(*) FROM sessions"),
        states=dict(connection.execute("SELECT state, count(*) FROM sessions GROUP BY state ORDER BY state").fetchall()),
        entries=sum(kind.entries for kind in kinds),
        entry_bytes=sum(kind.bytes for kind in kinds),
        snapshots=one("SELECT count(*) FROM snapshots"),
        receipts=one("SELECT count(*) FROM receipts"),
        pruned_sessions=one("SELECT count(*) FROM sessions WHERE pruned_through > 0"),
        oldest_ms=oldest_ms,
        newest_ms=newest_ms,
        kinds=kinds,
        largest=[LargeSession(*row) for row in largest],
    )
