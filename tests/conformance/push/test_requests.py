"""Every request when it succeeds, beyond what the contract tests show; and what the envelope allows around it."""

import time
from pathlib import Path
from typing import Any

import pytest
from msgspec import UNSET
from tests.conftest import Connect, StartDaemon

from switchtower.testing.push_client import PushClient, make_start_payload


@pytest.mark.requirement("push:ping:answer")
async def test_ping_is_answered_with_the_daemons_clock_in_milliseconds(client_per_transport: PushClient) -> None:
    before = time.time_ns() // 1_000_000
    response = await client_per_transport.request("ping", requestId="req_p")
    after = time.time_ns() // 1_000_000
    assert response.payload is not None
    ts = response.payload["ts"]
    assert response.frame == {
        "v": "push.runtime.v1",
        "kind": "response",
        "requestId": "req_p",
        "type": "ping",
        "ok": True,
        "payload": {"pong": True, "ts": ts},
        "error": None,
    }
    assert before <= ts <= after


@pytest.mark.requirement("push:hello:answer")
async def test_hello_takes_capabilities_that_it_has_never_heard_of_and_may_be_repeated(client: PushClient) -> None:
    first = await client.send_hello("teleport")
    assert await client.send_hello() == first


@pytest.mark.requirement("push:start:answer")
async def test_each_session_has_its_own_id_and_token(client: PushClient, workspace: Path) -> None:
    one, other = await client.start_session(workspace), await client.start_session(workspace)
    assert one.session_id != other.session_id
    assert one.attach_token != other.attach_token


@pytest.mark.requirement("push:start:required-fields")
async def test_start_session_takes_every_field_of_the_document(client: PushClient, workspace: Path) -> None:
    repo = {
        "rootPath": str(workspace),
        "remoteUrl": "git@example.org:owner/repo.git",
        "currentBranch": "topic",
        "defaultBranch": "main",
    }
    metadata = {"source": "cli", "nested": {"list": [1, 2.5, None, True, "ü"], "large": 10**30}}
    session = await client.start_session(workspace, mode="headless", repo=repo, metadata=metadata)
    started = await client.next_event()
    assert started.payload == {
        "sessionId": session.session_id,
        "state": "idle",
        "mode": "headless",
        "provider": "demo",
        "sandboxProvider": "local",
    }
    listed = (await client.request_payload("list_sessions", {"limit": 200}))["sessions"]
    (found,) = (one for one in listed if one["sessionId"] == session.session_id)
    assert found["repo"] == {"rootPath": str(workspace), "currentBranch": "topic"}


@pytest.mark.requirement("push:list:resumable-sessions")
async def test_list_sessions_has_the_last_updated_first_with_state_time_and_repo(
    dedicated_daemon: StartDaemon, connect: Connect, transport: str, workspace: Path
) -> None:
    client = await connect(dedicated_daemon(), transport)
    older, newer = await client.start_session(workspace), await client.start_session(workspace)
    await client.run(older.session_id, "say: I am the latest")
    first, second = (await client.request_payload("list_sessions", {"limit": 200}))["sessions"]
    assert first == {
        "sessionId": older.session_id,
        "state": "completed",
        "updatedAt": first["updatedAt"],
        "repo": {"rootPath": str(workspace), "currentBranch": "main"},
    }
    assert (second["sessionId"], second["state"]) == (newer.session_id, "idle")
    assert first["updatedAt"] >= second["updatedAt"]


@pytest.mark.requirement("push:list:limit")
async def test_list_sessions_gives_at_most_the_limit_and_twenty_without_one(client: PushClient, workspace: Path) -> None:
    for _ in range(22):
        await client.start_session(workspace)
    assert len((await client.request_payload("list_sessions", {"limit": 21}))["sessions"]) == 21
    assert len((await client.request_payload("list_sessions", {"limit": 1}))["sessions"]) == 1
    assert len((await client.request_payload("list_sessions", {}))["sessions"]) == 20


@pytest.mark.requirement("push:session:states")
async def test_a_sessions_state_follows_its_runs(client: PushClient, workspace: Path) -> None:
    session_id = (await client.start_session(workspace)).session_id

    async def state() -> str:
        attached: str = (await client.attach(session_id, 2**53 - 1))["state"]
        listed = (await client.request_payload("list_sessions", {"limit": 200}))["sessions"]
        assert [one["state"] for one in listed if one["sessionId"] == session_id] == [attached]
        client.events.clear()
        return attached

    assert await state() == "idle"
    await client.run(session_id, "say: fine")
    assert await state() == "completed"

    run_id = await client.send(session_id, "count 1000000")
    await client.read_until("assistant_token")
    assert await state() == "running"
    await client.cancel(session_id, run_id)
    await client.read_until("run_complete")
    assert await state() == "cancelled"

    run_id = await client.send(session_id, "run: true")
    await client.read_until("approval_required")
    assert await state() == "awaiting_approval"
    await client.cancel(session_id, run_id)
    await client.read_until("run_complete")

    await client.run(session_id, "say: fine", acceptance=[{"id": "no", "check": "false"}])
    assert await state() == "failed"


