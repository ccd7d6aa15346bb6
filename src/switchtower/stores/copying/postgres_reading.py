"""A PostgreSQL store as a copy reads it. Within `look.one_moment` all of it is as of that moment, while nodes go on writing."""

from collections.abc import AsyncIterator
from typing import Any

from switchtower.stores import strips
from switchtower.stores.audit_chain import AuditLink
from switchtower.stores.copying.ports import REGISTRY, ReceiptRow, RecordRow, SessionRow
from switchtower.stores.postgres import names
from switchtower.stores.postgres.connections import PostgresConnection
from switchtower.stores.postgres_tools import pages

_ROWS = 500
_SESSION = (
    "SELECT sessions.sid, sessions.session_id, homes.epoch, homes.head, state, created_at_ms, updated_at_ms, loaded,"
    " pruned_through, card, snapshots.seq FROM sessions JOIN homes USING (session_id)"
    " LEFT JOIN snapshots ON snapshots.sid = sessions.sid"
)
_NAMED_OTHERWISE = {"user": "owner"}


def list_columns(table: str) -> list[str]:
    return [_NAMED_OTHERWISE.get(column, column) for column in REGISTRY[table].columns]


class PostgresSource:
    """Implements `ports.Reading`."""

    def __init__(self, connection: PostgresConnection) -> None:
        self._connection = connection

    async def count_sessions(self) -> int:
        return int(await self._connection.fetchval("SELECT count(*) FROM sessions"))

    async def read_sessions(self, after_sid: int, limit: int) -> list[SessionRow]:
        rows = await self._connection.fetch(
            f"{_SESSION} WHERE sessions.sid > $1 ORDER BY sessions.sid LIMIT $2", after_sid, limit
        )
        return [_make_session_row(row) for row in rows]

    async def find_session(self, session_id: str) -> SessionRow | None:
        row = await self._connection.fetchrow(f"{_SESSION} WHERE sessions.session_id = $1", names.escape_nul(session_id))
        return None if row is None else _make_session_row(row)

    async def read_snapshot(self, sid: int) -> bytes | None:
        snapshot: bytes | None = await self._connection.fetchval("SELECT data FROM snapshots WHERE sid = $1", sid)
        return snapshot

    async def read_events(self, sid: int, after_seq: int) -> AsyncIterator[list[strips.PackedRow]]:
        async for rows in pages.read_event_pages(self._connection, sid, after_seq):
            yield rows

    async def read_receipts(self) -> AsyncIterator[list[ReceiptRow]]:
        async for receipts in pages.read_receipt_pages(self._connection):
            yield receipts

    async def read_records(self, table: str) -> AsyncIterator[list[RecordRow]]:
        columns = list_columns(table)
        key = columns[: REGISTRY[table].key]
        places = [f"${number}" for number in range(2, 2 + len(key))]
        first = f"SELECT {', '.join(columns)} FROM {table}"  # noqa: S608 - names of ours
        order = f" ORDER BY {', '.join(key)} LIMIT $1"
        rows = await self._connection.fetch(first + order, _ROWS)
        while rows:
            yield [tuple(names.unescape_nul(value) if isinstance(value, str) else value for value in row) for row in rows]
            last = list(rows[-1])[: len(key)]
            rows = await self._connection.fetch(f"{first} WHERE ({', '.join(key)}) > ({', '.join(places)}){order}", _ROWS, *last)

    async def read_links(self, chain: str) -> AsyncIterator[list[AuditLink]]:
        async for links in pages.read_link_pages(self._connection, chain):
            yield links

    async def read_chain_head(self, chain: str) -> tuple[int, bytes] | None:
        return await pages.read_chain_head(self._connection, chain)

    async def read_secrets(self) -> dict[str, bytes]:
        if await self._connection.fetchval("SELECT to_regclass('secrets')") is None:  # of the first versions
            return {}
        # An empty one is as none: somebody was about to make it.
        rows = await self._connection.fetch("SELECT name, value FROM secrets WHERE octet_length(value) > 0")
        return {names.unescape_nul(name): value for name, value in rows}


def _make_session_row(row: Any) -> SessionRow:
    sid, session_id, *rest = row
    return SessionRow(sid, names.unescape_nul(session_id), *rest)
