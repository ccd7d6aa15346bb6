"""A secret is made once for all nodes, and shown to nobody else."""

import asyncio
import logging
import secrets

import pytest

from switchtower.core import errors
from switchtower.stores.postgres.registry import PostgresSecrets


async def test_of_nodes_that_make_one_at_once_the_first_one_s_is_everybody_s(dsn: str) -> None:
    stores = [PostgresSecrets(dsn) for _ in range(6)]
    await asyncio.gather(*(store.open() for store in stores))
    for name in ("mesh", "nasty \x00 ' \\"):
        made: list[bytes] = []

        def make(made: list[bytes] = made) -> bytes:
            made.append(secrets.token_bytes(32))
            return made[-1]

        values = await asyncio.gather(*(store.get_or_create(name, make) for store in stores))
        assert len(set(values)) == 1
        assert values[0] in made
    await asyncio.gather(*(store.close() for store in stores))


async def test_a_secret_stays_when_its_node_has_gone_and_each_name_has_its_own(dsn: str) -> None:
    for _ in range(2):
        store = PostgresSecrets(dsn)
        await store.open()
        first = await store.get_or_create("first", lambda: b"\x00\xff one")
        await store.close()
        assert first == b"\x00\xff one"
    store = PostgresSecrets(dsn)
    await store.open()
    assert await store.get_or_create("first", lambda: b"another") == first
    assert await store.get_or_create("second", lambda: b"two") == b"two"
    await store.close()


async def test_who_finds_a_secret_makes_none(dsn: str) -> None:
    def never() -> bytes:
        raise AssertionError("it is there already")

    store = PostgresSecrets(dsn)
    await store.open()
    await store.get_or_create("mesh", lambda: b"one")
    assert await store.get_or_create("mesh", never) == b"one"
    await store.close()


async def test_no_error_and_no_log_quotes_a_secret(dsn: str, caplog: pytest.LogCaptureFixture) -> None:
    store = PostgresSecrets(dsn)
    with pytest.raises(errors.JournalUnavailable, match="not open"):
        await store.get_or_create("mesh", lambda: b"hunter2")
    await store.open()
    with caplog.at_level(logging.DEBUG):
        await store.get_or_create("mesh", lambda: b"hunter2")
        with pytest.raises(TypeError, match="`other` was not made as bytes") as refused:
            await store.get_or_create("other", lambda: "hunter2")  # type: ignore[arg-type, return-value]
    assert "hunter2" not in caplog.text
    assert "hunter2" not in repr(store)
    assert "hunter2" not in str(refused.value)
    await store.close()


async def test_a_database_that_is_not_there_is_told_in_the_journal_s_words(tmp_path: object) -> None:
    with pytest.raises(errors.JournalUnavailable):
        await PostgresSecrets(f"postgresql://nobody@/none?host={tmp_path}").open()


async def test_changes_of_two_nodes_do_not_lose_each_other(dsn: str) -> None:
    nodes = [PostgresSecrets(dsn) for _ in range(2)]
    for node in nodes:
        await node.open()
    try:
        assert await nodes[0].read("list") is None
        await asyncio.gather(*(node.update("list", lambda kept: (kept or b"") + b"x") for node in nodes for _ in range(10)))
        assert await nodes[1].read("list") == b"x" * 20
    finally:
        for node in nodes:
            await node.close()
