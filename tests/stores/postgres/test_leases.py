"""The leases' contract on PostgreSQL, and what only a database has."""

from collections.abc import AsyncIterator

import pytest
from tests.contracts import leases
from tests.contracts.leases import LONG_MS

from switchtower.core.ports import journal
from switchtower.stores.postgres import database
from switchtower.stores.postgres.journal import PostgresJournal
from switchtower.stores.postgres.leases import PostgresLeases
from switchtower.testing.session_driver import make_delta


class TestPostgresLeases(leases.LeaseContract):
    @pytest.fixture
    def make_leases(self, dsn: str) -> leases.MakeLeases:
        return lambda: PostgresLeases(dsn)

    @pytest.fixture
    async def begin_session(self, dsn: str) -> AsyncIterator[leases.BeginSession]:
        store = PostgresJournal(dsn)
        await store.open()

        async def begin(begun: journal.Card) -> None:
            await store.append(journal.Append(session_id=begun.session_id, epoch=1, entries=[make_delta(1)], card=begun))

        yield begin
        await store.close()


async def test_the_sessions_of_a_node_that_nobody_knows_are_taken_over_or_freed(dsn: str) -> None:
    """No node leaves any behind. Somebody may have restored the tables without that one, though."""
    store, connection = PostgresLeases(dsn), await database.connect(dsn)
    await store.open()
    await store.join("node_a", "", LONG_MS)
    await connection.execute("INSERT INTO homes (session_id, epoch, node_id) VALUES ('sess_1', 3, 'node_x'), ('seat:pi', 3, 'x')")
    await connection.execute("INSERT INTO sessions VALUES (1, 'sess_1', 'running', 1, 1, false, 0, '{}')")
    (taken,) = await store.take_over("node_a", 10)
    assert (taken.session_id, taken.epoch) == ("sess_1", 4)
    assert [await store.release_silent(10) for _ in range(2)] == [1, 0]
    assert await store.acquire("seat:pi", "node_a") is not None
    await connection.close()
    await store.close()


async def test_what_is_under_way_is_found_by_an_index(dsn: str) -> None:
    connection = await database.connect(dsn, database.BY_INDEX)
    plan = await connection.fetch("EXPLAIN SELECT session_id FROM sessions WHERE is_under_way(state, card) ORDER BY session_id")
    assert any("sessions_under_way" in line for (line,) in plan)
    await connection.close()
