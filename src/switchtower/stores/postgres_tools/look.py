"""A store's connection for who only looks: it cannot write, changes no schema, and can see all as of one moment."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from switchtower.core import errors
from switchtower.stores.looking import StoreUnreadable
from switchtower.stores.postgres import connections, schema
from switchtower.stores.postgres.connections import SCHEMA, PostgresConnection
from switchtower.stores.postgres_tools import addresses

_CLOSE_SECONDS = 2.0
_UNREACHABLE = "see whether it runs, whether the address is right, and `tower doctor`"


@asynccontextmanager
async def open_database(dsn: str, settings: dict[str, str] | None = None) -> AsyncIterator[PostgresConnection]:
    """Any database. Raises `CannotLook` when it cannot be reached, and for what breaks on the way."""
    place = addresses.mask_password(dsn)
    try:
        connection = await connections.connect(dsn, settings)
    except ImportError:
        raise StoreUnreadable("the library for PostgreSQL is not installed", hint="install `switchtower[postgres]`") from None
    except errors.JournalUnavailable as problem:
        raise StoreUnreadable(f"`{place}`: {problem.detail}", hint=problem.hint or _UNREACHABLE) from None
    except Exception as problem:
        if not connections.is_database_error(problem):
            raise
        raise StoreUnreadable(f"`{place}` cannot be reached: {connections.summarize_error(problem)}", hint=_UNREACHABLE) from None
    try:
        yield connection
    except Exception as problem:
        if not connections.is_database_error(problem):
            raise
        raise StoreUnreadable(f"`{place}` failed: {connections.summarize_error(problem)}", hint=_UNREACHABLE) from None
    finally:
        with suppress(Exception):
            await connection.close(timeout=_CLOSE_SECONDS)
        connection.terminate()


@asynccontextmanager
async def open_readonly(dsn: str, where: str = SCHEMA) -> AsyncIterator[PostgresConnection]:
    """A store's. Raises `CannotLook` also for a database that holds none, or a newer program's."""
    async with open_database(dsn, {"search_path": where, "default_transaction_read_only": "on"}) as connection:
        await check_schema(connection, addresses.mask_password(dsn), where)
        yield connection


@asynccontextmanager
async def open_snapshot(connection: PostgresConnection) -> AsyncIterator[None]:
    """All that is read inside is as of its beginning."""
    await connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY")
    try:
        yield
    finally:
        if not connection.is_closed():
            with suppress(Exception):
                await connection.execute("ROLLBACK")


async def read_schema_version(connection: PostgresConnection, where: str = SCHEMA) -> int:
    """0 for a database that holds no store."""
    if await connection.fetchval("SELECT to_regclass($1)", f"{where}.migrations") is None:
        return 0
    version: int = await connection.fetchval(f"SELECT coalesce(max(version), 0) FROM {where}.migrations")  # noqa: S608 - our own name
    return version


async def check_schema(connection: PostgresConnection, place: str, where: str = SCHEMA) -> None:
    version, newest = await read_schema_version(connection, where), max(schema.load_scripts())
    if not version:
        raise StoreUnreadable(
            f"`{place}` holds no tower", hint="a node makes one when it starts: `tower serve --store URL`; or name another"
        )
    if version > newest:
        raise StoreUnreadable(
            f"the schema of `{place}` is version {version} and this program knows {newest}",
            hint="use the newer program that wrote it",
        )
