"""The audit's chain finds each change of what was recorded, in both stores; and nothing honest breaks it: a deleted session, a
crash, another version's files."""

import asyncio
import hashlib
import sqlite3
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.relay.stage import RestartableDaemon, wait_until
from tests.stores.copying.filled import read_database, read_home
from tests.stores.postgres.conftest import dsn as dsn
from tests.stores.postgres.conftest import emptied_databases as emptied_databases
from tests.stores.postgres.conftest import shared_server as shared_server

from switchtower.core import codec, events
from switchtower.core.ports import journal, registry
from switchtower.core.roles import Role
from switchtower.stores import audit, verification
from switchtower.stores.audit import ChainReport
from switchtower.stores.postgres import database as postgres_database
from switchtower.stores.postgres import verification as postgres_verification
from switchtower.stores.postgres.journal import PostgresJournal
from switchtower.stores.postgres.registry import PostgresRegistry
from switchtower.stores.sqlite import database
from switchtower.stores.sqlite import verification as sqlite_verification
from switchtower.stores.sqlite.journal import SqliteJournal
from switchtower.stores.sqlite.registry import SqliteRegistry
from switchtower.stores.transfer import postgres, transfer
from switchtower.stores.transfer.sqlite import SqliteTarget
from switchtower.testing.relay_client import RelayApp, RelayHttp
from switchtower.testing.session_driver import NOON, make_card

ANN = events.Actor(name="ann", via="web", device="ci, curl/8", address="192.0.2.7")
TIMEOUT = 60.0


def make_decisions(session: int) -> list[journal.Entry]:
    told: list[events.AnyEvent] = []
    for number in range(4):
        approval_id = f"appr_{session}_{number}"
        asked = events.Approval(approval_id, f"call_{number}", "exec", f"Run {number}", f"make {number}", {}, 1, "f")
        decided = events.ApprovalDecided(approval_id, events.Verdict.APPROVE, ANN, comment="fine")
        told += [events.ApprovalRequested(asked), events.ApprovalExpired(approval_id) if number == 3 else decided]
    return [journal.Entry(seq, NOON + seq, "run_1", event.kind, codec.encode(event)) for seq, event in enumerate(told, 1)]


async def fill(store: journal.Journal) -> None:
    for session in range(3):
        name = f"sess_{session}"
        entries = make_decisions(session)
        await store.append(journal.Append(session_id=name, epoch=1, entries=entries[:5], card=make_card(name)))
        await store.append(journal.Append(session_id=name, epoch=1, entries=entries[5:]))


async def note(store: registry.Registry) -> None:
    for name in ("ann", "bob", "cyd"):
        user = registry.User(name, "$argon2id$", NOON)
        assert await store.add_user(user, note=journal.AuditNote("user.added", NOON, ANN, name, "operator"))


# What an attacker with write access would do, without computing the hashes again.
TAMPERED: dict[str, str] = {
    "a decision's verdict": "UPDATE events SET data = {changed} WHERE kind = 'approval.decided' AND seq = 4",
    "a question's text": "UPDATE events SET data = {changed} WHERE kind = 'approval.requested' AND seq = 3",
    "a decision is removed": "DELETE FROM events WHERE kind = 'approval.decided' AND seq = 6",
    "a decision is added": "UPDATE events SET kind = 'approval.decided' WHERE kind = 'approval.requested' AND seq = 7",
    "a record's actor": "UPDATE audit SET record = {record_changed} WHERE number = 2",
    "a record's digest": "UPDATE audit SET digest = {zeros} WHERE number = 2",
    "a record's time": "UPDATE audit SET ts_ms = ts_ms + 1 WHERE number = 3",
    "a record's session": "UPDATE audit SET session_id = 'sess_2' WHERE number = 3",
    "a record's kind": "UPDATE audit SET kind = 'approval.expired' WHERE number = 4",
    "a record's hash": "UPDATE audit SET hash = {zeros} WHERE number = 5",
    "the first record is removed": "DELETE FROM audit WHERE number = 1",
    "a record is removed": "DELETE FROM audit WHERE number = 6",
    "the last record is removed": "DELETE FROM audit WHERE number = (SELECT max(number) FROM audit)",
    "all records are removed": "DELETE FROM audit",
    "records change places": (
        "UPDATE audit SET number = 1000 WHERE number = 2; UPDATE audit SET number = 2 WHERE number = 4;"
        "UPDATE audit SET number = 4 WHERE number = 1000"
    ),
    "records are renumbered after one is removed": (
        "DELETE FROM audit WHERE number = 6; UPDATE audit SET number = -number WHERE number > 6;"
        "UPDATE audit SET number = -number - 1 WHERE number < 0; UPDATE audit_head SET number = number - 1"
    ),
    "the head is moved back": "UPDATE audit_head SET number = number - 1",
    "a session is removed": "DELETE FROM events WHERE sid = (SELECT min(sid) FROM sessions)",
}
IN_SQLITE = {
    "changed": "CAST(replace(CAST(data AS TEXT), 'e', 'f') AS BLOB)",
    "record_changed": "CAST(replace(CAST(record AS TEXT), 'ann', 'bob') AS BLOB)",
    "zeros": "zeroblob(32)",
}
IN_POSTGRES = {
    "changed": "convert_to(replace(convert_from(data, 'UTF8'), 'e', 'f'), 'UTF8')",
    "record_changed": "convert_to(replace(convert_from(record, 'UTF8'), 'ann', 'bob'), 'UTF8')",
    "zeros": "decode(repeat('00', 32), 'hex')",
}


