"""The journal in one SQLite file, for one node: `SqliteWriter` writes, `SqliteReader` reads. Reads run on the event loop's own
thread, because a page takes less time than a hand-over to another thread would. Their connection cannot write, and sees only
what has been committed.
"""

import asyncio
import contextlib
import sqlite3
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import msgspec

from switchtower.core import errors, events
from switchtower.core.ports import journal
from switchtower.stores import packed_rows
from switchtower.stores.sqlite import database
from switchtower.stores.sqlite import retention as sqlite_retention
from switchtower.stores.sqlite.writer import SqliteWriter

_DELETED = events.SessionState.DELETED.value
_decode_card = msgspec.json.Decoder(journal.Card).decode
_decode_outcome = msgspec.json.Decoder(dict[str, Any]).decode


class SqliteReader:
    def __init__(self, path: Path) -> None:
        self._connection = database.open_for_reading(path)

    def close(self) -> None:
        self._connection.close()

    def _fetch_rows(self, sql: str, *values: object) -> list[Any]:
        try:
            return self._connection.execute(sql, values).fetchall()
        except sqlite3.Error as problem:
            raise database.translate_error(problem) from problem

    def load(self, session_id: str) -> journal.StoredSession | None:
        for epoch, seq, snapshot in self._fetch_rows(
            "SELECT epoch, coalesce(seq, 0), data FROM sessions LEFT JOIN snapshots USING (sid) WHERE session_id = ?", session_id
        ):
            return journal.StoredSession(session_id=session_id, epoch=epoch, snapshot_seq=seq, snapshot=snapshot)
        return None

    def read(self, session_id: str, after_seq: int, limit: int) -> list[journal.Entry]:
        try:
            with contextlib.closing(
                self._connection.execute(
                    "SELECT seq, count, ts_ms, run_id, kind, data FROM events"
                    " WHERE sid = (SELECT sid FROM sessions WHERE session_id = ?) AND seq > ? ORDER BY seq LIMIT ?",
                    (session_id, after_seq, limit),
                )
            ) as rows:
                return packed_rows.unpack(rows, after_seq, limit)
        except sqlite3.Error as problem:
            raise database.translate_error(problem) from problem

    def read_back(self, session_id: str, before_seq: int, limit: int, *, streamed: bool) -> list[journal.Entry]:
        unwanted = () if streamed else tuple(packed_rows.PACKED)
        # A row may extend beyond the seq by as much as a packed row holds.
        sql = (
            "SELECT seq, count, ts_ms, run_id, kind, data FROM events"  # noqa: S608 - question marks only
            " WHERE sid = (SELECT sid FROM sessions WHERE session_id = ?) AND seq < ?"
            f" AND kind NOT IN ({', '.join('?' * len(unwanted))}) ORDER BY seq DESC"
        )
        try:
            beyond = min(before_seq + packed_rows.MOST_ENTRIES, 2**62)
            with contextlib.closing(self._connection.execute(sql, (session_id, beyond, *unwanted))) as rows:
                return packed_rows.unpack_back(rows, before_seq, limit)
        except sqlite3.Error as problem:
            raise database.translate_error(problem) from problem

    def find_gap(self, session_id: str, after_seq: int) -> int | None:
        for (pruned_through,) in self._fetch_rows(
            "SELECT pruned_through FROM sessions WHERE session_id = ? AND pruned_through > ?", session_id, after_seq
        ):
            return cast(int, pruned_through)
        return None

    def find_receipt(self, scope: str, key: str, now_ms: int) -> journal.Receipt | None:
        for fingerprint, outcome, expires_at_ms in self._fetch_rows(
            "SELECT fingerprint, outcome, expires_at_ms FROM receipts WHERE scope = ? AND key = ? AND expires_at_ms > ?",
            *(scope, key, now_ms),
        ):
            return journal.Receipt(
                scope=scope, key=key, fingerprint=fingerprint, outcome=_decode_outcome(outcome), expires_at_ms=expires_at_ms
            )
        return None

    def list_receipts(self, scope: str, limit: int, now_ms: int) -> list[journal.Receipt]:
        rows = self._fetch_rows(
            "SELECT key, fingerprint, outcome, expires_at_ms FROM receipts WHERE scope = ? AND expires_at_ms > ?"
            " ORDER BY recorded_at_ms DESC LIMIT ?",
            *(scope, now_ms, limit),
        )
        return [
            journal.Receipt(
                scope=scope, key=key, fingerprint=fingerprint, outcome=_decode_outcome(outcome), expires_at_ms=expires_at_ms
            )
            for key, fingerprint, outcome, expires_at_ms in rows
        ]

    def list_loaded_cards(self, limit: int) -> list[journal.Card]:
        rows = self._fetch_rows(
            "SELECT card FROM sessions WHERE loaded AND state != ? ORDER BY updated_at_ms DESC, sid DESC LIMIT ?", _DELETED, limit
        )
        return [_decode_card(card) for (card,) in rows]

    def list_cards(self, limit: int, states: Sequence[events.SessionState], session_id: str | None) -> list[journal.Card]:
        if session_id is not None:
            rows = self._fetch_rows("SELECT state, card FROM sessions WHERE session_id = ?", session_id)
            return [_decode_card(card) for state, card in rows if (state in states if states else state != _DELETED)][:limit]
        if not states:
            rows = self._fetch_rows(
                "SELECT card FROM sessions WHERE state != ? ORDER BY updated_at_ms DESC, sid DESC LIMIT ?", _DELETED, limit
            )
            return [_decode_card(card) for (card,) in rows]
        # One lookup per state, newest first: with `IN`, all of a state's sessions would be read and sorted.
        newest = [
            row
            for state in frozenset(states)
            for row in self._fetch_rows(
                "SELECT updated_at_ms, sid, card FROM sessions WHERE state = ? ORDER BY updated_at_ms DESC, sid DESC LIMIT ?",
                *(state.value, limit),
            )
        ]
        newest.sort(reverse=True)
        return [_decode_card(card) for _, _, card in newest[:limit]]


