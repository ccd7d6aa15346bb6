"""A batch of appends that go to the disk together: checked one by one, then written in a single transaction. An append that
may not be stored is refused by `add` and leaves no trace in the batch. Nothing is written before `write`, and `write` stores
the whole batch or raises.

The heads of sessions (key in the file, epoch, last seq) are cached so that an append needs no lookup. The cache belongs to the
writer thread. It may be ahead of the file by the transaction that is being built; when that fails, `forget` is called and the
file is read again.

Many rows are inserted by one statement: `executemany` releases the interpreter lock once per row, and beside a busy event loop
each time costs a wait to get it back. One statement for many rows releases it once. Every length has its own SQL text, so that
SQLite's compiled statements are reused. A row that violates a constraint ends the whole transaction (`OR ROLLBACK`): SQLite
then need not keep a copy of every page that the statement touches, in case it had to be undone alone.
"""

import sqlite3
import time
from collections.abc import Iterator
from typing import Any

import msgspec

from switchtower.core import errors
from switchtower.core.ports import journal
from switchtower.stores import packed_rows
from switchtower.stores.audit import CHAINED
from switchtower.stores.sqlite import inspection

_LIMIT = 4_096


class SessionHead:
    __slots__ = ("epoch", "head", "sid")

    def __init__(self, sid: int, epoch: int, head: int) -> None:
        self.sid = sid
        self.epoch = epoch
        self.head = head


class SessionHeadsCache:
    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._by_session: dict[str, SessionHead] = {}
        self._last_sid: int | None = None

    def find(self, session_id: str, *, ask_file: bool = True) -> SessionHead | None:
        standing = self._by_session.get(session_id)
        if standing is None and ask_file:
            # The newest entry of a session is never pruned, so it determines the head.
            row = self._connection.execute(
                "SELECT sid, epoch, (SELECT max(seq) FROM events WHERE events.sid = sessions.sid)"
                " FROM sessions WHERE session_id = ?",
                (session_id,),
            ).fetchone()
            if row is not None:
                standing = self._by_session[session_id] = SessionHead(*row)
        return standing

    def next_sid(self) -> int:
        if self._last_sid is None:
            (self._last_sid,) = self._connection.execute("SELECT coalesce(max(sid), 0) FROM sessions").fetchone()
        return self._last_sid + 1

    def remember(self, session_id: str, head: SessionHead) -> None:
        """Adds the head of a new session; its sid is used from now on."""
        self._by_session[session_id] = head
        self._last_sid = head.sid

    def forget(self) -> None:
        self._by_session.clear()
        self._last_sid = None

    def drop(self, session_id: str) -> None:
        """The session is no longer in the file."""
        self._by_session.pop(session_id, None)

    def trim(self) -> None:
        """Keeps the memory bounded. Call it only between transactions: the file does not contain the current one yet."""
        while len(self._by_session) > _LIMIT:
            del self._by_session[next(iter(self._by_session))]


_LONG = 256
_EXACT = 64


class BulkInsert:
    def __init__(self, into: str, *columns: str, conflict: str = "") -> None:
        self.width = len(columns)
        self._head = f"INSERT OR ROLLBACK INTO {into} ({', '.join(columns)}) VALUES "  # noqa: S608 - constant names
        self._row = f"({', '.join('?' * len(columns))})"
        self._conflict = conflict
        self._sql: dict[int, str] = {}

    def build_statements(self, values: list[Any]) -> Iterator[tuple[str, list[Any]]]:
        """Yields the statements that insert these rows, given as one flat list: a single one for up to 64 rows."""
        width = self.width
        start, rows = 0, len(values) // width
        while rows:
            length = rows if rows <= _EXACT else _EXACT if rows < _LONG else _LONG
            yield self._build_statement(length), values[start : start + length * width]
            start += length * width
            rows -= length

    def _build_statement(self, length: int) -> str:
        sql = self._sql.get(length)
        if sql is None:
            sql = self._sql[length] = self._head + ", ".join([self._row] * length) + self._conflict
        return sql


_CARD_COLUMNS = ("sid", "session_id", "epoch", "state", "created_at_ms", "updated_at_ms", "loaded", "card")
_SESSIONS = BulkInsert("sessions", *_CARD_COLUMNS)
_CARDS = BulkInsert(
    "sessions",
    *_CARD_COLUMNS,
    conflict=" ON CONFLICT (sid) DO UPDATE SET epoch = excluded.epoch, state = excluded.state,"
    " updated_at_ms = excluded.updated_at_ms, loaded = excluded.loaded, card = excluded.card",
)
_EVENTS = BulkInsert("events", "sid", *packed_rows.COLUMNS)
_SNAPSHOTS = BulkInsert(
    "snapshots", "sid", "seq", "data", conflict=" ON CONFLICT (sid) DO UPDATE SET seq = excluded.seq, data = excluded.data"
)
_RECEIPT_COLUMNS = ("scope", "key", "fingerprint", "outcome", "recorded_at_ms", "expires_at_ms")
_REPLACE_RECEIPT = (
    " ON CONFLICT (scope, key) DO UPDATE SET fingerprint = excluded.fingerprint, outcome = excluded.outcome,"
    " recorded_at_ms = excluded.recorded_at_ms, expires_at_ms = excluded.expires_at_ms"
)
_RECEIPTS = BulkInsert(
    "receipts",
    *_RECEIPT_COLUMNS,
    conflict=f"{_REPLACE_RECEIPT} WHERE receipts.expires_at_ms <= excluded.recorded_at_ms",
)
_REPLACING_RECEIPTS = BulkInsert("receipts", *_RECEIPT_COLUMNS, conflict=_REPLACE_RECEIPT)

