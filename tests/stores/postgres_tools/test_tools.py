"""A PostgreSQL store looked at from outside: what is sound is called so, what is not is named, and both stores count the same."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest
from tests.stores.copying import filled

from switchtower.core import codec, errors, events
from switchtower.core.ports import journal
from switchtower.stores import verification
from switchtower.stores.postgres import database
from switchtower.stores.postgres import inspection as postgres_inspection
from switchtower.stores.postgres import verification as postgres_verification
from switchtower.stores.postgres.inspection import PostgresAudit, PostgresCounts
from switchtower.stores.postgres.journal import PostgresJournal
from switchtower.stores.postgres.leases import PostgresLeases
from switchtower.stores.sqlite import inspection
from switchtower.stores.sqlite.inspection import SqliteAudit
from switchtower.stores.sqlite.journal import SqliteJournal
from switchtower.stores.verification import JournalStats
from switchtower.testing.session_driver import NOON, make_card, make_warning

NOWHERE = "postgresql://ann:secret@127.0.0.1:1/x"
OWNER = events.Actor(name="owner", via="cli")


@pytest.fixture
async def store(dsn: str) -> AsyncIterator[PostgresJournal]:
    store = PostgresJournal(dsn)
    await store.open()
    yield store
    await store.close()


async def change(dsn: str, *statements: str) -> None:
    connection = await database.connect(dsn)
    for statement in statements:
        await connection.execute(statement)
    await connection.close()


# Verify


async def read_facts(dsn: str) -> list[str]:
    return [f"{one.place}: {one.what}" for one in (await postgres_verification.verify_journal(dsn)).troubles]


async def test_a_sound_store_is_called_sound(store: PostgresJournal, dsn: str) -> None:
    looked_at: list[tuple[str, int, int]] = []
    for number in range(3):
        await store.append(filled.make_session_append(f"sess_{number}", words=700))
    homes = PostgresLeases(dsn)
    await homes.open()
    await homes.join("node_1", "192.0.2.1:1", 60_000)
    await homes.acquire("sess_begun", "node_1")
    await homes.acquire("seat:pi", "node_1")
    await homes.close()

    report = await postgres_verification.verify_journal(dsn, lambda *progress: looked_at.append(progress))

    assert report.troubles == []
    assert (report.sessions, report.entries, report.receipts) == (3, 3 * 703, 6)
    assert (report.snapshots, report.snapshots_compared, report.schema) == (3, 3, max(database.load_scripts()))
    assert looked_at[-1] == ("receipts", 6, 6)
    assert ("sessions", 3, 3) in looked_at


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        ("DELETE FROM events WHERE seq = 2", "sess_0 seq 2: 2 is missing, and retention went only through 0"),
        ("UPDATE events SET data = '{' WHERE seq = 1", "sess_0 seq 1: `session.started` cannot be read: "),
        ("UPDATE events SET kind = 'no.such' WHERE seq = 1", "sess_0 seq 1: `no.such` cannot be read: no event has this kind"),
        ("UPDATE homes SET head = head + 1", "sess_0: its next entry would follow on seq 44, and its last one is 43"),
        ("DELETE FROM homes", "sess_0: nothing says where it lives"),
        ("DELETE FROM sessions", "rows of `homes` belong to no session"),
        ("INSERT INTO events VALUES (99, 1, 1, 1, NULL, 'x', '')", "1 rows of `events` belong to no session"),
        ("UPDATE snapshots SET data = 'x'", "sess_0 seq 43: its snapshot cannot be read: "),
        ("UPDATE snapshots SET seq = 50", "sess_0 seq 50: its snapshot is of `sess_0` as of seq 43"),
        ("UPDATE sessions SET card = 'x'", "sess_0: its card cannot be read: "),
        ("UPDATE sessions SET state = 'failed'", "sess_0: its card is another session's, or of another state than its row"),
        ("UPDATE receipts SET outcome = '[]' WHERE key = 'key'", "receipt key of sess_0: its outcome cannot be read: "),
    ],
)
async def test_what_is_wrong_is_named_with_its_place(store: PostgresJournal, dsn: str, statement: str, said: str) -> None:
    await store.append(filled.make_session_append("sess_0"))
    await change(dsn, statement)
    assert any(said in one for one in await read_facts(dsn)), await read_facts(dsn)


async def test_a_session_that_is_being_deleted_is_no_trouble(store: PostgresJournal, dsn: str) -> None:
    await store.append(filled.make_session_append("sess_0"))
    await change(dsn, "UPDATE sessions SET state = 'deleted'", "DELETE FROM events WHERE seq < 10")
    assert await read_facts(dsn) == []


async def test_a_store_that_is_written_meanwhile_is_verified(store: PostgresJournal, dsn: str) -> None:
    """Each session is looked at as of one moment."""
    await store.append(filled.make_session_append("sess_0"))
    done = asyncio.Event()

    async def write() -> None:
        head = len(filled.make_session_append("sess_0").entries)
        while not done.is_set():
            head += 1
            await store.append(journal.Append(session_id="sess_0", epoch=1, entries=[make_warning(head)]))

    writing = asyncio.create_task(write())
    for _ in range(10):
        assert await read_facts(dsn) == []
    done.set()
    await writing


async def test_what_is_no_store_cannot_be_looked_at(empty_dsn: str, fresh_dsn: str) -> None:
    for look in (postgres_verification.verify_journal, postgres_inspection.collect_journal_stats):
        with pytest.raises(verification.StoreUnreadable, match="holds no tower; hint: "):
            await look(empty_dsn)
        with pytest.raises(verification.StoreUnreadable, match="cannot be reached: ") as refused:
            await look(NOWHERE)
        assert "secret" not in str(refused.value)
    await change(fresh_dsn, "INSERT INTO migrations (version, at) VALUES (9999, now())")
    with pytest.raises(verification.StoreUnreadable, match="version 9999 and this program knows"):
        await postgres_verification.verify_journal(fresh_dsn)


async def test_looking_changes_nothing(empty_dsn: str) -> None:
    with pytest.raises(verification.StoreUnreadable):
        await postgres_verification.verify_journal(empty_dsn)
    assert (await postgres_inspection.check_health(empty_dsn)).schema == 0


# Counting


async def test_both_stores_count_the_same(store: PostgresJournal, dsn: str, tmp_path: Path) -> None:
    other = SqliteJournal(tmp_path / "journal.db")
    await other.open()
    for one in (store, other):
        await filled.fill(one)
    await other.close()

    ours, theirs = await postgres_inspection.collect_journal_stats(dsn), inspection.collect_journal_stats(tmp_path / "journal.db")
    own = ("path", "schema", "file_bytes", "log_bytes", "free_bytes", "kinds", "largest")
    assert _drop_fields(ours, *own) == _drop_fields(theirs, *own)
    # Batches may be packed otherwise: a line feed more or less.
    assert {kind.kind: kind.entries for kind in ours.kinds} == {kind.kind: kind.entries for kind in theirs.kinds}
    assert {large.session_id: large.entries for large in ours.largest} == {one.session_id: one.entries for one in theirs.largest}
    assert ours.file_bytes > 0

    counts = PostgresCounts(dsn)
    assert await counts.count_states() == inspection.count_states(tmp_path / "journal.db") == ours.states
    assert await counts.measure_size() > 0
    await counts.close()
    assert await counts.count_states() == ours.states  # it opens again
    await counts.close()


def _drop_fields(counted: JournalStats, *names: str) -> dict[str, object]:
    return {name: value for name, value in msgspec.to_builtins(counted).items() if name not in names}


async def test_a_database_that_is_away_cannot_be_counted() -> None:
    with pytest.raises(errors.JournalUnavailable):
        await PostgresCounts(NOWHERE).count_states()


# The audit


def make_decision(approval_id: str, number: int) -> list[events.AnyEvent]:
    asked = events.Approval(approval_id, f"call_{number}", "exec", f"Run {number}", f"make {number}", {}, 1, "f")
    decision = events.ApprovalDecided(approval_id, events.Verdict.APPROVE, OWNER, comment="fine")
    return [events.ApprovalRequested(asked), events.ApprovalExpired(approval_id) if number % 3 == 0 else decision]


async def fill_decisions(store: journal.Journal) -> None:
    for session in range(3):
        told = [event for number in range(9) for event in make_decision(f'appr_"{session}_{number}"', number)]
        entries = [
            journal.Entry(seq, NOON + seq // 4, "run_1", event.kind, codec.encode(event)) for seq, event in enumerate(told, 1)
        ]
        session_id = f"sess_{session}"
        await store.append(journal.Append(session_id=session_id, epoch=1, entries=entries, card=make_card(session_id)))


async def read_pages(store: journal.Audit, limit: int, **options: int) -> list[list[journal.AuditRecord]]:
    found: list[list[journal.AuditRecord]] = []
    before: str | None = None
    while not found or before is not None:
        page = await store.read_page(limit, before=before, **options)
        found.append(page.decisions)
        before = page.next
    return found


async def test_both_stores_tell_the_same_decisions(store: PostgresJournal, dsn: str, tmp_path: Path) -> None:
    other = SqliteJournal(tmp_path / "journal.db")
    await other.open()
    for one in (store, other):
        await fill_decisions(one)
    await other.close()
    ours, theirs = PostgresAudit(dsn), SqliteAudit(tmp_path / "journal.db")

    for limit in (1, 4, 27, 100):
        for options in ({}, {"since_ms": NOON + 3}):
            assert _drop_positions(await read_pages(ours, limit, **options)) == _drop_positions(
                await read_pages(theirs, limit, **options)
            )
    (everything,) = await read_pages(ours, 100)
    assert len(everything) == 27
    assert {(one.title, one.summary) for one in everything} == {(f"Run {number}", f"make {number}") for number in range(9)}
    await ours.close()


def _drop_positions(found: list[list[journal.AuditRecord]]) -> list[list[dict[str, object]]]:
    """Places are each store's own."""
    return [[{**msgspec.to_builtins(one), "place": ""} for one in page] for page in found]


