"""Rows in pages, bounded by number and by bytes on the server's side: how long a value is, is known without reading it."""

from collections.abc import AsyncIterator

from switchtower.stores import strips
from switchtower.stores.audit_chain import AuditLink
from switchtower.stores.postgres import names
from switchtower.stores.postgres.connections import PostgresConnection

ReceiptPageRow = tuple[str, str, str, bytes, int, int]
"""Scope, key, fingerprint, outcome, when it was recorded and when it expires."""

_ROWS = 2_000
_LINKS_PAGE = 500
_LINKS = """
SELECT number, ts_ms, session_id, seq, kind, digest, record, hash FROM audit WHERE chain = $1 AND number > $2
ORDER BY number LIMIT $3
"""
_BYTES = 2_097_152


def _build_paged_query(columns: str, large: str, table: str, where: str, order: str) -> str:
    """A row belongs to the page if those before it do not fill it."""
    return (
        f"SELECT {columns} FROM (SELECT *, sum(octet_length({large})) OVER (ORDER BY {order}) - octet_length({large})"  # noqa: S608 - made of what is written here
        f" AS bytes_before FROM (SELECT * FROM {table} WHERE {where} ORDER BY {order} LIMIT {_ROWS}) AS rows) AS page"
        f" WHERE bytes_before < {_BYTES} ORDER BY {order}"
    )


_EVENTS = _build_paged_query("seq, count, ts_ms, run_id, kind, data", "data", "events", "sid = $1 AND seq > $2", "seq")
_RECEIPTS = _build_paged_query(
    "identity, scope, key, fingerprint, outcome, recorded_at_ms, expires_at_ms",
    *("outcome", "receipts", "identity > $1", "identity"),
)


async def read_event_pages(
    connection: PostgresConnection, sid: int, after_seq: int = -1
) -> AsyncIterator[list[strips.PackedRow]]:
    while rows := await connection.fetch(_EVENTS, sid, after_seq):
        yield [
            (seq, count, ts_ms, None if run_id is None else names.unescape_nul(run_id), kind, data)
            for seq, count, ts_ms, run_id, kind, data in rows
        ]
        after_seq = rows[-1][0]


async def read_receipt_pages(connection: PostgresConnection) -> AsyncIterator[list[ReceiptPageRow]]:
    identity = b""
    while rows := await connection.fetch(_RECEIPTS, identity):
        yield [
            (
                names.unescape_nul(scope),
                names.unescape_nul(key),
                names.unescape_nul(fingerprint),
                outcome,
                recorded_at_ms,
                expires_at_ms,
            )
            for _, scope, key, fingerprint, outcome, recorded_at_ms, expires_at_ms in rows
        ]
        identity = rows[-1][0]


async def read_link_pages(connection: PostgresConnection, chain: str) -> AsyncIterator[list[AuditLink]]:
    """Of the audit, in order."""
    after = -(2**63)
    while rows := await connection.fetch(_LINKS, chain, after, _LINKS_PAGE):
        yield [AuditLink(number, ts_ms, names.unescape_nul(session_id), *rest) for number, ts_ms, session_id, *rest in rows]
        after = rows[-1][0]


async def read_chain_head(connection: PostgresConnection, chain: str) -> tuple[int, bytes] | None:
    row = await connection.fetchrow("SELECT number, hash FROM audit_head WHERE chain = $1", chain)
    return None if row is None else (row[0], row[1])
