"""Whether a PostgreSQL journal holds what it promises: a dense sequence a session up to its head, entries that can be read, and
snapshots that the entries lead to. Reads only, a session at a time as of one moment, so that nodes can go on writing.

The pages themselves are the server's to check (data checksums, `pg_amcheck`).
"""

from typing import Any

from switchtower.core import events
from switchtower.stores import verifying
from switchtower.stores.postgres import connections, names
from switchtower.stores.postgres.connections import PostgresConnection
from switchtower.stores.postgres_tools import addresses, look, pages
from switchtower.stores.verifying import ReportProgress, VerificationReport

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
    """Raises `looking.CannotLook` for what is no store. Takes as long as reading all of it takes."""
    report = VerificationReport(addresses.mask_password(dsn))
    async with look.open_readonly(dsn) as connection:
        report.schema = await look.read_schema_version(connection)
        try:
            await _check_sessions(connection, report, progress)
            await _check_strays(connection, report)
            await _check_receipts(connection, report, progress)
        except Exception as problem:
            if not connections.is_database_error(problem):
                raise
            report.add_problem(report.path, f"cannot be read any further: {connections.summarize_error(problem)}")
    return report


async def _check_sessions(connection: PostgresConnection, report: VerificationReport, progress: ReportProgress) -> None:
    total = await connection.fetchval("SELECT count(*) FROM sessions")
    sid = -1
    while True:
        async with look.open_snapshot(connection):
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
    session_id = names.unescape_nul(name)
    if home_sid != sid:
        report.add_problem(session_id, "nothing says where it lives" if home_sid is None else "its home is another session's")
    if state == events.SessionState.DELETED.value:
        return  # what was deleted goes away piece by piece
    try:
        check = verifying.SessionVerifier(report, session_id, state, *rest)
        async for rows in pages.read_event_pages(connection, sid):
            check.check_rows(rows)
        check.finish()
    except Exception as problem:
        # Of its own rows, if the connection is still good; the others' may be sound.
        if connection.is_closed() or not connections.is_database_error(problem):
            raise
        report.add_problem(session_id, f"cannot be read any further: {connections.summarize_error(problem)}")
        return
    if home_sid == sid and head != check.head:
        report.add_problem(session_id, f"its next entry would follow on seq {head}, and its last one is {check.head}")


async def _check_strays(connection: PostgresConnection, report: VerificationReport) -> None:
    for table, query in _STRAYS.items():
        if count := await connection.fetchval(query):
            report.add_problem(report.path, f"{count} rows of `{table}` belong to no session")


async def _check_receipts(connection: PostgresConnection, report: VerificationReport, progress: ReportProgress) -> None:
    total = await connection.fetchval("SELECT count(*) FROM receipts")
    async for receipts in pages.read_receipt_pages(connection):
        for scope, key, fingerprint, outcome, _, _ in receipts:
            verifying.check_receipt(report, scope, key, fingerprint, outcome)
        progress("receipts", report.receipts, max(total, report.receipts))
