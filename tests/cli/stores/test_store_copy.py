"""`tower store copy`: what moves, what is refused, and what a kill leaves."""

import asyncio
import signal
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.cli.conftest import TowerCommand
from tests.cli.inside import InProcessCommand
from tests.stores.copying import filled
from tests.warm import processes

from switchtower.cli.storage import store_access, store_location
from switchtower.stores.postgres import database
from switchtower.stores.postgres.leases import PostgresLeases
from switchtower.stores.sqlite.journal import SqliteJournal
from switchtower.stores.transfer import ports, postgres

TIMEOUT = 60


@pytest.fixture
def home(in_process: InProcessCommand) -> Path:
    data = in_process.home / "data"
    asyncio.run(filled.make_home(data))
    (data / "owner.token").write_text("the-owner's-token\n")
    (data / "jwt.secret").write_text("0123456789abcdef")
    (data / "webpush.json").write_text("[]")
    (data / "webpush.key").write_text("\n")  # as good as none
    return in_process.home


def query_database(dsn: str, query: str) -> Any:
    async def ask() -> Any:
        connection = await database.connect(dsn)
        try:
            return await connection.fetchval(query)
        finally:
            await connection.close()

    return asyncio.run(ask())


def test_a_home_goes_to_a_database_and_to_another_home(
    in_process: InProcessCommand, home: Path, empty_dsn: str, tmp_path: Path
) -> None:
    there = in_process("store", "copy", "sqlite", empty_dsn)
    assert (there.code, there.text) == (0, "ok: 5 sessions, 831 entries, 7 receipts, 707 rows of users, logins and hosts\n")
    assert "copying" in there.stderr
    assert (
        query_database(empty_dsn, "SELECT convert_from(value, 'UTF8') FROM secrets WHERE name = 'owner_token'")
        == "the-owner's-token"
    )

    back = in_process("store", "copy", "--json", empty_dsn, f"sqlite:{tmp_path}/back")
    assert back.code == 0, back.stderr
    assert (back.json["ok"], back.json["copied"]["sessions"], back.json["compared"]["differences"]) == (True, 5, [])
    assert (tmp_path / "back/data/jwt.secret").read_text() == "0123456789abcdef"
    assert (tmp_path / "back/data/webpush.json").read_text() == "[]"
    assert not (tmp_path / "back/data/webpush.key").exists()

    for first, second in (("sqlite", empty_dsn), (empty_dsn, f"{tmp_path}/back"), ("sqlite", f"{tmp_path}/back")):
        assert in_process("store", "copy", "--verify-only", first, second).code == 0
    in_process.monkeypatch.setenv("TOWER_HOME", str(tmp_path / "back"))
    assert in_process("store", "copy", "sqlite", str(home)).stderr.endswith(
        "is not empty; hint: name another home; `TOWER_HOME` or a folder makes a new one\n"
    )


def test_a_difference_is_an_error_that_names_the_session(in_process: InProcessCommand, home: Path, fresh_dsn: str) -> None:
    assert in_process("store", "copy", "sqlite", fresh_dsn).code == 0
    filled.change(home / "data/journal.db", "UPDATE events SET ts_ms = 1 WHERE sid = 2 AND seq = 1")
    ended = in_process("store", "copy", "--verify-only", "sqlite", fresh_dsn)
    assert ended.code == 1
    assert ended.text.startswith("sess_1: its entries differ\nnot the same: 5 sessions, ")
    assert in_process("store", "copy", "--verify-only", "--json", "sqlite", fresh_dsn).json["ok"] is False


def test_what_is_in_use_is_refused(tower_command: TowerCommand, fresh_dsn: str) -> None:
    tower_command("run", "--headless", "say: hello")  # its daemon runs on
    ended = tower_command("store", "copy", "sqlite", fresh_dsn)
    assert ended.code == 1
    assert "a daemon is already running" in ended.stderr
    assert "hint: `tower stop`" in ended.stderr

    tower_command("stop")
    copied = tower_command("store", "copy", "sqlite", fresh_dsn)
    assert copied.code == 0, copied.stderr
    assert copied.stdout.startswith(b"ok: 1 sessions, ")
    assert tower_command("journal", "verify", fresh_dsn).code == 0