_encode = msgspec.json.Encoder().encode


class SqliteBatch:
    """Collects rows as flat lists of values, in the shape that the inserts take."""

    def __init__(self, heads: SessionHeadsCache, *, look_up_new: bool) -> None:
        """`look_up_new`: check in the file whether a session that starts here exists already. Otherwise the insert fails if it
        does.
        """
        self._heads = heads
        self._look_up_new = look_up_new
        self._sessions: list[Any] = []
        self._cards: dict[int, tuple[Any, ...]] = {}
        self._epochs: dict[int, int] = {}
        self._events: list[Any] = []
        self._chained: list[inspection.ChainedEvent] = []
        self._snapshots: dict[int, tuple[int, int, bytes]] = {}
        self._receipts: list[Any] = []
        self._replacing: dict[tuple[str, str], tuple[Any, ...]] = {}

    def add(self, append: journal.Append) -> None:
        begins = bool(append.entries) and append.entries[0].seq == 1
        standing = self._heads.find(append.session_id, ask_file=self._look_up_new or not begins)
        is_new = standing is None
        if standing is None:
            standing = self._begin_session(append)
        elif append.epoch < standing.epoch:
            raise errors.Fenced(f"`{append.session_id}` is in epoch {standing.epoch}, not {append.epoch}")
        card = None if append.card is None else _encode(append.card)
        receipts = [(receipt, _make_receipt_values(receipt, append)) for receipt in append.receipts]

        sid, head = standing.sid, standing.head
        chained: list[inspection.ChainedEvent] = []
        for entry in append.entries:
            head += 1
            if entry[3] in CHAINED:
                chained.append((entry.ts_ms, append.session_id, entry.seq, entry.kind, entry.data))
            if entry[0] != head:
                raise errors.Fenced(f"`{append.session_id}` goes on with seq {head}, not {entry[0]}")
        before = len(self._events)
        try:
            packed_rows.pack(sid, append.entries, self._events)
        except Exception:
            del self._events[before:]
            raise

        # From here on, nothing can fail.
        standing.head = head
        self._chained += chained
        if append.card is not None:
            row = (
                *(sid, append.session_id, append.epoch, append.card.state.value),
                *(append.card.created_at_ms, append.card.updated_at_ms, append.card.loaded is True, card),
            )
            if is_new:
                self._heads.remember(append.session_id, standing)
                self._sessions += row
            else:
                self._cards[sid] = row
        if append.epoch > standing.epoch:
            standing.epoch = append.epoch
            self._epochs[sid] = append.epoch
        if append.snapshot is not None:
            self._snapshots[sid] = (sid, head, append.snapshot)
        for receipt, values in receipts:
            if receipt.replaces:
                self._replacing[receipt.scope, receipt.key] = values
            else:
                self._receipts += values

    def _begin_session(self, append: journal.Append) -> SessionHead:
        if append.entries and append.entries[0].seq != 1:
            raise errors.Fenced(f"`{append.session_id}` is not here, so it cannot go on with seq {append.entries[0].seq}")
        if not append.entries or append.card is None:
            raise ValueError(f"the first append to `{append.session_id}` needs an entry and a card")
        return SessionHead(self._heads.next_sid(), append.epoch, 0)

    def write(self, connection: sqlite3.Connection) -> None:
        statements = [
            *_SESSIONS.build_statements(self._sessions),
            *_CARDS.build_statements([value for row in self._cards.values() for value in row]),
            *(("UPDATE sessions SET epoch = ? WHERE sid = ?", [epoch, sid]) for sid, epoch in self._epochs.items()),
            *_EVENTS.build_statements(self._events),
            *_SNAPSHOTS.build_statements([value for row in self._snapshots.values() for value in row]),
        ]
        cursor = connection.cursor()
        if len(statements) == 1 and not (self._receipts or self._replacing or self._chained):
            # A lone statement is its own transaction; the interpreter lock is released once instead of three times.
            cursor.execute(*statements[0])
            return
        cursor.execute("BEGIN")
        for sql, values in statements:
            cursor.execute(sql, values)
        for sql, values in _RECEIPTS.build_statements(self._receipts):
            if cursor.execute(sql, values).rowcount * _RECEIPTS.width != len(values):
                raise errors.Fenced("a receipt with the same identity is there already")
        for sql, values in _REPLACING_RECEIPTS.build_statements([value for row in self._replacing.values() for value in row]):
            cursor.execute(sql, values)
        if self._chained:
            inspection.extend_chain(connection, self._chained)
        cursor.execute("COMMIT")


def _make_receipt_values(receipt: journal.Receipt, append: journal.Append) -> tuple[Any, ...]:
    """A receipt replaces an expired one, as of the time of the append's own entries, or any if `replaces` is set."""
    recorded_at_ms = append.entries[-1].ts_ms if append.entries else time.time_ns() // 1_000_000
    outcome = _encode(receipt.outcome)
    return (receipt.scope, receipt.key, receipt.fingerprint, outcome, recorded_at_ms, receipt.expires_at_ms)
