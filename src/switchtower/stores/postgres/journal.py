"""The journal in PostgreSQL, for any number of nodes: `PostgresWriter` writes, `PostgresReader` reads pages along the index,
bounded by rows and by bytes on the server's side. Reads see only what has been committed.

A session that a node owns is written only in the epoch of its lease (`leases`), which the transaction itself checks. A session
without an owner takes its current epoch or a newer one, as in every store.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec import structs

from switchtower.core import errors, events
from switchtower.core.ports import journal
from switchtower.stores import packed_rows
from switchtower.stores.postgres import batch, database
from switchtower.stores.postgres import retention as postgres_retention
from switchtower.stores.postgres.pool import Pool
from switchtower.stores.postgres.writer import PostgresWriter

_DELETED = events.SessionState.DELETED.value
_MOST_ROWS = 20_000
_PAGE_BYTES = 2_097_152
_LARGEST = 2**63 - 1
_decode_card = msgspec.json.Decoder(journal.Card).decode
_decode_outcome = msgspec.json.Decoder(dict[str, Any]).decode


def _build_page_query(where: str, order: str) -> str:
    """A row belongs to the page if the rows before it do not fill it. The length of a value is known without reading it."""
    return (
        "SELECT seq, count, ts_ms, run_id, kind, data FROM ("  # noqa: S608 - made of what is written here
        f"  SELECT *, sum(octet_length(data)) OVER (ORDER BY seq {order}) - octet_length(data) AS bytes_before FROM ("
        f"    SELECT * FROM events WHERE sid = (SELECT sid FROM homes WHERE session_id = $1) AND {where}"
        f"    ORDER BY seq {order} LIMIT $3) AS rows) AS page"
        f" WHERE bytes_before < {_PAGE_BYTES} ORDER BY seq {order}"
    )


_FORWARD = _build_page_query("seq > $2::bigint", "ASC")
# A row may extend beyond the seq by as much as a packed row holds, and must start before it.
_BACK = _build_page_query(
    f"seq < $2::bigint + {packed_rows.MOST_ENTRIES} AND seq - count + 1 < $2::bigint AND kind <> ALL ($4)", "DESC"
)
_RECEIPT = "SELECT key, fingerprint, outcome, expires_at_ms FROM receipts"


class PostgresReader:
    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def load(self, session_id: str) -> journal.StoredSession | None:
        for epoch, seq, snapshot in await self._pool.fetch(
            "SELECT homes.epoch, coalesce(snapshots.seq, 0), snapshots.data FROM homes JOIN sessions USING (sid)"
            " LEFT JOIN snapshots USING (sid) WHERE homes.session_id = $1",
            database.escape_nul(session_id),
        ):
            return journal.StoredSession(session_id=session_id, epoch=epoch, snapshot_seq=seq, snapshot=snapshot)
        return None

    async def read(self, session_id: str, after_seq: int, limit: int) -> list[journal.Entry]:
        if limit <= 0 or after_seq >= _LARGEST:
            return []
        rows = await self._pool.fetch(_FORWARD, database.escape_nul(session_id), max(after_seq, 0), min(limit, _MOST_ROWS))
        return packed_rows.unpack(map(_make_packed_row, rows), max(after_seq, 0), limit)

    async def read_back(self, session_id: str, before_seq: int, limit: int, *, streamed: bool) -> list[journal.Entry]:
        if limit <= 0 or before_seq <= 0:
            return []
        before_seq = min(before_seq, 2**62)
        unwanted = [] if streamed else list(packed_rows.PACKED)
        rows = await self._pool.fetch(_BACK, database.escape_nul(session_id), before_seq, min(limit, _MOST_ROWS), unwanted)
        return packed_rows.unpack_back(map(_make_packed_row, rows), before_seq, limit)

    async def read_heads(self, session_ids: Sequence[str]) -> dict[str, int]:
        rows = await self._pool.fetch(
            "SELECT session_id, head FROM homes WHERE session_id = ANY ($1) AND head > 0",
            [database.escape_nul(one) for one in session_ids],
        )
        return {database.unescape_nul(session_id): head for session_id, head in rows}

    async def find_gap(self, session_id: str, after_seq: int) -> int | None:
        for (pruned_through,) in await self._pool.fetch(
            "SELECT pruned_through FROM sessions WHERE session_id = $1 AND pruned_through > $2",
            *(database.escape_nul(session_id), max(0, min(after_seq, _LARGEST))),
        ):
            return int(pruned_through)
        return None

    async def find_receipt(self, scope: str, key: str, now_ms: int) -> journal.Receipt | None:
        for row in await self._pool.fetch(
            f"{_RECEIPT} WHERE identity = $1 AND expires_at_ms > $2", batch.hash_identity(scope, key), now_ms
        ):
            return _make_receipt(scope, row)
        return None

    async def list_receipts(self, scope: str, limit: int, now_ms: int) -> list[journal.Receipt]:
        rows = await self._pool.fetch(
            f"{_RECEIPT} WHERE scope = $1 AND expires_at_ms > $2 ORDER BY recorded_at_ms DESC LIMIT $3",
            *(database.escape_nul(scope), now_ms, limit),
        )
        return [_make_receipt(scope, row) for row in rows]

    async def list_cards(
        self, limit: int, states: Sequence[events.SessionState], session_id: str | None, *, loaded: bool
    ) -> list[journal.Card]:
        if session_id is not None:
            rows = await self._pool.fetch(
                "SELECT state, loaded, card, node_id FROM sessions LEFT JOIN homes USING (session_id) WHERE session_id = $1",
                database.escape_nul(session_id),
            )
            listed = [
                (card, home) for state, kept, card, home in rows if _is_wanted_state(state, states) and (kept or not loaded)
            ]
            return [_decode_stored_card(*row) for row in listed[:limit]]
        if loaded:
            rows = await self._pool.fetch(
                "SELECT state, card, node_id FROM sessions LEFT JOIN homes USING (session_id)"
                " WHERE loaded AND (state <> $1 OR $2) ORDER BY updated_at_ms DESC, sessions.sid DESC",
                *(_DELETED, events.SessionState.DELETED in states),
            )
            return [_decode_stored_card(card, home) for state, card, home in rows if _is_wanted_state(state, states)][:limit]
        if not states:
            rows = await self._pool.fetch(
                "SELECT card, node_id FROM sessions LEFT JOIN homes USING (session_id) WHERE state <> $1"
                " ORDER BY updated_at_ms DESC, sessions.sid DESC LIMIT $2",
                *(_DELETED, limit),
            )
            return [_decode_stored_card(*row) for row in rows]
        # One lookup per state, newest first: with `ANY`, all of a state's sessions would be read and sorted.
        rows = await self._pool.fetch(
            "SELECT found.card, found.node_id FROM unnest($1::text[]) AS wanted (state), LATERAL ("
            "  SELECT updated_at_ms, sessions.sid, card, node_id FROM sessions LEFT JOIN homes USING (session_id)"
            "  WHERE sessions.state = wanted.state ORDER BY updated_at_ms DESC, sessions.sid DESC LIMIT $2) AS found"
            " ORDER BY found.updated_at_ms DESC, found.sid DESC LIMIT $2",
            *([state.value for state in frozenset(states)], limit),
        )
        return [_decode_stored_card(*row) for row in rows]


def _decode_stored_card(stored: bytes, home: str | None) -> journal.Card:
    card = _decode_card(stored)
    home = home if home is None else database.unescape_nul(home)
    return card if card.home == home else structs.replace(card, home=home)


def _make_packed_row(row: Any) -> packed_rows.PackedRow:
    seq, count, ts_ms, run_id, kind, data = row
    return seq, count, ts_ms, run_id if run_id is None else database.unescape_nul(run_id), kind, data


def _is_wanted_state(state: str, states: Sequence[events.SessionState]) -> bool:
    return state in states if states else state != _DELETED


def _make_receipt(scope: str, row: Any) -> journal.Receipt:
    key, fingerprint, outcome, expires_at_ms = row
    return journal.Receipt(
        scope=scope,
        key=database.unescape_nul(key),
        fingerprint=database.unescape_nul(fingerprint),
        outcome=_decode_outcome(outcome),
        expires_at_ms=expires_at_ms,
    )


RETRY_TIMEOUT = 5.0
_READERS = 4


class PostgresJournal:
    """Implements `journal.Journal`. Between `open` and `close` it belongs to the event loop that opened it."""

    def __init__(self, dsn: str, *, node_id: str | None = None, timeout: float = RETRY_TIMEOUT) -> None:
        """With a `node_id`, other nodes are notified of each batch under this name. `timeout`: how long a database may be
        unavailable before appends and reads fail.
        """
        self._dsn = dsn
        self._node_id = node_id
        self._timeout = timeout
        self._open: tuple[PostgresWriter, Pool] | None = None

    async def open(self) -> None:
        pool = Pool(self._dsn, most=_READERS, timeout=self._timeout, settings=database.BY_INDEX)
        try:
            await pool.open(database.migrate)
            writer = PostgresWriter(self._dsn, self._node_id, self._timeout)
            await writer.start()
        except BaseException as problem:
            await pool.close()
            if isinstance(problem, Exception):
                raise database.translate_error(problem) from problem
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
        with database.translate_errors():
            return await self._reader.load(session_id)

    async def read(self, session_id: str, after_seq: int, limit: int) -> list[journal.Entry]:
        with database.translate_errors():
            return await self._reader.read(session_id, after_seq, limit)

    async def read_back(self, session_id: str, before_seq: int, limit: int, *, streamed: bool = True) -> list[journal.Entry]:
        with database.translate_errors():
            return await self._reader.read_back(session_id, before_seq, limit, streamed=streamed)

    async def read_heads(self, session_ids: Sequence[str]) -> dict[str, int]:
        """Returns the heads of sessions in one query, for a follower of many sessions that has to check all of them."""
        with database.translate_errors():
            return await self._reader.read_heads(session_ids)

    async def find_gap(self, session_id: str, after_seq: int) -> int | None:
        with database.translate_errors():
            return await self._reader.find_gap(session_id, after_seq)

    async def find_receipt(self, scope: str, key: str, now_ms: int) -> journal.Receipt | None:
        with database.translate_errors():
            return await self._reader.find_receipt(scope, key, now_ms)

    async def list_receipts(self, scope: str, limit: int, now_ms: int) -> list[journal.Receipt]:
        with database.translate_errors():
            return await self._reader.list_receipts(scope, limit, now_ms)

    async def list_cards(
        self,
        *,
        limit: int,
        states: Sequence[events.SessionState] = (),
        session_id: str | None = None,
        loaded: bool = False,
    ) -> list[journal.Card]:
        with database.translate_errors():
            return await self._reader.list_cards(limit, states, session_id, loaded=loaded)

    async def delete(self, session_id: str) -> int:
        writer, pool = self._get_parts()
        with database.translate_errors():
            removed = await postgres_retention.delete_session(pool, session_id)
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
        with database.translate_errors():
            return await postgres_retention.prune_entries(self._get_parts()[1], retention, now_ms, session_id, keep_from)
