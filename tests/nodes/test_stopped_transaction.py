"""A node that stops in the middle of a transaction, with its connection open, does not keep others from the rows it holds."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from tests.nodes.conftest import make_database

from switchtower.stores.postgres.database import PostgresConnection
from switchtower.stores.postgres.leases import PostgresLeases
from switchtower.stores.postgres.pool import Pool
from switchtower.testing.postgres_server import PostgresServer

LONG_MS = 600_000
TIMEOUT = 20
TAKE = "UPDATE tower.homes SET epoch = epoch + 1 WHERE session_id = 'sess_1' RETURNING epoch"


async def _do_nothing(connection: PostgresConnection) -> None:
    pass


@pytest.fixture
async def leases(shared_server: PostgresServer) -> AsyncIterator[PostgresLeases]:
    """With two nodes, and a session that is free."""
    store = PostgresLeases(shared_server.make_dsn(await make_database(shared_server)))
    await store.open()
    for node_id in ("node_a", "node_b"):
        await store.join(node_id, "127.0.0.1:1", LONG_MS)
    lease = await store.acquire("sess_1", "node_a")
    assert lease is not None
    await store.release(lease)
    yield store
    await store.close()


async def test_rows_of_a_transaction_that_stopped_are_free_again_and_it_is_done_anew_when_it_goes_on(
    leases: PostgresLeases,
) -> None:
    pool = Pool(leases._dsn, most=1, timeout=TIMEOUT)
    await pool.open(_do_nothing)
    holds, goes_on = asyncio.Event(), asyncio.Event()
    tries = 0

    async def take(connection: PostgresConnection) -> int:
        nonlocal tries
        tries += 1
        epoch: int = await connection.fetchval(TAKE)
        holds.set()
        await goes_on.wait()
        assert await connection.fetchval("SELECT 1") == 1
        return epoch

    stopped = asyncio.create_task(pool.run_transaction(take))
    await holds.wait()
    async with asyncio.timeout(TIMEOUT):
        lease = await leases.acquire("sess_1", "node_b")
    assert lease is not None
    goes_on.set()
    async with asyncio.timeout(TIMEOUT):
        assert await stopped == lease.epoch + 1, "its first try was undone, and the second came behind the other's"
    assert tries == 2
    await pool.close()
