"""Words in everything that was said and done, in tables beside the journal's. They are made from the journal and can be thrown
away at any time. What is new is read when somebody searches, so that nothing that is stored has to wait for it.
"""

from typing import Any

from switchtower.core import events, search
from switchtower.stores import texts
from switchtower.stores.postgres import connections, names, words
from switchtower.stores.postgres.connections import PostgresConnection
from switchtower.stores.postgres.late_pool import LazyPool
from switchtower.stores.postgres.pool import Pool

RETRY_TIMEOUT = 5.0
_CONNECTIONS = 2
_PAGE = 500
_SESSIONS = 200
_DELETED = events.SessionState.DELETED.value
_KINDS = list(texts.TEXTS)


class PostgresSearch:
    """Implements `search.Search`. Opens by itself when it is first used."""

    def __init__(self, dsn: str, *, timeout: float = RETRY_TIMEOUT) -> None:
        self._pool = LazyPool(dsn, most=_CONNECTIONS, timeout=timeout)

    async def close(self) -> None:
        await self._pool.close()

    async def find(self, text: str, limit: int, *, session_id: str | None = None) -> list[search.SearchHit]:
        question = words.parse_query(text)
        if question is None or limit <= 0:
            return []
        with connections.translate_errors():
            pool = await self._pool.get()
            await _catch_up(pool)
            rows = await pool.fetch(
                "SELECT sessions.session_id, words.seq, events.ts_ms, events.kind, events.data"
                " FROM words JOIN sessions USING (sid) JOIN events ON events.sid = words.sid AND events.seq = words.seq"
                " WHERE words.vector @@ $1::text::tsquery AND sessions.state <> $2"
                " AND ($3::text IS NULL OR sessions.session_id = $3)"
                " ORDER BY ts_rank(words.vector, $1::text::tsquery) DESC, events.ts_ms DESC, words.seq DESC LIMIT $4",
                *(question.tsquery, _DELETED, None if session_id is None else names.escape_nul(session_id), limit),
            )
        return [
            search.SearchHit(names.unescape_nul(found), seq, ts_ms, kind, question.make_snippet(_join_texts(kind, data)))
            for found, seq, ts_ms, kind, data in rows
        ]

    async def forget(self, session_id: str) -> None:
        async def work(connection: PostgresConnection) -> None:
            sid = await connection.fetchval("SELECT sid FROM homes WHERE session_id = $1", names.escape_nul(session_id))
            for table in ("words", "words_read"):
                await connection.execute(f"DELETE FROM {table} WHERE sid = $1", sid)  # noqa: S608 - the names are written here

        with connections.translate_errors():
            await (await self._pool.get()).run_transaction(work)


async def _catch_up(pool: Pool) -> None:
    sid = 0
    while rows := await pool.fetch(
        "SELECT sid FROM sessions JOIN homes USING (sid, session_id) LEFT JOIN words_read USING (sid)"
        " WHERE sid > $1 AND state <> $2 AND head > coalesce(words_read.seq, 0) ORDER BY sid LIMIT $3",
        *(sid, _DELETED, _SESSIONS),
    ):
        for row in rows:
            sid = row[0]
            while await pool.run_transaction(lambda connection, sid=sid: _read_page(connection, sid)):  # type: ignore[misc]
                pass


async def _read_page(connection: PostgresConnection, sid: int) -> bool:
    """Whether there may be more. Nodes that search at once take turns at a session."""
    await connection.execute("INSERT INTO words_read VALUES ($1, 0) ON CONFLICT DO NOTHING", sid)
    after_seq = await connection.fetchval("SELECT seq FROM words_read WHERE sid = $1 FOR UPDATE", sid)
    head = await connection.fetchval("SELECT homes.head FROM sessions JOIN homes USING (session_id) WHERE sessions.sid = $1", sid)
    if after_seq is None or head is None:
        return False  # it was deleted meanwhile
    rows = await connection.fetch(
        "SELECT seq, kind, data FROM events WHERE sid = $1 AND seq > $2 AND seq <= $3 AND kind = ANY ($4) ORDER BY seq LIMIT $5",
        *(sid, after_seq, head, _KINDS, _PAGE),
    )
    found = [(seq, words.build_tsvector(_join_texts(kind, data))) for seq, kind, data in rows]
    await connection.execute(
        "INSERT INTO words SELECT $1, seq, vector::tsvector FROM unnest($2::bigint[], $3::text[]) AS found (seq, vector)",
        *(sid, [seq for seq, vector in found if vector], [vector for _, vector in found if vector]),
    )
    is_full = len(rows) == _PAGE
    await connection.execute("UPDATE words_read SET seq = $2 WHERE sid = $1", sid, rows[-1][0] if is_full else head)
    return is_full


def _join_texts(kind: str, data: Any) -> str:
    return "\n".join(texts.extract_texts(kind, data))[: texts.LONGEST]
