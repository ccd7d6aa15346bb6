"""Verifies that a session's rows keep a journal's promises: a dense sequence, entries that can be decoded, a snapshot that
matches them; and has the reports that all stores share. Pure: the stores' own checks read the rows, one session at a time, and
pass them in.
"""

from collections.abc import Callable, Iterable
from typing import Any

import msgspec
from msgspec import Struct

from switchtower.core import codec, events
from switchtower.core.fold import decode_snapshot, encode_snapshot, fold
from switchtower.core.ports import journal
from switchtower.core.session import Session
from switchtower.stores import packed_rows


class StoreUnreadable(Exception):
    """The reason why a file or a database cannot be read at all, with a remedy."""

    def __init__(self, problem: str, *, hint: str) -> None:
        super().__init__(f"{problem}; hint: {hint}")
        self.problem = problem
        self.hint = hint


MAX_PROBLEMS = 1_000
"""The number of problems that are listed; the others are only counted."""
MOST_OF_A_SESSION = 20

ReportProgress = Callable[[str, int, int], None]
"""Gets the name of what is being checked, the amount done, and the total."""

_decode_card = msgspec.json.Decoder(journal.Card).decode
_decode_outcome = msgspec.json.Decoder(dict[str, Any]).decode
_UNREADABLE = (msgspec.MsgspecError, ValueError, KeyError, TypeError, RecursionError)


class VerificationProblem(Struct, frozen=True):
    place: str
    """The file, a session, or an entry of one."""
    what: str


class VerificationReport(Struct):
    path: str
    schema: int = 0
    sessions: int = 0
    entries: int = 0
    pruned_sessions: int = 0
    snapshots: int = 0
    snapshots_compared: int = 0
    """The snapshots of sessions of which nothing was pruned."""
    receipts: int = 0
    troubles: list[VerificationProblem] = []
    more_troubles: int = 0

    @property
    def is_ok(self) -> bool:
        return not self.troubles

    def add_problem(self, place: str, what: str) -> None:
        if len(self.troubles) < MAX_PROBLEMS:
            self.troubles.append(VerificationProblem(place, what))
        else:
            self.more_troubles += 1


