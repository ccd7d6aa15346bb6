"""Looking at a journal's file from outside: what is sound is called so, and what is not is named with its place."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from switchtower.core import events
from switchtower.core.fold import encode_snapshot, make_card
from switchtower.core.ports import journal
from switchtower.stores import verification as stores_verification
from switchtower.stores.sqlite import inspection, verification
from switchtower.stores.sqlite.journal import SqliteJournal
from switchtower.stores.sqlite.registry import SqliteRegistry
from switchtower.stores.verification import StoreUnreadable
from switchtower.testing.session_driver import SessionDriver


def write_session(session_id: str, *, words: int = 40) -> SessionDriver:
    table = SessionDriver(session_id=session_id)
    run_id = table.send("count")
    for number in range(words):
        table.emit(run_id, events.TextDelta(text=f"word {number} "))
    table.emit(run_id, events.MessageCompleted(message_id="msg_1", text="all the words"))
    return table


def read_table(table: SessionDriver, *, snapshot: bool = True) -> journal.Append:
    receipt = journal.Receipt(table.session.id, "key", "sha", {"accepted": True}, table.now_ms + 10**15)
    return journal.Append(
        session_id=table.session.id,
        epoch=1,
        entries=table.entries,
        receipts=[receipt],
        card=make_card(table.session),
        snapshot=encode_snapshot(table.session) if snapshot else None,
    )


@pytest.fixture
async def path(tmp_path: Path) -> Path:
    """Two sessions, the second without a snapshot."""
    path = tmp_path / "journal.db"
    store = SqliteJournal(path)
    await store.open()
    await store.append(read_table(write_session("sess_a")))
    await store.append(read_table(write_session("sess_b"), snapshot=False))
    await store.close()
    return path


def damage_file(path: Path, *statements: str, values: tuple[object, ...] = ()) -> None:
    with closing(sqlite3.connect(path)) as connection:
        for statement in statements:
            connection.execute(statement, values)
        connection.commit()


def list_problems(path: Path) -> list[str]:
    return [f"{one.place}: {one.what}" for one in verification.verify_journal(path).troubles]


OF_A = "sid = (SELECT sid FROM sessions WHERE session_id = 'sess_a')"


async def test_a_sound_journal_is_counted_and_its_snapshots_are_compared(path: Path) -> None:
    entries = len(write_session("sess_a").entries)
    looked_at: list[tuple[str, int, int]] = []

    report = verification.verify_journal(path, lambda *progress: looked_at.append(progress))

    assert report.is_ok, report.troubles
    assert (report.sessions, report.entries, report.receipts) == (2, 2 * entries, 2)
    assert (report.snapshots, report.snapshots_compared, report.pruned_sessions) == (1, 1, 0)
    assert looked_at[-2:] == [("sessions", 2, 2), ("receipts", 2, 2)]


async def test_it_can_be_looked_at_while_it_is_written(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    store = SqliteJournal(path)
    await store.open()
    try:
        await store.append(read_table(write_session("sess_a")))
        assert verification.verify_journal(path).is_ok
        await store.append(read_table(write_session("sess_b")))
        assert verification.verify_journal(path).sessions == 2
    finally:
        await store.close()


async def test_what_retention_removed_is_no_hole(path: Path) -> None:
    store = SqliteJournal(path)
    await store.open()
    pruned = await store.prune(journal.Retention(keep_entries=10, keep_ms=0), now_ms=2_000)
    await store.close()
    assert pruned > 0

    report = verification.verify_journal(path)

    assert report.is_ok, report.troubles
    assert (report.pruned_sessions, report.snapshots, report.snapshots_compared) == (1, 1, 0)


async def test_an_older_schema_can_be_looked_at_and_a_newer_one_cannot(path: Path) -> None:
    damage_file(path, "PRAGMA user_version = 1")
    assert verification.verify_journal(path).is_ok

    damage_file(path, "PRAGMA user_version = 999")
    with pytest.raises(StoreUnreadable, match=r"is version 999 and this program knows \d+; hint: use the newer program"):
        verification.verify_journal(path)


DELTA = f"DELETE FROM events WHERE {OF_A} AND kind = 'text.delta'"
DAMAGES: dict[str, tuple[str, str]] = {
    "a strip is gone": (DELTA, "is missing, and retention went only through 0"),
    "the end is gone": (
        f"DELETE FROM events WHERE {OF_A} AND seq = (SELECT max(seq) FROM events WHERE {OF_A})",
        "has a snapshot as of seq",
    ),
    "the beginning is gone": (f"DELETE FROM events WHERE {OF_A} AND seq = 1", "sess_a seq 1: 1 is missing"),
    "all is gone": (f"DELETE FROM events WHERE {OF_A}", "sess_a: has no entries"),
    "a seq is there twice": (
        f"UPDATE events SET count = count + 1, data = data || x'0a7b7d' WHERE {OF_A} AND kind = 'text.delta'",
        "is there twice",
    ),
    "two of a kind that stands alone": (
        f"UPDATE events SET count = 2, data = data || x'0a' || data WHERE {OF_A} AND kind = 'message.completed'",
        "2 entries of the kind `message.completed` share a row",
    ),
    "a count is wrong": (
        f"UPDATE events SET count = 3 WHERE {OF_A} AND kind = 'text.delta'",
        "the row holds 40 entries and says 3",
    ),
    "a count is impossible": (f"UPDATE events SET count = -1 WHERE {OF_A} AND seq = 1", "says that it holds -1 entries"),
    "an unknown kind": (
        f"UPDATE events SET kind = 'x.y' WHERE {OF_A} AND seq = 2",
        "`x.y` cannot be read: no event has this kind",
    ),
    "an entry is rubbish": (
        f"UPDATE events SET data = x'ff00' WHERE {OF_A} AND seq = 2",
        "sess_a seq 2: `run.started` cannot be read",
    ),
    "an entry is of another type": (f"UPDATE events SET data = 7 WHERE {OF_A} AND seq = 2", "sess_a seq 2: "),
    "an entry lacks a field": (f"UPDATE events SET data = '{{}}' WHERE {OF_A} AND seq = 1", "sess_a seq 1: "),
    "another first event": (
        f'UPDATE events SET kind = \'warning\', data = CAST(\'{{"code":"A","message":"b"}}\' AS BLOB) WHERE {OF_A} AND seq = 1',
        "does not begin with `session.started`",
    ),
    "a run twice": (
        f"UPDATE events SET (kind, data) = (SELECT kind, data FROM events WHERE {OF_A} AND seq = 2)"
        f" WHERE {OF_A} AND seq = (SELECT max(seq) FROM events WHERE {OF_A})",
        "cannot follow on what was before: one active run per session",
    ),
    "a card is rubbish": ("UPDATE sessions SET card = x'00' WHERE session_id = 'sess_a'", "sess_a: its card cannot be read"),
    "a card of another": (
        "UPDATE sessions SET card = (SELECT card FROM sessions WHERE session_id = 'sess_b') WHERE session_id = 'sess_a'",
        "sess_a: its card is another session's",
    ),
    "a snapshot is rubbish": ("UPDATE snapshots SET data = x'7b'", "its snapshot cannot be read"),
    "a snapshot too far": ("UPDATE snapshots SET seq = seq - 1", "its snapshot is of `sess_a` as of seq"),
    "a snapshot that differs": (
        "UPDATE snapshots SET data = CAST(replace(data, 'all the words', 'other words') AS BLOB)",
        "its snapshot differs from what its entries come to, in text_parts",
    ),
    "pruned beyond the snapshot": (
        "UPDATE sessions SET pruned_through = 20 WHERE session_id = 'sess_b'",
        "sess_b: is pruned through seq 20, which its snapshot (None) does not cover",
    ),
    "strays": ("INSERT INTO snapshots VALUES (99, 1, x'00')", "1 rows of `snapshots` belong to no session"),
    "a receipt is rubbish": (
        "UPDATE receipts SET outcome = x'5b5d' WHERE scope = 'sess_a'",
        "receipt key of sess_a: its outcome",
    ),
    "a receipt without meaning": (
        "UPDATE receipts SET fingerprint = '' WHERE scope = 'sess_a'",
        "it has no scope, key or fingerprint",
    ),
}


@pytest.mark.parametrize("named", DAMAGES)
async def test_damage_is_named_with_its_place(path: Path, named: str) -> None:
    statement, told = DAMAGES[named]
    damage_file(path, statement)

    found = list_problems(path)

    assert any(told in trouble for trouble in found), found
    assert "sess_b" in told or not any("sess_b" in trouble for trouble in found), "the others are well"


async def test_what_should_have_been_pruned_and_is_left_is_told(path: Path) -> None:
    damage_file(path, "UPDATE sessions SET pruned_through = (SELECT max(seq) - 1 FROM events WHERE sid = 1) WHERE sid = 1")

    assert any("`text.delta` is left, and everything like it was pruned" in trouble for trouble in list_problems(path))


async def test_a_session_that_is_being_deleted_may_have_holes(path: Path) -> None:
    damage_file(
        path, "UPDATE sessions SET state = 'deleted' WHERE session_id = 'sess_a'", f"DELETE FROM events WHERE {OF_A} AND seq < 20"
    )

    assert verification.verify_journal(path).is_ok


async def test_a_damaged_page_is_found(path: Path) -> None:
    content = bytearray(path.read_bytes())
    for place in range(2 * 4096, len(content), 4096):
        content[place : place + 64] = b"\xa5" * 64
    path.write_bytes(content)

    report = verification.verify_journal(path)

    assert not report.is_ok
    assert report.troubles[0].place == str(path)


async def test_thousands_of_troubles_are_bounded(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    store = SqliteJournal(path)
    await store.open()
    for number in range(80):
        await store.append(read_table(write_session(f"sess_{number:03}", words=1)))
    await store.close()
    damage_file(path, "UPDATE events SET kind = 'nothing'")

    report = verification.verify_journal(path)

    assert len(report.troubles) <= stores_verification.MAX_PROBLEMS
    assert len([one for one in report.troubles if one.place.startswith("sess_000")]) <= stores_verification.MOST_OF_A_SESSION


@pytest.mark.parametrize("content", [None, b"", b"not a database at all" * 500, b"SQLite format 3\0" + b"\0" * 5_000])
def test_what_is_no_journal_is_refused_with_a_remedy(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "file.db"
    if content is not None:
        path.write_bytes(content)

    with pytest.raises(StoreUnreadable, match="; hint: "):
        verification.verify_journal(path)
    with pytest.raises(StoreUnreadable, match="; hint: "):
        inspection.collect_journal_stats(path)
    with pytest.raises(StoreUnreadable, match="; hint: "):
        inspection.copy_file(path, tmp_path / "copy.db")


async def test_a_registry_is_no_journal(tmp_path: Path) -> None:
    registry = SqliteRegistry(tmp_path / "registry.db")
    await registry.open()
    await registry.close()

    with pytest.raises(StoreUnreadable, match="is not a journal"):
        verification.verify_journal(tmp_path / "registry.db")
    assert inspection.check_copy(tmp_path / "registry.db", inspection.REGISTRY) == []


async def test_looking_changes_nothing(path: Path) -> None:
    before = path.read_bytes()

    verification.verify_journal(path)
    inspection.collect_journal_stats(path)

    assert path.read_bytes() == before
    with inspection.open_readonly(path) as connection, pytest.raises(sqlite3.OperationalError, match="readonly"):
        connection.execute("DELETE FROM sessions")


# Numbers and copies


async def test_the_numbers_add_up(path: Path) -> None:
    counted = inspection.collect_journal_stats(path)

    assert (counted.sessions, counted.snapshots, counted.receipts, counted.states) == (2, 1, 2, {"running": 2})
    assert counted.entries == sum(kind.entries for kind in counted.kinds) == 2 * len(write_session("sess_a").entries)
    assert next(kind.entries for kind in counted.kinds if kind.kind == "text.delta") == 80
    assert {large.session_id for large in counted.largest} == {"sess_a", "sess_b"}
    assert (counted.oldest_ms, counted.newest_ms) == (1_000, 1_000)


async def test_a_copy_is_whole_while_the_journal_is_written_and_is_one_private_file(tmp_path: Path) -> None:
    path, copy = tmp_path / "journal.db", tmp_path / "copy" / "journal.db"
    copy.parent.mkdir()
    store = SqliteJournal(path)
    await store.open()
    try:
        await store.append(read_table(write_session("sess_a")))
        inspection.copy_file(path, copy)
        await store.append(read_table(write_session("sess_b")))
    finally:
        await store.close()

    assert [file.name for file in copy.parent.iterdir()] == ["journal.db"]
    assert copy.stat().st_mode & 0o777 == 0o600
    assert inspection.check_copy(copy, inspection.JOURNAL) == []
    assert (verification.verify_journal(copy).is_ok, verification.verify_journal(copy).sessions) == (True, 1)
    with pytest.raises(FileExistsError):
        inspection.copy_file(path, copy)


async def test_a_quick_look_tells_of_damage_and_of_the_newest_entry(path: Path) -> None:
    with inspection.open_readonly(path) as connection:
        assert inspection.run_quick_check(connection, within_s=30.0) == []
        assert inspection.read_newest_entry_ms(connection) == 1_000
    content = bytearray(path.read_bytes())
    content[-4096:] = b"\xa5" * 4096
    path.write_bytes(content)

    with inspection.open_readonly(path) as connection:
        assert inspection.run_quick_check(connection, within_s=30.0)


async def test_a_quick_look_that_takes_too_long_is_given_up(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    store = SqliteJournal(path)
    await store.open()
    for number in range(30):
        await store.append(read_table(write_session(f"sess_{number}", words=1)))
    await store.close()
    # Many receipts: more steps than there are between two looks at the clock.
    with closing(sqlite3.connect(path)) as connection:
        rows = (("s", str(number), "f", b"{}", 1, 2) for number in range(20_000))
        connection.executemany("INSERT INTO receipts VALUES (?, ?, ?, ?, ?, ?)", rows)
        connection.commit()

    with inspection.open_readonly(path) as connection:
        assert inspection.run_quick_check(connection, within_s=-1.0) is None
        assert inspection.run_quick_check(connection, within_s=60.0) == []
