import asyncio
import os
import resource
import sqlite3
import stat
from collections.abc import AsyncIterator, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from tests.contracts import journal as contracts_journal

from switchtower.core import errors
from switchtower.core.ports import journal
from switchtower.stores.sqlite import database
from switchtower.stores.sqlite.journal import SqliteJournal
from switchtower.testing.session_driver import NOON, make_append, make_card, make_delta, make_deltas, make_receipt, read_seqs


class TestSqliteJournal(contracts_journal.JournalContract):
    @pytest.fixture
    def make_journal(self, tmp_path: Path) -> contracts_journal.MakeJournal:
        return lambda: SqliteJournal(tmp_path / "journal.db")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "data" / "journal.db"


@pytest.fixture
async def store(path: Path) -> AsyncIterator[SqliteJournal]:
    store = SqliteJournal(path)
    await store.open()
    yield store
    await store.close()


def get_mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@contextmanager
def limit_file_size(size: int) -> Iterator[None]:
    """What a full disk does to a write, without filling one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


# The file


async def test_the_files_and_their_folder_are_the_owners_alone_whatever_the_umask(path: Path) -> None:
    umask = os.umask(0)
    try:
        store = SqliteJournal(path)
        await store.open()
        await store.append(make_append("sess_a", [make_delta(1)]))
    finally:
        os.umask(umask)
    assert get_mode(path.parent) == 0o700
    assert {file.name: get_mode(file) for file in path.parent.iterdir()} == {
        "journal.db": 0o600,
        "journal.db-wal": 0o600,
        "journal.db-shm": 0o600,
    }
    await store.close()


async def test_a_file_that_others_could_read_is_closed_to_them(path: Path) -> None:
    path.parent.mkdir()
    path.touch(mode=0o644)
    store = SqliteJournal(path)
    await store.open()
    assert get_mode(path) == 0o600
    await store.close()


def test_a_commit_is_logged_ahead_and_flushed(path: Path) -> None:
    with closing(database.open_for_writing(path)) as connection:
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        assert connection.execute("PRAGMA synchronous").fetchone() == (2,)  # FULL


def test_the_readers_connection_cannot_write(path: Path) -> None:
    with closing(database.open_for_writing(path)) as writing:
        database.migrate(writing)
        with closing(database.open_for_reading(path)) as reading, pytest.raises(sqlite3.OperationalError, match="readonly"):
            reading.execute("DELETE FROM events")


async def test_closing_leaves_one_file_behind(store: SqliteJournal, path: Path) -> None:
    await store.append(make_append("sess_a", make_deltas(1, 10)))
    await store.close()
    assert [file.name for file in path.parent.iterdir()] == ["journal.db"]


async def test_a_schema_newer_than_ours_is_refused_and_left_alone(path: Path) -> None:
    path.parent.mkdir()
    newer = max(database.load_scripts()) + 1
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"PRAGMA user_version = {newer}")
    with pytest.raises(errors.JournalUnavailable, match=f"version {newer}"):
        await SqliteJournal(path).open()
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT name FROM sqlite_master").fetchall() == []


async def test_a_file_that_is_no_database_is_refused_and_left_alone(path: Path) -> None:
    path.parent.mkdir()
    path.write_text("These are my notes, not a journal. " * 100)
    with pytest.raises(errors.JournalUnavailable):
        await SqliteJournal(path).open()
    assert path.read_text().startswith("These are my notes")


async def test_a_folder_that_cannot_be_made_is_reported(tmp_path: Path) -> None:
    (tmp_path / "data").touch()
    with pytest.raises(errors.JournalUnavailable):
        await SqliteJournal(tmp_path / "data" / "journal.db").open()


def test_migrations_are_numbered_without_holes() -> None:
    assert list(database.load_scripts()) == list(range(1, len(database.load_scripts()) + 1))


# The writer


async def test_closing_stores_what_was_handed_over_before(store: SqliteJournal, path: Path) -> None:
    appending = []
    for seq in range(1, 51):
        appending.append(asyncio.ensure_future(store.append(make_append("sess_a", [make_delta(seq)]))))
        await asyncio.sleep(0)
    await store.close()
    async with asyncio.timeout(60):
        await asyncio.gather(*appending)
    again = SqliteJournal(path)
    await again.open()
    assert await read_seqs(again, "sess_a") == list(range(1, 51))
    await again.close()


async def test_an_appender_that_is_cancelled_disturbs_nobody(store: SqliteJournal) -> None:
    await store.append(make_append("sess_a", [make_delta(1)]))
    impatient = asyncio.ensure_future(store.append(make_append("sess_a", [make_delta(2)])))
    neighbour = asyncio.ensure_future(store.append(make_append("sess_b", [make_delta(1)])))
    await asyncio.sleep(0)
    impatient.cancel()
    async with asyncio.timeout(60):
        await neighbour
        await store.append(make_append("sess_a", [make_delta(3)]))
    assert impatient.cancelled()
    assert await read_seqs(store, "sess_a") == [1, 2, 3]


async def test_an_append_that_sqlite_refuses_leaves_its_neighbours_alone(store: SqliteJournal) -> None:
    await store.append(make_append("sess_a", [make_delta(1)]))
    results = await asyncio.gather(
        store.append(make_append("sess_a", [make_delta(2)])),
        store.append(make_append("sess_bad", [make_delta(1, ts_ms=1 << 70)])),
        store.append(make_append("sess_b", [make_delta(1)])),
        store.append(make_append("sess_a", [make_delta(3)])),
        return_exceptions=True,
    )
    assert [type(result) for result in results] == [type(None), OverflowError, type(None), type(None)]
    assert await read_seqs(store, "sess_a") == [1, 2, 3]
    assert await read_seqs(store, "sess_b") == [1]
    assert await store.load("sess_bad") is None


async def test_what_another_process_wrote_meanwhile_is_not_overwritten(store: SqliteJournal, path: Path) -> None:
    await store.append(make_append("sess_a", [make_delta(1)]))
    other = SqliteJournal(path)
    await other.open()
    await other.append(make_append("sess_a", [make_delta(2, NOON + 2)]))
    await other.append(make_append("sess_b", [make_delta(1, NOON + 2)]))
    await other.append(make_append("sess_c", [make_delta(1, NOON + 2)]))
    await other.close()
    await store.append(make_append("sess_d", [make_delta(1)]))
    for mine in (make_append("sess_a", [make_delta(2)]), make_append("sess_b", [make_delta(1)])):
        with pytest.raises(errors.Fenced):
            await store.append(mine)
    await store.append(make_append("sess_a", [make_delta(3)]))
    assert await store.read("sess_a", 0, 10) == [make_delta(1), make_delta(2, NOON + 2), make_delta(3)]
    assert await store.read("sess_b", 0, 10) == [make_delta(1, NOON + 2)]
    assert await store.read("sess_c", 0, 10) == [make_delta(1, NOON + 2)]
    assert await store.read("sess_d", 0, 10) == [make_delta(1)]


async def test_a_disk_that_fails_takes_the_whole_group_and_the_writer_lives_on(store: SqliteJournal, path: Path) -> None:
    await store.append(make_append("sess_a", [make_delta(1)]))
    log_size = path.with_name("journal.db-wal").stat().st_size
    group = [
        make_append("sess_a", make_deltas(2, 800)),
        make_append("sess_b", [make_delta(1)]),
        make_append("sess_a", [make_delta(801)]),
    ]
    for append in group:
        append.card = make_card(append.session_id, updated_at_ms=NOON + 99)
        append.receipts = [make_receipt(f"msg_{append.entries[0].seq}", append.session_id)]
        append.snapshot = b"folded"
    with limit_file_size(log_size + 20_000):
        results = await asyncio.gather(*map(store.append, group), return_exceptions=True)
    assert [type(result) for result in results] == [errors.JournalUnavailable] * 3
    assert await read_seqs(store, "sess_a") == [1]
    assert await store.list_cards(limit=10) == [make_card("sess_a")]
    assert await store.find_receipt("sess_a", "msg_2", NOON) is None
    assert await store.load("sess_a") == journal.StoredSession("sess_a", 1, 0, None)

    await asyncio.gather(*map(store.append, group))
    assert await read_seqs(store, "sess_a") == list(range(1, 802))
    assert await read_seqs(store, "sess_b") == [1]


async def test_a_lone_append_on_a_full_disk_fails_and_can_be_tried_again(store: SqliteJournal, path: Path) -> None:
    await store.append(make_append("sess_a", [make_delta(1)]))
    log_size = path.with_name("journal.db-wal").stat().st_size
    append = make_append("sess_a", make_deltas(2, 60))
    with limit_file_size(log_size), pytest.raises(errors.JournalUnavailable):
        await store.append(append)
    assert await read_seqs(store, "sess_a") == [1]
    await store.append(append)
    assert await read_seqs(store, "sess_a") == list(range(1, 61))


async def test_pruning_on_a_full_disk_fails_and_can_be_tried_again(store: SqliteJournal, path: Path) -> None:
    await store.append(make_append("sess_a", make_deltas(1, 900), snapshot=b"folded"))
    log_size = path.with_name("journal.db-wal").stat().st_size
    retention = journal.Retention(keep_entries=10, keep_ms=0)
    with limit_file_size(log_size), pytest.raises(errors.JournalUnavailable):
        await store.prune(retention, NOON)
    assert await store.find_gap("sess_a", 0) is None
    assert len(await read_seqs(store, "sess_a")) == 900
    assert await store.prune(retention, NOON) == 890


async def test_more_sessions_than_the_writer_remembers_keep_their_place(store: SqliteJournal) -> None:
    sessions = [f"sess_{number}" for number in range(4_500)]
    for seq in (1, 2):
        await asyncio.gather(*(store.append(make_append(session_id, [make_delta(seq)])) for session_id in sessions))
    assert await read_seqs(store, sessions[0]) == [1, 2]
    assert await read_seqs(store, sessions[-1]) == [1, 2]
