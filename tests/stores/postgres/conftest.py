"""One server a worker, started when first wanted; one database a test, copied from one with our tables."""

import itertools
from collections.abc import AsyncIterator, Iterator

import pytest
from tests.stores.postgres import server as servers
from tests.stores.postgres.server import PostgresServer

from switchtower.stores.postgres import connections, schema

pytest.register_assert_rewrite("switchtower.testing.lease_contract")

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def shared_server() -> Iterator[PostgresServer]:
    if reason := servers.missing():
        pytest.skip(reason)
    with servers.running() as server:
        yield server


@pytest.fixture
def own_server() -> Iterator[PostgresServer]:
    """For who kills it."""
    if reason := servers.missing():
        pytest.skip(reason)
    with servers.running() as server:
        yield server


async def make_database(server: PostgresServer, name: str, *, empty: bool = False) -> str:
    administrator = await connections.connect(server.dsn("postgres"))
    try:
        if empty:
            await administrator.execute(f"CREATE DATABASE {name} TEMPLATE template0")
        else:
            if not await administrator.fetchval("SELECT 1 FROM pg_database WHERE datname = 'migrated'"):
                await administrator.execute("CREATE DATABASE migrated")
                template = await connections.connect(server.dsn("migrated"))
                await schema.migrate(template)
                await template.close()
            await administrator.execute(f"CREATE DATABASE {name} TEMPLATE migrated")
    finally:
        await administrator.close()
    return server.dsn(name)


async def drop_database(server: PostgresServer, name: str) -> None:
    administrator = await connections.connect(server.dsn("postgres"))
    await administrator.execute(f"DROP DATABASE {name} WITH (FORCE)")
    await administrator.close()


@pytest.fixture
async def dsn(shared_server: PostgresServer) -> AsyncIterator[str]:
    name = f"test_{next(_numbers)}"
    yield await make_database(shared_server, name)
    await drop_database(shared_server, name)


@pytest.fixture
async def empty_dsn(shared_server: PostgresServer) -> AsyncIterator[str]:
    name = f"empty_{next(_numbers)}"
    yield await make_database(shared_server, name, empty=True)
    await drop_database(shared_server, name)
