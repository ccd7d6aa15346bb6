"""`tower backup` and `tower restore` of a PostgreSQL: one form for both stores, one moment, all or nothing."""

import asyncio
import json
import tarfile
from pathlib import Path
from typing import Any

import pytest
from tests.cli.inside import InProcessCommand
from tests.stores.copying import filled

from switchtower.core.ports import journal
from switchtower.stores.postgres import database
from switchtower.stores.postgres.journal import PostgresJournal
from switchtower.stores.postgres.leases import PostgresLeases
from switchtower.stores.transfer import postgres, transfer
from switchtower.testing.session_driver import make_card, make_warning


@pytest.fixture
def store(fresh_dsn: str, tmp_path: Path) -> str:
    """A database with something of everything in it."""

    async def fill() -> None:
        home = await filled.make_home(tmp_path / "elsewhere")
        with filled.read_home(home) as source:
            async with postgres.open_target(fresh_dsn) as target:
                await transfer.copy_store(source, target)
                await target.activate()

    asyncio.run(fill())
    return fresh_dsn


def execute_sql(dsn: str, *queries: str) -> list[Any]:
    async def ask() -> list[Any]:
        connection = await database.connect(dsn)
        try:
            return [await connection.fetchval(query) for query in queries]
        finally:
            await connection.close()

    return asyncio.run(ask())


def make_twin_store(dsn: str, tmp_path: Path) -> list[str]:
    async def compare() -> list[str]:
        with filled.read_home(tmp_path / "elsewhere") as source:
            async with filled.read_database(dsn) as target:
                return (await transfer.compare_stores(source, target)).differences

    return asyncio.run(compare())


def test_a_database_goes_into_a_backup_and_comes_back(
    in_process: InProcessCommand, store: str, empty_dsn: str, tmp_path: Path
) -> None:
    (in_process.home / "config.toml").write_text('log_level = "debug"\n')
    (in_process.home / "data").mkdir()
    (in_process.home / "data/owner.token").write_text("a node's own, which counts for nothing")
    file = str(tmp_path / "b.tar.gz")
    in_process.monkeypatch.setenv("TOWER_STORE", store)

    made = in_process("backup", "--json", "--with-secrets", file)
    assert made.code == 0, made.stderr
    assert [one["name"] for one in made.json["members"]] == [
        *("data/journal.db", "data/registry.db", "data/owner.token", "data/jwt.secret", "config/config.toml")
    ]
    with tarfile.open(file) as archive:
        token = archive.extractfile("data/owner.token")
        assert token is not None
        assert token.read() == filled.SECRETS["owner_token"]

    refused = in_process("restore", file)
    assert refused.code == 1
    assert "would be replaced; hint: --force" in refused.stderr
    execute_sql(store, "DELETE FROM sessions", "DELETE FROM users WHERE name = 'ann'", "UPDATE secrets SET value = 'x'")
    restored = in_process("restore", "--json", "--force", file)
    assert restored.code == 0, restored.stderr
    assert restored.json["restored"] == ["data/journal.db", "data/registry.db", "data/owner.token", "data/jwt.secret"]
    assert restored.json["unchanged"] == ["config/config.toml"]
    assert make_twin_store(store, tmp_path) == []
    (aside,) = restored.json["kept_aside"]
    schema = aside.split("`")[1]
    assert execute_sql(
        store, f"SELECT count(*) FROM {schema}.sessions", f"SELECT count(*) FROM {schema}.events WHERE sid = 1"
    ) == [0, 4]
    assert (in_process.home / "data/owner.token").read_text() == "a node's own, which counts for nothing"

    other = in_process("restore", "--store", empty_dsn, file)
    assert other.code == 0, other.stderr
    assert make_twin_store(empty_dsn, tmp_path) == []


def test_an_archive_of_one_store_is_restored_into_the_other(
    in_process: InProcessCommand, store: str, empty_dsn: str, tmp_path: Path
) -> None:
    from_database, from_files = str(tmp_path / "d.tar.gz"), str(tmp_path / "f.tar.gz")
    assert in_process("backup", "--store", store, "--with-secrets", from_database).code == 0

    into_files = in_process("restore", from_database)
    assert into_files.code == 0, into_files.stderr
    assert (in_process.home / "data/owner.token").read_bytes() == filled.SECRETS["owner_token"]
    with filled.read_home(tmp_path / "elsewhere") as first, filled.read_home(in_process.home / "data") as second:
        assert asyncio.run(transfer.compare_stores(first, second)).differences == []

    assert in_process("backup", "--with-secrets", from_files).code == 0
    into_database = in_process("restore", "--store", empty_dsn, from_files)
    assert into_database.code == 0, into_database.stderr
    assert make_twin_store(empty_dsn, tmp_path) == []


def test_without_secrets_and_users_those_of_the_database_stay(in_process: InProcessCommand, store: str, tmp_path: Path) -> None:
    file = str(tmp_path / "b.tar.gz")
    (in_process.home / "data").mkdir()
    (tmp_path / "elsewhere/journal.db").rename(in_process.home / "data/journal.db")  # nobody ever logged in at this home
    assert in_process("backup", file).code == 0

    restored = in_process("restore", "--force", "--store", store, file)

    assert restored.code == 0, restored.stderr
    assert execute_sql(store, "SELECT count(*) FROM users", "SELECT count(*) FROM marks") == [2, 700]
    assert execute_sql(store, "SELECT value FROM secrets WHERE name = 'jwt_secret'") == [filled.SECRETS["jwt_secret"]]


