"""The journal in PostgreSQL, for any number of nodes. This file only joins the parts: `Writer` writes, `Reader` reads.

A session that a node holds is written only in the epoch of its lease (`leases`), which the transaction itself checks. One that
nobody holds takes the epoch it has or a newer one, as in every store.
"""

import asyncio
from collections.abc import Mapping, Sequence

from switchtower.core import errors, events, journal
from switchtower.stores.postgres import connections, pruning, removal, schema
from switchtower.stores.postgres.pool import Pool
from switchtower.stores.postgres.reader import PostgresReader
from switchtower.stores.postgres.writer import PostgresWriter

RETRY_TIMEOUT = 5.0
_READERS = 4


class PostgresJournal:
    """Implements `journal.Journal`. Between `open` and `close` it belongs to the event loop that opened it."""

    def __init__(self, dsn: str, *, node_id: str | None = None, timeout: float = RETRY_TIMEOUT) -> None:
        """With a `node_id`, others are told of each batch under this name. `patience`: how long a database may be away
        before appends and reads fail."""
        self._dsn = dsn
        self._node_id = node_id
        self._timeout = timeout
        self._open: tuple[PostgresWriter, Pool] | None = None

    async def open(self) -> None:
        pool = Pool(self._dsn, most=_READERS, timeout=self._timeout, settings=connections.BY_INDEX)
        try:
            await pool.open(schema.migrate)
            writer = PostgresWriter(self._dsn, self._node_id, self._timeout)
            await writer.start()
        except BaseException as problem:
            await pool.close()
            if isinstance(problem, Exception):
                raise connections.translate_error(problem) from problem
            raise
        self._open = writer, pool

    async def close(self) -> None:
        if self._open is not None:
            writer, pool = self._open
            self._open = None
            await writer.stop()
            await pool.close()

    def _get_parts(self) -> tuple[PostgresWriter, Pool]:
        if self._open is None:
            raise errors.JournalUnavailable("it is not open")
        return self._open

    @property
    def _reader(self) -> PostgresReader:
        return PostgresReader(self._get_parts()[1])

    def append(self, append: journal.Append) -> asyncio.Future[None]:
        return self._get_parts()[0].submit(append)

    async def load(self, session_id: str) -> journal.StoredSession | None:
        with connections.translate_errors():
            return await self._reader.load(session_id)

    async def read(self, session_id: str, after_seq: int, limit: int) -> list[journal.Entry]:
        with connections.translate_errors():
            return await self._reader.read(session_id, after_seq, limit)

    async def read_back(self, session_id: str, before_seq: int, limit: int, *, streamed: bool = True) -> list[journal.Entry]:
        with connections.translate_errors():
            return await self._reader.read_back(session_id, before_seq, limit, streamed=streamed)

    async def read_heads(self, session_ids: Sequence[str]) -> dict[str, int]:
        """How far sessions are, in one question: for who follows many and was told that anything may have moved."""
        with connections.translate_errors():
            return await self._reader.read_heads(session_ids)

    async def find_gap(self, session_id: str, after_seq: int) -> int | None:
        with connections.translate_errors():
            return await self._reader.find_gap(session_id, after_seq)

    async def find_receipt(self, scope: str, key: str, now_ms: int) -> journal.Receipt | None:
        with connections.translate_errors():
            return await self._reader.find_receipt(scope, key, now_ms)

    async def list_receipts(self, scope: str, limit: int, now_ms: int) -> list[journal.Receipt]:
        with connections.translate_errors():
            return await self._reader.list_receipts(scope, limit, now_ms)

    async def list_cards(
        self,
        *,
        limit: int,
        states: Sequence[events.SessionState] = (),
        session_id: str | None = None,
        loaded: bool = False,
    ) -> list[journal.Card]:
        with connections.translate_errors():
            return await self._reader.list_cards(limit, states, session_id, loaded=loaded)

    async def delete(self, session_id: str) -> int:
        writer, pool = self._get_parts()
        with connections.translate_errors():
            removed = await removal.delete_session(pool, session_id)
        writer.forget_session(session_id)
        return removed

    async def prune(
        self,
        retention: journal.Retention,
        now_ms: int,
        session_id: str | None = None,
        *,
        keep_from: Mapping[str, int] = journal.NOTHING_KEPT,
    ) -> int:
        with connections.translate_errors():
            return await pruning.prune_entries(self._get_parts()[1], retention, now_ms, session_id, keep_from)
