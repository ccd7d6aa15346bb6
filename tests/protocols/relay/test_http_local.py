"""The host's own HTTP on its owner's socket: runs, their RPCs, and who may not decide."""

import asyncio
import subprocess
from collections.abc import AsyncIterator

import pytest
from tests.protocols.relay.http_parts import PASSWORD, WebApiHarness, make_success, open_stage

from switchtower.core import events
from switchtower.core.ports import engine
from switchtower.protocols.relay import wire_values

LOCAL = events.Actor(name="owner", via="local", address="local")


@pytest.fixture
async def web_api_harness() -> AsyncIterator[WebApiHarness]:
    async with open_stage() as opened:
        yield opened


async def ask_once(task: engine.Task, context: engine.RunContext) -> engine.RunResult:
    question = engine.ApprovalQuestion(
        call_id="call_1", kind="exec", title="Go on?", summary="go on", details={"command": "x"}, subject="x"
    )
    answer = await context.request_approval(question)
    approved = answer.verdict is events.Verdict.APPROVE
    return make_success() if approved else engine.RunResult(events.Outcome.DENIED, "denied")


async def test_a_run_is_started_and_listed_with_its_folder(web_api_harness: WebApiHarness) -> None:
    (web_api_harness.folder / "sub").mkdir()
    run_id = await web_api_harness.start_run(cwd=str(web_api_harness.folder / "sub"), cols=90, rows=30)
    (row,) = (await web_api_harness.local.get("/runs")).json
    assert (row["run_id"], row["tool"], row["cwd"], row["status"]) == (
        run_id,
        "codex",
        f"{web_api_harness.folder}/sub",
        "running",
    )
    assert row["pid"] is None
    assert (await web_api_harness.local.get(f"/runs/{run_id}")).json == row
    started = (await web_api_harness.list_events(run_id))[0]
    assert isinstance(started, events.SessionStarted)
    assert started.program is not None
    assert (started.program.cols, started.program.rows, started.by) == (90, 30, LOCAL)


async def test_a_run_that_has_ended_is_listed_on_request(web_api_harness: WebApiHarness) -> None:
    async def work(task: engine.Task, desk: engine.RunContext) -> engine.RunResult:
        return make_success()

    run_id = await web_api_harness.start_run(work)
    await web_api_harness.wait_for_end(run_id)
    assert (await web_api_harness.local.get("/runs")).json == []
    assert [row["run_id"] for row in (await web_api_harness.local.get("/runs?all=true")).json] == [run_id]


@pytest.mark.parametrize("asked", [{}, {"cmd": 1}, {"cmd": "x", "cols": 0}, {"cmd": "x", "rows": 10**9}])
async def test_a_run_that_cannot_be_is_refused(web_api_harness: WebApiHarness, asked: object) -> None:
    assert (await web_api_harness.local.post("/runs", asked)).status == 400


async def test_a_command_of_blanks_is_refused_by_the_core(web_api_harness: WebApiHarness) -> None:
    assert (await web_api_harness.local.post("/runs", {"cmd": "  "})).status == 409
    assert (await web_api_harness.local.post("/runs", {"cmd": "", "tool": " "})).status == 409


async def test_input_without_an_id_is_given_one(web_api_harness: WebApiHarness) -> None:
    run_id = await web_api_harness.start_run()
    for _ in range(2):
        assert (await web_api_harness.local.post(f"/runs/{run_id}/input", {"text": "ls\n", "actor": "system"})).status == 204
    first, second = await web_api_harness.wait_for_events(run_id, events.TerminalTyped, 2)
    assert first.input_id != second.input_id
    assert (first.text, first.by) == ("ls\n", LOCAL)


async def test_a_terminal_is_resized(web_api_harness: WebApiHarness) -> None:
    run_id = await web_api_harness.start_run()
    assert (await web_api_harness.local.post(f"/runs/{run_id}/resize", {"cols": 100, "rows": 50})).status == 204
    (resized,) = await web_api_harness.wait_for_events(run_id, events.TerminalResized)
    assert (resized.cols, resized.rows) == (100, 50)
    assert (await web_api_harness.local.post(f"/runs/{run_id}/resize", {"cols": 0, "rows": 50})).status == 400


@pytest.mark.parametrize(("body", "signal"), [(None, "term"), ({"signal": "kill"}, "kill")])
async def test_a_run_is_stopped(web_api_harness: WebApiHarness, body: object, signal: str) -> None:
    run_id = await web_api_harness.start_run()
    assert (await web_api_harness.local.post(f"/runs/{run_id}/stop", body)).json == {"signal": signal}
    await web_api_harness.wait_for_end(run_id)
    again = await web_api_harness.local.post(f"/runs/{run_id}/stop")
    assert (again.status, again.json["error"]) == (409, "run is not active")


