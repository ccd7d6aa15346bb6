"""Takes a session out of the file, a piece at a time, so that what others store comes in between."""

import sqlite3
from collections.abc import Generator

_PIECE = 2_000


def delete_session(connection: sqlite3.Connection, session_id: str) -> Generator[None, None, int]:
    """Its row goes last: until then a restart finds it, and goes on. Returns how many entries went."""
    row = connection.execute("SELECT sid FROM sessions WHERE session_id = ?", (session_id,)).fetchone()
    if row is None:
        return 0
    (sid,) = row
    removed = 0
    while True:
        rows = connection.execute("SELECT seq, count FROM events WHERE sid = ? ORDER BY seq LIMIT ?", (sid, _PIECE)).fetchall()
        if not rows:
            break
        connection.execute("DELETE FROM events WHERE sid = ? AND seq <= ?", (sid, rows[-1][0]))
        removed += sum(count for _, count in rows)
        yield
    connection.execute("BEGIN IMMEDIATE")
    connection.execute("DELETE FROM snapshots WHERE sid = ?", (sid,))
    connection.execute("DELETE FROM receipts WHERE scope = ?", (session_id,))
    connection.execute("DELETE FROM sessions WHERE sid = ?", (sid,))
    connection.execute("COMMIT")
    return removed
