"""A home's files as a copy reads them, all as of one moment. Cannot write."""

import sqlite3
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from switchtower.stores import sqlite_chain, strips
from switchtower.stores.audit_chain import SESSIONS, Link
from switchtower.stores.copying.ports import REGISTRY, Receipt, Record, Session
from switchtower.stores.looking import CannotLook

_ROWS = 500
_BYTES = 2_097_152
_SESSION = (
    "SELECT sid, session_id, epoch, (SELECT coalesce(max(seq), 0) FROM events WHERE events.sid = sessions.sid), state,"
    " created_at_ms, updated_at_ms, loaded, pruned_through, card, snapshots.seq FROM sessions LEFT JOIN snapshots USING (sid)"
)


class SqliteReading:
    """Implements `ports.Reading`. Without a registry's file, as in a home where nobody logged in yet, there is none to read."""

    def __init__(
        self, journal: sqlite3.Connection, registry: sqlite3.Connection | None, secrets: Mapping[str, bytes] | None = None
    ) -> None:
        self._journal = journal
        self._registry = registry
        self._secrets = dict(secrets or {})

    async def count(self) -> int:
        with telling():
            return int(self._journal.execute("SELECT count(*) FROM sessions").fetchone()[0])

    async def sessions(self, after_sid: int, limit: int) -> list[Session]:
        with telling():
            rows = self._journal.execute(f"{_SESSION} WHERE sid > ? ORDER BY sid LIMIT ?", (after_sid, limit)).fetchall()
        return [_session(row) for row in rows]

    async def session(self, session_id: str) -> Session | None:
        with telling():
            row = self._journal.execute(f"{_SESSION} WHERE session_id = ?", (session_id,)).fetchone()
        return None if row is None else _session(row)

    async def snapshot(self, sid: int) -> bytes | None:
        with telling():
            row = self._journal.execute("SELECT data FROM snapshots WHERE sid = ?", (sid,)).fetchone()
        return None if row is None else row[0]

    async def events(self, sid: int, after_seq: int) -> AsyncIterator[list[strips.Row]]:
        with telling():
            found = self._journal.execute(
                "SELECT seq, count, ts_ms, run_id, kind, data FROM events WHERE sid = ? AND seq > ? ORDER BY seq",
                (sid, after_seq),
            )
            for rows in _pages(found, large=5):
                yield rows

    async def receipts(self) -> AsyncIterator[list[Receipt]]:
        columns = "SELECT scope, key, fingerprint, outcome, recorded_at_ms, expires_at_ms FROM receipts"
        with telling():
            for rows in _pages(self._journal.execute(columns), large=3):
                yield rows

    async def records(self, table: str) -> AsyncIterator[list[Record]]:
        if self._registry is None:
            return
        with telling():
            columns = ", ".join(REGISTRY[table].columns)
            found = self._registry.execute(f"SELECT {columns} FROM {table}")  # noqa: S608 - names of ours
            while rows := found.fetchmany(_ROWS):
                yield rows

    async def links(self, chain: str) -> AsyncIterator[list[Link]]:
        if (connection := self._of(chain)) is not None:
            with telling():
                for link in sqlite_chain.read(connection):
                    yield [link]

    async def chain_head(self, chain: str) -> tuple[int, bytes] | None:
        connection = self._of(chain)
        with telling():
            return None if connection is None else sqlite_chain.head(connection)

    def _of(self, chain: str) -> sqlite3.Connection | None:
        return self._journal if chain == SESSIONS else self._registry

    async def secrets(self) -> dict[str, bytes]:
        return dict(self._secrets)


def _session(row: tuple[Any, ...]) -> Session:
    sid, session_id, epoch, head, state, created_at_ms, updated_at_ms, loaded, *rest = row
    return Session(sid, session_id, epoch, head, state, created_at_ms, updated_at_ms, bool(loaded), *rest)


def _pages(cursor: sqlite3.Cursor, *, large: int) -> Iterable[list[Any]]:
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
def telling() -> Iterator[None]:
    """What SQLite cannot read is told as that."""
    try:
        yield
    except sqlite3.Error as problem:
        # Its tables are an older version's, and only a daemon changes them.
        is_old = str(problem).startswith("no such")
        hint = "start the daemon of this version on it once" if is_old else "see `tower journal verify`"
        raise CannotLook(f"the file cannot be read: {problem}", hint=hint) from None
