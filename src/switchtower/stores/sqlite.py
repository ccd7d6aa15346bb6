"""The journal in one SQLite file, for one node. This file only joins the parts: `Writer` writes, `Reader` reads."""

import asyncio
import sqlite3
from collections.abc import Mapping, Sequence
from pathlib import Path

from switchtower.core import errors, events, journal
from switchtower.stores import pruning, troubles
from switchtower.stores.reader import SqliteReader
from switchtower.stores.writer import SqliteWriter


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
            raise troubles.translate_error(problem) from problem

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
            lambda connection: pruning.prune_entries(connection, retention, now_ms, session_id, keep_from)
        )
