"""Our hub with our own hosts: the one that is part of it, and one that has dialled in. An app sees no difference."""

import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.conformance.daemons import Daemon
from tests.conformance.relay.conftest import OpenApp, RelayDaemon, owners_socket
from tests.conformance.relay.peers import PATIENCE, App, Web
from tests.conftest import Connect

from switchtower.testing.push_client import PushClient

ASK = "printf 'Proceed? (y/n) '; read answer; echo got:$answer:; exit 5"


@pytest.fixture(scope="module")
def dialled(hub: Daemon) -> Iterator[Daemon]:
    daemon = RelayDaemon(hub=hub.http, hub_may="start", http="off", host_id="h-dialled")
    try:
        yield daemon.start()
    finally:
        daemon.discard()


@pytest.fixture(params=["own", "dialled"])
def where(request: pytest.FixtureRequest, here: str, web: Web) -> str:
    if request.param == "own":
        return here
    request.getfixturevalue("dialled")
    return str(web.row_of_host_when("h-dialled", lambda row: row["online"])["id"])


@pytest.mark.requirement("relay:together:a-run", "relay:events:permission-requested", "relay:rows:pending")
async def test_a_run_is_started_asks_is_approved_and_exits(app: App, web: Web, where: str, workspace: Path) -> None:
    answer = await app.envelope("rpc.run.start", host_id=where, tool="codex", cmd=ASK, cwd=str(workspace))
    run_id = answer["data"]["result"]["run_id"]
    assert answer["run_id"] == run_id
    waiting = await app.told("run.awaiting_input", run_id)
    asked = await app.told("run.permission_requested", run_id)
    request_id = asked["data"]["request_id"]
    assert waiting["data"]["request_id"] == request_id
    row = web.get(f"/sessions/{run_id}")
    assert (row["status"], row["host_id"], row["tool"]) == ("awaiting_approval", where, "codex")
    assert (row["pending_request_id"], row["pending_reason"]) == (request_id, "permission")
    await app.command("run.permission.approve", run_id, request_id=request_id)
    await app.told("run.exited", run_id, exit_code=5)
    typed = await app.told("run.input", run_id)
    digest = hashlib.sha256(b"y\n").hexdigest()
    assert typed["data"] == {"actor": "web", "input_id": request_id, "text_redacted": "y\n", "text_sha256": digest}
    assert "got:y:" in app.output(run_id)
    row = web.get(f"/sessions/{run_id}")
    assert (row["status"], row["exit_code"]) == ("exited", 5)
    told = app.events(run_id)
    assert [frame["seq"] for frame in told] == sorted({frame["seq"] for frame in told})
    assert (told[0]["type"], told[0]["seq"], told[-1]["type"]) == ("run.started", 1, "run.exited")
    assert {frame["host_id"] for frame in told} == {where}
    kept = [(message["id"], message["kind"], message["data"]) for message in web.get(f"/runs/{run_id}/messages")]
    assert kept == [(frame["id"], frame["type"], frame["data"]) for frame in told], "history is what was told live"


@pytest.mark.requirement("relay:rpc:run-start-known")
async def test_a_command_that_is_sent_on_the_answer_finds_the_run(app: App, web: Web, where: str, workspace: Path) -> None:
    for number in range(5):
        run_id = await app.start(where, "read line; echo got:$line:", cwd=str(workspace))
        await app.command("run.send_input", run_id, input_id=f"first-{number}", text="word\n")
        assert web.get(f"/sessions/{run_id}")["host_id"] == where
        await app.told("run.exited", run_id, exit_code=0)
        assert "got:word:" in app.output(run_id)
    assert not [frame for frame in app.frames if frame["type"] in ("run.error", "error")]


@pytest.mark.requirement("relay:stop:same-state")
async def test_a_stopped_run_is_cancelled_at_the_hub_as_on_its_host(
    hub: Daemon, app: App, where: str, workspace: Path, request: pytest.FixtureRequest
) -> None:
    run_id = await app.start(where, "echo ready; sleep 1000", cwd=str(workspace))
    await app.output_when(run_id, "ready")
    await app.command("run.stop", run_id)
    exited = await app.told("run.exited", run_id)
    assert exited["data"] == {"exit_code": 143, "outcome": "cancelled"}
    daemons = [hub] if where != "h-dialled" else [hub, request.getfixturevalue("dialled")]
    for daemon in daemons:
        owners = owners_socket(daemon) if daemon is not hub else Web(hub.http, hub.token)
        kept = owners.get(f"/runs/{run_id}")
        assert (kept["status"], kept["exit_code"]) == ("exited", 143)
    async with await PushClient.over_websocket(hub.http, hub.token, patience=PATIENCE) as client:
        await client.hello()
        listed = (await client.ask("list_sessions"))["sessions"]
    assert [session["state"] for session in listed if session["sessionId"] == run_id] == ["cancelled"]


