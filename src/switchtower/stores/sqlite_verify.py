"""Whether a journal's file holds what it promises: sound pages, a dense sequence a session, entries that can be read, and
snapshots that the entries lead to. Reads only, a session at a time, so that a daemon can go on writing.
"""

import sqlite3
from collections.abc import Iterator
from pathlib import Path

from switchtower.core import events
from switchtower.stores import sqlite_look, strips, verifying
from switchtower.stores.verifying import ReportProgress, VerificationReport

_PAGE = 500


def verify_journal(path: Path, progress: ReportProgress = lambda *_: None) -> VerificationReport:
    """Raises `looking.CannotLook` for what is no journal. Takes as long as reading all of it takes."""
    report = VerificationReport(str(path))
    with sqlite_look.open_readonly(path) as connection:
        report.schema = sqlite_look.read_schema_version(connection)
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
        # One look a session: a reader that stays keeps the log from being checkpointed.
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
            # What was deleted goes away piece by piece.
            if state != events.SessionState.DELETED.value:
                try:
                    check = verifying.SessionVerifier(report, session_id, state, *rest)
                    check.check_rows(_read_rows(connection, sid))
                    check.finish()
                except sqlite3.DatabaseError as problem:  # of its own pages; the others' may be sound
                    report.add_problem(session_id, f"cannot be read any further: {problem}")
        finally:
            connection.execute("ROLLBACK")
        progress("sessions", report.sessions, max(total, report.sessions))


def _read_rows(connection: sqlite3.Connection, sid: int) -> Iterator[strips.PackedRow]:
    """One at a time: a row may be large."""
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
            verifying.check_receipt(report, *row)
        place = rows[-1][:2]
        progress("receipts", report.receipts, max(total, report.receipts))
