"""Every error code of the document, at its place, as whole frames; and that nothing but the code's reason gets out."""

from pathlib import Path
from typing import Any

import pytest
from msgspec import UNSET
from tests.conftest import Connect, StartDaemon

from switchtower.core.ids import format_id
from switchtower.testing.push_client import PushClient, ReceivedResponse, make_start_payload

NOBODY = format_id("sess", 1, 1)


def expect_refusal(
    response: ReceivedResponse, code: str, *, retryable: bool = False, session_id: str | None = None
) -> dict[str, Any]:
    """The whole response as it should be; only the words are taken from what arrived."""
    assert response.error is not None, f"accepted: {response.payload}"
    frame = {
        "v": "push.runtime.v1",
        "kind": "response",
        "requestId": response.request_id,
        "type": response.type,
        "ok": False,
        "payload": {},
        "error": {"code": code, "message": response.error["message"], "retryable": retryable},
    }
    assert response.error["message"]
    return frame if session_id is None else {**frame, "sessionId": session_id}


@pytest.mark.requirement("push:error:UNSUPPORTED_PROTOCOL_VERSION")
@pytest.mark.parametrize("version", ["push.runtime.v2", "push.runtime.v1 ", "PUSH.RUNTIME.V1", "", "1"])
async def test_another_version_is_refused(client_per_transport: PushClient, version: str) -> None:
    response = await client_per_transport.request("ping", v=version)
    assert response.frame == expect_refusal(response, "UNSUPPORTED_PROTOCOL_VERSION")


@pytest.mark.requirement("push:error:UNSUPPORTED_PROTOCOL_VERSION")
@pytest.mark.parametrize(
    "changed",
    [
        {"type": "new_in_v2"},
        {"kind": "notification"},
        {"payload": "v2 spells this differently"},
        {"payload": UNSET},
        {"sessionId": 7},
    ],
)
async def test_the_version_is_judged_before_what_a_later_one_may_have_changed(
    client: PushClient, changed: dict[str, Any]
) -> None:
    response = await client.request("ping", **{"v": "push.runtime.v2", **changed})
    assert response.code == "UNSUPPORTED_PROTOCOL_VERSION"


@pytest.mark.requirement("push:error:UNSUPPORTED_REQUEST_TYPE", "push:version:unknown-request-type")
@pytest.mark.parametrize("type_", ["reboot", "PING", "ping ", "", "session_started", "__class__", "ü" * 1000])
async def test_an_unknown_request_type_is_refused(client_per_transport: PushClient, type_: str) -> None:
    response = await client_per_transport.request(type_)
    assert response.frame == expect_refusal(response, "UNSUPPORTED_REQUEST_TYPE")
    assert response.type == type_


@pytest.mark.requirement("push:error:SESSION_NOT_FOUND")
@pytest.mark.parametrize(
    ("type_", "payload"),
    [
        ("attach_session", {"lastSeenSeq": 0}),
        ("resume_session", {"lastSeenSeq": 0}),
        ("send_user_message", {"clientMessageId": "msg_1", "text": "x"}),
        ("submit_approval", {"runId": "run_1", "approvalId": "appr_1", "decision": "approve"}),
        ("cancel_run", {}),
    ],
)
@pytest.mark.parametrize("session_id", [NOBODY, "sess_x", "sess_..", "sess_" + "9" * 251])
async def test_a_session_that_does_not_exist_is_not_found(
    client: PushClient, type_: str, payload: dict[str, object], session_id: str
) -> None:
    response = await client.request(type_, payload, session_id=session_id)
    assert response.frame == expect_refusal(response, "SESSION_NOT_FOUND", session_id=session_id)


@pytest.mark.requirement("push:error:RUN_IN_PROGRESS", "push:concurrency:one-active-run")
async def test_a_second_message_during_a_run_is_refused_and_changes_nothing(
    client_per_transport: PushClient, workspace: Path
) -> None:
    session_id = (await client_per_transport.start_session(workspace)).session_id
    run_id = await client_per_transport.send(session_id, "run: true")
    asked = (await client_per_transport.read_until("approval_required"))[-1]
    message = {"clientMessageId": "msg_second", "text": "say: me too"}
    response = await client_per_transport.request("send_user_message", message, session_id=session_id)
    assert response.frame == expect_refusal(response, "RUN_IN_PROGRESS", retryable=True, session_id=session_id)

    await client_per_transport.decide(asked)
    events = await client_per_transport.read_until("run_complete")
    assert {event.run_id for event in events} == {run_id}
    # A refusal is not remembered: what is retryable may be sent again under the same id.
    assert (await client_per_transport.request("send_user_message", message, session_id=session_id)).ok
    await client_per_transport.read_until("run_complete")