async def test_a_signal_that_is_none_is_refused(web_api_harness: WebApiHarness) -> None:
    run_id = await web_api_harness.start_run()
    assert (await web_api_harness.local.post(f"/runs/{run_id}/stop", {"signal": "hup"})).status == 400


@pytest.mark.parametrize(
    ("decision", "verdict"),
    [
        ("approve", events.Verdict.APPROVE),
        ("deny", events.Verdict.DENY_CONTINUE),
        ("abort", events.Verdict.DENY_STOP),
    ],
)
async def test_a_question_is_decided_once(web_api_harness: WebApiHarness, decision: str, verdict: events.Verdict) -> None:
    run_id = await web_api_harness.start_run(ask_once)
    (asked,) = await web_api_harness.wait_for_events(run_id, events.ApprovalRequested)
    row = (await web_api_harness.local.get(f"/runs/{run_id}")).json
    assert (row["status"], row["awaiting_input"]) == ("awaiting_approval", True)
    assert row["pending_request_id"] == wire_values.format_request_id(asked.approval.id)
    told = {"request_id": row["pending_request_id"], "decision": decision}
    assert (await web_api_harness.local.post(f"/runs/{run_id}/permission", told)).status == 204
    (decided,) = await web_api_harness.wait_for_events(run_id, events.ApprovalDecided)
    assert (decided.verdict, decided.by) == (verdict, LOCAL)
    assert (await web_api_harness.local.post(f"/runs/{run_id}/permission", told)).status == 409


async def test_what_is_asked_anew_each_time_cannot_be_approved_for_the_session(web_api_harness: WebApiHarness) -> None:
    run_id = await web_api_harness.start_run(ask_once)
    (asked,) = await web_api_harness.wait_for_events(run_id, events.ApprovalRequested)
    told = {"request_id": wire_values.format_request_id(asked.approval.id), "decision": "approve_for_session"}
    answer = await web_api_harness.local.post(f"/runs/{run_id}/permission", told)
    assert answer.status == 409
    assert "approve it once" in answer.json["error"]


async def test_a_decision_that_is_none_is_refused(web_api_harness: WebApiHarness) -> None:
    run_id = await web_api_harness.start_run(ask_once)
    assert (
        await web_api_harness.local.post(f"/runs/{run_id}/permission", {"request_id": "x", "decision": "perhaps"})
    ).status == 400
    unknown = await web_api_harness.local.post(f"/runs/{run_id}/permission", {"request_id": "x", "decision": "approve"})
    assert (unknown.status, unknown.json["error"]) == (404, "unknown request_id")


async def test_files_are_read_searched_and_listed_by_get_and_by_post(web_api_harness: WebApiHarness) -> None:
    (web_api_harness.folder / "a b.txt").write_text("needle\n")
    run_id = await web_api_harness.start_run()
    read = await web_api_harness.local.post(f"/runs/{run_id}/fs/read", {"path": "a b.txt"})
    assert read.json == {"path": "a b.txt", "content": "needle\n", "truncated": False}
    assert (await web_api_harness.local.get(f"/runs/{run_id}/fs/read?path=a%20b.txt")).json == read.json
    found = (await web_api_harness.local.get(f"/runs/{run_id}/fs/search?q=needle")).json
    assert [(match["path"], match["line"]) for match in found["matches"]] == [("a b.txt", 1)]
    assert (await web_api_harness.local.post(f"/runs/{run_id}/fs/search", {"q": "needle"})).json == found
    listed = (await web_api_harness.local.post(f"/runs/{run_id}/fs/list")).json
    assert "a b.txt" in [entry["name"] for entry in listed["entries"]]
    assert (await web_api_harness.local.get(f"/runs/{run_id}/fs/list?path=.")).json == listed


async def test_git_is_asked(web_api_harness: WebApiHarness) -> None:
    subprocess.run(["git", "init", "-q", str(web_api_harness.folder)], check=True)
    (web_api_harness.folder / "new.txt").write_text("x\n")
    run_id = await web_api_harness.start_run()
    assert "?? new.txt" in (await web_api_harness.local.get(f"/runs/{run_id}/git/status")).json["stdout"]
    assert (await web_api_harness.local.post(f"/runs/{run_id}/git/diff", {"path": "new.txt"})).status == 200