def check(folder: Path, *wanted: str) -> list[ChainReport]:
    return sqlite_verification.verify_audit_chains(folder / "journal.db", folder / "registry.db", frozenset(wanted))


def change(path: Path, script: str) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(script)


async def make_filled_store(folder: Path) -> None:
    store, accounts = SqliteJournal(folder / "journal.db"), SqliteRegistry(folder / "registry.db")
    await store.open()
    await fill(store)
    await store.close()
    await accounts.open()
    await note(accounts)
    await accounts.close()


async def test_what_was_recorded_holds_and_is_the_same_in_both_stores(dsn: str, tmp_path: Path) -> None:
    await make_filled_store(tmp_path)
    store, accounts = PostgresJournal(dsn), PostgresRegistry(dsn)
    await store.open()
    await fill(store)
    await store.close()
    await accounts.open()
    await note(accounts)
    await accounts.close()

    ours, theirs = check(tmp_path), await postgres_verification.verify_audit_chains(dsn)
    assert [(one.name, one.links, one.broken) for one in ours] == [("sessions", 24, None), ("accounts", 3, None)]
    assert [one.head for one in ours] == [one.head for one in theirs], "PostgreSQL computes what Python computes"
    assert [one async for one in postgres_verification.read_audit_links(dsn)] == list(
        sqlite_verification.read_audit_links(tmp_path / "journal.db", tmp_path / "registry.db")
    )
    assert [one.broken for one in theirs] == [None, None]


@pytest.mark.parametrize("what", TAMPERED)
async def test_each_change_is_found_in_a_file(tmp_path: Path, what: str) -> None:
    await make_filled_store(tmp_path)
    change(tmp_path / "journal.db", TAMPERED[what].format(**IN_SQLITE))
    sessions, accounts = check(tmp_path)
    assert sessions.broken is not None, what
    assert accounts.broken is None


@pytest.mark.parametrize("what", TAMPERED)
async def test_each_change_is_found_in_a_database(dsn: str, what: str) -> None:
    store = PostgresJournal(dsn)
    await store.open()
    await fill(store)
    await store.close()
    connection = await postgres_database.connect(dsn)
    await connection.execute(TAMPERED[what].format(**IN_POSTGRES))
    await connection.close()
    sessions, accounts = await postgres_verification.verify_audit_chains(dsn)
    assert sessions.broken is not None, what
    assert accounts.broken is None


async def test_a_change_of_who_changed_a_user_is_found(tmp_path: Path) -> None:
    await make_filled_store(tmp_path)
    change(tmp_path / "registry.db", f"UPDATE audit SET record = {IN_SQLITE['record_changed']} WHERE number = 2")
    sessions, accounts = check(tmp_path)
    assert sessions.broken is None
    assert accounts.broken is not None
    assert accounts.broken.number == 2


