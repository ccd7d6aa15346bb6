"""Inspects a journal's or a registry's file from outside, also while a daemon writes it: the number of sessions in each state,
statistics, and whole copies as of one moment. It cannot write the file, and its functions block.
"""

import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from switchtower.stores.sqlite import database
from switchtower.stores.verification import MOST_LISTED, JournalStats, KindStats, LargeSession, StoreUnreadable

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
