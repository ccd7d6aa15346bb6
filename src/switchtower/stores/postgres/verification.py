"""Verifies a PostgreSQL journal: a dense sequence per session up to its head, entries that can be decoded, snapshots that
match the entries, and the audit's chains with all their links. It only reads, one session at a time as of one moment, so that
nodes can continue to write.

Rows are read in pages, bounded by number and by bytes on the server's side: the length of a value is known without reading it.
The storage pages themselves are the server's to check (data checksums, `pg_amcheck`).
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from switchtower.core import events
from switchtower.stores import audit, packed_rows, verification
from switchtower.stores.audit import ACCOUNTS, SESSIONS, AuditLink, ChainReport, ChainVerifier
from switchtower.stores.postgres import database, inspection
from switchtower.stores.postgres.database import PostgresConnection
from switchtower.stores.verification import ReportProgress, VerificationReport

ReceiptPageRow = tuple[str, str, str, bytes, int, int]
"""Scope, key, fingerprint, outcome, the time of recording and the time of expiry."""

_ROWS = 2_000
_LINKS_PAGE = 500
_LINKS = """
SELECT number, ts_ms, session_id, seq, kind, digest, record, hash FROM audit WHERE chain = $1 AND number > $2
ORDER BY number LIMIT $3
"""
_BYTES = 2_097_152


def _build_paged_query(columns: str, large: str, table: str, where: str, order: str) -> str:
    """A row belongs to the page if the rows before it do not fill it."""
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
) -> AsyncIterator[list[packed_rows.PackedRow]]:
    while rows := await connection.fetch(_EVENTS, sid, after_seq):
        yield [
            (seq, count, ts_ms, None if run_id is None else database.unescape_nul(run_id), kind, data)
            for seq, count, ts_ms, run_id, kind, data in rows
        ]
        after_seq = rows[-1][0]


async def read_receipt_pages(connection: PostgresConnection) -> AsyncIterator[list[ReceiptPageRow]]:
    identity = b""
    while rows := await connection.fetch(_RECEIPTS, identity):
        yield [
            (
                database.unescape_nul(scope),
                database.unescape_nul(key),
                database.unescape_nul(fingerprint),
                outcome,
                recorded_at_ms,
                expires_at_ms,
            )
            for _, scope, key, fingerprint, outcome, recorded_at_ms, expires_at_ms in rows
        ]
        identity = rows[-1][0]


async def read_link_pages(connection: PostgresConnection, chain: str) -> AsyncIterator[list[AuditLink]]:
    """Yields the links of the audit, in order."""
    after = -(2**63)
    while rows := await connection.fetch(_LINKS, chain, after, _LINKS_PAGE):
        yield [AuditLink(number, ts_ms, database.unescape_nul(session_id), *rest) for number, ts_ms, session_id, *rest in rows]
        after = rows[-1][0]


async def read_chain_head(connection: PostgresConnection, chain: str) -> tuple[int, bytes] | None:
    row = await connection.fetchrow("SELECT number, hash FROM audit_head WHERE chain = $1", chain)
    return None if row is None else (row[0], row[1])


_SESSION = """
SELECT sessions.sid, sessions.session_id, homes.sid, homes.head, state, card, pruned_through, snapshots.seq, snapshots.data
FROM sessions LEFT JOIN homes USING (session_id) LEFT JOIN snapshots ON snapshots.sid = sessions.sid
WHERE sessions.sid > $1 ORDER BY sessions.sid LIMIT 1
"""
_STRAYS = {
    "events": "SELECT count(*) FROM events WHERE NOT EXISTS (SELECT FROM homes WHERE homes.sid = events.sid)",
    "snapshots": "SELECT count(*) FROM snapshots WHERE NOT EXISTS (SELECT FROM homes WHERE homes.sid = snapshots.sid)",
    "homes": "SELECT count(*) FROM homes WHERE head > 0 AND NOT EXISTS (SELECT FROM sessions WHERE sessions.sid = homes.sid)",
}


async def verify_journal(dsn: str, progress: ReportProgress = lambda *_: None) -> VerificationReport:
    """Raises `StoreUnreadable` for a database without a store. Takes as long as reading all of it."""
    report = VerificationReport(database.mask_password(dsn))
    async with inspection.open_readonly(dsn) as connection:
        report.schema = await inspection.read_schema_version(connection)
        try:
            await _check_sessions(connection, report, progress)
            await _check_strays(connection, report)
            await _check_receipts(connection, report, progress)
        except Exception as problem:
            if not database.is_database_error(problem):
                raise
            report.add_problem(report.path, f"cannot be read any further: {database.summarize_error(problem)}")
    return report


async def _check_sessions(connection: PostgresConnection, report: VerificationReport, progress: ReportProgress) -> None:
    total = await connection.fetchval("SELECT count(*) FROM sessions")
    sid = -1
    while True:
        async with inspection.open_snapshot(connection):
            row = await connection.fetchrow(_SESSION, sid)
            if row is None:
                return
            sid = row[0]
            report.sessions += 1
            await _check_session(connection, report, *row)
        progress("sessions", report.sessions, max(total, report.sessions))


async def _check_session(
    connection: PostgresConnection,
    report: VerificationReport,
    sid: int,
    name: str,
    home_sid: int | None,
    head: int | None,
    state: str,
    *rest: Any,
) -> None:
    session_id = database.unescape_nul(name)
    if home_sid != sid:
        report.add_problem(session_id, "nothing says where it lives" if home_sid is None else "its home is another session's")
    if state == events.SessionState.DELETED.value:
        return  # a deleted session is removed piece by piece
    try:
        check = verification.SessionVerifier(report, session_id, state, *rest)
        async for rows in read_event_pages(connection, sid):
            check.check_rows(rows)
        check.finish()
    except Exception as problem:
        # The error concerns this session's rows, if the connection is still good; those of the others may be sound.
        if connection.is_closed() or not database.is_database_error(problem):
            raise
        report.add_problem(session_id, f"cannot be read any further: {database.summarize_error(problem)}")
        return
    if home_sid == sid and head != check.head:
        report.add_problem(session_id, f"its next entry would follow on seq {head}, and its last one is {check.head}")


async def _check_strays(connection: PostgresConnection, report: VerificationReport) -> None:
    for table, query in _STRAYS.items():
        if count := await connection.fetchval(query):
            report.add_problem(report.path, f"{count} rows of `{table}` belong to no session")


async def _check_receipts(connection: PostgresConnection, report: VerificationReport, progress: ReportProgress) -> None:
    total = await connection.fetchval("SELECT count(*) FROM receipts")
    async for receipts in read_receipt_pages(connection):
        for scope, key, fingerprint, outcome, _, _ in receipts:
            verification.check_receipt(report, scope, key, fingerprint, outcome)
        progress("receipts", report.receipts, max(total, report.receipts))


_CHAINED_EVENTS = """
SELECT wanted.number, events.data FROM unnest($1::bigint[], $2::text[], $3::bigint[], $4::text[])
    AS wanted (number, session_id, seq, kind)