async def test_calls_are_journalled_under_their_short_name_and_as_local(web_api_harness: WebApiHarness) -> None:
    (web_api_harness.folder / "a.txt").write_text("x")
    run_id = await web_api_harness.start_run()
    await web_api_harness.local.post(f"/runs/{run_id}/fs/read", {"path": "a.txt", "request_id": "r-1"})
    await web_api_harness.local.get(f"/runs/{run_id}/fs/read?path=a.txt")
    first, second = await web_api_harness.wait_for_events(run_id, events.RemoteCallStarted, 2)
    assert (first.errand_id, first.tool, first.by) == ("r-1", "fs.read", LOCAL)
    assert second.errand_id != "r-1"
    finished = (await web_api_harness.wait_for_events(run_id, events.RemoteCallFinished, 2))[0]
    assert finished.ok


@pytest.mark.parametrize("path", ["/etc/passwd", "../x", "a/../../x", "missing", "\0"])
async def test_a_path_that_leads_out_is_refused(web_api_harness: WebApiHarness, path: str) -> None:
    run_id = await web_api_harness.start_run()
    answer = await web_api_harness.local.post(f"/runs/{run_id}/fs/read", {"path": path})
    assert answer.status == 409
    assert answer.json["error"]


async def test_a_call_without_what_it_needs_is_refused(web_api_harness: WebApiHarness) -> None:
    run_id = await web_api_harness.start_run()
    assert (await web_api_harness.local.get(f"/runs/{run_id}/fs/read")).status == 400
    assert (await web_api_harness.local.post(f"/runs/{run_id}/bash", {"cmd": 1})).status == 400
    assert (await web_api_harness.local.get(f"/runs/{run_id}/bash?cmd=ls")).status == 405
    assert (await web_api_harness.local.get("/runs/nothing/fs/list")).json == {"error": "unknown run_id"}


async def test_a_command_runs_after_somebody_has_approved_it(web_api_harness: WebApiHarness) -> None:
    run_id = await web_api_harness.start_run()
    asking = asyncio.create_task(
        web_api_harness.local.post(f"/runs/{run_id}/bash", {"cmd": "echo hi; exit 3", "request_id": "r-1"})
    )
    await web_api_harness.wait_for_events(run_id, events.ApprovalRequested)
    decided = {"request_id": "r-1", "decision": "approve"}
    assert (await web_api_harness.local.post(f"/runs/{run_id}/permission", decided)).status == 204
    answer = await asking
    assert answer.status == 200
    assert (answer.json["stdout"], answer.json["exit_code"]) == ("hi\n", 3)


async def test_a_write_that_is_denied_writes_nothing(web_api_harness: WebApiHarness) -> None:
    run_id = await web_api_harness.start_run()
    told = {"path": "a.txt", "content": "x", "request_id": "r-1"}
    asking = asyncio.create_task(web_api_harness.local.post(f"/runs/{run_id}/fs/write", told))
    await web_api_harness.wait_for_events(run_id, events.ApprovalRequested)
    await web_api_harness.local.post(f"/runs/{run_id}/permission", {"request_id": "r-1", "decision": "deny"})
    answer = await asking
    assert (answer.status, answer.json) == (403, {"error": "denied"})
    assert not (web_api_harness.folder / "a.txt").exists()


async def test_who_leaves_is_not_asked_about_any_more(web_api_harness: WebApiHarness) -> None:
    run_id = await web_api_harness.start_run()
    asked = b'{"cmd":"touch was-here"}'
    exchange = await web_api_harness.local.open("POST", f"/runs/{run_id}/bash", Content_Length=str(len(asked)))
    exchange.writer.write(asked)
    await web_api_harness.wait_for_events(run_id, events.ApprovalRequested)
    await exchange.leave()
    (finished,) = await web_api_harness.wait_for_events(run_id, events.RemoteCallFinished)
    assert not finished.ok
    assert not (web_api_harness.folder / "was-here").exists()


async def test_the_admins_endpoints_need_no_token_here(web_api_harness: WebApiHarness) -> None:
    assert (await web_api_harness.local.post("/users", {"name": "ann", "password": PASSWORD})).status == 201
    assert [user["name"] for user in (await web_api_harness.local.get("/users")).json] == ["ann"]
    assert (await web_api_harness.local.ask("PUT", "/users/ann/password", {"password": "another one"})).status == 204
    assert (await web_api_harness.local.get("/tokens")).json == []
    assert [host["id"] for host in (await web_api_harness.local.get("/hosts")).json] == ["host_1"]
    assert (await web_api_harness.local.post("/hosts/nobody/approve")).status == 404
    assert (await web_api_harness.local.ask("DELETE", "/users/ann")).status == 204
    assert (await web_api_harness.local.get("/health")).json["version"] == "1.2.3"