def test_a_database_with_a_node_alive_is_refused_either_way(
    in_process: InProcessCommand, home: Path, fresh_dsn: str, tmp_path: Path
) -> None:
    async def join() -> None:
        homes = PostgresLeases(fresh_dsn)
        await homes.open()
        await homes.join("node_1", "192.0.2.1:7000", 60_000)
        await homes.close()

    asyncio.run(join())
    for line in (("sqlite", fresh_dsn), (fresh_dsn, str(tmp_path / "other"))):
        ended = in_process("store", "copy", *line)
        assert (ended.code, ended.stdout) == (1, b"")
        assert "node_1 at 192.0.2.1:7000; hint: stop them" in ended.stderr
    with pytest.raises(ports.TransferError, match="nodes are alive"):  # also when it was started during the copy
        asyncio.run(store_access.require_no_live_nodes(store_location.DatabaseStore(fresh_dsn)))
    asyncio.run(store_access.require_no_live_nodes(store_location.parse_location("sqlite")))


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (("sqlite", "sqlite"), "FROM and TO are the same; hint: "),
        (
            ("sqlite", "{home}/data/journal.db"),
            "is not the folder of a home; hint: name the folder above `data`, such as `{home}`",
        ),
        (("{home}/data", "sqlite"), "is not the folder of a home; hint: name the folder above `data`, such as `{home}`"),
        (("/no/such/home", "sqlite"), "there is no journal in `/no/such/home/data`; hint: "),
        (("sqlite", "postgresql://ann:secret@127.0.0.1:1/x"), "`postgresql://ann@127.0.0.1:1/x` cannot be reached: "),
        (("sqlite", "postgresql://ann:se cret@[/x"), "`postgresql://…`: the address of the database is not valid; hint: "),
        (("sqlite", "postgresqlx://ann:secret@db/x"), "FROM or TO is an address of another kind than `postgresql://…`; hint: "),
        (("--resume", "--restart", "sqlite", "/tmp/x"), "--resume and --restart are opposites; hint: "),
    ],
)
def test_what_cannot_be_copied_is_one_line_with_a_remedy(
    in_process: InProcessCommand, home: Path, line: tuple[str, ...], said: str
) -> None:
    ended = in_process("store", "copy", *(word.format(home=home) for word in line))
    assert (ended.code, ended.stdout) == (1, b"")
    assert said.format(home=home) in ended.stderr
    assert len(ended.stderr.splitlines()) == 1
    assert "secret" not in ended.stderr
    assert not Path("/no/such/home").exists()


def test_an_older_file_is_refused_with_a_remedy(in_process: InProcessCommand, home: Path, fresh_dsn: str) -> None:
    with closing(sqlite3.connect(home / "data/journal.db")) as connection:
        connection.execute("PRAGMA user_version = 1")
    assert "start the daemon of this version once" in in_process("store", "copy", "sqlite", fresh_dsn).stderr


def write_many_sessions(path: Path) -> int:
    """More than one commit's worth of sessions."""

    async def fill() -> int:
        store = SqliteJournal(path)
        await store.open()
        await asyncio.gather(*(store.append(filled.make_session_append(f"sess_{number}", words=5)) for number in range(450)))
        await store.close()
        return 450

    return asyncio.run(fill())


def kill_when(command: list[str], environment: dict[str, str], has_moved_on: Callable[[], bool]) -> None:
    process = processes.Popen(command, env=environment, stdin=-3, stdout=-3, stderr=-1)
    deadline = time.monotonic() + TIMEOUT
    while not has_moved_on():
        assert process.stderr is not None
        assert process.poll() is None, process.stderr.read()
        assert time.monotonic() < deadline, "it copies or it ends"
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=TIMEOUT)


def test_a_copy_that_is_killed_goes_on_and_arrives(tower_command: TowerCommand, fresh_dsn: str, tmp_path: Path) -> None:
    sessions = write_many_sessions(tower_command.home / "data/journal.db")
    other = tmp_path / "other"
    there = tower_command.build_command("store", "copy", "--resume", "sqlite", fresh_dsn)
    back = tower_command.build_command("store", "copy", "--resume", fresh_dsn, str(other))
    with asyncio.Runner() as runner:
        connection = runner.run(database.connect(fresh_dsn))

        def arrived() -> int:
            if not runner.run(connection.fetchval("SELECT to_regclass($1) IS NOT NULL", f"{postgres.STAGING}.sessions")):
                return 0
            return int(runner.run(connection.fetchval(f"SELECT count(*) FROM {postgres.STAGING}.sessions")))

        kill_when(there, tower_command.environment, lambda: arrived() > 0)
        so_far = arrived()
        assert 0 < so_far < sessions
        kill_when(there, tower_command.environment, lambda: arrived() > so_far)
        runner.run(connection.close())

    copied = tower_command("store", "copy", "--resume", "--json", "sqlite", fresh_dsn)
    assert copied.code == 0, copied.stderr
    assert copied.json["copied"]["already_there"] > so_far
    assert copied.json["compared"]["sessions"] == sessions
    assert "is not empty; hint: " in tower_command("store", "copy", "--resume", "sqlite", fresh_dsn).stderr

    log = other / "data/journal.db.copying-wal"
    kill_when(back, tower_command.environment, lambda: log.exists() and log.stat().st_size > 500_000)
    assert not (other / "data/journal.db").exists()
    assert "--resume goes on with it" in tower_command("store", "copy", fresh_dsn, str(other)).stderr
    arrived_back = tower_command("store", "copy", "--resume", "--json", fresh_dsn, str(other))
    assert (arrived_back.code, arrived_back.json["compared"]["sessions"]) == (0, sessions), arrived_back.stderr
    assert tower_command("journal", "verify", str(other / "data/journal.db")).stdout.startswith(b"ok: 450 sessions")
    assert [left.name for left in (other / "data").iterdir() if "copying" in left.name] == []
