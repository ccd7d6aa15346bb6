"""Brings a file to the schema that this version knows: `sql/NNNN_*.sql` in order, each in its own transaction.

A migration that shipped is never edited; a change is the next file. Each kind of file has its own folder of scripts: `sql` is
the journal's.
"""

import re
import sqlite3
from pathlib import Path

from switchtower.core import errors


def load_scripts(folder: str = "sql") -> dict[int, str]:
    """The scripts by schema version."""
    scripts: dict[int, str] = {}
    for file in (Path(__file__).parent / folder).iterdir():
        if numbered := re.fullmatch(r"(\d{4})_\w+\.sql", file.name):
            scripts[int(numbered[1])] = file.read_text(encoding="utf-8")
    return dict(sorted(scripts.items()))


def migrate(connection: sqlite3.Connection, folder: str = "sql") -> None:
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
                if current < version:  # else another process was quicker
                    raise
