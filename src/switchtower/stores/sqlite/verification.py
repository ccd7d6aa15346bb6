"""Verifies a journal's file: sound pages, a dense sequence per session, entries that can be decoded, snapshots that match the
entries, and the audit's chains with all their links. It only reads, one session at a time, so that a daemon can continue to
write.
"""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from switchtower.core import events
from switchtower.stores import audit, packed_rows, verification
from switchtower.stores.audit import ACCOUNTS, SESSIONS, AuditLink, ChainReport, ChainVerifier
from switchtower.stores.sqlite import inspection as sqlite_audit
from switchtower.stores.verification import ReportProgress, VerificationReport

_PAGE = 500


def verify_journal(path: Path, progress: ReportProgress = lambda *_: None) -> VerificationReport:
    """Raises `StoreUnreadable` for a file that is not a journal. Takes as long as reading all of it."""
    report = VerificationReport(str(path))
    with sqlite_audit.open_readonly(path) as connection:
        report.schema = sqlite_audit.read_schema_version(connection)
        try:
            _check_pages(connection, report, progress)
            _check_sessions(connection, report, progress)
            _check_strays(connection, report)
            _check_receipts(connection, report, progress)
        except sqlite3.DatabaseError as problem:
            report.add_problem(str(path), f"cannot be read any further: {problem}")
    return report


def _check_pages(connection: sqlite3.Connection, report: VerificationReport, progress: ReportProgress) -> None:
    progress("pages", 0, 1)
    for (found,) in connection.execute("PRAGMA integrity_check(100)"):
        if found != "ok":
            report.add_problem(report.path, str(found))


def _check_sessions(connection: sqlite3.Connection, report: VerificationReport, progress: ReportProgress) -> None:
    (total,) = connection.execute("SELECT count(*) FROM sessions").fetchone()
    sid = 0
    while True:
        # One transaction per session: a reader that stays open keeps the log from being checkpointed.
        connection.execute("BEGIN")
        try:
            row = connection.execute(
                "SELECT sid, session_id, state, card, pruned_through, snapshots.seq, snapshots.data"
                " FROM sessions LEFT JOIN snapshots USING (sid) WHERE sid > ? ORDER BY sid LIMIT 1",
                (sid,),
            ).fetchone()
            if row is None:
                return
            sid, session_id, state, *rest = row
            report.sessions += 1
            # A deleted session is removed piece by piece.
            if state != events.SessionState.DELETED.value:
                try:
                    check = verification.SessionVerifier(report, session_id, state, *rest)
                    check.check_rows(_read_rows(connection, sid))
                    check.finish()
                # the error concerns this session's pages; those of the others may be sound
                except sqlite3.DatabaseError as problem:
                    report.add_problem(session_id, f"cannot be read any further: {problem}")
        finally:
            connection.execute("ROLLBACK")
        progress("sessions", report.sessions, max(total, report.sessions))


def _read_rows(connection: sqlite3.Connection, sid: int) -> Iterator[packed_rows.PackedRow]:
    """Yields one row at a time: a row may be large."""
    yield from connection.execute("SELECT seq, count, ts_ms, run_id, kind, data FROM events WHERE sid = ? ORDER BY seq", (sid,))


def _check_strays(connection: sqlite3.Connection, report: VerificationReport) -> None:
    for table in ("events", "snapshots"):
        (count,) = connection.execute(f"SELECT count(*) FROM {table} WHERE sid NOT IN (SELECT sid FROM sessions)").fetchone()  # noqa: S608
        if count:
            report.add_problem(report.path, f"{count} rows of `{table}` belong to no session")


def _check_receipts(connection: sqlite3.Connection, report: VerificationReport, progress: ReportProgress) -> None:
    (total,) = connection.execute("SELECT count(*) FROM receipts").fetchone()
    place = ("", "")
    while rows := connection.execute(
        "SELECT scope, key, fingerprint, outcome FROM receipts WHERE (scope, key) > (?, ?) ORDER BY scope, key LIMIT ?",
        (*place, _PAGE),
    ).fetchall():
        for row in rows:
            verification.check_receipt(report, *row)
        place = rows[-1][:2]
        progress("receipts", report.receipts, max(total, report.receipts))


_EVENT = "SELECT data FROM events WHERE sid = (SELECT sid FROM sessions WHERE session_id = ?) AND seq = ? AND kind = ?"
_DELETED = f"SELECT session_id, max(number) FROM audit WHERE kind = '{audit.DELETED_KIND}' GROUP BY session_id"  # noqa: S608
_STRAY = """
SELECT session_id, seq, kind FROM events JOIN sessions USING (sid)
WHERE kind IN ({kinds}) AND state <> 'deleted' AND NOT EXISTS (
    SELECT 1 FROM audit WHERE audit.session_id = sessions.session_id AND audit.seq = events.seq AND audit.kind = events.kind)
LIMIT 1
"""


def verify_audit_chains(journal: Path, registry: Path, wanted: frozenset[str] = frozenset()) -> list[ChainReport]:
    """Raises `StoreUnreadable`. A home without a registry has one chain."""
    with _open_chain(journal, sqlite_audit.JOURNAL) as connection:
        found = [_verify_sessions(connection, ChainVerifier(SESSIONS, wanted))]
    if registry.exists():
        with _open_chain(registry, sqlite_audit.REGISTRY) as connection:
            check = ChainVerifier(ACCOUNTS, wanted)
            for _ in check.verify_links(sqlite_audit.read_links(connection)):
                pass
            check.verify_head(sqlite_audit.read_chain_head(connection))
            found.append(check.found)
    return found


def read_audit_links(journal: Path, registry: Path) -> Iterator[tuple[str, AuditLink]]:
    """Yields all links with the name of their chain, in order. Raises `StoreUnreadable`."""
    with _open_chain(journal, sqlite_audit.JOURNAL) as connection:
        for link in sqlite_audit.read_links(connection):
            yield SESSIONS, link
    if registry.exists():
        with _open_chain(registry, sqlite_audit.REGISTRY) as connection:
            for link in sqlite_audit.read_links(connection):
                yield ACCOUNTS, link


def _verify_sessions(connection: sqlite3.Connection, check: ChainVerifier) -> ChainReport:
    deleted = dict(connection.execute(_DELETED).fetchall())
    for link in check.verify_links(sqlite_audit.read_links(connection)):
        row = connection.execute(_EVENT, (link.session_id, link.seq, link.kind)).fetchone()
        check.compare_event(link, None if row is None else row[0], deleted.get(link.session_id, 0))
    check.verify_head(sqlite_audit.read_chain_head(connection))
    # Each query uses its own index, where there is one.
    for kinds in ("'approval.requested'", "'approval.decided', 'approval.expired'"):
        if (stray := connection.execute(_STRAY.format(kinds=kinds)).fetchone()) is not None:
            check.record_stray(*stray)
    return check.found


@contextmanager
def _open_chain(path: Path, kind: str) -> Iterator[sqlite3.Connection]:
    with sqlite_audit.open_readonly(path, kind) as connection:
        connection.execute("BEGIN")
        if connection.execute("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'audit_head'").fetchone() is None:
            raise verification.StoreUnreadable(
                f"`{path}` was written by an older version, which kept no chain", hint="start the daemon once: it adds the chain"
            )
        try:
            yield connection
        except sqlite3.Error as problem:
            raise verification.StoreUnreadable(f"`{path}` cannot be read: {problem}", hint="see `tower journal verify`") from None
