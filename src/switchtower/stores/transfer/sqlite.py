"""The files of a home as the source of a copy, read as of one moment, or as its target: new files beside those that they
become, under other names, until all of it is copied and compared. The caller holds the home's lock.
"""

import os
import sqlite3
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from switchtower.stores import packed_rows
from switchtower.stores.audit import ACCOUNTS, SESSIONS, AuditLink
from switchtower.stores.sqlite import database, inspection
from switchtower.stores.transfer.ports import REGISTRY, SECRET_FILES, ReceiptRow, RecordRow, SessionRow
from switchtower.stores.verification import StoreUnreadable

_ROWS = 500
_BYTES = 2_097_152
_SESSION = (
    "SELECT sid, session_id, epoch, (SELECT coalesce(max(seq), 0) FROM events WHERE events.sid = sessions.sid), state,"
    " created_at_ms, updated_at_ms, loaded, pruned_through, card, snapshots.seq FROM sessions LEFT JOIN snapshots USING (sid)"
)


class SqliteSource:
    """Implements `ports.StoreSource`. A home in which no user has logged in yet has no registry file."""

    def __init__(
        self, journal: sqlite3.Connection, registry: sqlite3.Connection | None, secrets: Mapping[str, bytes] | None = None
    ) -> None:
        self._journal = journal
        self._registry = registry
        self._secrets = dict(secrets or {})

    async def count_sessions(self) -> int:
        with translate_errors():
            return int(self._journal.execute("SELECT count(*) FROM sessions").fetchone()[0])

    async def read_sessions(self, after_sid: int, limit: int) -> list[SessionRow]:
        with translate_errors():
            rows = self._journal.execute(f"{_SESSION} WHERE sid > ? ORDER BY sid LIMIT ?", (after_sid, limit)).fetchall()
        return [_make_session_row(row) for row in rows]

    async def find_session(self, session_id: str) -> SessionRow | None:
        with translate_errors():
            row = self._journal.execute(f"{_SESSION} WHERE session_id = ?", (session_id,)).fetchone()
        return None if row is None else _make_session_row(row)

    async def read_snapshot(self, sid: int) -> bytes | None:
        with translate_errors():
            row = self._journal.execute("SELECT data FROM snapshots WHERE sid = ?", (sid,)).fetchone()
        return None if row is None else row[0]

    async def read_events(self, sid: int, after_seq: int) -> AsyncIterator[list[packed_rows.PackedRow]]:
        with translate_errors():
            found = self._journal.execute(
                "SELECT seq, count, ts_ms, run_id, kind, data FROM events WHERE sid = ? AND seq > ? ORDER BY seq",
                (sid, after_seq),
            )
            for rows in _read_pages(found, large=5):
                yield rows

    async def read_receipts(self) -> AsyncIterator[list[ReceiptRow]]:
        columns = "SELECT scope, key, fingerprint, outcome, recorded_at_ms, expires_at_ms FROM receipts"
        with translate_errors():
            for rows in _read_pages(self._journal.execute(columns), large=3):
                yield rows

    async def read_records(self, table: str) -> AsyncIterator[list[RecordRow]]:
        if self._registry is None:
            return
        with translate_errors():
            columns = ", ".join(REGISTRY[table].columns)
            found = self._registry.execute(f"SELECT {columns} FROM {table}")  # noqa: S608 - names of ours
            while rows := found.fetchmany(_ROWS):
                yield rows

    async def read_links(self, chain: str) -> AsyncIterator[list[AuditLink]]:
        if (connection := self._get_connection(chain)) is not None:
            with translate_errors():
                for link in inspection.read_links(connection):
                    yield [link]

    async def read_chain_head(self, chain: str) -> tuple[int, bytes] | None:
        connection = self._get_connection(chain)
        with translate_errors():
            return None if connection is None else inspection.read_chain_head(connection)

    def _get_connection(self, chain: str) -> sqlite3.Connection | None:
        return self._journal if chain == SESSIONS else self._registry

    async def read_secrets(self) -> dict[str, bytes]:
        return dict(self._secrets)


def _make_session_row(row: tuple[Any, ...]) -> SessionRow:
    sid, session_id, epoch, head, state, created_at_ms, updated_at_ms, loaded, *rest = row
    return SessionRow(sid, session_id, epoch, head, state, created_at_ms, updated_at_ms, bool(loaded), *rest)


def _read_pages(cursor: sqlite3.Cursor, *, large: int) -> Iterable[list[Any]]:
    """`large`: the column that a page is bounded by, besides the number of its rows."""
    rows: list[Any] = []
    size = 0
    for row in cursor:
        rows.append(row)
        size += len(row[large])
        if len(rows) >= _ROWS or size >= _BYTES:
            yield rows
            rows, size = [], 0
    if rows:
        yield rows


@contextmanager
def translate_errors() -> Iterator[None]:
    """Translates errors of SQLite into `StoreUnreadable`."""
    try:
        yield
    except sqlite3.Error as problem:
        # Its tables are those of an older version, and only a daemon migrates them.
        is_old = str(problem).startswith("no such")
        hint = "start the daemon of this version on it once" if is_old else "see `tower journal verify`"
        raise StoreUnreadable(f"the file cannot be read: {problem}", hint=hint) from None


JOURNAL, REGISTRY_FILE = "journal.db", "registry.db"
_ENDING = ".copying"
_BESIDE = ("-wal", "-shm", "-journal")
_MADE_FROM_THE_JOURNAL = "search.db"


def has_partial_copy(folder: Path) -> bool:
    """Returns whether a copy into this folder was interrupted."""
    return (folder / f"{JOURNAL}{_ENDING}").exists()


