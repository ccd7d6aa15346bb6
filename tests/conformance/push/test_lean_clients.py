"""Deployed clients send less than the document's schemas demand: what they leave out is filled in."""

from pathlib import Path

import pytest

from switchtower.testing.push_client import PushClient


def make_lean_start(workspace: Path) -> dict[str, object]:
    return {"mode": "tui", "provider": "demo", "repo": {"rootPath": str(workspace)}}


@pytest.mark.requirement("push:lean:hello")
async def test_an_empty_hello_is_answered_like_any_other(client_per_transport: PushClient) -> None:
    assert await client_per_transport.request_payload("hello", {}) == await client_per_transport.send_hello("stream_tokens")


@pytest.mark.requirement("push:lean:start")
async def test_a_tui_that_names_neither_sandbox_nor_branches_gets_an_interactive_session(
    client_per_transport: PushClient, workspace: Path
) -> None:
    answer = await client_per_transport.request_payload("start_session", make_lean_start(workspace))
    started = await client_per_transport.next_event()
    assert (started.type, started.payload) == (
        "session_started",
        {
            "sessionId": answer["sessionId"],
            "state": "idle",
            "mode": "interactive",
            "provider": "demo",
            "sandboxProvider": "local",
        },
    )
    (listed,) = (
        one
        for one in (await client_per_transport.request_payload("list_sessions", {"limit": 200}))["sessions"]
        if one["sessionId"] == answer["sessionId"]
    )
    assert listed["repo"] == {"rootPath": str(workspace), "currentBranch": ""}


@pytest.mark.requirement("push:lean:send")
@pytest.mark.parametrize("left_out", [{}, {"clientMessageId": None}])
async def test_a_message_without_an_id_starts_a_run_each_time(
    client: PushClient, workspace: Path, left_out: dict[str, None]
) -> None:
    session_id = (await client.request_payload("start_session", make_lean_start(workspace)))["sessionId"]
    runs = []
    for _ in range(2):
        answer = await client.request_payload("send_user_message", {"text": "say: hello", **left_out}, session_id=session_id)
        ended = (await client.read_until("run_complete"))[-1]
        assert answer == {"runId": ended.run_id, "accepted": True}
        runs.append(ended.run_id)
    assert len(set(runs)) == 2


@pytest.mark.requirement("push:lean:submit")
async def test_a_decision_without_a_run_counts_once_for_the_run_that_asked(
    client_per_transport: PushClient, workspace: Path
) -> None:
    session_id = (await client_per_transport.request_payload("start_session", make_lean_start(workspace)))["sessionId"]
    await client_per_transport.request_payload("send_user_message", {"text": "run: echo decided"}, session_id=session_id)
    asked = (await client_per_transport.read_until("approval_required"))[-1]
    decision = {"approvalId": asked.payload["approvalId"], "decision": "approve"}
    assert await client_per_transport.request_payload("submit_approval", decision, session_id=session_id) == {"accepted": True}
    events = await client_per_transport.read_until("run_complete")
    assert "decided" in next(event.payload["text"] for event in events if event.type == "tool_result")
    assert (await client_per_transport.request("submit_approval", decision, session_id=session_id)).code == "APPROVAL_EXPIRED"
    stranger = {**decision, "approvalId": "appr_1"}
    assert (await client_per_transport.request("submit_approval", stranger, session_id=session_id)).code == "APPROVAL_NOT_FOUND"


@pytest.mark.requirement("push:envelope:request-id-echoed", "push:envelope:refusal-payload")
@pytest.mark.parametrize("request_id", ["1", "7f9c-uuid", "req ", "ü" * 256, '"}\n\0'])
async def test_a_request_id_of_another_shape_is_refused_under_that_id(client_per_transport: PushClient, request_id: str) -> None:
    response = await client_per_transport.request("ping", requestId=request_id)
    assert response.error is not None
    assert response.frame == {
        "v": "push.runtime.v1",
        "kind": "response",
        "requestId": request_id,
        "type": "ping",
        "ok": False,
        "payload": {},
        "error": {"code": "INVALID_REQUEST", "message": response.error["message"], "retryable": False},
    }