class SessionVerifier:
    """Checks one session, from its first kept entry to its last."""

    def __init__(
        self,
        report: VerificationReport,
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
        # When entries were pruned, the fold starts as a load does: with the snapshot.
        self._folded = self._copy_snapshot() if pruned_through else Session(id=session_id)

    @property
    def head(self) -> int:
        """The seq of the last entry so far."""
        return self._head

    def check_rows(self, rows: Iterable[packed_rows.PackedRow]) -> None:
        """Checks the next rows, in order."""
        for row in rows:
            try:
                self._check_row(row)
            except (TypeError, AttributeError):  # SQLite keeps any type in any column
                self._add_problem("the row holds values of other types than it should", row[0])

    def finish(self) -> None:
        """Completes the check after the last row."""
        self._report.pruned_sessions += self._pruned_through > 0
        if not self._head:
            self._add_problem("has no entries")
            return
        if self._snapshot_seq is not None and self._snapshot_seq > self._head:
            self._add_problem(f"has a snapshot as of seq {self._snapshot_seq}, and its last entry is {self._head}")
        if self._pruned_through and self._pruned_through >= self._head:
            self._add_problem(f"is pruned through seq {self._pruned_through}, and its last entry is {self._head}")
        if self._pruned_through and self._pruned_through > (self._snapshot_seq or 0):
            self._add_problem(
                f"is pruned through seq {self._pruned_through}, which its snapshot ({self._snapshot_seq}) does not cover"
            )

    def _add_problem(self, what: str, seq: int | None = None) -> None:
        self._told += 1
        if self._told <= MOST_OF_A_SESSION:
            self._report.add_problem(self._id if seq is None else f"{self._id} seq {seq}", what)
        else:
            self._report.more_troubles += 1
        self._folded = None  # a consequence of this problem is not a second one

    def _check_card(self, card: bytes, state: str) -> None:
        try:
            read = _decode_card(card)
        except _UNREADABLE as problem:
            self._add_problem(f"its card cannot be read: {problem}")
            return
        if read.session_id != self._id or read.state.value != state:
            self._add_problem("its card is another session's, or of another state than its row")

    def _read_snapshot(self, snapshot: bytes) -> Session | None:
        self._report.snapshots += 1
        try:
            read = decode_snapshot(snapshot)
        except _UNREADABLE as problem:
            self._add_problem(f"its snapshot cannot be read: {problem}", self._snapshot_seq)
            return None
        if (read.id, read.seq) != (self._id, self._snapshot_seq):
            self._add_problem(f"its snapshot is of `{read.id}` as of seq {read.seq}", self._snapshot_seq)
            return None
        return read

    def _copy_snapshot(self) -> Session | None:
        return None if self._stored is None else decode_snapshot(encode_snapshot(self._stored))

    def _check_row(self, row: packed_rows.PackedRow) -> None:
        last, count, ts_ms, run_id, kind, data = row
        first = last - count + 1
        self._check_position(first, last, count, kind)
        self._head = max(self._head, last)
        pieces = data.split(b"\n") if count != 1 else [data]
        if len(pieces) != count:
            self._add_problem(f"the row holds {len(pieces)} entries and says {count}", last)
            return
        self._report.entries += count
        if kind not in events.BY_KIND:
            self._add_problem(f"`{kind}` cannot be read: no event has this kind", first)
            return
        for seq, piece in enumerate(pieces, first):
            try:
                event = codec.decode(kind, piece)
            except _UNREADABLE as problem:
                self._add_problem(f"`{kind}` cannot be read: {problem}", seq)
                return
            self._fold(seq, ts_ms, run_id, event)

    def _check_position(self, first: int, last: int, count: int, kind: str) -> None:
        expected = self._head + 1
        if count < 1 or first < 1:
            self._add_problem(f"the row says that it holds {count} entries", last)
        elif first < expected:
            self._add_problem(f"is there twice (the entry before it is {self._head})", first)
        elif first > expected and first - 1 > self._pruned_through:
            missing = f"{expected}" if first - 1 == expected else f"{expected} to {first - 1}"
            self._add_problem(f"{missing} is missing, and retention went only through {self._pruned_through}", expected)
        elif expected == 1 and kind != events.SessionStarted.kind:
            self._add_problem(f"the session does not begin with `{events.SessionStarted.kind}`", first)
        if count > 1 and kind not in packed_rows.PACKED:
            self._add_problem(f"{count} entries of the kind `{kind}` share a row", last)
        if kind in packed_rows.PACKED and last <= self._pruned_through:
            self._add_problem(f"`{kind}` is left, and everything like it was pruned through {self._pruned_through}", last)

    def _fold(self, seq: int, ts_ms: int, run_id: str | None, event: events.AnyEvent) -> None:
        folded = self._folded
        if folded is None or seq <= folded.seq:
            return
        try:
            fold(folded, seq, ts_ms, run_id, event)
        except Exception as problem:  # any error that a stored entry causes in the fold
            self._add_problem(f"cannot follow on what was before: {str(problem) or type(problem).__name__}", seq)
            return
        if seq == self._snapshot_seq and not self._pruned_through and self._stored is not None:
            self._report.snapshots_compared += 1
            if differing := _list_differences(folded, self._stored):
                self._add_problem(f"its snapshot differs from what its entries come to, in {', '.join(differing)}", seq)


def _list_differences(folded: Session, stored: Session) -> list[str]:
    """Returns the names of the fields that differ, in their stored form."""
    ours, theirs = (msgspec.json.decode(encode_snapshot(session)) for session in (folded, stored))
    return [name for name in {**ours, **theirs} if ours.get(name) != theirs.get(name)]


def check_receipt(report: VerificationReport, scope: str, key: str, fingerprint: str, outcome: bytes) -> None:
    report.receipts += 1
    try:
        _decode_outcome(outcome)
    except _UNREADABLE as problem:
        report.add_problem(f"receipt {key} of {scope}", f"its outcome cannot be read: {problem}")
    if not (scope and key and fingerprint):
        report.add_problem(f"receipt {key} of {scope}", "it has no scope, key or fingerprint")


MOST_LISTED = 10


class KindStats(Struct, frozen=True):
    kind: str
    entries: int
    bytes: int


class LargeSession(Struct, frozen=True):
    session_id: str
    entries: int
    bytes: int


class JournalStats(Struct, frozen=True, kw_only=True):
    path: str
    schema: int
    file_bytes: int
    log_bytes: int
    """The size of the write-ahead log beside it."""
    free_bytes: int
    """The free space in the file."""
    sessions: int
    states: dict[str, int]
    entries: int
    entry_bytes: int
    snapshots: int
    receipts: int
    pruned_sessions: int
    oldest_ms: int | None
    newest_ms: int | None
    kinds: list[KindStats]
    largest: list[LargeSession]
