"""Who decided what: over all sessions, in pages, and on the command line."""

import asyncio
import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.crash.tower_process import RawPushClient
from tests.daemon.conftest import Connect, StartDaemon
from tests.web_server.site import HttpPortClient

from switchtower.core import codec, events
from switchtower.core.ports import journal
from switchtower.core.ports.journal import InvalidAuditCursor
from switchtower.stores.sqlite import database
from switchtower.stores.sqlite.inspection import _ASKED, _DECIDED, SqliteAudit
from switchtower.stores.sqlite.journal import SqliteJournal
from switchtower.testing.relay_client import RelayApp

Tower = Callable[..., "subprocess.CompletedProcess[str]"]


async def decide_command(client: RawPushClient, workspace: Path, command: str, decision: str = "approve", **fields: str) -> str:
    session_id = await client.start_session(workspace)
    await client.send(session_id, f"run: {command}")
    asked = await client.wait_for_event("approval_required", session_id=session_id)
    await client.decide(session_id, str(asked.runId), asked.content["approvalId"], decision, **fields)
    await client.wait_for_event("run_complete", session_id=session_id)
    return session_id


async def test_each_decision_says_who_what_where_and_when(http_port: HttpPortClient, connect: Connect, workspace: Path) -> None:
    client = await connect(http_port.daemon)
    yes = await decide_command(client, workspace, "echo one")
    no = await decide_command(client, workspace, "echo two", "deny", comment="not today")
    audit = (await http_port.request_as_owner("GET", "/audit")).json
    newest, oldest = audit["items"]
    assert audit["next"] is None
    assert (newest["run_id"], oldest["run_id"]) == (no, yes)
    assert (oldest["decision"], oldest["by"], oldest["via"]) == ("approve", "owner", "cli")
    assert newest["decision"].startswith("deny_")
    assert newest["comment"] == "not today"
    assert "echo two" in newest["title"] + newest["summary"]
    assert newest["tool"] == "run"
    assert newest["ts"] >= oldest["ts"]


async def test_a_decision_from_the_page_is_told_apart_from_one_in_the_terminal(
    http_port: HttpPortClient, connect: Connect, workspace: Path
) -> None:
    client = await connect(http_port.daemon)
    session_id = await client.start_session(workspace)
    await client.send(session_id, "run: true")
    await client.wait_for_event("approval_required", session_id=session_id)
    await http_port.request_as_owner("POST", "/users", {"name": "ada", "password": "correct horse battery"})
    login = await http_port.post("/auth/login", {"username": "ada", "password": "correct horse battery"})
    async with await RelayApp.open(http_port.url, login.json["access_token"]) as app:
        (row,) = [run for run in (await http_port.request_as_owner("GET", "/runs")).json if run["id"] == session_id]
        await app.send_command("run.permission.approve", session_id, request_id=row["pending_request_id"])
        await client.wait_for_event("run_complete", session_id=session_id)
    (told,) = (await http_port.request_as_owner("GET", "/audit")).json["items"]
    assert (told["by"], told["via"], told["request_id"]) == ("ada", "web", row["pending_request_id"])


async def test_pages_go_back_to_the_first_without_a_hole_while_new_ones_come(
    http_port: HttpPortClient, connect: Connect, workspace: Path
) -> None:
    client = await connect(http_port.daemon)
    made = [await decide_command(client, workspace, f"echo {number}") for number in range(5)]
    seen: list[str] = []
    before = ""
    while True:
        page = (await http_port.request_as_owner("GET", f"/audit?limit=2{before}")).json
        seen += [item["run_id"] for item in page["items"]]
        if page["next"] is None:
            break
        before = f"&before={page['next']}"
        await decide_command(client, workspace, "echo meanwhile")
    assert seen == made[::-1]


@pytest.mark.parametrize("query", ["before=x", "before=1-2", "before=-1-2-3", f"before={'9' * 99}-1-1", "since=soon", "limit=x"])
async def test_what_is_no_place_or_time_is_400(http_port: HttpPortClient, query: str) -> None:
    assert (await http_port.request_as_owner("GET", f"/audit?{query}")).status == 400


async def test_only_users_see_it(http_port: HttpPortClient) -> None:
    assert (await http_port.get("/audit")).status == 401


