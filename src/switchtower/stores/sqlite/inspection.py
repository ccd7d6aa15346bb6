"""Inspects a journal's or a registry's file from outside, also while a daemon writes it: the number of sessions in each state,
statistics, and whole copies as of one moment. It cannot write the file, and its functions block.

The audit in SQLite: the chain in the journal's or the registry's file, and the decisions of the journal, by two small
indexes. Functions on the chain run in their caller's transaction; decisions are read in a separate thread, with its own
connection."""

import asyncio
import os
import sqlite3
import time
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from switchtower.core import events
from switchtower.core.ports import journal
from switchtower.stores import audit
from switchtower.stores.audit import AuditLink
from switchtower.stores.sqlite import database
from switchtower.stores.verification import MOST_LISTED, JournalStats, KindStats, LargeSession, StoreUnreadable

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


JOURNAL = "journal"
REGISTRY = "registry"
_LOCK_TIMEOUT_MS = 5_000
_STEPS_BETWEEN_LOOKS = 100_000
"""The number of SQLite's virtual machine steps between two checks of the clock."""
_TABLES = {JOURNAL: {"sessions", "events", "snapshots", "receipts"}, REGISTRY: {"users", "tokens", "hosts"}}


@contextmanager
def open_readonly(path: Path, kind: str = JOURNAL) -> Iterator[sqlite3.Connection]:
    """Opens a connection that only reads. Raises `StoreUnreadable` for a file that is not such a store, or belongs to a newer
    program.
    """
    if not path.is_file():
        raise StoreUnreadable(f"there is no file `{path}`", hint="see `tower config path` for where things are")
    try:
        connection = _connect_readonly(path)
    except sqlite3.Error as problem:
        raise StoreUnreadable(f"`{path}` cannot be read: {problem}", hint="see whose file it is and what it is") from None
    with closing(connection):
        _check_file(connection, path, kind)
        yield connection


def read_schema_version(connection: sqlite3.Connection) -> int:
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    return int(version)


def run_quick_check(connection: sqlite3.Connection, within_s: float) -> list[str] | None:
    """Returns the problems that SQLite finds in the file's pages; None when it takes longer than that."""
    deadline = time.monotonic() + within_s
    connection.set_progress_handler(lambda: time.monotonic() > deadline, _STEPS_BETWEEN_LOOKS)
    try:
        return [str(row[0]) for row in connection.execute("PRAGMA quick_check(20)") if row[0] != "ok"]
    except sqlite3.OperationalError as problem:
        if problem.sqlite_errorcode == sqlite3.SQLITE_INTERRUPT:
            return None
        return [str(problem)]
    except sqlite3.DatabaseError as problem:
        return [str(problem)]
    finally:
        connection.set_progress_handler(None, 0)


def read_newest_entry_ms(connection: sqlite3.Connection) -> int | None:
    """Returns the time of the journal's last append, according to its sessions."""
    (newest,) = connection.execute("SELECT max(updated_at_ms) FROM sessions").fetchone()
    return None if newest is None else int(newest)


def _connect_readonly(path: Path) -> sqlite3.Connection:
    connection = database.open_for_reading(path)
    try:
        connection.execute(f"PRAGMA busy_timeout = {_LOCK_TIMEOUT_MS}")
        connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except sqlite3.OperationalError:
        connection.close()
        if path.with_name(f"{path.name}-wal").exists():
            raise
        # Not even the log's index can be created on a read-only medium; without a log none is needed.
        connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro&immutable=1", uri=True, isolation_level=None)
        with suppress(BaseException):
            connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
            return connection
        connection.close()
        raise
    except BaseException:
        connection.close()
        raise
    return connection


def _check_file(connection: sqlite3.Connection, path: Path, kind: str) -> None:
    try:
        version = read_schema_version(connection)
        tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    except sqlite3.Error as problem:
        raise StoreUnreadable(f"`{path}` cannot be read: {problem}", hint="restore a backup with `tower restore`") from None
    newest = max(database.load_scripts(kind))
    if version > newest:
        raise StoreUnreadable(
            f"the schema of `{path}` is version {version} and this program knows {newest}",
            hint="use the newer program that wrote it",
        )
    if version < 1 or not tables >= _TABLES[kind]:
        raise StoreUnreadable(f"`{path}` is not {'a journal' if kind == JOURNAL else 'a registry'}", hint="name another file")


def count_states(journal_path: Path) -> dict[str, int]:
    try:
        with closing(database.open_for_reading(journal_path)) as connection:
            return dict(connection.execute("SELECT state, count(*) FROM sessions GROUP BY state").fetchall())
    except sqlite3.Error as problem:
        raise database.translate_error(problem) from problem


def copy_file(source: Path, target: Path, kind: str = JOURNAL) -> int:
    """Creates `target`, for the owner alone, and returns its schema version. Raises `StoreUnreadable`."""
    with open_readonly(source, kind) as reading:
        os.close(os.open(target, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        try:
            with closing(sqlite3.connect(target, isolation_level=None)) as writing:
                # In one step: between two steps another process could write, and the copy would start again.
                reading.backup(writing, pages=-1)
                writing.execute("PRAGMA journal_mode = DELETE")
                return read_schema_version(writing)
        except sqlite3.Error as problem:
            raise StoreUnreadable(f"`{source}` cannot be copied: {problem}", hint="see `tower doctor`") from None


def check_copy(path: Path, kind: str, within_s: float = 600.0) -> list[str]:
    """Returns the problems of a copy that no process has open. Raises `StoreUnreadable` for a file that is not such a store."""
    with open_readonly(path, kind) as connection:
        found = run_quick_check(connection, within_s)
        return ["it could not be checked in time"] if found is None else found


def collect_journal_stats(path: Path) -> JournalStats:
    """Raises `StoreUnreadable`, also for errors in between."""
    with open_readonly(path) as connection:
        try:
            connection.execute("BEGIN")  # all numbers are from one moment
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
        schema=read_schema_version(connection),
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
