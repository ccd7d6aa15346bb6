"""How the journal's file is opened: owner-only, write-ahead logged, and flushed to the disk at every commit.

The writer thread has the only connection that may write. Readers get one that cannot.
"""

import os
import sqlite3
from pathlib import Path

_CACHED_STATEMENTS = 256  # the multi-row inserts alone come in some seventy lengths


def open_for_writing(path: Path) -> sqlite3.Connection:
    """Opens the file, or creates it with its folder. What SQLite puts beside it inherits its mode."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    path.chmod(0o600)
    connection = _connect(path, "rw")
    try:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
    except BaseException:
        connection.close()
        raise
    return connection


def open_for_reading(path: Path) -> sqlite3.Connection:
    return _connect(path, "ro")


def _connect(path: Path, mode: str) -> sqlite3.Connection:
    return sqlite3.connect(
        f"{path.absolute().as_uri()}?mode={mode}", uri=True, isolation_level=None, cached_statements=_CACHED_STATEMENTS
    )
