"""A store arrives whole in the other kind of store and comes back the same, also after a kill; what differs is named."""

import sqlite3
from pathlib import Path

import pytest
from tests.contracts.registry import make_token
from tests.stores.copying import filled

from switchtower.core.ports import journal
from switchtower.stores.postgres import database
from switchtower.stores.postgres import verification as postgres_verification
from switchtower.stores.postgres.journal import PostgresJournal
from switchtower.stores.postgres.leases import PostgresLeases
from switchtower.stores.postgres.registry import PostgresRegistry
from switchtower.stores.sqlite import verification
from switchtower.stores.sqlite.journal import SqliteJournal
from switchtower.stores.transfer import ports, postgres, sqlite, transfer
from switchtower.stores.transfer.sqlite import SqliteTarget
from switchtower.stores.verification import StoreUnreadable
from switchtower.testing.postgres_server import PostgresServer
from switchtower.testing.session_driver import NOON, make_card, make_deltas, make_receipt, make_warning


@pytest.fixture
async def home(tmp_path: Path) -> Path:
    return await filled.make_home(tmp_path / "home")


async def move_in(home: Path, dsn: str, **options: bool) -> transfer.TransferResult:
    with filled.read_home(home) as source:
        async with postgres.open_target(dsn, **options) as target:
            moved = await transfer.copy_store(source, target)
            assert (await transfer.compare_stores(source, target)).differences == []
            await target.activate()
    return moved


async def list_differences(home: Path, dsn: str) -> list[str]:
    with filled.read_home(home) as source:
        async with filled.read_database(dsn) as target:
            compared = await transfer.compare_stores(source, target)
    return compared.differences


async def test_a_home_moves_into_a_database_and_out_again_unchanged(home: Path, fresh_dsn: str, tmp_path: Path) -> None:
    moved = await move_in(home, fresh_dsn)

    assert (moved.sessions, moved.already_there, moved.receipts, moved.secrets) == (5, 0, 7, 2)
    assert await list_differences(home, fresh_dsn) == []
    report = await postgres_verification.verify_journal(fresh_dsn)
    assert [(one.place, one.what) for one in report.troubles if "sess_pruned" not in one.place and "odd" not in one.place] == []

    back = tmp_path / "back"
    target = SqliteTarget(back)
    async with filled.read_database(fresh_dsn) as source:
        await transfer.copy_store(source, target)
        assert (await transfer.compare_stores(source, target)).differences == []
        await target.activate()

    assert sorted(file.name for file in back.iterdir()) == ["journal.db", "jwt.secret", "owner.token", "registry.db"]
    assert {file.stat().st_mode & 0o077 for file in back.iterdir()} == {0}
    assert (back / "owner.token").read_bytes() == b"owner's"
    with filled.read_home(home) as first, filled.read_home(back) as second:
        assert (await transfer.compare_stores(first, second)).differences == []
    assert verification.verify_journal(back / "journal.db").sessions == 5


async def test_what_moved_in_is_a_store_that_goes_on(home: Path, empty_dsn: str) -> None:
    await move_in(home, empty_dsn)

    store, registry, homes = PostgresJournal(empty_dsn), PostgresRegistry(empty_dsn), PostgresLeases(empty_dsn)
    for part in (store, registry, homes):
        await part.open()
    assert {one.session_id for one in await store.list_cards(limit=10)} >= {"sess_0", "sess_pruned", "sess_\\odd\0näme"}
    assert [one.session_id for one in await store.list_cards(limit=10, loaded=True)] == ["sess_\\odd\0näme"]
    assert await store.find_gap("sess_pruned", 0) == 801
    assert await store.find_receipt("server", "key", NOON) is not None
    assert await registry.find_token("tok_0") == make_token("tok_0")
    assert await homes.find_owner("sess_2") is None
    stored = await store.load("sess_2")
    assert stored is not None
    assert stored.epoch == 3
    head = (await store.read_back("sess_2", 2**40, 1))[-1].seq
    addition = journal.Append(session_id="sess_2", epoch=3, entries=make_deltas(head + 1, head + 2))
    await store.append(addition)
    begun = journal.Append(session_id="sess_new", epoch=1, entries=make_deltas(1, 1), card=make_card("sess_new"))
    await store.append(begun)  # its place is one that no copied session has
    assert len(await store.read("sess_new", 0, 10)) == 1
    assert len(await store.read("sess_0", 0, 10_000)) == len(filled.make_session_append("sess_0").entries)
    for part in (store, registry, homes):
        await part.close()


async def test_an_interrupted_copy_is_no_store_and_goes_on_when_told_to(home: Path, fresh_dsn: str) -> None:
    with filled.read_home(home) as source:
        with pytest.raises(ZeroDivisionError):
            async with postgres.open_target(fresh_dsn) as target:
                await transfer.copy_journal(source, target, _FailingWriter(after=3))

    async with filled.read_database(fresh_dsn) as seen:
        assert await seen.count_sessions() == 0
    with pytest.raises(ports.TransferError, match="was interrupted; hint: --resume"):
        await move_in(home, fresh_dsn)
    filled.change(home / "journal.db", "UPDATE sessions SET updated_at_ms = updated_at_ms + 1 WHERE session_id = 'sess_0'")
    filled.change(home / "journal.db", "DELETE FROM sessions WHERE session_id = 'sess_1'")
    moved = await move_in(home, fresh_dsn, resume=True)

    assert moved.sessions == 4
    assert await list_differences(home, fresh_dsn) == []