JOIN sessions ON sessions.session_id = wanted.session_id
JOIN events ON events.sid = sessions.sid AND events.seq = wanted.seq AND events.kind = wanted.kind
"""
_DELETED = "SELECT session_id, max(number) FROM audit WHERE chain = 'sessions' AND kind = $1 GROUP BY session_id"
_STRAY = """
SELECT session_id, seq, kind FROM events JOIN sessions USING (sid)
WHERE kind IN ({kinds}) AND state <> 'deleted' AND NOT EXISTS (
    SELECT FROM audit WHERE chain = 'sessions' AND audit.session_id = sessions.session_id AND audit.seq = events.seq
        AND audit.kind = events.kind)
LIMIT 1
"""


async def verify_audit_chains(dsn: str, wanted: frozenset[str] = frozenset()) -> list[ChainReport]:
    """Raises `StoreUnreadable`."""
    async with _open_chains(dsn) as connection:
        sessions, accounts = ChainVerifier(SESSIONS, wanted), ChainVerifier(ACCOUNTS, wanted)
        await _verify_sessions(connection, sessions)
        async for page in read_link_pages(connection, ACCOUNTS):
            for _ in accounts.verify_links(page):
                pass
        accounts.verify_head(await read_chain_head(connection, ACCOUNTS))
        return [sessions.found, accounts.found]


async def read_audit_links(dsn: str) -> AsyncIterator[tuple[str, AuditLink]]:
    """Yields all links with the name of their chain, in order. Raises `StoreUnreadable`."""
    async with _open_chains(dsn) as connection:
        for chain in (SESSIONS, ACCOUNTS):
            async for page in read_link_pages(connection, chain):
                for link in page:
                    yield chain, link


async def _verify_sessions(connection: PostgresConnection, check: ChainVerifier) -> None:
    deleted = {database.unescape_nul(name): number for name, number in await connection.fetch(_DELETED, audit.DELETED_KIND)}
    async for page in read_link_pages(connection, SESSIONS):
        rows = await connection.fetch(
            _CHAINED_EVENTS,
            *([link.number for link in page], [database.escape_nul(link.session_id) for link in page]),
            *([link.seq for link in page], [link.kind for link in page]),
        )
        data = dict(map(tuple, rows))
        for link in check.verify_links(page):
            check.compare_event(link, data.get(link.number), deleted.get(link.session_id, 0))
    check.verify_head(await read_chain_head(connection, SESSIONS))
    # Each query uses its own index.
    for kinds in ("'approval.requested'", "'approval.decided', 'approval.expired'"):
        if (stray := await connection.fetchrow(_STRAY.format(kinds=kinds))) is not None:
            check.record_stray(database.unescape_nul(stray[0]), stray[1], stray[2])


@asynccontextmanager
async def _open_chains(dsn: str) -> AsyncIterator[PostgresConnection]:
    async with inspection.open_readonly(dsn) as connection, inspection.open_snapshot(connection):
        if await connection.fetchval("SELECT to_regclass('audit_head')") is None:
            raise verification.StoreUnreadable(
                f"`{database.mask_password(dsn)}` was written by an older version, which kept no chain",
                hint="start a node once: it adds the chain",
            )
        yield connection
