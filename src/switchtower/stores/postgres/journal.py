"""The journal in PostgreSQL, for any number of nodes. This file only joins the parts: `Writer` writes, `Reader` reads.

A session that a node holds is written only in the epoch of its lease (`leases`), which the transaction itself checks. One that
nobody holds takes the epoch it has or a newer one, as in every store.
"""

import asyncio
from collections.abc import Mapping, Sequence

from switchtower.core import errors, events, journal
from switchtower.stores.postgres import connections, pruning, removal, schema
from switchtower.stores.postgres.pool import Pool
from switchtower.stores.postgres.reader import Reader
from switchtower.stores.postgres.writer import Writer

PATIENCE = 5.0
_READERS = 4


class PostgresJournal:
    """Implements `journal.Journal`. Between `open` and `close` it belongs to the event loop that opened it."""

    def __init__(self, dsn: str, *, node_id: str | None = None, patience: float = PATIENCE) -> None:
        """With a `node_id`, others are told of each batch under this name. `patience`: how long a database may be away
        before appends and reads fail."""
        self._dsn = dsn
        self._node_id = node_id
        self._patience = patience
        self._open: tuple[Writer, Pool] | None = None

    async def open(self) -> None:
        pool = Pool(self._dsn, most=_READERS, patience=self._patience, settings=connections.BY_INDEX)
        try:
            await pool.open(schema.migrate)
            writer = Writer(self._dsn, self._node_id, self._patience)
            await writer.start()
        except BaseException as problem:
            await pool.close()
            if isinstance(problem, Exception):
                raise connections.told(problem) from problem
            raise
        self._open = writer, pool

    async def close(self) -> None:
        if self._open is not None:
            writer, pool = self._open
            self._open = None
            await writer.stop()
            await pool.close()

    def _parts(self) -> tuple[Writer, Pool]:
        if self._open is None:
            raise errors.JournalUnavailable("it is not open")
        return self._open

    @property
    def _reader(self) -> Reader:
        return Reader(self._parts()[1])

    def append(self, append: journal.Append) -> asyncio.Future[None]:
        return self._parts()[0].submit(append)

    async def load(self, session_id: str) -> journal.Stored | None:
        with connections.telling():
            return await self._reader.load(session_id)

    async def read(self, session_id: str, after_seq: int, limit: int) -> list[journal.Entry]:
        with connections.telling():
            return await self._reader.read(session_id, after_seq, limit)

    async def read_back(self, session_id: str, before_seq: int, limit: int, *, streamed: bool = True) -> list[journal.Entry]:
        with connections.telling():
            return await self._reader.read_back(session_id, before_seq, limit, streamed=streamed)

    async def heads(self, session_ids: Sequence[str]) -> dict[str, int]:
        """How far sessions are, in one question: for who follows many and was told that anything may have moved."""
        with connections.telling():
            return await self._reader.heads(session_ids)

    async def gap_after(self, session_id: str, after_seq: int) -> int | None:
        with connections.telling():
            return await self._reader.gap_after(session_id, after_seq)

    async def receipt(self, scope: str, key: str, now_ms: int) -> journal.Receipt | None:
        with connections.telling():
            return await self._reader.receipt(scope, key, now_ms)

    async def receipts(self, scope: str, limit: int, now_ms: int) -> list[journal.Receipt]:
        with connections.telling():
            return await self._reader.receipts(scope, limit, now_ms)

    async def cards(
        self,
        *,
        limit: int,
        states: Sequence[events.SessionState] = (),
        session_id: str | None = None,
        loaded: bool = False,
    ) -> list[journal.Card]:
        with connections.telling():
            return await self._reader.cards(limit, states, session_id, loaded=loaded)

    async def delete(self, session_id: str) -> int:
        writer, pool = self._parts()
        with connections.telling():
            removed = await removal.remove(pool, session_id)
        writer.drop(session_id)
        return removed

    async def prune(
        self,
        retention: journal.Retention,
        now_ms: int,
        session_id: str | None = None,
        *,
        keep_from: Mapping[str, int] = journal.NOTHING_KEPT,
    ) -> int:
        with connections.telling():
            return await pruning.prune(self._parts()[1], retention, now_ms, session_id, keep_from)