async def test_a_deleted_session_s_decisions_are_not_told(store: PostgresJournal, dsn: str) -> None:
    await fill_decisions(store)
    decisions = PostgresAudit(dsn)
    await change(dsn, "UPDATE sessions SET state = 'deleted' WHERE session_id = 'sess_1'")
    (everything,) = await read_pages(decisions, 100)
    assert {one.session_id for one in everything} == {"sess_0", "sess_2"}
    with pytest.raises(journal.InvalidAuditCursor):
        await decisions.read_page(10, before="no place")
    assert await decisions.read_page(10, since_ms=2**70) == journal.AuditPage([], None)
    await decisions.close()


async def test_the_audit_reads_only_what_was_decided(store: PostgresJournal, dsn: str) -> None:
    await fill_decisions(store)
    connection = await database.connect(dsn, {"enable_seqscan": "off"})
    plan = "\n".join(row[0] for row in await connection.fetch(f"EXPLAIN {_DECIDED_NOW}"))
    assert "events_decided" in plan
    await connection.close()


_DECIDED_NOW = (
    "SELECT ts_ms, sid, seq, kind, data FROM events WHERE kind IN ('approval.decided', 'approval.expired')"
    " AND (ts_ms, sid, seq) < (9, 9, 9) AND ts_ms >= 0 ORDER BY ts_ms DESC, sid DESC, seq DESC LIMIT 5"
)


# Health


async def test_a_server_is_examined(store: PostgresJournal, dsn: str) -> None:
    homes = PostgresLeases(dsn)
    await homes.open()
    await homes.join("node_1", "192.0.2.1:1", 60_000)
    await homes.join("node_2", "192.0.2.2:1", 1)
    while len((await postgres_inspection.check_health(dsn)).nodes) > 1:
        pass  # the lease of the second is over in a moment

    examined = await postgres_inspection.check_health(dsn)

    assert examined.version_number >= postgres_inspection.OLDEST
    assert (examined.schema, examined.is_standby, examined.may_create) == (max(database.load_scripts()), False, True)
    assert examined.settings["fsync"] == examined.settings["full_page_writes"] == "on"
    assert examined.nodes == ["node_1 at 192.0.2.1:1"]
    assert 0 < examined.used_connections < examined.most_connections <= 200
    assert abs(examined.clock_ahead_ms) < 5_000
    assert examined.bytes > 0
    await homes.close()
