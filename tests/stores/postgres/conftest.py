"""One server a worker, started when first wanted; one database a test, copied from one with our tables."""

import itertools
from collections.abc import AsyncIterator, Iterator

import pytest

from switchtower.stores.postgres import database
from switchtower.testing import postgres_server as servers
from switchtower.testing.postgres_server import PostgresServer

pytest.register_assert_rewrite("tests.contracts.leases")

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def shared_server() -> Iterator[PostgresServer]:
    if reason := servers.find_missing_reason():
        pytest.skip(reason)
    with servers.run_server() as server:
        yield server


@pytest.fixture
def dedicated_server() -> Iterator[PostgresServer]:
    """For who kills it."""
    if reason := servers.find_missing_reason():
        pytest.skip(reason)
    with servers.run_server() as server:
        yield server


async def make_database(server: PostgresServer, name: str, *, empty: bool = False) -> str:
    administrator = await database.connect(server.make_dsn("postgres"))
    try:
        if empty:
            await administrator.execute(f"CREATE DATABASE {name} TEMPLATE template0")
        elif not await administrator.fetchval("SELECT true FROM pg_database WHERE datname = $1", name):
            if not await administrator.fetchval("SELECT 1 FROM pg_database WHERE datname = 'migrated'"):
                await administrator.execute("CREATE DATABASE migrated")
                template = await database.connect(server.make_dsn("migrated"))
                await database.migrate(template)
                await template.close()
            await administrator.execute(f"CREATE DATABASE {name} TEMPLATE migrated")
    finally:
        await administrator.close()
    return server.make_dsn(name)


async def drop_database(server: PostgresServer, name: str) -> None:
    administrator = await database.connect(server.make_dsn("postgres"))
    await administrator.execute(f"DROP DATABASE {name} WITH (FORCE)")
    await administrator.close()


@pytest.fixture
async def dsn(shared_server: PostgresServer, emptied_databases: list[str]) -> AsyncIterator[str]:
    """A database with our tables and nothing in them. To copy one takes longer than a test, so it is emptied and used again."""
    name = emptied_databases.pop() if emptied_databases else f"test_{next(_numbers)}"
    yield await make_database(shared_server, name)
    connection = await database.connect(shared_server.make_dsn(name))
    await connection.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = $1 AND pid <> pg_backend_pid()", name
    )
    tables = await connection.fetch(
        "SELECT table_name FROM information_schema.tables WHERE table_schema = $1 AND table_name <> 'migrations'",
        database.SCHEMA,
    )
    await connection.execute(";".join(f"DELETE FROM {table}" for (table,) in tables))
    await connection.close()
    emptied_databases.append(name)


@pytest.fixture(scope="session")
def emptied_databases() -> list[str]:
    return []


@pytest.fixture
async def fresh_dsn(shared_server: PostgresServer) -> AsyncIterator[str]:
    """For who changes more than what is in the tables."""
    name = f"fresh_{next(_numbers)}"
    yield await make_database(shared_server, name)
    await drop_database(shared_server, name)


@pytest.fixture
async def empty_dsn(shared_server: PostgresServer) -> AsyncIterator[str]:
    name = f"empty_{next(_numbers)}"
    yield await make_database(shared_server, name, empty=True)
    await drop_database(shared_server, name)
