"""A home's files as a copy reads them, all as of one moment. Cannot write."""

import sqlite3
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from switchtower.stores import sqlite_chain, strips
from switchtower.stores.audit_chain import SESSIONS, AuditLink
from switchtower.stores.copying.ports import REGISTRY, ReceiptRow, RecordRow, SessionRow
from switchtower.stores.looking import StoreUnreadable

_ROWS = 500
_BYTES = 2_097_152
_SESSION = (
    "SELECT sid, session_id, epoch, (SELECT coalesce(max(seq), 0) FROM events WHERE events.sid = sessions.sid), state,"
    " created_at_ms, updated_at_ms, loaded, pruned_through, card, snapshots.seq FROM sessions LEFT JOIN snapshots USING (sid)"
)


class SqliteSource:
    """Implements `ports.Reading`. Without a registry's file, as in a home where nobody logged in yet, there is none to read."""

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

    async def read_events(self, sid: int, after_seq: int) -> AsyncIterator[list[strips.PackedRow]]:
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
                for link in sqlite_chain.read_links(connection):
                    yield [link]

    async def read_chain_head(self, chain: str) -> tuple[int, bytes] | None:
        connection = self._get_connection(chain)
        with translate_errors():
            return None if connection is None else sqlite_chain.read_chain_head(connection)

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
    """What SQLite cannot read is told as that."""
    try:
        yield
    except sqlite3.Error as problem:
        # Its tables are an older version's, and only a daemon changes them.
        is_old = str(problem).startswith("no such")
        hint = "start the daemon of this version on it once" if is_old else "see `tower journal verify`"
        raise StoreUnreadable(f"the file cannot be read: {problem}", hint=hint) from None