async def test_a_chain_that_was_computed_again_lacks_the_head_that_was_kept(tmp_path: Path) -> None:
    await make_filled_store(tmp_path)
    kept = check(tmp_path)[0].head
    assert check(tmp_path, kept)[0].heads == {kept}
    # With write access, and the source of this program at hand.
    with closing(sqlite3.connect(tmp_path / "journal.db", isolation_level=None)) as connection:
        connection.execute("DELETE FROM events WHERE kind = 'approval.decided' AND seq = 6")
        connection.execute("DELETE FROM audit")
        connection.execute("DELETE FROM audit_head")
    store = SqliteJournal(tmp_path / "journal.db")
    await store.open()
    await store.close()
    (sessions, _) = check(tmp_path, kept)
    assert sessions.broken is None, "so much only the kept head can show"
    assert sessions.heads == set()


async def test_a_head_that_was_kept_is_found_in_a_longer_chain(tmp_path: Path) -> None:
    await make_filled_store(tmp_path)
    kept = check(tmp_path)[0].head
    store = SqliteJournal(tmp_path / "journal.db")
    await store.open()
    await store.append(journal.Append(session_id="sess_9", epoch=1, entries=make_decisions(9), card=make_card("sess_9")))
    await store.close()
    (sessions, _) = check(tmp_path, kept)
    assert (sessions.heads, sessions.links) == ({kept}, 32)
    assert sessions.head != kept


async def test_a_deleted_session_leaves_who_decided_and_breaks_nothing(tmp_path: Path, dsn: str) -> None:
    for store, verify in ((SqliteJournal(tmp_path / "journal.db"), None), (PostgresJournal(dsn), dsn)):
        await store.open()
        await fill(store)
        gone = journal.Entry(9, NOON + 9, None, events.SessionDeleted.kind, codec.encode(events.SessionDeleted(ANN)))
        deleted = msgspec.structs.replace(make_card("sess_1"), state=events.SessionState.DELETED)
        await store.append(journal.Append(session_id="sess_1", epoch=1, entries=[gone], card=deleted))
        sessions = check(tmp_path)[0] if verify is None else (await postgres_verification.verify_audit_chains(verify))[0]
        assert (sessions.broken, sessions.deleted) == (None, 9), "while it goes"
        await store.delete("sess_1")
        await store.close()
        sessions = check(tmp_path)[0] if verify is None else (await postgres_verification.verify_audit_chains(verify))[0]
        assert (sessions.broken, sessions.deleted, sessions.links) == (None, 9, 25)
    kept = [
        link
        for _, link in sqlite_verification.read_audit_links(tmp_path / "journal.db", tmp_path / "none")
        if link.session_id == "sess_1"
    ]
    assert [link.record is None for link in kept] == [True, False] * 4 + [False], "what was asked is gone, who decided is not"
    assert b'"ann"' in (kept[1].record or b"")
    assert b"make" not in b"".join(link.record or b"" for link in kept)


APPENDER = """
import asyncio, os, pathlib, sys
from switchtower.core.ports import journal
from switchtower.stores.sqlite.journal import SqliteJournal
from switchtower.testing.session_driver import make_card
from tests.security.test_audit_chain import make_decisions

async def appender(store, number):
    session = 0
    while True:
        session += 1
        name = f"sess_{number}_{session}_{os.getpid()}"
        entries = make_decisions(session)
        for place in range(0, len(entries), 2):
            await store.append(journal.Append(session_id=name, epoch=1, entries=entries[place:place + 2], card=make_card(name)))
            os.write(1, b"two\\n")

async def main():
    store = SqliteJournal(pathlib.Path(sys.argv[1]))
    await store.open()
    await asyncio.gather(*(appender(store, number) for number in range(8)))

asyncio.run(main())
"""


@pytest.mark.parametrize("after_lines", [1, 7, 40, 111])
async def test_a_kill_between_a_decision_and_its_link_leaves_a_chain_that_holds(tmp_path: Path, after_lines: int) -> None:
    acknowledged = 0
    for _ in range(2):
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", APPENDER, str(tmp_path / "journal.db"), stdout=asyncio.subprocess.PIPE
        )
        assert process.stdout is not None
        async with asyncio.timeout(TIMEOUT):
            told = [await process.stdout.readline() for _ in range(after_lines)]
            process.kill()
            told += (await process.stdout.read()).splitlines()
            await process.wait()
        acknowledged += 2 * len(told)
        (sessions,) = check(tmp_path)
        assert sessions.broken is None
        assert sessions.links >= acknowledged, "whatever was acknowledged is a link"


