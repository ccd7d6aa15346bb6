"""Reads: pages along the index, bounded by rows and by bytes on the server's side. Sees only what has been committed."""

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import structs

from switchtower.core import events, journal
from switchtower.stores import strips
from switchtower.stores.postgres import group, names
from switchtower.stores.postgres.pool import Pool

_DELETED = events.SessionState.DELETED.value
_MOST_ROWS = 20_000
_PAGE_BYTES = 2_097_152
_LARGEST = 2**63 - 1
_decode_card = msgspec.json.Decoder(journal.Card).decode
_decode_outcome = msgspec.json.Decoder(dict[str, Any]).decode


def _build_page_query(where: str, order: str) -> str:
    """A row belongs to the page if those before it do not fill it. How long a value is, is known without reading it."""
    return (
        "SELECT seq, count, ts_ms, run_id, kind, data FROM ("  # noqa: S608 - made of what is written here
        f"  SELECT *, sum(octet_length(data)) OVER (ORDER BY seq {order}) - octet_length(data) AS bytes_before FROM ("
        f"    SELECT * FROM events WHERE sid = (SELECT sid FROM homes WHERE session_id = $1) AND {where}"
        f"    ORDER BY seq {order} LIMIT $3) AS rows) AS page"
        f" WHERE bytes_before < {_PAGE_BYTES} ORDER BY seq {order}"
    )


_FORWARD = _build_page_query("seq > $2::bigint", "ASC")
# A row may reach beyond the seq by as much as a strip holds, and must begin before it.
_BACK = _build_page_query(
    f"seq < $2::bigint + {strips.MOST_ENTRIES} AND seq - count + 1 < $2::bigint AND kind <> ALL ($4)", "DESC"
)
_RECEIPT = "SELECT key, fingerprint, outcome, expires_at_ms FROM receipts"


class PostgresReader:
    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def load(self, session_id: str) -> journal.StoredSession | None:
        for epoch, seq, snapshot in await self._pool.fetch(
            "SELECT homes.epoch, coalesce(snapshots.seq, 0), snapshots.data FROM homes JOIN sessions USING (sid)"
            " LEFT JOIN snapshots USING (sid) WHERE homes.session_id = $1",
            names.escape_nul(session_id),
        ):
            return journal.StoredSession(session_id=session_id, epoch=epoch, snapshot_seq=seq, snapshot=snapshot)
        return None

    async def read(self, session_id: str, after_seq: int, limit: int) -> list[journal.Entry]:
        if limit <= 0 or after_seq >= _LARGEST:
            return []
        rows = await self._pool.fetch(_FORWARD, names.escape_nul(session_id), max(after_seq, 0), min(limit, _MOST_ROWS))
        return strips.unpack(map(_make_packed_row, rows), max(after_seq, 0), limit)

    async def read_back(self, session_id: str, before_seq: int, limit: int, *, streamed: bool) -> list[journal.Entry]:
        if limit <= 0 or before_seq <= 0:
            return []
        before_seq = min(before_seq, 2**62)
        unwanted = [] if streamed else list(strips.PACKED)
        rows = await self._pool.fetch(_BACK, names.escape_nul(session_id), before_seq, min(limit, _MOST_ROWS), unwanted)
        return strips.unpack_back(map(_make_packed_row, rows), before_seq, limit)

    async def read_heads(self, session_ids: Sequence[str]) -> dict[str, int]:
        rows = await self._pool.fetch(
            "SELECT session_id, head FROM homes WHERE session_id = ANY ($1) AND head > 0",
            [names.escape_nul(one) for one in session_ids],
        )
        return {names.unescape_nul(session_id): head for session_id, head in rows}

    async def find_gap(self, session_id: str, after_seq: int) -> int | None:
        for (pruned_through,) in await self._pool.fetch(
            "SELECT pruned_through FROM sessions WHERE session_id = $1 AND pruned_through > $2",
            *(names.escape_nul(session_id), max(0, min(after_seq, _LARGEST))),
        ):
            return int(pruned_through)
        return None

    async def find_receipt(self, scope: str, key: str, now_ms: int) -> journal.Receipt | None:
        for row in await self._pool.fetch(
            f"{_RECEIPT} WHERE identity = $1 AND expires_at_ms > $2", group.hash_identity(scope, key), now_ms
        ):
            return _make_receipt(scope, row)
        return None

    async def list_receipts(self, scope: str, limit: int, now_ms: int) -> list[journal.Receipt]:
        rows = await self._pool.fetch(
            f"{_RECEIPT} WHERE scope = $1 AND expires_at_ms > $2 ORDER BY recorded_at_ms DESC LIMIT $3",
            *(names.escape_nul(scope), now_ms, limit),
        )
        return [_make_receipt(scope, row) for row in rows]

    async def list_cards(
        self, limit: int, states: Sequence[events.SessionState], session_id: str | None, *, loaded: bool
    ) -> list[journal.Card]:
        if session_id is not None:
            rows = await self._pool.fetch(
                "SELECT state, loaded, card, node_id FROM sessions LEFT JOIN homes USING (session_id) WHERE session_id = $1",
                names.escape_nul(session_id),
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
        # One look-up a state, newest first: with `ANY`, all of a state's sessions would be read and sorted.
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
    home = home if home is None else names.unescape_nul(home)
    return card if card.home == home else structs.replace(card, home=home)


def _make_packed_row(row: Any) -> strips.PackedRow:
    seq, count, ts_ms, run_id, kind, data = row
    return seq, count, ts_ms, run_id if run_id is None else names.unescape_nul(run_id), kind, data


def _is_wanted_state(state: str, states: Sequence[events.SessionState]) -> bool:
    return state in states if states else state != _DELETED


def _make_receipt(scope: str, row: Any) -> journal.Receipt:
    key, fingerprint, outcome, expires_at_ms = row
    return journal.Receipt(
        scope=scope,
        key=names.unescape_nul(key),
        fingerprint=names.unescape_nul(fingerprint),
        outcome=_decode_outcome(outcome),
        expires_at_ms=expires_at_ms,
    )
