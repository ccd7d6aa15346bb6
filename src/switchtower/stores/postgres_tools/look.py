"""A store's connection for who only looks: it cannot write, changes no schema, and can see all as of one moment."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from switchtower.core import errors
from switchtower.stores.looking import CannotLook
from switchtower.stores.postgres import connections, schema
from switchtower.stores.postgres.connections import SCHEMA, Connection
from switchtower.stores.postgres_tools import addresses

_CLOSE_SECONDS = 2.0
_UNREACHABLE = "see whether it runs, whether the address is right, and `tower doctor`"


@asynccontextmanager
async def reached(dsn: str, settings: dict[str, str] | None = None) -> AsyncIterator[Connection]:
    """Any database. Raises `CannotLook` when it cannot be reached, and for what breaks on the way."""
    place = addresses.shown(dsn)
    try:
        connection = await connections.connect(dsn, settings)
    except ImportError:
        raise CannotLook("the library for PostgreSQL is not installed", hint="install `switchtower[postgres]`") from None
    except errors.JournalUnavailable as problem:
        raise CannotLook(f"`{place}`: {problem.detail}", hint=problem.hint or _UNREACHABLE) from None
    except Exception as problem:
        if not connections.is_of_the_database(problem):
            raise
        raise CannotLook(f"`{place}` cannot be reached: {connections.said(problem)}", hint=_UNREACHABLE) from None
    try:
        yield connection
    except Exception as problem:
        if not connections.is_of_the_database(problem):
            raise
        raise CannotLook(f"`{place}` failed: {connections.said(problem)}", hint=_UNREACHABLE) from None
    finally:
        with suppress(Exception):
            await connection.close(timeout=_CLOSE_SECONDS)
        connection.terminate()


@asynccontextmanager
async def opened(dsn: str, where: str = SCHEMA) -> AsyncIterator[Connection]:
    """A store's. Raises `CannotLook` also for a database that holds none, or a newer program's."""
    async with reached(dsn, {"search_path": where, "default_transaction_read_only": "on"}) as connection:
        await check(connection, addresses.shown(dsn), where)
        yield connection


@asynccontextmanager
async def one_moment(connection: Connection) -> AsyncIterator[None]:
    """All that is read inside is as of its beginning."""
    await connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY")
    try:
        yield
    finally:
        if not connection.is_closed():
            with suppress(Exception):
                await connection.execute("ROLLBACK")


async def schema_version(connection: Connection, where: str = SCHEMA) -> int:
    """0 for a database that holds no store."""
    if await connection.fetchval("SELECT to_regclass($1)", f"{where}.migrations") is None:
        return 0
    version: int = await connection.fetchval(f"SELECT coalesce(max(version), 0) FROM {where}.migrations")  # noqa: S608 - our own name
    return version


async def check(connection: Connection, place: str, where: str = SCHEMA) -> None:
    version, newest = await schema_version(connection, where), max(schema.known())
    if not version:
        raise CannotLook(
            f"`{place}` holds no tower", hint="a node makes one when it starts: `tower serve --store URL`; or name another"
        )
    if version > newest:
        raise CannotLook(
            f"the schema of `{place}` is version {version} and this program knows {newest}",
            hint="use the newer program that wrote it",
        )
