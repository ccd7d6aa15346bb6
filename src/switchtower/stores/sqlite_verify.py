"""Whether a journal's file holds what it promises: sound pages, a dense sequence a session, entries that can be read, and
snapshots that the entries lead to. Reads only, a session at a time, so that a daemon can go on writing.
"""

import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from switchtower.core import codec, events, journal
from switchtower.core.session import Session, fold, from_snapshot, to_snapshot
from switchtower.stores import sqlite_look, strips

MOST_TROUBLES = 1_000
"""Told one by one; of the others only the number."""
MOST_OF_A_SESSION = 20
_PAGE = 500

Progress = Callable[[str, int, int], None]
"""What is looked at, how much of it is done, and how much there is."""

_decode_card = msgspec.json.Decoder(journal.Card).decode
_decode_outcome = msgspec.json.Decoder(dict[str, Any]).decode
_UNREADABLE = (msgspec.MsgspecError, ValueError, KeyError, TypeError, RecursionError)


class Trouble(Struct, frozen=True):
    place: str
    """The file, a session, or an entry of one."""
    what: str


class Report(Struct):
    path: str
    schema: int = 0
    sessions: int = 0
    entries: int = 0
    pruned_sessions: int = 0
    snapshots: int = 0
    snapshots_compared: int = 0
    """Those of sessions of which everything is kept."""
    receipts: int = 0
    troubles: list[Trouble] = []
    more_troubles: int = 0

    @property
    def ok(self) -> bool:
        return not self.troubles

    def add(self, place: str, what: str) -> None:
        if len(self.troubles) < MOST_TROUBLES:
            self.troubles.append(Trouble(place, what))
        else:
            self.more_troubles += 1


def verify(path: Path, progress: Progress = lambda *_: None) -> Report:
    """Raises `sqlite_look.CannotLook` for what is no journal. Takes as long as reading all of it takes."""
    report = Report(str(path))
    with sqlite_look.opened(path) as connection:
        report.schema = sqlite_look.schema_version(connection)
        try:
            _check_pages(connection, report, progress)
            _check_sessions(connection, report, progress)
            _check_strays(connection, report)
            _check_receipts(connection, report, progress)
        except sqlite3.DatabaseError as problem:
            report.add(str(path), f"cannot be read any further: {problem}")
    return report


def _check_pages(connection: sqlite3.Connection, report: Report, progress: Progress) -> None:
    progress("pages", 0, 1)
    for (found,) in connection.execute("PRAGMA integrity_check(100)"):
        if found != "ok":
            report.add(report.path, str(found))


def _check_sessions(connection: sqlite3.Connection, report: Report, progress: Progress) -> None:
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
                    _SessionCheck(report, session_id, state, *rest).run(connection, sid)
                except sqlite3.DatabaseError as problem:  # of its own pages; the others' may be sound
                    report.add(session_id, f"cannot be read any further: {problem}")
        finally:
            connection.execute("ROLLBACK")
        progress("sessions", report.sessions, max(total, report.sessions))


