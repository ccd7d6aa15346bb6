"""A home's files in the making: beside those that they become, under other names, until all of it is there and was compared.

Whoever uses it holds the home's lock.
"""

import os
import sqlite3
from collections.abc import Mapping, Sequence
from pathlib import Path

from switchtower.stores import connections, migrations, sqlite_chain, sqlite_look, strips
from switchtower.stores.audit_chain import ACCOUNTS, SESSIONS, AuditLink
from switchtower.stores.copying.ports import REGISTRY, SECRET_FILES, ReceiptRow, RecordRow, SessionRow
from switchtower.stores.copying.sqlite_reading import SqliteSource

JOURNAL, REGISTRY_FILE = "journal.db", "registry.db"
_ENDING = ".copying"
_BESIDE = ("-wal", "-shm", "-journal")
_MADE_FROM_THE_JOURNAL = "search.db"


def has_partial_copy(folder: Path) -> bool:
    """Whether a copy into this folder was interrupted."""
    return (folder / f"{JOURNAL}{_ENDING}").exists()


def discard_partial_copy(folder: Path) -> None:
    """What an interrupted copy left."""
    for name in (JOURNAL, REGISTRY_FILE):
        for end in ("", *_BESIDE):
            (folder / f"{name}{_ENDING}{end}").unlink(missing_ok=True)


_FILES = {SESSIONS: JOURNAL, ACCOUNTS: REGISTRY_FILE}


class SqliteTarget(SqliteSource):
    """Implements `ports.Writing`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        journal = _open_file(folder / f"{JOURNAL}{_ENDING}", sqlite_look.JOURNAL)
        try:
            registry = _open_file(folder / f"{REGISTRY_FILE}{_ENDING}", sqlite_look.REGISTRY)
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

    async def put_events(self, sid: int, rows: Sequence[strips.PackedRow]) -> None:
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
        sqlite_chain.insert_links(self._begin_change(_FILES[chain]), links)

    async def put_chain_head(self, chain: str, number: int, hash_: bytes) -> None:
        sqlite_chain.store_chain_head(self._begin_change(_FILES[chain]), number, hash_)

    async def put_secrets(self, secrets: Mapping[str, bytes]) -> None:
        """Those that a home keeps as files. They are held until the end."""
        self._secrets = {name: value for name, value in secrets.items() if name in SECRET_FILES}

    async def commit(self) -> None:
        for connection in self._files.values():
            if connection.in_transaction:
                connection.execute("COMMIT")

    async def activate(self) -> None:
        await self.commit()
        for connection in self._files.values():
            connection.execute("PRAGMA synchronous = FULL")
            # One file, with everything that was in its log.
            if connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]:
                raise sqlite3.OperationalError("another program has the files open")
        self.close()
        for name, value in self._secrets.items():
            _write(self._folder / SECRET_FILES[name], value)
        # The journal comes last: as long as it is not there, the copy can go on.
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
    connection = connections.open_for_writing(path)
    try:
        migrations.migrate(connection, kind)
        connection.execute("PRAGMA synchronous = NORMAL")  # whole after a kill; and all of it is flushed at the end
    except BaseException:
        connection.close()
        raise
    return connection


def _write(path: Path, content: bytes) -> None:
    """Whole or not at all, and for the owner's eyes only from the first byte."""
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