class _FailingWriter:
    """Says where it is, commits what is there, and fails."""

    def __init__(self, after: int) -> None:
        self._left = after

    def __call__(self, *_: object) -> None:
        self._left -= 1
        if not self._left:
            raise ZeroDivisionError


async def test_sessions_that_are_whole_are_not_copied_twice(home: Path, fresh_dsn: str) -> None:
    with filled.read_home(home) as source:
        async with postgres.open_target(fresh_dsn) as target:
            await transfer.copy_store(source, target)  # and then it was killed
    assert (await move_in(home, fresh_dsn, resume=True)).already_there == 5


async def test_what_changed_since_an_interruption_is_copied_again(home: Path, fresh_dsn: str) -> None:
    with filled.read_home(home) as source:
        async with postgres.open_target(fresh_dsn) as target:
            await transfer.copy_store(source, target)
    filled.change(home / "journal.db", "UPDATE sessions SET updated_at_ms = updated_at_ms + 1 WHERE session_id = 'sess_0'")
    filled.change(home / "journal.db", "DELETE FROM sessions WHERE session_id = 'sess_1'")
    filled.change(home / "registry.db", "DELETE FROM users WHERE name = 'bob'")

    assert (await move_in(home, fresh_dsn, resume=True)).already_there == 3
    assert await list_differences(home, fresh_dsn) == []


async def test_a_long_session_and_one_with_large_entries_arrive_page_by_page(tmp_path: Path, fresh_dsn: str) -> None:
    store = SqliteJournal(tmp_path / "journal.db")
    await store.open()
    long = [make_warning(seq) for seq in range(1, 4_502)]
    large = [make_warning(seq)._replace(data=b'"' + b"x" * 900_000 + b'"') for seq in range(1, 6)]
    receipts = [make_receipt(f"key_{number}", "server") for number in range(4_100)]
    for session_id, entries in (("sess_long", long), ("sess_large", large)):
        await store.append(journal.Append(session_id=session_id, epoch=1, entries=entries, card=make_card(session_id)))
    await store.append(journal.Append(session_id="sess_long", epoch=1, entries=[], receipts=receipts))
    await store.close()
    await filled.make_empty_registry(tmp_path / "registry.db")

    moved = await move_in(tmp_path, fresh_dsn)

    assert (moved.entries, moved.receipts) == (4_506, 4_100)
    report = await postgres_verification.verify_journal(fresh_dsn)
    assert (report.entries, report.receipts) == (4_506, 4_100)


async def test_a_copy_can_begin_again(home: Path, fresh_dsn: str) -> None:
    with filled.read_home(home) as source:
        async with postgres.open_target(fresh_dsn) as target:
            await transfer.copy_journal(source, target)
    assert (await move_in(home, fresh_dsn, restart=True)).already_there == 0


async def test_a_filled_database_is_refused_or_kept_aside(home: Path, fresh_dsn: str) -> None:
    await move_in(home, fresh_dsn)
    with pytest.raises(ports.TransferError, match="is not empty"):
        await move_in(home, fresh_dsn)

    with filled.read_home(home) as source:
        async with postgres.open_target(fresh_dsn, replace=True) as target:
            await transfer.copy_journal(source, target)
            await target.activate()
            aside = target.kept_aside

    assert aside is not None
    connection = await database.connect(fresh_dsn)
    assert await connection.fetchval(f"SELECT count(*) FROM {aside}.sessions") == 5
    assert await connection.fetchval("SELECT count(*) FROM tower.users") == 0
    assert await connection.fetchval("SELECT count(*) FROM tower.secrets") == 2  # nobody brought others
    await connection.close()


async def test_a_database_with_a_node_alive_is_refused(home: Path, fresh_dsn: str) -> None:
    homes = PostgresLeases(fresh_dsn)
    await homes.open()
    await homes.join("node_1", "192.0.2.1:7000", 60_000)
    with pytest.raises(ports.TransferError, match=r"nodes are alive on .*node_1 at 192\.0\.2\.1:7000; hint: stop them"):
        await move_in(home, fresh_dsn)
    await homes.leave("node_1")
    await move_in(home, fresh_dsn)
    await homes.join("node_2", "192.0.2.1:7000", 60_000)  # in what is the store now
    assert await homes.acquire("sess_0", "node_2") is not None
    await homes.close()