class _SessionCheck:
    """One session, from its first kept entry to its last."""

    def __init__(
        self,
        report: Report,
        session_id: str,
        state: str,
        card: bytes,
        pruned_through: int,
        snapshot_seq: int | None,
        snapshot: Any,
    ) -> None:
        self._report = report
        self._id = session_id
        self._pruned_through = pruned_through
        self._snapshot_seq = snapshot_seq
        self._told = 0
        self._head = 0
        self._folded: Session | None = None
        self._check_card(card, state)
        self._stored = self._read_snapshot(snapshot) if snapshot_seq is not None else None
        # Where something was pruned, the fold begins as a load does: with the snapshot.
        self._folded = self._copy_of_the_snapshot() if pruned_through else Session(id=session_id)

    def run(self, connection: sqlite3.Connection, sid: int) -> None:
        for row in _rows(connection, sid):
            try:
                self._check_row(row)
            except (TypeError, AttributeError):  # SQLite keeps any type in any column
                self._tell("the row holds values of other types than it should", row[0])
        self._report.pruned_sessions += self._pruned_through > 0
        if not self._head:
            self._tell("has no entries")
            return
        if self._snapshot_seq is not None and self._snapshot_seq > self._head:
            self._tell(f"has a snapshot as of seq {self._snapshot_seq}, and its last entry is {self._head}")
        if self._pruned_through and self._pruned_through >= self._head:
            self._tell(f"is pruned through seq {self._pruned_through}, and its last entry is {self._head}")
        if self._pruned_through and self._pruned_through > (self._snapshot_seq or 0):
            self._tell(f"is pruned through seq {self._pruned_through}, which its snapshot ({self._snapshot_seq}) does not cover")

    def _tell(self, what: str, seq: int | None = None) -> None:
        self._told += 1
        if self._told <= MOST_OF_A_SESSION:
            self._report.add(self._id if seq is None else f"{self._id} seq {seq}", what)
        else:
            self._report.more_troubles += 1
        self._folded = None  # what follows from a mistake is no second one

    def _check_card(self, card: bytes, state: str) -> None:
        try:
            read = _decode_card(card)
        except _UNREADABLE as problem:
            self._tell(f"its card cannot be read: {problem}")
            return
        if read.session_id != self._id or read.state.value != state:
            self._tell("its card is another session's, or of another state than its row")

    def _read_snapshot(self, snapshot: bytes) -> Session | None:
        self._report.snapshots += 1
        try:
            read = from_snapshot(snapshot)
        except _UNREADABLE as problem:
            self._tell(f"its snapshot cannot be read: {problem}", self._snapshot_seq)
            return None
        if (read.id, read.seq) != (self._id, self._snapshot_seq):
            self._tell(f"its snapshot is of `{read.id}` as of seq {read.seq}", self._snapshot_seq)
            return None
        return read

    def _copy_of_the_snapshot(self) -> Session | None:
        return None if self._stored is None else from_snapshot(to_snapshot(self._stored))

    def _check_row(self, row: strips.Row) -> None:
        last, count, ts_ms, run_id, kind, data = row
        first = last - count + 1
        self._check_place(first, last, count, kind)
        self._head = max(self._head, last)
        pieces = data.split(b"\n") if count != 1 else [data]
        if len(pieces) != count:
            self._tell(f"the row holds {len(pieces)} entries and says {count}", last)
            return
        self._report.entries += count
        for seq, piece in enumerate(pieces, first):
            try:
                event = codec.decode(kind, piece)
            except _UNREADABLE as problem:
                reason = "no event has this kind" if kind not in events.BY_KIND else str(problem)
                self._tell(f"`{kind}` cannot be read: {reason}", seq)
                return
            self._fold(seq, ts_ms, run_id, event)

    def _check_place(self, first: int, last: int, count: int, kind: str) -> None:
        expected = self._head + 1
        if count < 1 or first < 1:
            self._tell(f"the row says that it holds {count} entries", last)
        elif first < expected:
            self._tell(f"is there twice (the entry before it is {self._head})", first)
        elif first > expected and first - 1 > self._pruned_through:
            missing = f"{expected}" if first - 1 == expected else f"{expected} to {first - 1}"
            self._tell(f"{missing} is missing, and retention went only through {self._pruned_through}", expected)
        elif expected == 1 and kind != events.SessionStarted.kind:
            self._tell(f"the session does not begin with `{events.SessionStarted.kind}`", first)
        if count > 1 and kind not in strips.PACKED:
            self._tell(f"{count} entries of the kind `{kind}` share a row", last)
        if kind in strips.PACKED and last <= self._pruned_through:
            self._tell(f"`{kind}` is left, and everything like it was pruned through {self._pruned_through}", last)

    def _fold(self, seq: int, ts_ms: int, run_id: str | None, event: events.AnyEvent) -> None:
        folded = self._folded
        if folded is None or seq <= folded.seq:
            return
        try:
            fold(folded, seq, ts_ms, run_id, event)
        except Exception as problem:  # whatever a stored entry makes the fold stumble over
            self._tell(f"cannot follow on what was before: {str(problem) or type(problem).__name__}", seq)
            return
        if seq == self._snapshot_seq and not self._pruned_through and self._stored is not None:
            self._report.snapshots_compared += 1
            if differing := _differing(folded, self._stored):
                self._tell(f"its snapshot differs from what its entries come to, in {', '.join(differing)}", seq)


def _rows(connection: sqlite3.Connection, sid: int) -> Iterator[strips.Row]:
    """One at a time: a row may be large."""
    yield from connection.execute("SELECT seq, count, ts_ms, run_id, kind, data FROM events WHERE sid = ? ORDER BY seq", (sid,))


def _differing(folded: Session, stored: Session) -> list[str]:
    """The names of the fields that are not the same, as they would be stored."""
    ours, theirs = (msgspec.json.decode(to_snapshot(session)) for session in (folded, stored))
    return [name for name in {**ours, **theirs} if ours.get(name) != theirs.get(name)]


def _check_strays(connection: sqlite3.Connection, report: Report) -> None:
    for table in ("events", "snapshots"):
        (count,) = connection.execute(f"SELECT count(*) FROM {table} WHERE sid NOT IN (SELECT sid FROM sessions)").fetchone()  # noqa: S608
        if count:
            report.add(report.path, f"{count} rows of `{table}` belong to no session")


def _check_receipts(connection: sqlite3.Connection, report: Report, progress: Progress) -> None:
    (total,) = connection.execute("SELECT count(*) FROM receipts").fetchone()
    place = ("", "")
    while rows := connection.execute(
        "SELECT scope, key, fingerprint, outcome FROM receipts WHERE (scope, key) > (?, ?) ORDER BY scope, key LIMIT ?",
        (*place, _PAGE),
    ).fetchall():
        for scope, key, fingerprint, outcome in rows:
            report.receipts += 1
            try:
                _decode_outcome(outcome)
            except _UNREADABLE as problem:
                report.add(f"receipt {key} of {scope}", f"its outcome cannot be read: {problem}")
            if not (scope and key and fingerprint):
                report.add(f"receipt {key} of {scope}", "it has no scope, key or fingerprint")
        place = rows[-1][:2]
        progress("receipts", report.receipts, max(total, report.receipts))
