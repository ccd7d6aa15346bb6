"""Full-text search in a separate file beside the journal. It is derived from the journal and can be deleted at any time. New
entries are indexed at the next search, so that no append has to wait for it.
"""

import asyncio
import re
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from threading import Lock
from typing import TypeVar

from switchtower.core.ports import journal as ports_journal
from switchtower.stores import packed_rows, search_text
from switchtower.stores.sqlite import database

VERSION = 1
MOST_WORDS = 32
_PAGE = 500
_SNIPPET_WORDS = 16
_SETTLING_MS = 1_000
_STREAMED = ", ".join("?" * len(packed_rows.PACKED))

T = TypeVar("T")

_SCHEMA = """
CREATE VIRTUAL TABLE words USING fts5(text, session_id UNINDEXED, seq UNINDEXED, ts_ms UNINDEXED, kind UNINDEXED,
    tokenize = "unicode61 remove_diacritics 2");
CREATE TABLE read_so_far (session_id TEXT PRIMARY KEY, seq INTEGER NOT NULL, updated_at_ms INTEGER NOT NULL) WITHOUT ROWID;
"""


class SqliteSearch:
    """Implements `journal.Search`."""

    def __init__(self, path: Path, journal_path: Path) -> None:
        self._path = path
        self._journal_path = journal_path
        self._lock = Lock()

    async def find(self, text: str, limit: int, *, session_id: str | None = None) -> list[ports_journal.SearchHit]:
        wanted = build_query(text)
        if wanted is None:
            return []
        return await asyncio.to_thread(self._run_locked, lambda index: self._find(index, wanted, limit, session_id))

    async def forget(self, session_id: str) -> None:
        if self._path.exists():
            await asyncio.to_thread(self._run_locked, lambda index: _forget(index, session_id))

    async def close(self) -> None:
        """Does nothing: no file is open between two searches."""

    # Everything below runs in a thread, one call at a time.

    def _run_locked(self, work: Callable[[sqlite3.Connection], T]) -> T:
        with self._lock:
            try:
                with closing(_open(self._path)) as index:
                    return work(index)
            except sqlite3.Error as problem:
                raise database.translate_error(problem) from problem

    def _find(self, index: sqlite3.Connection, wanted: str, limit: int, session_id: str | None) -> list[ports_journal.SearchHit]:
        with closing(database.open_for_reading(self._journal_path)) as journal:
            _catch_up(index, journal)
        rows = index.execute(
            "SELECT session_id, seq, ts_ms, kind, snippet(words, 0, '', '', '…', ?) FROM words"
            " WHERE words MATCH ? AND (? IS NULL OR session_id = ?) ORDER BY rank, ts_ms DESC LIMIT ?",
            (_SNIPPET_WORDS, wanted, session_id, session_id, limit),
        )
        return [ports_journal.SearchHit(found, seq, ts_ms, kind, snippet) for found, seq, ts_ms, kind, snippet in rows]


def build_query(text: str) -> str | None:
    """Returns the query in the syntax of the index; None for a text without words. Nothing in it is an operator."""
    text = re.sub(r"[\x00-\x1f\ud800-\udfff]", " ", text)
    phrases = [quoted or bare for quoted, bare in re.findall(r'"([^"]*)"|([^\s"]+)', text)]
    wanted = [f'"{phrase}"' for phrase in phrases if re.search(r"\w", phrase)][:MOST_WORDS]
    if not wanted:
        return None
    if not text.rstrip().endswith('"'):
        wanted[-1] += "*"
    return " ".join(wanted)


def _open(path: Path) -> sqlite3.Connection:
    """Creates the file again when it is broken or of another version: all of it can be indexed again."""
    with suppress(sqlite3.DatabaseError):
        connection = database.open_for_writing(path)
        with suppress(sqlite3.DatabaseError):
            (version,) = connection.execute("PRAGMA user_version").fetchone()
            if version == VERSION:
                connection.execute("SELECT count(*) FROM read_so_far").fetchone()
                return _disable_sync(connection)
        connection.close()
    for name in (path.name, f"{path.name}-wal", f"{path.name}-shm"):
        (path.parent / name).unlink(missing_ok=True)
    connection = database.open_for_writing(path)
    connection.executescript(f"BEGIN;{_SCHEMA}PRAGMA user_version = {VERSION};COMMIT;")
    return _disable_sync(connection)


def _disable_sync(connection: sqlite3.Connection) -> sqlite3.Connection:
    connection.execute("PRAGMA synchronous = OFF")
    return connection


def _forget(index: sqlite3.Connection, session_id: str) -> None:
    index.execute("BEGIN")
    index.execute("DELETE FROM words WHERE session_id = ?", (session_id,))
    index.execute("DELETE FROM read_so_far WHERE session_id = ?", (session_id,))
    index.execute("COMMIT")


def _catch_up(index: sqlite3.Connection, journal: sqlite3.Connection) -> None:
    now_ms = time.time_ns() // 1_000_000
    known = {
        session_id: (seq, at) for session_id, seq, at in index.execute("SELECT session_id, seq, updated_at_ms FROM read_so_far")
    }
    sessions = journal.execute("SELECT sid, session_id, updated_at_ms FROM sessions WHERE state != ?", ("deleted",)).fetchall()
    for gone in known.keys() - {session_id for _, session_id, _ in sessions}:
        _forget(index, gone)
    for sid, session_id, updated_at_ms in sessions:
        seq, at = known.get(session_id, (0, -1))
        if at != updated_at_ms:
            # Two events may share a millisecond: a session that was only just updated is read once more.
            settled = updated_at_ms < now_ms - _SETTLING_MS
            _read_session(index, journal, sid, session_id, seq, updated_at_ms if settled else -1)


def _read_session(
    index: sqlite3.Connection, journal: sqlite3.Connection, sid: int, session_id: str, after_seq: int, updated_at_ms: int
) -> None:
    while True:
        rows = journal.execute(
            f"SELECT seq, ts_ms, kind, data FROM events WHERE sid = ? AND seq > ? AND kind NOT IN ({_STREAMED})"  # noqa: S608
            " ORDER BY seq LIMIT ?",
            (sid, after_seq, *packed_rows.PACKED, _PAGE),
        ).fetchall()
        index.execute("BEGIN")
        for seq, ts_ms, kind, data in rows:
            after_seq = seq
            if kind in search_text.TEXTS:
                for text in search_text.extract_texts(kind, data):
                    if text.strip():
                        place = (text[: search_text.LONGEST], session_id, seq, ts_ms, kind)
                        index.execute("INSERT INTO words (text, session_id, seq, ts_ms, kind) VALUES (?, ?, ?, ?, ?)", place)
        done = len(rows) < _PAGE
        index.execute(
            "INSERT OR REPLACE INTO read_so_far VALUES (?, ?, ?)", (session_id, after_seq, updated_at_ms if done else -1)
        )
        index.execute("COMMIT")
        if done:
            return
