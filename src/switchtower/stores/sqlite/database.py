"""Opens and migrates SQLite files, and translates their errors: failures of the disk and of other processes, but not our own
bugs.

A file is owner-only, write-ahead logged, and flushed to the disk at every commit. The writer thread has the only connection
that may write. Readers get one that cannot.

Migrations are `migrations/journal/NNNN_*.sql` in order, each in its own transaction. A migration that shipped is never edited;
a change is the next file. Each kind of file has its own folder of scripts: `journal` is the journal's.
"""

import os
import re
import sqlite3
from pathlib import Path

from switchtower.core import errors


def is_disk_error(problem: Exception) -> bool:
    """Returns whether the disk is full, unreadable, locked or damaged, and not whether an append was wrong, such as a violated
    constraint.
    """
    return isinstance(problem, OSError) or type(problem) in (
        sqlite3.OperationalError,
        sqlite3.DatabaseError,
        sqlite3.InternalError,
    )


def translate_error(problem: Exception) -> Exception:
    """Returns the error as the caller sees it. An error that is not the disk's is returned unchanged."""
    if not is_disk_error(problem):
        return problem
    unavailable = errors.JournalUnavailable(str(problem))
    unavailable.__cause__ = problem
    return unavailable


_CACHED_STATEMENTS = 256  # the multi-row inserts alone have some seventy lengths


def open_for_writing(path: Path) -> sqlite3.Connection:
    """Opens the file, or creates it with its folder. The files that SQLite puts beside it inherit its mode."""
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


def load_scripts(folder: str = "journal") -> dict[int, str]:
    """Returns the scripts by schema version."""
    scripts: dict[int, str] = {}
    for file in (Path(__file__).parent / "migrations" / folder).iterdir():
        if numbered := re.fullmatch(r"(\d{4})_\w+\.sql", file.name):
            scripts[int(numbered[1])] = file.read_text(encoding="utf-8")
    return dict(sorted(scripts.items()))


def migrate(connection: sqlite3.Connection, folder: str = "journal") -> None:
    scripts = load_scripts(folder)
    newest = max(scripts)
    (current,) = connection.execute("PRAGMA user_version").fetchone()
    if current > newest:
        raise errors.JournalUnavailable(
            f"its schema is version {current} and this program knows {newest}", hint="use the newer program that wrote it"
        )
    for version, script in scripts.items():
        if version > current:
            try:
                connection.executescript(f"BEGIN IMMEDIATE;\n{script}\nPRAGMA user_version = {version};\nCOMMIT;")
            except sqlite3.Error:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                (current,) = connection.execute("PRAGMA user_version").fetchone()
                if current < version:  # otherwise another process was quicker
                    raise