@pytest.mark.requirement("relay:approvals:first-wins", "relay:approvals:provenance", "relay:faults:undeliverable")
async def test_of_two_decisions_the_first_counts_and_says_whose_it_was(
    hub: Daemon, app: App, web: Web, open_app: OpenApp, where: str, workspace: Path
) -> None:
    name = f"decider-{where[-6:]}"
    web.post("/users", {"name": name, "password": "a long password"}, 201)
    token = web.post("/auth/login", {"username": name, "password": "a long password"})["access_token"]
    first = await open_app(hub, token)
    run_id = await app.start(where, ASK, cwd=str(workspace))
    request_id = (await app.told("run.awaiting_input", run_id))["data"]["request_id"]
    await first.command("run.permission.deny", run_id, request_id=request_id)
    decided = (await app.told("run.permission_decided", run_id))["data"]
    assert (decided["request_id"], decided["decision"], decided["actor"]) == (request_id, "deny", "web")
    # Of a run on another host the hub has only that host's word.
    told = decided if where != "h-dialled" else decided["claims"]
    assert (decided["by"] == name, told["by"]) == (where != "h-dialled", name)
    await app.command("run.permission.approve", run_id, request_id=request_id)
    refusal = await app.told("run.error", run_id, request_id=request_id)
    assert refusal["data"]["command"] == "run.permission.approve"
    await app.told("run.exited", run_id)
    assert "got:n:" in app.output(run_id)


@pytest.mark.requirement("relay:rpc:fs-read", "relay:faults:answers-stored", "relay:tools:around")
async def test_what_is_read_is_answered_whole_and_kept_redacted(app: App, web: Web, where: str, workspace: Path) -> None:
    secret = "sk-ant-api03-" + "Zx9yWv8uTs7r" * 5
    (workspace / "notes.txt").write_text(f"the key is {secret}\n")
    run_id = await app.start(where, "read x", cwd=str(workspace))
    await app.told("run.ready", run_id)
    result = await app.call("rpc.fs.read", run_id, request_id=f"secret-{run_id}", path="notes.txt")
    assert result["content"] == f"the key is {secret}\n"
    await app.told("tool.result", run_id, request_id=f"secret-{run_id}")
    assert secret not in str(app.events(run_id))
    assert secret not in str(web.get(f"/runs/{run_id}/messages"))
    await app.command("run.stop", run_id, signal="kill")
    await app.told("run.exited", run_id)


@pytest.mark.requirement("relay:clients:repaint")
async def test_who_subscribes_late_is_shown_the_terminal_as_it_is(
    hub: Daemon, app: App, open_app: OpenApp, where: str, workspace: Path
) -> None:
    run_id = await app.start(where, "echo earlier; read x; echo later", cwd=str(workspace))
    await app.output_when(run_id, "earlier")
    late = await open_app(hub)
    await late.subscribe(run_id)
    screen = await late.told("run.screen", run_id)
    assert "earlier" in screen["data"]["text"]
    await app.command("run.send_input", run_id, input_id=f"go-{run_id}", text="\n")
    await late.told("run.exited", run_id)
    assert "later" in late.output(run_id)
    assert "earlier" not in late.output(run_id), "nothing is told twice"


@pytest.mark.requirement("relay:http:input", "relay:input:once")
async def test_input_over_http_is_typed_once_for_its_id(app: App, web: Web, where: str, workspace: Path) -> None:
    run_id = await app.start(where, "read a; echo got:$a:; read b; echo got:$b:", cwd=str(workspace))
    await app.told("run.ready", run_id)
    for input_id, text in (("i-1", "one\n"), ("i-1", "one\n"), ("i-2", "two\n")):
        asked = {"input_id": f"{input_id}-{run_id}", "text": text, "actor": "cli"}
        assert web.ask("POST", f"/runs/{run_id}/input", asked).status == 204
    await app.told("run.exited", run_id)
    typed = [(frame["data"]["actor"], frame["data"]["text_redacted"]) for frame in app.of(run_id, "run.input")]
    assert typed == [("cli", "one\n"), ("cli", "two\n")]
    assert app.output(run_id).count("got:one:") == app.output(run_id).count("got:two:") == 1


@pytest.mark.requirement("relay:run:deleted")
async def test_a_hub_and_its_apps_learn_that_a_session_was_deleted_on_its_host(
    app: App, web: Web, dialled: Daemon, connect: Connect, workspace: Path
) -> None:
    push = await connect(dialled)
    session_id = (await push.start_session(workspace)).session_id
    await app.told("run.started", session_id)
    await push.ask("delete_session", {}, session_id=session_id)
    await app.told("run.exited", session_id, exit_code=0, deleted=True)
    assert web.get(f"/sessions/{session_id}")["status"] == "exited"