async def test_the_command_lists_the_same(http_port: HttpPortClient, connect: Connect, workspace: Path, run_tower: Tower) -> None:
    empty = await asyncio.to_thread(run_tower, "audit")
    assert (empty.returncode, empty.stdout) == (0, "")
    client = await connect(http_port.daemon)
    session_id = await decide_command(client, workspace, "echo hello")
    listed = await asyncio.to_thread(run_tower, "audit")
    assert [word in listed.stdout for word in ("approved", "owner", "cli", session_id, "echo hello")] == [True] * 5
    as_json = json.loads((await asyncio.to_thread(run_tower, "audit", "--json", "--since", "1h")).stdout)
    assert as_json == (await http_port.request_as_owner("GET", "/audit")).json["items"]
    later = await asyncio.to_thread(run_tower, "audit", "--json", "--since", "2999-01-01")
    assert json.loads(later.stdout) == []
    wrong = await asyncio.to_thread(run_tower, "audit", "--since", "soon")
    assert (wrong.returncode, "hint: " in wrong.stderr, "Traceback" in wrong.stderr) == (64, True, False)


async def test_decisions_survive_kill_9_and_go_with_their_session(
    http_port: HttpPortClient, connect: Connect, workspace: Path, start_daemon_process: StartDaemon, home: Path, run_tower: Tower
) -> None:
    client = await connect(http_port.daemon)
    kept = await decide_command(client, workspace, "echo kept")
    gone = await decide_command(client, workspace, "echo gone")
    http_port.daemon.kill()
    again = HttpPortClient(home, await start_daemon_process(http="127.0.0.1:0"))
    assert [item["run_id"] for item in (await again.request_as_owner("GET", "/audit")).json["items"]] == [gone, kept]
    await asyncio.to_thread(run_tower, "delete", gone, "--yes")
    assert [item["run_id"] for item in (await again.request_as_owner("GET", "/audit")).json["items"]] == [kept]


# The store by itself

ACTOR = events.Actor(name="ada", via="web", client="a browser")


def _make_entries(count: int) -> list[journal.Entry]:
    made: list[journal.Entry] = []

    def add(event: events.AnyEvent) -> None:
        made.append(journal.Entry(len(made) + 1, 1_000 + len(made), "run_1", event.kind, codec.encode(event)))

    for number in range(count):
        approval = events.Approval(
            id=f"appr_{number}",
            call_id=f"call_{number}",
            kind="run",
            title=f"Run {number}",
            summary="make test",
            details={"tool": "run"},
            expires_at_ms=1,
            fingerprint="f",
        )
        add(events.ApprovalRequested(approval))
        add(events.ErrorRaised("X", "other things happen too"))
        add(
            events.ApprovalExpired(approval.id)
            if number % 2
            else events.ApprovalDecided(approval.id, events.Verdict.APPROVE, ACTOR, rule=events.Rule("allow", tool="run"))
        )
    return made


@pytest.fixture
async def sqlite_audit(tmp_path: Path) -> Any:
    store = SqliteJournal(tmp_path / "journal.db")
    await store.open()
    card = journal.Card(
        session_id="sess_1",
        state=events.SessionState.IDLE,
        created_at_ms=1,
        updated_at_ms=1,
        workspace=events.Workspace("/w"),
        provider="demo",
        engine="agent",
        title="A title",
    )
    await store.append(journal.Append("sess_1", 1, _make_entries(50), card=card))
    yield SqliteAudit(tmp_path / "journal.db")
    await store.close()


async def test_an_expiry_is_nobody_s_decision(sqlite_audit: SqliteAudit) -> None:
    newest, decided_, *_ = (await sqlite_audit.read_page(2)).decisions
    assert (newest.verdict, newest.by, newest.title) == ("expired", "", "Run 49")
    assert (decided_.verdict, decided_.by, decided_.client, decided_.rule) == ("approve", "ada", "a browser", "allow run")
    assert (decided_.session_title, decided_.tool, decided_.summary) == ("A title", "run", "make test")


async def test_since_leaves_out_what_is_older(sqlite_audit: SqliteAudit) -> None:
    whole = (await sqlite_audit.read_page(100)).decisions
    half = (await sqlite_audit.read_page(100, since_ms=whole[24].ts_ms)).decisions
    assert (len(whole), half) == (50, whole[:25])
    assert ((await sqlite_audit.read_page(50)).next, (await sqlite_audit.read_page(49)).next) == (None, whole[48].place)
    with pytest.raises(InvalidAuditCursor):
        await sqlite_audit.read_page(1, before="1-2-x")


async def test_neither_question_reads_the_journal_from_end_to_end(sqlite_audit: SqliteAudit, tmp_path: Path) -> None:
    connection = database.open_for_reading(tmp_path / "journal.db")
    for sql, values, index in ((_DECIDED, (1, 1, 1, 0, 10), "events_decided"), (_ASKED, (1, 1, 1), "events_asked")):
        (plan,) = connection.execute(f"EXPLAIN QUERY PLAN {sql}", values).fetchall()
        assert f"SEARCH events USING INDEX {index}" in plan[3]
    connection.close()