async def test_a_copy_into_another_store_and_back_is_the_same_chain(tmp_path: Path, dsn: str) -> None:
    here, back = tmp_path / "here", tmp_path / "back"
    for folder in (here, back):
        folder.mkdir()
    await make_filled_store(here)
    store = SqliteJournal(here / "journal.db")
    await store.open()
    gone = journal.Entry(9, NOON + 9, None, events.SessionDeleted.kind, codec.encode(events.SessionDeleted(ANN)))
    deleted = msgspec.structs.replace(make_card("sess_1"), state=events.SessionState.DELETED)
    await store.append(journal.Append(session_id="sess_1", epoch=1, entries=[gone], card=deleted))
    await store.delete("sess_1")
    await store.close()
    before = check(here)

    with read_home(here) as source:
        async with postgres.open_target(dsn) as target:
            await transfer.copy_store(source, target)
            assert (await transfer.compare_stores(source, target)).differences == []
            await target.activate()
    assert await postgres_verification.verify_audit_chains(dsn) == before
    # It goes on there.
    node = PostgresJournal(dsn)
    await node.open()
    await node.append(journal.Append(session_id="sess_9", epoch=1, entries=make_decisions(9), card=make_card("sess_9")))
    await node.close()
    after = await postgres_verification.verify_audit_chains(dsn, frozenset({before[0].head}))
    assert (after[0].broken, after[0].links, after[0].heads) == (None, 33, {before[0].head})

    async with read_database(dsn) as source_there:
        target_here = SqliteTarget(back)
        await transfer.copy_store(source_there, target_here)
        await target_here.activate()
    assert check(back, before[0].head) == after


# Files of the version before


def write_old_file(path: Path, folder: str, newest: int) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None)
    for version, script in database.load_scripts(folder).items():
        if version <= newest:
            connection.executescript(script)
    connection.execute(f"PRAGMA user_version = {newest}")
    return connection


async def test_what_was_decided_before_there_was_a_chain_is_added_to_it_once(tmp_path: Path) -> None:
    with closing(write_old_file(tmp_path / "journal.db", "journal", 3)) as connection:
        for sid in range(2):
            encoded = msgspec.json.encode(make_card(f"sess_{sid}"))
            connection.execute(
                "INSERT INTO sessions (sid, session_id, epoch, state, created_at_ms, updated_at_ms, card)"
                " VALUES (?, ?, 1, 'idle', ?, ?, ?)",
                (sid + 1, f"sess_{sid}", NOON, NOON, encoded),
            )
            for seq, ts_ms, run_id, kind, data in make_decisions(sid):
                connection.execute("INSERT INTO events VALUES (?, ?, 1, ?, ?, ?, ?)", (sid + 1, seq, ts_ms, run_id, kind, data))
    with pytest.raises(verification.StoreUnreadable, match="older version"):
        check(tmp_path)
    heads = set()
    for _ in range(2):
        store = SqliteJournal(tmp_path / "journal.db")
        await store.open()
        await store.close()
        (sessions,) = check(tmp_path)
        assert (sessions.links, sessions.broken) == (16, None)
        heads.add(sessions.head)
    assert len(heads) == 1


async def test_users_of_before_could_do_everything_and_become_admins(tmp_path: Path) -> None:
    with closing(write_old_file(tmp_path / "registry.db", "registry", 1)) as connection:
        connection.execute("INSERT INTO users VALUES ('ann', '$argon2id$', 1, NULL)")
        connection.execute("INSERT INTO tokens VALUES ('tok_1', 'ann', 1, 9999999999999, 'phone', NULL)")
    store = SqliteRegistry(tmp_path / "registry.db")
    await store.open()
    ann, token = await store.find_user("ann"), await store.find_token("tok_1")
    assert ann is not None
    assert ann.role is Role.ADMIN
    assert token is not None
    assert (token.scope, token.name, token.secret_sha256) == (None, "", None)
    await store.add_user(registry.User("bob", "$argon2id$", NOON))
    bob = await store.find_user("bob")
    assert bob is not None
    assert bob.role is Role.OPERATOR
    await store.close()


def test_an_actor_of_before_is_still_read() -> None:
    old = b'{"approval_id":"appr_1","verdict":"approve","by":{"name":"owner","via":"cli","client":"tui 1"}}'
    event = codec.decode(events.ApprovalDecided.kind, old)
    assert isinstance(event, events.ApprovalDecided)
    assert event.by == events.Actor(name="owner", via="cli", client="tui 1")


