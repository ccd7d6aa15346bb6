"""Several nodes start at once on an empty database, or on one of another version."""

import asyncio
import sys

import pytest

from switchtower.core import errors
from switchtower.core.ports import cluster, registry
from switchtower.stores.postgres import database
from switchtower.stores.postgres.journal import PostgresJournal
from switchtower.stores.postgres.leases import PostgresLeases
from switchtower.stores.postgres.registry import PostgresRegistry
from switchtower.testing.session_driver import make_append, make_delta, read_seqs

OPENER = """
import asyncio, sys
from switchtower.stores.postgres.journal import PostgresJournal
from switchtower.testing.session_driver import make_append as addition, make_delta as delta

async def main():
    store = PostgresJournal(sys.argv[1])
    await store.open()
    await store.append(addition(sys.argv[2], [delta(1)]))
    await store.close()

asyncio.run(main())
"""


async def test_nodes_that_start_at_once_on_an_empty_database_all_get_it(empty_dsn: str) -> None:
    stores = [PostgresJournal(empty_dsn) for _ in range(6)]
    others = [PostgresRegistry(empty_dsn), PostgresLeases(empty_dsn)]
    async with asyncio.timeout(60):
        await asyncio.gather(*(store.open() for store in [*stores, *others]))
        await asyncio.gather(
            *(store.append(make_append(f"sess_{number}", [make_delta(1)])) for number, store in enumerate(stores))
        )
        assert [len(await store.list_cards(limit=100)) for store in stores] == [6] * 6
        await asyncio.gather(*(store.close() for store in [*stores, *others]))
    connection = await database.connect(empty_dsn)
    versions = await connection.fetch("SELECT version FROM tower.migrations ORDER BY version")
    assert [version for (version,) in versions] == list(database.load_scripts())
    await connection.close()


async def test_processes_that_start_at_once_on_an_empty_database_all_get_it(empty_dsn: str) -> None:
    async with asyncio.timeout(60):
        processes = [
            await asyncio.create_subprocess_exec(sys.executable, "-c", OPENER, empty_dsn, f"sess_{number}") for number in range(3)
        ]
        assert [await process.wait() for process in processes] == [0, 0, 0]
    store = PostgresJournal(empty_dsn)
    await store.open()
    assert [await read_seqs(store, f"sess_{number}") for number in range(3)] == [[1]] * 3
    await store.close()


NEWEST = max(database.load_scripts())


async def pretend_newer(dsn: str, *made: tuple[int, int | None]) -> None:
    """Schemas beyond ours, as a newer program notes them: the version, and which it needs."""
    connection = await database.connect(dsn)
    for version, needed in made:
        await connection.execute("INSERT INTO tower.migrations (version, at, needs) VALUES ($1, now(), $2)", version, needed)
    await connection.close()


@pytest.mark.parametrize("made", [[(99, None)], [(99, NEWEST + 1)], [(NEWEST + 1, NEWEST + 1), (99, NEWEST)]])
async def test_a_newer_program_s_database_that_is_not_for_us_any_more_is_not_touched(
    fresh_dsn: str, made: list[tuple[int, int | None]]
) -> None:
    await pretend_newer(fresh_dsn, *made)
    with pytest.raises(errors.JournalUnavailable, match=f"version 99, .* this one knows {NEWEST};") as refused:
        await PostgresJournal(fresh_dsn).open()
    assert refused.value.hint == "start this node with the newer program that the other nodes run"
    with pytest.raises(registry.RegistryUnavailable, match="version 99"):
        await PostgresRegistry(fresh_dsn).open()
    with pytest.raises(cluster.LeasesUnavailable, match="version 99"):
        await PostgresLeases(fresh_dsn).open()


