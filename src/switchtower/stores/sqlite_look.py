"""A journal's or a registry's file looked at from outside, also while a daemon writes it. Cannot write."""

import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from switchtower.stores import connections, migrations
from switchtower.stores.looking import StoreUnreadable

JOURNAL = "sql"
REGISTRY = "sql_registry"
_LOCK_TIMEOUT_MS = 5_000
_STEPS_BETWEEN_LOOKS = 100_000
"""Of SQLite's own machine, between two looks at the clock."""
_TABLES = {JOURNAL: {"sessions", "events", "snapshots", "receipts"}, REGISTRY: {"users", "tokens", "hosts"}}


@contextmanager
def open_readonly(path: Path, kind: str = JOURNAL) -> Iterator[sqlite3.Connection]:
    """A connection that only reads. Raises `CannotLook` for what is no such file, or a newer program's."""
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
    """What SQLite finds wrong with the file's pages; None when it takes longer than that."""
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
    """When the journal was last added to, as its sessions have it."""
    (newest,) = connection.execute("SELECT max(updated_at_ms) FROM sessions").fetchone()
    return None if newest is None else int(newest)


def _connect_readonly(path: Path) -> sqlite3.Connection:
    connection = connections.open_for_reading(path)
    try:
        connection.execute(f"PRAGMA busy_timeout = {_LOCK_TIMEOUT_MS}")
        connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except sqlite3.OperationalError:
        connection.close()
        if path.with_name(f"{path.name}-wal").exists():
            raise
        # On a medium that cannot be written not even the log's index can be made; without a log none is needed.
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
    newest = max(migrations.load_scripts(kind))
    if version > newest:
        raise StoreUnreadable(
            f"the schema of `{path}` is version {version} and this program knows {newest}",
            hint="use the newer program that wrote it",
        )
    if version < 1 or not tables >= _TABLES[kind]:
        raise StoreUnreadable(f"`{path}` is not {'a journal' if kind == JOURNAL else 'a registry'}", hint="name another file")