def discard_partial_copy(folder: Path) -> None:
    """Removes the files of an interrupted copy."""
    for name in (JOURNAL, REGISTRY_FILE):
        for end in ("", *_BESIDE):
            (folder / f"{name}{_ENDING}{end}").unlink(missing_ok=True)


_FILES = {SESSIONS: JOURNAL, ACCOUNTS: REGISTRY_FILE}


class SqliteTarget(SqliteSource):
    """Implements `ports.StoreTarget`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        journal = _open_file(folder / f"{JOURNAL}{_ENDING}", inspection.JOURNAL)
        try:
            registry = _open_file(folder / f"{REGISTRY_FILE}{_ENDING}", inspection.REGISTRY)
        except BaseException:
            journal.close()
            raise
        super().__init__(journal, registry)
        self._files = {JOURNAL: journal, REGISTRY_FILE: registry}

    def close(self) -> None:
        for connection in self._files.values():
            connection.close()

    async def delete_session(self, sid: int) -> None:
        for table in ("events", "snapshots", "sessions"):
            self._begin_change(JOURNAL).execute(f"DELETE FROM {table} WHERE sid = ?", (sid,))  # noqa: S608 - names of ours

    async def put_events(self, sid: int, rows: Sequence[packed_rows.PackedRow]) -> None:
        self._begin_change(JOURNAL).executemany("INSERT INTO events VALUES (?, ?, ?, ?, ?, ?, ?)", [(sid, *row) for row in rows])

    async def put_session(self, session: SessionRow, snapshot: bytes | None) -> None:
        journal = self._begin_change(JOURNAL)
        journal.execute(
            "INSERT INTO sessions (sid, session_id, epoch, state, created_at_ms, updated_at_ms, card, pruned_through, loaded)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                *(session.sid, session.session_id, session.epoch, session.state, session.created_at_ms, session.updated_at_ms),
                *(session.card, session.pruned_through, session.loaded),
            ),
        )
        if session.snapshot_seq is not None:
            journal.execute("INSERT INTO snapshots VALUES (?, ?, ?)", (session.sid, session.snapshot_seq, snapshot))

    async def clear_receipts(self) -> None:
        self._begin_change(JOURNAL).execute("DELETE FROM receipts")

    async def put_receipts(self, receipts: Sequence[ReceiptRow]) -> None:
        self._begin_change(JOURNAL).executemany("INSERT INTO receipts VALUES (?, ?, ?, ?, ?, ?)", receipts)

    async def clear_records(self) -> None:
        for table in REGISTRY:
            self._begin_change(REGISTRY_FILE).execute(f"DELETE FROM {table}")  # noqa: S608 - names of ours

    async def put_records(self, table: str, records: Sequence[RecordRow]) -> None:
        places = ", ".join("?" * len(REGISTRY[table].columns))
        self._begin_change(REGISTRY_FILE).executemany(f"INSERT INTO {table} VALUES ({places})", records)  # noqa: S608 - names of ours

    async def clear_chain(self, chain: str) -> None:
        connection = self._begin_change(_FILES[chain])
        connection.execute("DELETE FROM audit")
        connection.execute("DELETE FROM audit_head")

    async def put_links(self, chain: str, links: Sequence[AuditLink]) -> None:
        inspection.insert_links(self._begin_change(_FILES[chain]), links)

    async def put_chain_head(self, chain: str, number: int, hash_: bytes) -> None:
        inspection.store_chain_head(self._begin_change(_FILES[chain]), number, hash_)

    async def put_secrets(self, secrets: Mapping[str, bytes]) -> None:
        """Takes the secrets that a home stores as files. They are kept in memory until the end."""
        self._secrets = {name: value for name, value in secrets.items() if name in SECRET_FILES}

    async def commit(self) -> None:
        for connection in self._files.values():
            if connection.in_transaction:
                connection.execute("COMMIT")

    async def activate(self) -> None:
        await self.commit()
        for connection in self._files.values():
            connection.execute("PRAGMA synchronous = FULL")
            # Leaves one file, with everything that was in its log.
            if connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]:
                raise sqlite3.OperationalError("another program has the files open")
        self.close()
        for name, value in self._secrets.items():
            _write(self._folder / SECRET_FILES[name], value)
        # The journal comes last: as long as it does not exist, the copy can be resumed.
        for name in (REGISTRY_FILE, JOURNAL):
            _flush(self._folder / f"{name}{_ENDING}")
            for beside in (f"{part}{end}" for part in (name, f"{name}{_ENDING}") for end in _BESIDE):
                (self._folder / beside).unlink(missing_ok=True)
            (self._folder / f"{name}{_ENDING}").replace(self._folder / name)
        for end in ("", *_BESIDE):
            (self._folder / f"{_MADE_FROM_THE_JOURNAL}{end}").unlink(missing_ok=True)
        _flush(self._folder)

    def _begin_change(self, name: str) -> sqlite3.Connection:
        connection = self._files[name]
        if not connection.in_transaction:
            connection.execute("BEGIN IMMEDIATE")
        return connection


def _open_file(path: Path, kind: str) -> sqlite3.Connection:
    connection = database.open_for_writing(path)
    try:
        database.migrate(connection, kind)
        connection.execute("PRAGMA synchronous = NORMAL")  # consistent after a kill; and all of it is flushed at the end
    except BaseException:
        connection.close()
        raise
    return connection


def _write(path: Path, content: bytes) -> None:
    """Writes the file atomically, and readable only by the owner from the first byte."""
    temporary = path.with_name(f".{path.name}.new")
    with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
