"""The connection to the database, the translation of its errors, and its migrations. This is the only file that knows the
library; all others use `PostgresConnection`. A connection belongs to its caller and is never returned in the middle of an
operation.

PostgreSQL's `text` has no NUL, so names are escaped. An address is shown without its password.

Migrations are `migrations/NNNN_*.sql` in order, all in one transaction. Nodes that start at once wait for each other at an
advisory lock, and those behind the first find nothing left to do. A migration that shipped is never edited; a change is the
next file. Nodes of the previous version continue to work meanwhile, so a migration adds and does not remove; a function that
changes gets a new name. A script may contain `-- needs: NNNN`, the oldest schema whose programs still work with it; by default
that is the one before. It is stored with the migration, so that an older program can decide whether it can use a newer
database.
"""

import contextlib
import random
import re
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import parse_qsl, quote, urlsplit

from switchtower.core import errors

SCHEMA = "tower"
"""The schema of all our tables, so that the database may have others."""

CONNECT_SECONDS = 10.0
BY_INDEX = {
    "enable_seqscan": "off",
    "enable_bitmapscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "jit": "off",
}
"""The journal is only ever read along its indexes. A plan that was made while a table was small must not prefer a scan later."""


_UNAVAILABLE_CLASSES = ("08", "28", "3D", "53", "55", "57", "58", "XX")
"""Connection, authorisation, unknown database, out of resources, stopped, failing disk, damage."""
_UNAVAILABLE_STATES = ("25006", "25P03", "42501", "42P01", "42883")
"""The server is read-only, it ended our idle transaction, or our tables are missing."""


class PostgresConnection(Protocol):
    """The part of the library's connection that we use."""

    async def execute(self, query: str, *args: Any, timeout: float | None = None) -> str: ...

    async def fetch(self, query: str, *args: Any, timeout: float | None = None) -> list[Any]: ...

    async def fetchrow(self, query: str, *args: Any, timeout: float | None = None) -> Any: ...

    async def fetchval(self, query: str, *args: Any, timeout: float | None = None) -> Any: ...

    def transaction(self) -> AbstractAsyncContextManager[Any]: ...

    async def add_listener(self, channel: str, callback: Callable[..., None]) -> None: ...

    def is_closed(self) -> bool: ...

    async def close(self, *, timeout: float | None = None) -> None: ...

    def terminate(self) -> None: ...


def _load_library() -> Any:
    import asyncpg  # type: ignore[import-untyped]  # late: it takes a tenth of a second

    return asyncpg


async def connect(dsn: str, settings: dict[str, str] | None = None) -> PostgresConnection:
    """Opens a connection whose commits are on the disk when they return, whatever the server's default is."""
    library = _load_library()
    try:
        connection: PostgresConnection = await library.connect(
            dsn,
            timeout=CONNECT_SECONDS,
            server_settings={"search_path": SCHEMA, "application_name": "switchtower", **(settings or {})},
        )
    except (ValueError, library.InterfaceError) as problem:  # the message may quote the address, which may contain a password
        raise errors.JournalUnavailable(
            "the address of the database is not valid", hint="it looks like postgresql://user@host/database"
        ) from problem
    try:
        if await connection.fetchval("SELECT current_setting('synchronous_commit')") == "off":
            await connection.execute("SET synchronous_commit = on")
    except BaseException:
        connection.terminate()
        raise
    return connection


def is_lost(problem: BaseException, connection: PostgresConnection) -> bool:
    """Returns whether the outcome of the last statement is unknown. A response of the server means that nothing was stored."""
    if connection.is_closed() or isinstance(problem, OSError | TimeoutError) or _is_confused(problem):
        return True
    state = get_sqlstate(problem)
    # A server that is stopped, or that gives up waiting for its standby, may report that after it has committed.
    return state is not None and state[:2] in ("08", "57")


def _is_confused(problem: BaseException) -> bool:
    """The library has lost track of its connection's state: that happens when a server closes it between two statements."""
    return type(problem).__name__ == "InternalClientError" and type(problem).__module__.startswith("asyncpg")


def get_sqlstate(problem: BaseException) -> str | None:
    return getattr(problem, "sqlstate", None)