class SqliteJournal:
    """Implements `journal.Journal`. Between `open` and `close` it belongs to the event loop that opened it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._open: tuple[SqliteWriter, SqliteReader] | None = None

    async def open(self) -> None:
        writer = SqliteWriter(self._path)
        await writer.start()
        try:
            self._open = writer, SqliteReader(self._path)
        except sqlite3.Error as problem:
            await writer.stop()
            raise database.translate_error(problem) from problem

    async def close(self) -> None:
        if self._open is not None:
            writer, reader = self._open
            self._open = None
            reader.close()
            await writer.stop()

    @property
    def _writer(self) -> SqliteWriter:
        return self._get_parts()[0]

    @property
    def _reader(self) -> SqliteReader:
        return self._get_parts()[1]

    def _get_parts(self) -> tuple[SqliteWriter, SqliteReader]:
        if self._open is None:
            raise errors.JournalUnavailable("it is not open")
        return self._open

    def append(self, append: journal.Append) -> asyncio.Future[None]:
        return self._writer.submit(append)

    async def load(self, session_id: str) -> journal.StoredSession | None:
        return self._reader.load(session_id)

    async def read(self, session_id: str, after_seq: int, limit: int) -> list[journal.Entry]:
        return self._reader.read(session_id, after_seq, limit)

    async def read_back(self, session_id: str, before_seq: int, limit: int, *, streamed: bool = True) -> list[journal.Entry]:
        return self._reader.read_back(session_id, before_seq, limit, streamed=streamed)

    async def find_gap(self, session_id: str, after_seq: int) -> int | None:
        return self._reader.find_gap(session_id, after_seq)

    async def find_receipt(self, scope: str, key: str, now_ms: int) -> journal.Receipt | None:
        return self._reader.find_receipt(scope, key, now_ms)

    async def list_receipts(self, scope: str, limit: int, now_ms: int) -> list[journal.Receipt]:
        return self._reader.list_receipts(scope, limit, now_ms)

    async def list_cards(
        self,
        *,
        limit: int,
        states: Sequence[events.SessionState] = (),
        session_id: str | None = None,
        loaded: bool = False,
    ) -> list[journal.Card]:
        if not loaded:
            return self._reader.list_cards(limit, states, session_id)
        cards = self._reader.list_loaded_cards(limit)
        return [card for card in cards if (not states or card.state in states) and session_id in (None, card.session_id)]

    async def delete(self, session_id: str) -> int:
        return await self._writer.delete_session(session_id)

    async def prune(
        self,
        retention: journal.Retention,
        now_ms: int,
        session_id: str | None = None,
        *,
        keep_from: Mapping[str, int] = journal.NOTHING_KEPT,
    ) -> int:
        return await self._writer.run_chore(
            lambda connection: sqlite_retention.prune_entries(connection, retention, now_ms, session_id, keep_from)
        )