@pytest.mark.parametrize("made", [[(NEWEST + 1, None)], [(NEWEST + 1, NEWEST), (99, NEWEST)], [(99, 1)]])
async def test_a_newer_program_s_database_that_still_suits_us_is_used_as_it_is(
    fresh_dsn: str, made: list[tuple[int, int | None]]
) -> None:
    before = PostgresJournal(fresh_dsn)
    await before.open()
    await pretend_newer(fresh_dsn, *made)
    after, others = PostgresJournal(fresh_dsn), PostgresLeases(fresh_dsn)
    await after.open()
    await others.open()
    await before.append(make_append("sess_a", [make_delta(1)]))
    await after.append(make_append("sess_a", [make_delta(2)]))
    assert await read_seqs(before, "sess_a") == [1, 2]
    for store in (before, after, others):
        await store.close()
    connection = await database.connect(fresh_dsn)
    versions = await connection.fetch("SELECT version FROM tower.migrations ORDER BY version")
    assert [version for (version,) in versions] == [*database.load_scripts(), *(version for version, _ in made)]
    await connection.close()


async def test_a_database_of_the_version_before_is_brought_up_and_its_nodes_go_on(empty_dsn: str) -> None:
    """One of schema 3 is there when ours comes, and another joins after it."""
    connection = await database.connect(empty_dsn)
    await connection.execute("CREATE SCHEMA tower; CREATE TABLE tower.migrations (version integer PRIMARY KEY, at timestamptz)")
    for version in (1, 2, 3):
        await connection.execute(database.load_scripts()[version])
        await connection.execute(f"INSERT INTO tower.migrations VALUES ({version}, now())")
    await connection.execute("INSERT INTO nodes VALUES ('node_old', '', now(), now() + interval '1 hour')")
    store = PostgresLeases(empty_dsn)
    await store.open()
    await connection.execute("INSERT INTO nodes VALUES ('node_older', '', now(), now() + interval '1 hour')")
    assert [(node.node_id, node.draining) for node in await store.list_nodes()] == [("node_old", False), ("node_older", False)]
    assert await connection.fetchval("SELECT needs FROM migrations WHERE version = 4") == 3
    await store.close()
    await connection.close()


@pytest.mark.parametrize(
    ("script", "needed"),
    [
        ("", 6),
        ("-- needs: 0004\nCREATE", 4),
        ("-- first\n-- needs: 0007\n", 7),
        ("SELECT '-- needs: 0004'", 6),
        ("-- needs: four", 6),
    ],
)
def test_a_script_says_which_schema_its_database_needs_and_otherwise_the_one_before(script: str, needed: int) -> None:
    assert database.oldest_compatible_schema(7, script) == needed


async def test_a_migration_that_fails_leaves_nothing_behind(empty_dsn: str) -> None:
    connection = await database.connect(empty_dsn)
    await connection.execute("CREATE SCHEMA tower; CREATE TABLE tower.words (mine text)")
    with pytest.raises(Exception, match="already exists"):
        await PostgresJournal(empty_dsn).open()
    tables = await connection.fetch("SELECT table_name FROM information_schema.tables WHERE table_schema = 'tower'")
    assert [name for (name,) in tables] == ["words"]
    await connection.close()


async def test_our_tables_keep_to_their_own_schema(dsn: str) -> None:
    connection = await database.connect(dsn)
    elsewhere = await connection.fetch(
        "SELECT table_name FROM information_schema.tables WHERE table_schema NOT IN ('tower', 'pg_catalog', 'information_schema')"
    )
    assert elsewhere == []
    await connection.close()


async def test_commits_are_on_the_disk_even_if_the_server_s_default_is_otherwise(fresh_dsn: str) -> None:
    administrator = await database.connect(fresh_dsn)
    await administrator.execute(
        f"ALTER DATABASE {await administrator.fetchval('SELECT current_database()')} SET synchronous_commit = off"
    )
    connection = await database.connect(fresh_dsn)
    assert await connection.fetchval("SHOW synchronous_commit") == "on"
    await connection.close()
    await administrator.close()
