"""How many sessions there are in each state, from the index alone. Blocks; for a thread."""

import sqlite3
from contextlib import closing
from pathlib import Path

from switchtower.stores import connections, troubles


def count_states(journal_path: Path) -> dict[str, int]:
    try:
        with closing(connections.open_for_reading(journal_path)) as connection:
            return dict(connection.execute("SELECT state, count(*) FROM sessions GROUP BY state").fetchall())
    except sqlite3.Error as problem:
        raise troubles.translate_error(problem) from problem
