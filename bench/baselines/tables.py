"""The tables that a bare baseline writes to: the journal's, but with one plain row an event, as anybody would begin."""

import sqlite3

from switchtower.stores.sqlite import database


def make(connection: sqlite3.Connection) -> None:
    database.migrate(connection)
    connection.execute("DROP TABLE events")
    connection.execute(
        "CREATE TABLE events (sid INTEGER, seq INTEGER, ts_ms INTEGER, run_id TEXT, kind TEXT, data BLOB, PRIMARY KEY (sid, seq))"
        " WITHOUT ROWID"
    )
