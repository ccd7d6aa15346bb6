"""Our hub with our own hosts: the one that is part of it, and one that has dialled in. An app sees no difference."""

import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.conformance.daemons import ManagedDaemon
from tests.conformance.relay.conftest import OpenApp, RelayDaemon, connect_owner_socket
from tests.conformance.relay.peers import TIMEOUT, CheckedApp, CheckedHttp
from tests.conftest import Connect

from switchtower.testing.push_client import PushClient

ASK = "printf 'Proceed? (y/n) '; read answer; echo got:$answer:; exit 5"


@pytest.fixture(scope="module")
def connected_host_daemon(hub: ManagedDaemon) -> Iterator[ManagedDaemon]:
    daemon = RelayDaemon(hub=hub.http, hub_may="start", http="off", host_id="h-dialled")
    try:
        yield daemon.start()
    finally:
        daemon.discard()


@pytest.fixture(params=["own", "dialled"])
def target_host_id(request: pytest.FixtureRequest, local_host_id: str, hub_http: CheckedHttp) -> str:
    if request.param == "own":
        return local_host_id
    request.getfixturevalue("connected_host_daemon")
    return str(hub_http.wait_for_host_row("h-dialled", lambda row: row["online"])["id"])


@pytest.mark.requirement("relay:together:a-run", "relay:events:permission-requested", "relay:rows:pending")
async def test_a_run_is_started_asks_is_approved_and_exits(
    app: CheckedApp, hub_http: CheckedHttp, target_host_id: str, workspace: Path
) -> None:
    answer = await app.request_envelope("rpc.run.start", host_id=target_host_id, tool="codex", cmd=ASK, cwd=str(workspace))
    run_id = answer["data"]["result"]["run_id"]
    assert answer["run_id"] == run_id
    waiting = await app.wait_for_frame("run.awaiting_input", run_id)
    asked = await app.wait_for_frame("run.permission_requested", run_id)
    request_id = asked["data"]["request_id"]
    assert waiting["data"]["request_id"] == request_id
    row = hub_http.get(f"/sessions/{run_id}")
    assert (row["status"], row["host_id"], row["tool"]) == ("awaiting_approval", target_host_id, "codex")
    assert (row["pending_request_id"], row["pending_reason"]) == (request_id, "permission")
    await app.send_command("run.permission.approve", run_id, request_id=request_id)
    await app.wait_for_frame("run.exited", run_id, exit_code=5)
    typed = await app.wait_for_frame("run.input", run_id)
    digest = hashlib.sha256(b"y\n").hexdigest()
    assert typed["data"] == {"actor": "web", "input_id": request_id, "text_redacted": "y\n", "text_sha256": digest}
    assert "got:y:" in app.join_output(run_id)
    row = hub_http.get(f"/sessions/{run_id}")
    assert (row["status"], row["exit_code"]) == ("exited", 5)
    told = app.list_events(run_id)
    assert [frame["seq"] for frame in told] == sorted({frame["seq"] for frame in told})
    assert (told[0]["type"], told[0]["seq"], told[-1]["type"]) == ("run.started", 1, "run.exited")
    assert {frame["host_id"] for frame in told} == {target_host_id}
    kept = [(message["id"], message["kind"], message["data"]) for message in hub_http.get(f"/runs/{run_id}/messages")]
    assert kept == [(frame["id"], frame["type"], frame["data"]) for frame in told], "history is what was told live"


@pytest.mark.requirement("relay:rpc:run-start-known")
async def test_a_command_that_is_sent_on_the_answer_finds_the_run(
    app: CheckedApp, hub_http: CheckedHttp, target_host_id: str, workspace: Path
) -> None:
    for number in range(5):
        run_id = await app.start(target_host_id, "read line; echo got:$line:", cwd=str(workspace))
        await app.send_command("run.send_input", run_id, input_id=f"first-{number}", text="word\n")
        assert hub_http.get(f"/sessions/{run_id}")["host_id"] == target_host_id
        await app.wait_for_frame("run.exited", run_id, exit_code=0)
        assert "got:word:" in app.join_output(run_id)
    assert not [frame for frame in app.frames if frame["type"] in ("run.error", "error")]


@pytest.mark.requirement("relay:stop:same-state")
async def test_a_stopped_run_is_cancelled_at_the_hub_as_on_its_host(
    hub: ManagedDaemon, app: CheckedApp, target_host_id: str, workspace: Path, request: pytest.FixtureRequest
) -> None:
    run_id = await app.start(target_host_id, "echo ready; sleep 1000", cwd=str(workspace))
    await app.wait_for_output(run_id, "ready")
    await app.send_command("run.stop", run_id)
    exited = await app.wait_for_frame("run.exited", run_id)
    assert exited["data"] == {"exit_code": 143, "outcome": "cancelled"}
    daemons = [hub] if target_host_id != "h-dialled" else [hub, request.getfixturevalue("connected_host_daemon")]
    for daemon in daemons:
        owners = connect_owner_socket(daemon) if daemon is not hub else CheckedHttp(hub.http, hub.token)
        kept = owners.get(f"/runs/{run_id}")
        assert (kept["status"], kept["exit_code"]) == ("exited", 143)
    async with await PushClient.connect_websocket(hub.http, hub.token, timeout=TIMEOUT) as client:
        await client.send_hello()
        listed = (await client.request_payload("list_sessions"))["sessions"]
    assert [session["state"] for session in listed if session["sessionId"] == run_id] == ["cancelled"]


