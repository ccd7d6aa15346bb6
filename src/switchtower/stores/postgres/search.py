"""Full-text search in tables beside the journal's. They are derived from the journal and can be dropped at any time. New
entries are indexed at the next search, so that no append has to wait for it.

Words are split here, as in the other store's search, and not by the server's language settings: letters and digits, without
case and accents.
"""

import re
import unicodedata
from collections.abc import Iterator
from typing import Any

from switchtower.core import events
from switchtower.core.ports import journal
from switchtower.stores import search_text
from switchtower.stores.postgres import database
from switchtower.stores.postgres.database import PostgresConnection
from switchtower.stores.postgres.pool import LazyPool, Pool
from switchtower.stores.sqlite import search

_WORD = re.compile(r"[^\W_]+")
_PHRASE = re.compile(r'"([^"]*)"(\*?)')
_LONGEST_WORD = 500
"""A number of characters: the server's limit is 2,046 bytes. A longer word is known by its beginning."""
_SNIPPET_WORDS = 16


def split_words(text: str) -> list[str]:
    return [word for word, _, _ in _find_words(text)]


def _find_words(text: str) -> Iterator[tuple[str, int, int]]:
    for match in _WORD.finditer(text):
        if word := _fold_word(match[0]):
            yield word, match.start(), match.end()


def _fold_word(word: str) -> str:
    if not word.isascii():
        bare = "".join(sign for sign in unicodedata.normalize("NFD", word) if not unicodedata.combining(sign))
        word = unicodedata.normalize("NFC", bare)
    return word.lower()[:_LONGEST_WORD]


def build_tsvector(text: str) -> str:
    """Returns the text form of a `tsvector`: each word with its positions."""
    places: dict[str, list[str]] = {}
    for number, word in enumerate(split_words(text), 1):
        places.setdefault(word, []).append(str(number))
    # The server keeps 255 positions of a word, and none beyond 16,383.
    return " ".join(f"'{word}':{','.join(numbers[:255])}" for word, numbers in places.items())


class WordQuery:
    """All phrases must occur, in any order. The last word may be a prefix."""

    def __init__(self, phrases: list[tuple[list[str], bool]]) -> None:
        self._phrases = phrases

    @property
    def tsquery(self) -> str:
        """The text form of a `tsquery`. Words contain nothing that would be an operator."""
        return " & ".join(
            " <-> ".join(f"'{word}'" for word in phrase) + (":*" if is_beginning else "")
            for phrase, is_beginning in self._phrases
        )

    def make_snippet(self, text: str) -> str:
        """Returns some words around the first match."""
        places = list(_find_words(text))
        at = next((number for number, place in enumerate(places) if self._matches_word(place[0])), 0)
        first = max(0, min(at - _SNIPPET_WORDS // 2, len(places) - _SNIPPET_WORDS))
        shown = places[first : first + _SNIPPET_WORDS]
        if not shown:
            return ""
        begins_late, ends_early = first > 0, first + _SNIPPET_WORDS < len(places)
        start = shown[0][1] if begins_late else 0
        end = shown[-1][2] if ends_early else len(text)
        return f"{'…' if begins_late else ''}{text[start:end]}{'…' if ends_early else ''}"

    def _matches_word(self, word: str) -> bool:
        return any(
            word.startswith(phrase[-1]) if is_beginning and word not in phrase else word in phrase
            for phrase, is_beginning in self._phrases
        )


def parse_query(text: str) -> WordQuery | None:
    """None for a text without words. The query language is that of the other store."""
    asked = search.build_query(text)
    phrases = [(split_words(phrase), star == "*") for phrase, star in _PHRASE.findall(asked or "")]
    wanted = [(words, star) for words, star in phrases if words]
    return WordQuery(wanted) if wanted else None


RETRY_TIMEOUT = 5.0
_CONNECTIONS = 2
_PAGE = 500
_SESSIONS = 200
_DELETED = events.SessionState.DELETED.value
_KINDS = list(search_text.TEXTS)


class PostgresSearch:
    """Implements `journal.Search`. Opens by itself when it is first used."""

    def __init__(self, dsn: str, *, timeout: float = RETRY_TIMEOUT) -> None:
        self._pool = LazyPool(dsn, most=_CONNECTIONS, timeout=timeout)

    async def close(self) -> None:
        await self._pool.close()

    async def find(self, text: str, limit: int, *, session_id: str | None = None) -> list[journal.SearchHit]:
        question = parse_query(text)
        if question is None or limit <= 0:
            return []
        with database.translate_errors():
            pool = await self._pool.get()
            await _catch_up(pool)
            rows = await pool.fetch(
                "SELECT sessions.session_id, words.seq, events.ts_ms, events.kind, events.data"
                " FROM words JOIN sessions USING (sid) JOIN events ON events.sid = words.sid AND events.seq = words.seq"
                " WHERE words.vector @@ $1::text::tsquery AND sessions.state <> $2"
                " AND ($3::text IS NULL OR sessions.session_id = $3)"
                " ORDER BY ts_rank(words.vector, $1::text::tsquery) DESC, events.ts_ms DESC, words.seq DESC LIMIT $4",
                *(question.tsquery, _DELETED, None if session_id is None else database.escape_nul(session_id), limit),
            )
        return [
            journal.SearchHit(database.unescape_nul(found), seq, ts_ms, kind, question.make_snippet(_join_texts(kind, data)))
            for found, seq, ts_ms, kind, data in rows
        ]

    async def forget(self, session_id: str) -> None:
        async def work(connection: PostgresConnection) -> None:
            sid = await connection.fetchval("SELECT sid FROM homes WHERE session_id = $1", database.escape_nul(session_id))
            for table in ("words", "words_read"):
                await connection.execute(f"DELETE FROM {table} WHERE sid = $1", sid)  # noqa: S608 - the names are written here

        with database.translate_errors():
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
    """Returns whether there may be more. Nodes that search at once take turns at a session."""
    await connection.execute("INSERT INTO words_read VALUES ($1, 0) ON CONFLICT DO NOTHING", sid)
    after_seq = await connection.fetchval("SELECT seq FROM words_read WHERE sid = $1 FOR UPDATE", sid)
    head = await connection.fetchval("SELECT homes.head FROM sessions JOIN homes USING (session_id) WHERE sessions.sid = $1", sid)
    if after_seq is None or head is None:
        return False  # the session was deleted meanwhile
    rows = await connection.fetch(
        "SELECT seq, kind, data FROM events WHERE sid = $1 AND seq > $2 AND seq <= $3 AND kind = ANY ($4) ORDER BY seq LIMIT $5",
        *(sid, after_seq, head, _KINDS, _PAGE),
    )
    found = [(seq, build_tsvector(_join_texts(kind, data))) for seq, kind, data in rows]
    await connection.execute(
        "INSERT INTO words SELECT $1, seq, vector::tsvector FROM unnest($2::bigint[], $3::text[]) AS found (seq, vector)",
        *(sid, [seq for seq, vector in found if vector], [vector for _, vector in found if vector]),
    )
    is_full = len(rows) == _PAGE
    await connection.execute("UPDATE words_read SET seq = $2 WHERE sid = $1", sid, rows[-1][0] if is_full else head)
    return is_full


def _join_texts(kind: str, data: Any) -> str:
    return "\n".join(search_text.extract_texts(kind, data))[: search_text.LONGEST]