async def test_what_a_browser_would_say_matters_not_here(web_api_harness: WebApiHarness) -> None:
    assert (await web_api_harness.local.get("/runs", Host="anything.example")).status == 200


async def test_a_process_of_a_run_reads_and_asks_but_decides_nothing(web_api_harness: WebApiHarness) -> None:
    (web_api_harness.folder / "a.txt").write_text("x")
    run_id = await web_api_harness.start_run()
    await web_api_harness.connect_from_run(run_id)
    for path in ("/runs", f"/runs/{run_id}", f"/runs/{run_id}/fs/read?path=a.txt", f"/runs/{run_id}/git/status"):
        assert (await web_api_harness.local.get(path)).status != 403
    forbidden = [
        ("POST", "/runs", {"cmd": "sh"}),
        ("POST", f"/runs/{run_id}/input", {"text": "y\n"}),
        ("POST", f"/runs/{run_id}/stdin", None),
        ("POST", f"/runs/{run_id}/stop", None),
        ("POST", f"/runs/{run_id}/resize", {"cols": 10, "rows": 10}),
        ("POST", f"/runs/{run_id}/permission", {"request_id": "x", "decision": "approve"}),
        ("GET", "/users", None),
        ("POST", "/users", {"name": "ann", "password": PASSWORD}),
        ("PUT", "/users/ann/password", {"password": PASSWORD}),
        ("DELETE", "/users/ann", None),
        ("GET", "/tokens", None),
        ("DELETE", "/tokens/x", None),
        ("GET", "/hosts", None),
        ("POST", "/hosts/x/approve", None),
        ("POST", "/hosts/x/refuse", None),
        ("POST", "/hosts/x/rotate", None),
        ("PATCH", "/hosts/x", {"name": "x"}),
        ("DELETE", "/hosts/x", None),
    ]
    for method, path, body in forbidden:
        assert (await web_api_harness.local.ask(method, path, body)).status == 403, (method, path)


async def test_a_process_of_a_run_may_ask_for_what_a_person_decides(web_api_harness: WebApiHarness) -> None:
    run_id = await web_api_harness.start_run()
    owners = await web_api_harness.local.open("GET", "/runs")
    assert (await owners.answer()).status == 200
    await web_api_harness.connect_from_run(run_id)
    asking = asyncio.create_task(web_api_harness.local.post(f"/runs/{run_id}/bash", {"cmd": "echo hi", "request_id": "r-1"}))
    await web_api_harness.wait_for_events(run_id, events.ApprovalRequested)
    (started,) = await web_api_harness.wait_for_events(run_id, events.RemoteCallStarted)
    assert started.by == events.Actor(name="run", via="local", address="local")
    told = b'{"request_id":"r-1","decision":"approve"}'
    owners.begin("POST", f"/runs/{run_id}/permission", {"Host": "x", "Content-Length": str(len(told))})
    owners.writer.write(told)
    assert (await owners.answer()).status == 204
    assert (await asking).json["stdout"] == "hi\n"


async def test_a_process_of_a_run_looks_at_its_own_run_only(web_api_harness: WebApiHarness) -> None:
    own, other = await web_api_harness.start_run(), await web_api_harness.start_run()
    await web_api_harness.connect_from_run(own)
    assert [row["run_id"] for row in (await web_api_harness.local.get("/runs")).json] == [own]
    assert (await web_api_harness.local.get(f"/runs/{own}/fs/list")).status == 200
    for path in (f"/runs/{other}", f"/runs/{other}/fs/list", f"/runs/{other}/stdout"):
        assert (await web_api_harness.local.get(path)).status == 403


async def test_a_run_of_another_host_is_not_of_this_one(web_api_harness: WebApiHarness) -> None:
    await web_api_harness.mirror_run("far/1")
    assert (await web_api_harness.local.get("/runs?all=true")).json == []
    for method, path in (("GET", ""), ("GET", "/fs/list"), ("GET", "/stdout"), ("POST", "/stop"), ("POST", "/stdin")):
        answer = await web_api_harness.local.ask(method, f"/runs/far%2F1{path}")
        assert (answer.status, answer.json) == (404, {"error": "unknown run_id"})


async def test_no_page_is_served_at_the_socket(web_api_harness: WebApiHarness) -> None:
    """A program may forward a port to the socket, and a browser reaches that port."""
    for origin in ("http://localhost:3000", "http://127.0.0.1:8787", "https://evil.example", "null", ""):
        for method, path in (("GET", "/runs"), ("POST", "/runs"), ("GET", "/health"), ("GET", "/users")):
            assert (await web_api_harness.local.ask(method, path, Origin=origin)).status == 403, (origin, path)