def test_a_backup_of_a_tower_that_is_written_is_of_one_moment(
    in_process: InProcessCommand, fresh_dsn: str, tmp_path: Path
) -> None:
    """Two sessions are moved on by turns: in no backup is one of them ahead by more than one."""

    async def back_up_while_writing() -> None:
        store = PostgresJournal(fresh_dsn)
        await store.open()
        written = 0
        ended = asyncio.Event()

        async def write() -> None:
            nonlocal written
            while not ended.is_set():
                written += 1
                for session_id in ("sess_a", "sess_b"):
                    await store.append(
                        journal.Append(
                            session_id=session_id, epoch=1, entries=[make_warning(written)], card=make_card(session_id)
                        )
                    )

        writing = asyncio.create_task(write())
        for number in range(3):
            made = await asyncio.to_thread(in_process, "backup", "--store", fresh_dsn, str(tmp_path / f"{number}.tar.gz"))
            assert made.code == 0, made.stderr
        ended.set()
        await writing
        await store.close()

    asyncio.run(back_up_while_writing())
    for number in range(3):
        in_process.monkeypatch.setenv("TOWER_HOME", str(tmp_path / f"home{number}"))
        assert in_process("restore", str(tmp_path / f"{number}.tar.gz")).code == 0
        counted = {one["session_id"]: one["entries"] for one in in_process("journal", "stats", "--json").json["largest"]}
        assert counted.get("sess_a", 0) - counted.get("sess_b", 0) in (0, 1)


def test_a_restore_that_fails_leaves_all_as_it_was(in_process: InProcessCommand, store: str, tmp_path: Path) -> None:
    file = str(tmp_path / "b.tar.gz")
    (in_process.home / "presets").mkdir()
    (in_process.home / "presets/reviewer.toml").write_text('description = "reads"\n')
    assert in_process("backup", "--store", store, file).code == 0
    (in_process.home / "presets/reviewer.toml").unlink()
    (in_process.home / "presets").rmdir()
    (in_process.home / "presets").write_text("in the way of a folder")  # files move last, and this one cannot

    ended = in_process("restore", "--force", "--store", store, file)

    assert ended.code == 1
    assert make_twin_store(store, tmp_path) == []
    assert execute_sql(store, "SELECT count(*) FROM pg_namespace WHERE nspname LIKE 'tower_before%'") == [0]
    (in_process.home / "presets").unlink()
    assert in_process("restore", "--force", "--store", store, file).code == 0


def test_a_database_with_a_node_alive_is_not_restored_into(in_process: InProcessCommand, store: str, tmp_path: Path) -> None:
    file = str(tmp_path / "b.tar.gz")

    async def join() -> None:
        homes = PostgresLeases(store)
        await homes.open()
        await homes.join("node_1", "192.0.2.1:7000", 60_000)
        await homes.close()

    asyncio.run(join())
    assert in_process("backup", "--store", store, file).code == 0  # while it lives
    ended = in_process("restore", "--force", "--store", store, file)
    assert (ended.code, ended.stdout) == (1, b"")
    assert "nothing was restored: nodes are alive" in ended.stderr


def test_a_store_that_is_none_is_refused(in_process: InProcessCommand, empty_dsn: str, tmp_path: Path) -> None:
    file = tmp_path / "b.tar.gz"
    assert "holds no tower; hint: " in in_process("backup", "--store", empty_dsn, str(file)).stderr
    assert "--store is neither `postgresql://…` nor `sqlite`" in in_process("backup", "--store", "mysql://x", str(file)).stderr
    away = in_process("backup", "--store", "postgresql://ann:secret@127.0.0.1:1/x", str(file)).stderr
    assert "cannot be reached" in away
    assert "secret" not in away
    assert not file.exists()
    assert [left.name for left in tmp_path.iterdir()] == ["home"]
    assert json.loads(in_process("config", "show", "--json").stdout)


def test_the_journal_of_a_database_is_verified_and_counted(in_process: InProcessCommand, store: str) -> None:
    in_process.monkeypatch.setenv("TOWER_STORE", store)
    counted = in_process("journal", "stats", "--json").json
    assert (counted["sessions"], counted["entries"], counted["receipts"]) == (5, 831, 7)
    readable = in_process("journal", "stats").text
    assert readable.startswith("database:  postgresql://postgres@/")
    assert "\nlog:" not in readable

    execute_sql(store, "DELETE FROM sessions WHERE session_id IN ('sess_pruned', 'sess_\\\\odd\\0näme')")
    execute_sql(
        store, "DELETE FROM events WHERE sid > 3", "DELETE FROM homes WHERE sid > 3", "DELETE FROM snapshots WHERE sid > 3"
    )
    sound = in_process("journal", "verify")
    assert (sound.code, sound.text) == (0, "ok: 3 sessions, 129 entries, 7 receipts, 3 of 3 snapshots compared\n")
    assert sound.stderr.startswith("checking postgresql://postgres@/")
    execute_sql(store, "DELETE FROM events WHERE sid = 1 AND seq = 2")
    broken = in_process("journal", "verify", store)
    assert broken.code == 1
    assert broken.text.splitlines()[0] == "sess_0 seq 2: 2 is missing, and retention went only through 0"
    assert "hint: keep the database as it is" in broken.stderr
