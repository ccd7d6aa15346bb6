"""Brings a database to the schema that this version knows: `migrations/NNNN_*.sql` in order, all in one transaction.

Nodes that start at once wait for each other at an advisory lock, and those behind the first find nothing left to do. A
migration that shipped is never edited; a change is the next file. Nodes of the version before go on working meanwhile, so a
migration adds and does not take away; a function that changes gets a new name.

A script may say `-- needs: NNNN`, the oldest schema whose programs still work with it; if it does not, that is the one before.
It is stored with the migration, so that an older program can tell whether a newer database is still for it.
"""

import re
from pathlib import Path

from switchtower.core import errors
from switchtower.stores.postgres.connections import SCHEMA, PostgresConnection

_LOCK = 0x746F776572  # any number that nobody else in the database uses


def load_scripts() -> dict[int, str]:
    """The scripts by schema version."""
    scripts: dict[int, str] = {}
    for file in (Path(__file__).parent / "migrations").iterdir():
        if numbered := re.fullmatch(r"(\d{4})_\w+\.sql", file.name):
            scripts[int(numbered[1])] = file.read_text(encoding="utf-8")
    return dict(sorted(scripts.items()))


def oldest_compatible_schema(version: int, script: str) -> int:
    """The oldest schema whose programs work with a database after this script."""
    told = re.search(r"^-- needs: (\d{4})$", script, re.MULTILINE)
    return int(told[1]) if told else version - 1


async def migrate(connection: PostgresConnection) -> None:
    scripts = load_scripts()
    newest = max(scripts)
    if await _is_ready(connection, newest):
        return
    async with connection.transaction():
        await connection.execute(f"SELECT pg_advisory_xact_lock({_LOCK})")
        if await _is_ready(connection, newest):
            return
        await connection.execute(f"CREATE SCHEMA IF NOT EXISTS {SCHEMA}")
        await connection.execute(f"CREATE TABLE IF NOT EXISTS {SCHEMA}.migrations (version integer PRIMARY KEY, at timestamptz)")
        await connection.execute(f"ALTER TABLE {SCHEMA}.migrations ADD COLUMN IF NOT EXISTS needs integer")
        current = await _read_version(connection)
        for version, script in scripts.items():
            if version > current:
                await connection.execute(script)
                await connection.execute(
                    f"INSERT INTO {SCHEMA}.migrations (version, at, needs) VALUES ($1, now(), $2)",  # noqa: S608 - our own name
                    *(version, oldest_compatible_schema(version, script)),
                )


async def _is_ready(connection: PostgresConnection, newest: int) -> bool:
    """Nothing is left to do for a program that knows the schemas up to `newest`."""
    current = await _read_version(connection)
    if current > newest:
        # As JSON, because a table of the first versions has no such column.
        needed = await connection.fetchval(
            "SELECT max(coalesce((to_jsonb(made) ->> 'needs')::integer, made.version - 1))"  # noqa: S608 - our own name
            f" FROM {SCHEMA}.migrations AS made WHERE made.version > $1",
            newest,
        )
        if needed > newest:
            raise errors.JournalUnavailable(
                f"its schema is version {current}, which needs a program that knows {needed}, and this one knows {newest}",
                hint="start this node with the newer program that the other nodes run",
            )
    return current >= newest


async def _read_version(connection: PostgresConnection) -> int:
    if await connection.fetchval("SELECT to_regclass($1)", f"{SCHEMA}.migrations") is None:
        return 0
    version: int = await connection.fetchval(f"SELECT coalesce(max(version), 0) FROM {SCHEMA}.migrations")  # noqa: S608 - our own name
    return version