def is_database_error(problem: BaseException) -> bool:
    """Returns whether the server is unreachable, full, stopping or damaged, and not whether a statement was wrong, such as a
    violated constraint.
    """
    if isinstance(problem, OSError | TimeoutError) or _is_confused(problem):
        return True
    state = get_sqlstate(problem)
    if state is not None:
        return state[:2] in _UNAVAILABLE_CLASSES or state in _UNAVAILABLE_STATES
    # The library's own errors are about its use, except when the connection was lost.
    return type(problem).__module__.startswith("asyncpg") and "connection" in str(problem)


def summarize_error(problem: BaseException) -> str:
    """Returns the error in one line, without the details that quote stored data."""
    if isinstance(problem, TimeoutError):
        return "the database does not answer"
    text = str(problem.args[0] if problem.args and isinstance(problem.args[0], str) else problem)
    return text.partition("\n")[0] or type(problem).__name__


def translate_error(problem: Exception) -> Exception:
    """Returns the error as the journal's callers see it. An error that is not the database's is returned unchanged."""
    if isinstance(problem, errors.CoreError) or not is_database_error(problem):
        return problem
    unavailable = errors.JournalUnavailable(summarize_error(problem))
    unavailable.__cause__ = problem
    return unavailable


@contextlib.contextmanager
def translate_errors() -> Iterator[None]:
    """Translates errors inside the block into the journal's errors."""
    try:
        yield
    except Exception as problem:
        told_as = translate_error(problem)
        if told_as is problem:
            raise
        raise told_as from problem


def iterate_backoff() -> Iterator[float]:
    """Yields the delays between attempts. The jitter keeps nodes that lost the same server from reconnecting all at once."""
    pause = 0.02
    while True:
        yield pause * random.uniform(0.5, 1.0)  # noqa: S311 - no secret
        pause = min(2.0, pause * 2)


_ESCAPED = re.compile(r"\\(.)", re.DOTALL)


def escape_nul(name: str) -> str:
    return name.replace("\\", "\\\\").replace("\0", "\\0") if "\\" in name or "\0" in name else name


def unescape_nul(name: str) -> str:
    return _ESCAPED.sub(lambda escape: "\0" if escape[1] == "0" else escape[1], name) if "\\" in name else name


_UNCLEAR = "postgresql://…"
_PLACES = re.compile(r"[\w.%-]*(:\d*)?|\[[0-9a-fA-F:.]+\](:\d*)?")
_SHOWN = ("host", "port", "dbname", "user", "sslmode")
"""The query parameters that may be shown; any other may be a secret, or name a file with one."""


def mask_password(dsn: str) -> str:
    """When the end of a password is ambiguous, nothing behind the scheme is shown."""
    try:
        parts = urlsplit(dsn)
        asked = parse_qsl(parts.query, keep_blank_values=True)
    except ValueError:
        return _UNCLEAR
    who, at, where = parts.netloc.rpartition("@")
    if (
        parts.scheme not in ("postgresql", "postgres")
        or parts.fragment
        or "@" in f"{who}{parts.path}{parts.query}"
        or not all(_PLACES.fullmatch(place) for place in where.split(","))
    ):
        return _UNCLEAR
    query = "&".join(f"{name}={quote(value, safe='/:,.')}" for name, value in asked if name in _SHOWN)
    return f"{parts.scheme}://{who.partition(':')[0]}{at}{where}{parts.path}{'?' if query else ''}{query}"


_LOCK = 0x746F776572  # any number that no other program uses in the database


def load_scripts() -> dict[int, str]:
    """Returns the scripts by schema version."""
    scripts: dict[int, str] = {}
    for file in (Path(__file__).parent / "migrations").iterdir():
        if numbered := re.fullmatch(r"(\d{4})_\w+\.sql", file.name):
            scripts[int(numbered[1])] = file.read_text(encoding="utf-8")
    return dict(sorted(scripts.items()))


def oldest_compatible_schema(version: int, script: str) -> int:
    """Returns the oldest schema whose programs work with a database after this script."""
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
    """Returns whether nothing is left to do for a program that knows the schemas up to `newest`."""
    current = await _read_version(connection)
    if current > newest:
        # Read as JSON, because the table of the first versions does not have this column.
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