async def test_two_copies_at_once_are_refused(fresh_dsn: str) -> None:
    async with postgres.open_target(fresh_dsn):
        with pytest.raises(ports.TransferError, match=r"another copy into .* is under way"):
            async with postgres.open_target(fresh_dsn, resume=True, timeout=0):
                raise AssertionError("nobody gets here")


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        ("UPDATE tower.events SET data = data || ' ' WHERE sid = 1 AND seq = 1", "sess_0: its entries differ"),
        ("UPDATE tower.events SET run_id = 'run_x' WHERE sid = 2 AND seq = 2", "sess_1: its entries differ"),
        ("DELETE FROM tower.events WHERE sid = 1 AND seq = 1", "sess_0: it has 42 entries and not 43"),
        ("UPDATE tower.sessions SET card = card || ' ' WHERE sid = 3", "sess_2: card differ"),
        ("UPDATE tower.homes SET epoch = 7 WHERE sid = 1", "sess_0: epoch differ"),
        ("UPDATE tower.snapshots SET data = '' WHERE sid = 1", "sess_0: its snapshot differs"),
        ("DELETE FROM tower.sessions WHERE sid = 1", "sess_0: it is missing"),
        ("UPDATE tower.receipts SET outcome = '{}' WHERE scope = 'server'", "receipts: they differ"),
        ("DELETE FROM tower.receipts WHERE scope = 'server'", "receipts: there are 6 and not 7"),
        ("UPDATE tower.users SET password_hash = 'x' WHERE name = 'ann'", "users: they differ"),
        ("UPDATE tower.secrets SET value = 'x' WHERE name = 'jwt_secret'", "jwt_secret: it is another one"),
    ],
)
async def test_a_difference_is_told_with_its_place(home: Path, fresh_dsn: str, statement: str, said: str) -> None:
    await move_in(home, fresh_dsn)
    connection = await database.connect(fresh_dsn)
    await connection.execute(statement)
    await connection.close()
    assert await list_differences(home, fresh_dsn) == [said]


async def test_a_session_too_many_is_told(home: Path, fresh_dsn: str) -> None:
    await move_in(home, fresh_dsn)
    filled.change(home / "journal.db", "DELETE FROM sessions WHERE session_id = 'sess_0'")
    assert await list_differences(home, fresh_dsn) == ["sess_0: it is there and should not be"]


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE events SET ts_ms = 'noon' WHERE sid = 1 AND seq = 2",
        "UPDATE events SET data = 7 WHERE sid = 1 AND seq = 2",
        "UPDATE events SET run_id = x'00ff' WHERE sid = 1 AND seq = 2",
        "UPDATE events SET kind = 'nul' || char(0) WHERE sid = 1 AND seq = 2",
        "UPDATE sessions SET card = 'text' WHERE sid = 1",
        "UPDATE sessions SET epoch = 'x' WHERE sid = 1",
    ],
)
async def test_a_value_of_another_type_is_told_with_its_session(home: Path, fresh_dsn: str, statement: str) -> None:
    filled.change(home / "journal.db", statement)
    with pytest.raises(ports.TransferError, match="`sess_0` holds a value of another type than it should; hint: see what"):
        await move_in(home, fresh_dsn)


async def test_an_interrupted_copy_into_files_goes_on(home: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    with filled.read_home(home) as source:
        target = SqliteTarget(other)
        await transfer.copy_journal(source, target)
        target.close()
        assert not (other / "journal.db").exists()
        assert sqlite.has_partial_copy(other)

        target = SqliteTarget(other)
        moved = await transfer.copy_store(source, target)
        await target.activate()

    assert moved.already_there == moved.sessions == 5
    assert not sqlite.has_partial_copy(other)
    with filled.read_home(home) as first, filled.read_home(other) as second:
        assert (await transfer.compare_stores(first, second)).differences == []


async def test_what_an_interrupted_copy_left_can_be_thrown_away(home: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    target = SqliteTarget(other)
    with filled.read_home(home) as source:
        await transfer.copy_journal(source, target)
    target.close()
    sqlite.discard_partial_copy(other)
    assert list(other.iterdir()) == []


async def test_a_damaged_file_is_told_as_that(home: Path, fresh_dsn: str) -> None:
    filled.change(home / "journal.db", "UPDATE sessions SET session_id = CAST(x'ff' AS TEXT) WHERE sid = 1")
    with pytest.raises(StoreUnreadable, match="the file cannot be read"):
        await move_in(home, fresh_dsn)
    with pytest.raises(sqlite3.OperationalError):
        with filled.read_home(home) as source:
            source._journal.execute("DELETE FROM sessions")  # it cannot write


async def test_a_server_that_dies_during_a_copy_is_told_and_the_copy_goes_on(
    home: Path, dedicated_server: PostgresServer
) -> None:
    dsn = dedicated_server.make_dsn("postgres")
    left = [3]

    def kill_at_the_third(*_: object) -> None:
        left[0] -= 1
        if not left[0]:
            dedicated_server.kill()

    with filled.read_home(home) as source:
        with pytest.raises(StoreUnreadable, match=r"failed: .*; hint: "):
            async with postgres.open_target(dsn) as target:
                await transfer.copy_store(source, target, kill_at_the_third)

    dedicated_server.start()
    assert (await move_in(home, dsn, resume=True)).sessions == 5
    assert await list_differences(home, dsn) == []
