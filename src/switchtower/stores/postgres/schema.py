"""Brings a database to the schema that this version knows: `migrations/NNNN_*.sql` in order, all in one transaction.

Nodes that start at once wait for each other at an advisory lock, and those behind the first find nothing left to do. A
migration that shipped is never edited; a change is the next file. Nodes of the version before go on working meanwhile, so a
migration adds and does not take away; a function that changes gets a new name.
"""

import re
from pathlib import Path

from switchtower.core import errors
from switchtower.stores.postgres.connections import SCHEMA, Connection

_LOCK = 0x746F776572  # any number that nobody else in the database uses


def known() -> dict[int, str]:
    """The scripts by schema version."""
    scripts: dict[int, str] = {}
    for file in (Path(__file__).parent / "migrations").iterdir():
        if numbered := re.fullmatch(r"(\d{4})_\w+\.sql", file.name):
            scripts[int(numbered[1])] = file.read_text(encoding="utf-8")
    return dict(sorted(scripts.items()))


async def migrate(connection: Connection) -> None:
    scripts = known()
    newest = max(scripts)
    if await _version(connection) == newest:
        return
    async with connection.transaction():
        await connection.execute(f"SELECT pg_advisory_xact_lock({_LOCK})")
        await connection.execute(f"CREATE SCHEMA IF NOT EXISTS {SCHEMA}")
        await connection.execute(f"CREATE TABLE IF NOT EXISTS {SCHEMA}.migrations (version integer PRIMARY KEY, at timestamptz)")
        current = await _version(connection)
        if current > newest:
            raise errors.JournalUnavailable(
                f"its schema is version {current} and this program knows {newest}", hint="use the newer program that wrote it"
            )
        for version, script in scripts.items():
            if version > current:
                await connection.execute(script)
                await connection.execute(f"INSERT INTO {SCHEMA}.migrations VALUES ({version}, now())")  # noqa: S608 - a number


async def _version(connection: Connection) -> int:
    if await connection.fetchval("SELECT to_regclass($1)", f"{SCHEMA}.migrations") is None:
        return 0
    version: int = await connection.fetchval(f"SELECT coalesce(max(version), 0) FROM {SCHEMA}.migrations")  # noqa: S608 - our own name
    return version