@pytest.mark.requirement("push:cancel:stops-run")
async def test_cancel_run_without_a_run_id_means_the_active_one(client: PushClient, workspace: Path) -> None:
    session_id = (await client.start_session(workspace)).session_id
    await client.send(session_id, "count 1000000")
    assert await client.request_payload("cancel_run", {}, session_id=session_id) == {"accepted": True}
    assert (await client.read_until("run_complete"))[-1].payload["outcome"] == "cancelled"


@pytest.mark.requirement("push:envelope:session-required", "push:envelope:response-session-string")
@pytest.mark.parametrize("place", ["envelope", "payload", "both", "null in the envelope", "null in the payload"])
async def test_the_session_may_be_named_in_the_envelope_or_the_payload(client: PushClient, workspace: Path, place: str) -> None:
    session_id = (await client.start_session(workspace)).session_id
    in_envelope: dict[str, Any] = {
        "envelope": session_id,
        "both": session_id,
        "null in the envelope": None,
        "null in the payload": session_id,
    }
    in_payload: dict[str, Any] = {
        "payload": session_id,
        "both": session_id,
        "null in the payload": None,
        "null in the envelope": session_id,
    }
    payload = {"lastSeenSeq": 0} | ({"sessionId": in_payload[place]} if place in in_payload else {})
    response = await client.request("attach_session", payload, sessionId=in_envelope.get(place, UNSET))
    assert response.ok
    assert response.session_id == session_id


@pytest.mark.requirement("push:envelope:null-session-accepted", "push:envelope:response-session-string")
@pytest.mark.parametrize("type_", ["ping", "hello", "list_sessions"])
async def test_a_null_session_is_taken_for_none_and_not_sent_back(client: PushClient, type_: str) -> None:
    payload = {"clientName": "a", "clientVersion": "b"} if type_ == "hello" else {}
    response = await client.request(type_, payload, sessionId=None)
    assert response.ok
    assert "sessionId" not in response.frame


@pytest.mark.requirement("push:envelope:unknown-fields-accepted")
@pytest.mark.parametrize(
    ("type_", "payload"),
    [
        ("ping", {}),
        ("hello", {"clientName": "a", "clientVersion": "b", "capabilities": []}),
        ("list_sessions", {"limit": 1}),
        ("attach_session", {"lastSeenSeq": 0}),
        ("resume_session", {"lastSeenSeq": 0}),
        ("send_user_message", {"clientMessageId": "msg_u", "text": "say: x"}),
    ],
)
async def test_unknown_fields_of_the_envelope_and_the_payload_are_ignored(
    client: PushClient, workspace: Path, type_: str, payload: dict[str, object]
) -> None:
    session_id = (await client.start_session(workspace)).session_id
    unknown = {"x-new": {"deep": [1]}, "": None, "ok": False}
    assert (await client.request(type_, {**payload, **unknown}, session_id=session_id, **unknown)).ok
    if type_ == "send_user_message":
        await client.read_until("run_complete")


@pytest.mark.requirement("push:envelope:unknown-fields-accepted")
async def test_unknown_fields_inside_a_repo_and_a_criterion_are_ignored(client: PushClient, workspace: Path) -> None:
    repo = {"rootPath": str(workspace), "currentBranch": "m", "defaultBranch": "m", "stars": 5}
    session_id = (await client.start_session(workspace, repo=repo)).session_id
    criterion = {"id": "a", "check": "true", "weight": 2}
    complete = (await client.run(session_id, "say: x", acceptance=[criterion]))[-1]
    assert complete.payload["acceptance"]["passed"] == 1


@pytest.mark.requirement("push:envelope:response-echoes")
async def test_pipelined_requests_are_each_answered_under_their_own_id(client_per_transport: PushClient, workspace: Path) -> None:
    session_id = (await client_per_transport.start_session(workspace)).session_id
    frames = [
        client_per_transport.make_frame("ping"),
        client_per_transport.make_frame("list_sessions", {"limit": 1}),
        client_per_transport.make_frame("attach_session", {"lastSeenSeq": 1}, session_id=session_id),
        client_per_transport.make_frame("cancel_run", {}, session_id=session_id),
        client_per_transport.make_frame("start_session", make_start_payload(workspace)),
        client_per_transport.make_frame("nonsense"),
    ]
    await client_per_transport.send_frames(*frames)
    answered = {(await client_per_transport.wait_for_response(frame["requestId"])).type for frame in frames}
    assert answered == {"ping", "list_sessions", "attach_session", "cancel_run", "start_session", "nonsense"}
    assert not client_per_transport.responses
