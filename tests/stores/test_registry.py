"""The registry's contract on both stores, and what only a file can suffer: other processes, `kill -9`, damage."""

import asyncio
import os
import sqlite3
import stat
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from tests.contracts import registry as contracts_registry
from tests.contracts.registry import NOON, MakeRegistry, make_user

from switchtower.core.ports import registry
from switchtower.stores.sqlite.registry import SqliteRegistry
from switchtower.testing.memory.registry import MemoryRegistry


class TestMemoryRegistry(contracts_registry.RegistryContract):
    @pytest.fixture
    def make_registry(self) -> MakeRegistry:
        store = MemoryRegistry()
        return lambda: store


class TestSqliteRegistry(contracts_registry.RegistryContract):
    @pytest.fixture
    def make_registry(self, tmp_path: Path) -> MakeRegistry:
        return lambda: SqliteRegistry(tmp_path / "registry.db")


WRITER = """
import asyncio, os, pathlib, sys
from switchtower.stores.sqlite.registry import SqliteRegistry
from tests.contracts.registry import make_contact, make_token, make_user
from switchtower.core.ports.registry import HostState

async def main(path, writer):
    store = SqliteRegistry(pathlib.Path(path))
    await store.open()
    number = len(await store.load_acknowledgements(writer)) // 2
    while True:
        number += 1
        name = f"{writer}-{number}"
        assert await store.add_user(make_user(name))
        assert await store.add_token(make_token(name, name), checked_hash=make_user().password_hash)
        await store.record_contact(make_contact("host_shared", writer), first_state=HostState.PENDING, most=10)
        await store.store_acknowledgements(writer, [(f"{name}-first", number, 0), (f"{name}-second", number, 0)])
        os.write(1, f"{name}\\n".encode())

asyncio.run(main(*sys.argv[1:]))
"""


async def start_writer(path: Path, writer: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        WRITER,
        str(path),
        writer,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
    )


async def read_until_killed(process: asyncio.subprocess.Process, lines: int) -> list[str]:
    """What the writer said was stored, before and until it was killed."""
    assert process.stdout is not None
    assert process.stderr is not None
    told = [await process.stdout.readline() for _ in range(lines)]
    if b"" in told:
        raise AssertionError((await process.stderr.read()).decode())
    process.kill()
    told += (await process.stdout.read()).splitlines()
    await process.communicate()
    return [line.decode().strip() for line in told]


async def test_processes_that_write_at_once_and_are_killed_lose_nothing_they_told_of(tmp_path: Path) -> None:
    path = tmp_path / "registry.db"
    told: list[str] = []
    for round_number in range(3):
        async with asyncio.timeout(60):
            writers = [await start_writer(path, f"w{number}r{round_number}") for number in range(2)]
            for names in await asyncio.gather(*(read_until_killed(writer, 3 + 7 * round_number) for writer in writers)):
                told += names
        store = SqliteRegistry(path)
        await store.open()
        users = {one.name: one for one in await store.list_users()}
        for name in told:
            assert users[name].last_login_at_ms == NOON
            assert await store.find_token(name) is not None
            marks = await store.load_acknowledgements(name.partition("-")[0])
            assert f"{name}-first" in marks
        for writer in {name.partition("-")[0] for name in told}:
            marks = await store.load_acknowledgements(writer)
            assert {name.removesuffix("-first") for name in marks if name.endswith("-first")} == {
                name.removesuffix("-second") for name in marks if name.endswith("-second")
            }, "one mark call is in one transaction"
        (shared,) = await store.list_hosts()
        assert shared.token_sha256 in ("w0r0", "w1r0"), "the first use is trusted, and only that"
        await store.close()
        with closing(sqlite3.connect(path)) as connection:
            assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


async def test_stores_that_open_a_new_file_at_once_all_get_it(tmp_path: Path) -> None:
    stores = [SqliteRegistry(tmp_path / "registry.db") for _ in range(8)]
    await asyncio.gather(*(store.open() for store in stores))
    for number, store in enumerate(stores):
        assert await store.add_user(make_user(f"user-{number}"))
    assert [len(await store.list_users()) for store in stores] == [8] * 8
    await asyncio.gather(*(store.close() for store in stores))


async def test_what_one_process_changes_another_sees_at_once(tmp_path: Path) -> None:
    here, there = SqliteRegistry(tmp_path / "registry.db"), SqliteRegistry(tmp_path / "registry.db")
    await here.open()
    await there.open()
    await here.add_user(make_user())
    assert await there.find_user("ann") == make_user()
    await there.remove_user("ann", NOON)
    assert await here.find_user("ann") is None
    await here.close()
    await there.close()


async def test_the_file_and_its_folder_are_for_the_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "data" / "registry.db"
    store = SqliteRegistry(path)
    await store.open()
    await store.add_user(make_user())
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    for file in path.parent.iterdir():
        assert stat.S_IMODE(file.stat().st_mode) == 0o600, file
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    await store.close()


async def test_a_file_that_is_no_registry_is_reported_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "registry.db"
    path.write_bytes(b"my diary " * 1_000)
    with pytest.raises(registry.RegistryUnavailable, match="not a database"):
        await SqliteRegistry(path).open()
    assert path.read_bytes() == b"my diary " * 1_000


async def test_a_newer_program_s_file_is_not_touched(tmp_path: Path) -> None:
    path = tmp_path / "registry.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA user_version = 99")
    with pytest.raises(registry.RegistryUnavailable, match="version 99") as refused:
        await SqliteRegistry(path).open()
    assert "hint: use the newer program" in str(refused.value)


@contextmanager
def break_registry(path: Path) -> Iterator[None]:
    """A table that has gone: what is asked of it fails in the middle of a transaction."""
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("ALTER TABLE tokens RENAME TO mislaid")
    yield
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("ALTER TABLE mislaid RENAME TO tokens")


async def test_a_change_that_fails_half_way_changes_nothing_and_the_next_one_works(tmp_path: Path) -> None:
    path = tmp_path / "registry.db"
    store = SqliteRegistry(path)
    await store.open()
    await store.add_user(make_user())
    with break_registry(path), pytest.raises(registry.RegistryUnavailable):
        await store.remove_user("ann", NOON)
    assert await store.find_user("ann") == make_user()
    assert await store.remove_user("ann", NOON)
    await store.close()


async def test_a_change_whose_asker_left_is_whole_or_not_at_all_and_closing_waits_for_it(tmp_path: Path) -> None:
    path = tmp_path / "registry.db"
    store = SqliteRegistry(path)
    await store.open()
    marking = asyncio.create_task(store.store_acknowledgements("hub", [(f"sess_{number}", 1, 0) for number in range(2_000)]))
    await asyncio.sleep(0)
    marking.cancel()
    await asyncio.gather(marking, return_exceptions=True)
    await store.close()
    await store.open()
    assert len(await store.load_acknowledgements("hub")) in (0, 2_000)
    await store.close()
