"""What the page does with sessions beyond relay's own words."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.crash.tower_process import RawPushClient
from tests.daemon.conftest import Connect
from tests.relay.stage import wait_until
from tests.web_server.site import HttpPortClient


async def run_conversation(client: RawPushClient, workspace: Path, *texts: str) -> str:
    session_id = await client.start_session(workspace)
    for number, text in enumerate(texts):
        run_id = await client.send(session_id, text, f"msg_{number}")
        await client.wait_for_event("run_complete", session_id=session_id, run_id=run_id)
    return session_id


async def list_inputs(site: HttpPortClient, run_id: str) -> list[dict[str, Any]]:
    messages = (await site.request_as_owner("GET", f"/runs/{run_id}/messages")).json
    return [message for message in messages if message["kind"] == "run.input"]


async def test_a_conversation_is_forked_before_a_message(http_port: HttpPortClient, connect: Connect, workspace: Path) -> None:
    client = await connect(http_port.daemon)
    session_id = await run_conversation(client, workspace, "say: one", "say: two")
    _, second = await list_inputs(http_port, session_id)
    answer = await http_port.request_as_owner("POST", f"/runs/{session_id}/fork", {"at_id": second["id"]})
    assert (answer.status, answer.json["text"]) == (201, "say: two")
    row = (await http_port.request_as_owner("GET", f"/runs/{answer.json['run_id']}")).json
    assert row["title"].endswith("(fork)")
    whole = await http_port.ask("POST", f"/runs/{session_id}/fork", None, Authorization=f"Bearer {http_port.token}")
    assert (whole.status, whole.json["text"]) == (201, None)


@pytest.mark.parametrize("body", [{"at_id": 1}, {"at_id": 10**9}, {"at_id": -1}, {"at_id": "x"}, [], "x"])
async def test_where_nobody_said_anything_no_fork_begins(
    http_port: HttpPortClient, connect: Connect, workspace: Path, body: Any
) -> None:
    client = await connect(http_port.daemon)
    session_id = await run_conversation(client, workspace, "say: one")
    answer = await http_port.request_as_owner("POST", f"/runs/{session_id}/fork", body)
    assert answer.status in (400, 409)
    assert len((await http_port.request_as_owner("GET", "/runs")).json) == 1


async def test_a_session_is_renamed_and_deleted(http_port: HttpPortClient, connect: Connect, workspace: Path) -> None:
    client = await connect(http_port.daemon)
    session_id = await run_conversation(client, workspace, "say: one")
    assert (await http_port.request_as_owner("PATCH", f"/runs/{session_id}", {"title": "A better name"})).status == 204
    assert (await http_port.request_as_owner("GET", f"/runs/{session_id}")).json["title"] == "A better name"
    for wrong in ({"title": ""}, {"title": "x" * 501}, {}, {"title": 7}):
        assert (await http_port.request_as_owner("PATCH", f"/runs/{session_id}", wrong)).status == 400
    assert (await http_port.request_as_owner("DELETE", f"/runs/{session_id}")).status == 204

    async def is_gone() -> bool:
        return (await http_port.request_as_owner("GET", f"/runs/{session_id}")).status == 404

    assert await wait_until(is_gone)
    assert (await http_port.request_as_owner("DELETE", f"/runs/{session_id}")).status == 404


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("PATCH", "/runs/{}"),
        ("DELETE", "/runs/{}"),
        ("POST", "/runs/{}/fork"),
        ("GET", "/approvals"),
        ("GET", "/models"),
    ],
)
async def test_only_users_do_so_and_only_our_own_page_by_its_cookie(http_port: HttpPortClient, method: str, path: str) -> None:
    path = path.format("sess_01ARZ3NDEKTSV4RRFFQ69G5FAV")
    body = None if method == "GET" else {"title": "x"}
    assert (await http_port.ask(method, path, body)).status == 401
    cookie = await http_port.log_in()
    assert (await http_port.ask(method, path, body, Cookie=cookie, Sec_Fetch_Site="same-site")).status == 403
    assert (await http_port.ask(method, path, body, Cookie=cookie, Sec_Fetch_Site="same-origin")).status == (
        200 if method == "GET" else 404
    )


async def test_what_waits_is_told_with_all_that_is_known_of_it(
    http_port: HttpPortClient, connect: Connect, workspace: Path
) -> None:
    client = await connect(http_port.daemon)
    assert (await http_port.request_as_owner("GET", "/approvals")).json == []
    session_id = await client.start_session(workspace)
    await client.send(session_id, "write notes.txt: hello")
    asked = await client.wait_for_event("approval_required", session_id=session_id)
    (waiting,) = (await http_port.request_as_owner("GET", "/approvals")).json
    row = (await http_port.request_as_owner("GET", f"/runs/{session_id}")).json
    assert (waiting["run_id"], waiting["request_id"]) == (session_id, row["pending_request_id"])
    assert waiting["cwd"] == str(workspace)
    assert waiting["expires_at"].endswith("Z")
    assert "hello" in json.dumps(waiting["details"])
    assert {"call_id", "kind", "tool", "title", "summary", "options", "risk", "always", "run_title", "host_id"} < set(waiting)
    await client.decide(session_id, str(asked.runId), asked.content["approvalId"])
    await client.wait_for_event("run_complete", session_id=session_id)
    assert (await http_port.request_as_owner("GET", "/approvals")).json == []


async def test_what_a_session_can_begin_with(http_port: HttpPortClient, workspace: Path) -> None:
    models = (await http_port.request_as_owner("GET", "/models")).json
    assert [model["provider"] for model in models if model["default"]] == ["demo"]
    (workspace / ".tower").mkdir()
    presets = await http_port.request_as_owner("GET", f"/presets?cwd={workspace}")
    assert (presets.status, presets.json) == (200, [])
    health = (await http_port.get("/health")).json
    assert {"fork", "rename", "delete", "approvals", "models", "presets", "audit", "metrics"} <= set(health["features"])