@pytest.mark.requirement("push:error:NO_ACTIVE_RUN")
async def test_cancelling_needs_the_active_run(client_per_transport: PushClient, workspace: Path) -> None:
    session_id = (await client_per_transport.start_session(workspace)).session_id
    idle = await client_per_transport.request("cancel_run", {}, session_id=session_id)
    assert idle.frame == expect_refusal(idle, "NO_ACTIVE_RUN", session_id=session_id)
    finished = (await client_per_transport.run(session_id, "say: done"))[-1].run_id
    assert finished is not None
    assert (await client_per_transport.cancel(session_id, finished)).code == "NO_ACTIVE_RUN"

    active = await client_per_transport.send(session_id, "run: true")
    await client_per_transport.read_until("approval_required")
    assert (await client_per_transport.cancel(session_id, finished)).code == "NO_ACTIVE_RUN"
    assert (await client_per_transport.cancel(session_id, active)).ok
    await client_per_transport.read_until("run_complete")


@pytest.mark.requirement("push:error:APPROVAL_NOT_FOUND")
async def test_an_approval_that_was_never_pending_here_is_not_found(client_per_transport: PushClient, workspace: Path) -> None:
    session_id = (await client_per_transport.start_session(workspace)).session_id
    stranger = {"runId": "run_1", "approvalId": "appr_1", "decision": "approve"}
    response = await client_per_transport.request("submit_approval", stranger, session_id=session_id)
    assert response.frame == expect_refusal(response, "APPROVAL_NOT_FOUND", session_id=session_id)

    elsewhere = (await client_per_transport.start_session(workspace)).session_id
    await client_per_transport.send(elsewhere, "run: true")
    asked = (await client_per_transport.read_until("approval_required"))[-1]
    theirs = {"runId": asked.run_id, "approvalId": asked.payload["approvalId"], "decision": "approve"}
    assert (await client_per_transport.request("submit_approval", theirs, session_id=session_id)).code == "APPROVAL_NOT_FOUND"
    wrong_run = {**theirs, "runId": "run_other"}
    assert (await client_per_transport.request("submit_approval", wrong_run, session_id=elsewhere)).code == "APPROVAL_NOT_FOUND"
    assert (await client_per_transport.decide(asked)).ok, "the question was left as it was"
    await client_per_transport.read_until("run_complete")


@pytest.mark.requirement("push:error:PROVIDER_NOT_CONFIGURED", "push:start:provider")
@pytest.mark.parametrize("provider", ["no-such-provider", "DEMO", "demo ", "../demo", "\0"])
async def test_a_provider_that_is_not_configured_is_refused_with_a_hint(
    client_per_transport: PushClient, workspace: Path, provider: str
) -> None:
    response = await client_per_transport.request("start_session", make_start_payload(workspace, provider=provider))
    assert response.frame == expect_refusal(response, "PROVIDER_NOT_CONFIGURED")
    assert response.error is not None
    assert "demo" in response.error["message"]


@pytest.mark.requirement("push:error:SANDBOX_UNAVAILABLE", "push:start:sandbox")
async def test_a_sandbox_that_is_not_there_is_refused(client_per_transport: PushClient, workspace: Path) -> None:
    response = await client_per_transport.request("start_session", make_start_payload(workspace, sandboxProvider="modal"))
    assert response.frame == expect_refusal(response, "SANDBOX_UNAVAILABLE", retryable=True)


@pytest.mark.requirement("push:error:SANDBOX_UNAVAILABLE")
@pytest.mark.parametrize(
    "root",
    ["/no/such/folder", "relative", "~", "/etc/passwd", "/tmp/\0", "//\n", "/" + "x" * 300, "/" + "x/" * 5000, "\U0001f600"],
)
async def test_a_workspace_that_is_no_folder_is_refused(client: PushClient, root: str) -> None:
    response = await client.request("start_session", make_start_payload(root))
    assert response.frame == expect_refusal(response, "SANDBOX_UNAVAILABLE", retryable=True)


@pytest.mark.requirement("push:envelope:response-echoes")
async def test_a_refused_start_leaves_no_session_behind(dedicated_daemon: StartDaemon, connect: Connect, workspace: Path) -> None:
    client = await connect(dedicated_daemon())
    await client.request("start_session", make_start_payload(workspace, sandboxProvider="modal"))
    await client.request("start_session", make_start_payload("/no/such/folder"))
    assert (await client.request_payload("list_sessions"))["sessions"] == []
    assert not client.events
