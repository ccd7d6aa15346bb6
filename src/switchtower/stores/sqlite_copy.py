"""A whole copy of a SQLite file as of one moment, also while a daemon writes it. The copy is one file, without a log."""

import os
import sqlite3
from contextlib import closing
from pathlib import Path

from switchtower.stores import sqlite_look
from switchtower.stores.looking import StoreUnreadable


def copy_file(source: Path, target: Path, kind: str = sqlite_look.JOURNAL) -> int:
    """Makes `target`, for the owner alone, and returns its schema version. Raises `CannotLook`."""
    with sqlite_look.open_readonly(source, kind) as reading:
        os.close(os.open(target, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        try:
            with closing(sqlite3.connect(target, isolation_level=None)) as writing:
                # In one go: between two steps another process could write, and all would begin again.
                reading.backup(writing, pages=-1)
                writing.execute("PRAGMA journal_mode = DELETE")
                return sqlite_look.read_schema_version(writing)
        except sqlite3.Error as problem:
            raise StoreUnreadable(f"`{source}` cannot be copied: {problem}", hint="see `tower doctor`") from None


def check_copy(path: Path, kind: str, within_s: float = 600.0) -> list[str]:
    """What is wrong with a copy that nobody has open. Raises `CannotLook` for what is no such file."""
    with sqlite_look.open_readonly(path, kind) as connection:
        found = sqlite_look.run_quick_check(connection, within_s)
        return ["it could not be checked in time"] if found is None else found