@pytest.mark.requirement("relay:approvals:first-wins", "relay:approvals:provenance", "relay:faults:undeliverable")
async def test_of_two_decisions_the_first_counts_and_says_whose_it_was(
    hub: ManagedDaemon, app: CheckedApp, hub_http: CheckedHttp, open_app: OpenApp, target_host_id: str, workspace: Path
) -> None:
    name = f"decider-{target_host_id[-6:]}"
    hub_http.post("/users", {"name": name, "password": "a long password"}, 201)
    token = hub_http.post("/auth/login", {"username": name, "password": "a long password"})["access_token"]
    first = await open_app(hub, token)
    run_id = await app.start(target_host_id, ASK, cwd=str(workspace))
    request_id = (await app.wait_for_frame("run.awaiting_input", run_id))["data"]["request_id"]
    await first.send_command("run.permission.deny", run_id, request_id=request_id)
    decided = (await app.wait_for_frame("run.permission_decided", run_id))["data"]
    assert (decided["request_id"], decided["decision"], decided["actor"]) == (request_id, "deny", "web")
    # Of a run on another host the hub has only that host's word.
    told = decided if target_host_id != "h-dialled" else decided["claims"]
    assert (decided["by"] == name, told["by"]) == (target_host_id != "h-dialled", name)
    await app.send_command("run.permission.approve", run_id, request_id=request_id)
    refusal = await app.wait_for_frame("run.error", run_id, request_id=request_id)
    assert refusal["data"]["command"] == "run.permission.approve"
    await app.wait_for_frame("run.exited", run_id)
    assert "got:n:" in app.join_output(run_id)


@pytest.mark.requirement("relay:rpc:fs-read", "relay:faults:answers-stored", "relay:tools:around")
async def test_what_is_read_is_answered_whole_and_kept_redacted(
    app: CheckedApp, hub_http: CheckedHttp, target_host_id: str, workspace: Path
) -> None:
    secret = "sk-ant-api03-" + "Zx9yWv8uTs7r" * 5
    (workspace / "notes.txt").write_text(f"the key is {secret}\n")
    run_id = await app.start(target_host_id, "read x", cwd=str(workspace))
    await app.wait_for_frame("run.ready", run_id)
    result = await app.call("rpc.fs.read", run_id, request_id=f"secret-{run_id}", path="notes.txt")
    assert result["content"] == f"the key is {secret}\n"
    await app.wait_for_frame("tool.result", run_id, request_id=f"secret-{run_id}")
    assert secret not in str(app.list_events(run_id))
    assert secret not in str(hub_http.get(f"/runs/{run_id}/messages"))
    await app.send_command("run.stop", run_id, signal="kill")
    await app.wait_for_frame("run.exited", run_id)


@pytest.mark.requirement("relay:clients:repaint")
async def test_who_subscribes_late_is_shown_the_terminal_as_it_is(
    hub: ManagedDaemon, app: CheckedApp, open_app: OpenApp, target_host_id: str, workspace: Path
) -> None:
    run_id = await app.start(target_host_id, "echo earlier; read x; echo later", cwd=str(workspace))
    await app.wait_for_output(run_id, "earlier")
    late = await open_app(hub)
    await late.subscribe(run_id)
    screen = await late.wait_for_frame("run.screen", run_id)
    assert "earlier" in screen["data"]["text"]
    await app.send_command("run.send_input", run_id, input_id=f"go-{run_id}", text="\n")
    await late.wait_for_frame("run.exited", run_id)
    assert "later" in late.join_output(run_id)
    assert "earlier" not in late.join_output(run_id), "nothing is told twice"


@pytest.mark.requirement("relay:http:input", "relay:input:once")
async def test_input_over_http_is_typed_once_for_its_id(
    app: CheckedApp, hub_http: CheckedHttp, target_host_id: str, workspace: Path
) -> None:
    run_id = await app.start(target_host_id, "read a; echo got:$a:; read b; echo got:$b:", cwd=str(workspace))
    await app.wait_for_frame("run.ready", run_id)
    for input_id, text in (("i-1", "one\n"), ("i-1", "one\n"), ("i-2", "two\n")):
        asked = {"input_id": f"{input_id}-{run_id}", "text": text, "actor": "cli"}
        assert hub_http.ask("POST", f"/runs/{run_id}/input", asked).status == 204
    await app.wait_for_frame("run.exited", run_id)
    typed = [(frame["data"]["actor"], frame["data"]["text_redacted"]) for frame in app.list_run_frames(run_id, "run.input")]
    assert typed == [("cli", "one\n"), ("cli", "two\n")]
    assert app.join_output(run_id).count("got:one:") == app.join_output(run_id).count("got:two:") == 1


@pytest.mark.requirement("relay:run:deleted")
async def test_a_hub_and_its_apps_learn_that_a_session_was_deleted_on_its_host(
    app: CheckedApp, hub_http: CheckedHttp, connected_host_daemon: ManagedDaemon, connect: Connect, workspace: Path
) -> None:
    push = await connect(connected_host_daemon)
    session_id = (await push.start_session(workspace)).session_id
    await app.wait_for_frame("run.started", session_id)
    await push.request_payload("delete_session", {}, session_id=session_id)
    await app.wait_for_frame("run.exited", session_id, exit_code=0, deleted=True)
    assert hub_http.get(f"/sessions/{session_id}")["status"] == "exited"