def test_the_hash_is_the_one_that_the_documentation_describes() -> None:
    link = audit.make_link(audit.FIRST_HASH, 1, 1_700, "sess_1", 5, "approval.decided", b"{}")
    assert link.digest == hashlib.sha256(b"{}").digest()
    assert link.hash == hashlib.sha256(bytes(32) + link.digest + b"1\n1700\n5\napproval.decided\nsess_1").digest()


# A whole daemon


async def start_waiting_question(app: RelayApp, tower: RestartableDaemon) -> dict[str, Any]:
    """A question that waits for a decision."""
    run_id = await app.start(tower.host_id, "sleep 600", cwd=str(tower.workspace))
    await app.send_command("rpc.bash", run_id, request_id="q-1", cmd="echo hi")
    asked: dict[str, Any] = await app.next(lambda frame: frame["type"] == "run.permission_requested")
    return asked


async def test_a_decision_names_user_device_and_address_and_outlives_a_kill() -> None:
    tower = RestartableDaemon("audited")
    try:
        await tower.start()
        made = (
            await tower.http.request("POST", "/users", {"name": "ann", "password": "correct horse", "role": "approver"})
        ).status
        assert made == 201
        token = (await tower.http.request("POST", "/tokens", {"name": "phone", "user": "ann"})).json["token"]
        app = await RelayApp.open(tower.url, tower.token)
        asked = await start_waiting_question(app, tower)
        approver = await RelayApp.open(tower.url, token, headers={"User-Agent": "ann's browser"})
        await approver.send_command("run.permission.approve", asked["run_id"], request_id=asked["data"]["request_id"])
        await app.next(lambda frame: frame["type"] == "run.permission_decided")
        (decision,) = (await tower.http.get("/audit"))["items"]
        assert (decision["by"], decision["via"], decision["device"], decision["address"]) == (
            *("ann", "web"),
            *("phone, ann's browser", "127.0.0.1"),
        )
        await RelayHttp(tower.url, None).login("ann", "correct horse")
        notes = (await tower.http.get("/audit/accounts"))["items"]
        assert [(one["kind"], one["by"], one["subject"]) for one in notes] == [
            ("login", "ann", "ann"),
            ("token.created", "owner", "ann"),
            ("user.added", "owner", "ann"),
        ]
        assert {one["address"] for one in notes} == {"127.0.0.1"}
        tower.kill()

        held = tower.run_tower("audit", "verify")
        assert (held.returncode, held.stderr) == (0, ""), held.stdout
        head = held.stdout.splitlines()[0].rpartition(" ")[2]
        assert tower.run_tower("audit", "verify", "--head", head).returncode == 0
        assert tower.run_tower("audit", "verify", "--head", "00" * 32).returncode == 1
        exported = [msgspec.json.decode(line) for line in tower.run_tower("audit", "export").stdout.splitlines()]
        decided = [one for one in exported if one["kind"] == "approval.decided"]
        assert [one["record"]["by"]["address"] for one in decided] == ["127.0.0.1"]

        change(
            tower.home / "data" / "journal.db", TAMPERED["a decision's verdict"].replace("AND seq = 4", "").format(**IN_SQLITE)
        )
        broken = tower.run_tower("audit", "verify")
        assert broken.returncode == 1
        assert "was changed in the journal" in broken.stdout
        assert (
            msgspec.json.decode(tower.run_tower("audit", "verify", "--json").stdout)[0]["broken"]["number"]
            == decided[0]["number"]
        )
    finally:
        tower.discard()


async def test_guessing_passwords_is_recorded_once_and_not_for_each_try() -> None:
    tower = RestartableDaemon("guessed")
    try:
        await tower.start()
        await tower.http.request("POST", "/users", {"name": "ann", "password": "correct horse"})

        async def limited() -> bool:
            return (await RelayHttp(tower.url, None).login("ann", "wrong horse!")).status == 429

        await wait_until(limited)
        for _ in range(5):
            assert await limited()
        notes = (await tower.http.get("/audit/accounts"))["items"]
        assert [one["kind"] for one in notes].count("login.limited") == 1
    finally:
        tower.discard()
