"""The seven contract tests that the push document asks for, each over both transports, on whole frames."""

from pathlib import Path
from typing import Any

import pytest
from tests.conformance.daemons import ManagedDaemon
from tests.conftest import Connect

from switchtower import __version__
from switchtower.protocols.push import extension_messages
from switchtower.testing.push_client import PushClient, ReceivedEvent, make_start_payload

V = "push.runtime.v1"


def expect_envelope(event: ReceivedEvent, seq: int, type_: str, **payload: Any) -> dict[str, Any]:
    """The whole event as it should be; only its time is taken from what arrived."""
    frame = {
        "v": V,
        "kind": "event",
        "sessionId": event.session_id,
        "seq": seq,
        "ts": event.ts,
        "type": type_,
        "payload": payload,
    }
    return frame if event.run_id is None else {**frame, "runId": event.run_id}


@pytest.mark.requirement("push:contract:handshake", "push:hello:answer", "push:version:every-message")
async def test_hello_is_answered_with_the_version_and_the_capabilities(client_per_transport: PushClient) -> None:
    response = await client_per_transport.request(
        "hello", {"clientName": "push", "clientVersion": "0.1.0", "capabilities": ["stream_tokens"]}, requestId="req_hello"
    )
    assert response.frame == {
        "v": V,
        "kind": "response",
        "requestId": "req_hello",
        "type": "hello",
        "ok": True,
        "payload": {
            "runtimeName": "pushd",
            "runtimeVersion": __version__,
            "protocolVersion": V,
            "capabilities": ["stream_tokens", "approvals", "replay_attach", "headless", *extension_messages.CAPABILITIES],
        },
        "error": None,
    }


@pytest.mark.requirement("push:contract:session-start", "push:start:answer", "push:event:session_started")
async def test_start_session_answers_with_an_id_and_emits_session_started(
    client_per_transport: PushClient, workspace: Path
) -> None:
    response = await client_per_transport.request("start_session", make_start_payload(workspace), requestId="req_start")
    assert response.payload is not None
    session_id, token = response.payload["sessionId"], response.payload["attachToken"]
    assert response.frame == {
        "v": V,
        "kind": "response",
        "requestId": "req_start",
        "type": "start_session",
        "sessionId": session_id,
        "ok": True,
        "payload": {"sessionId": session_id, "state": "idle", "attachToken": token},
        "error": None,
    }
    event = await client_per_transport.next_event()
    assert event.frame == expect_envelope(
        event,
        1,
        "session_started",
        sessionId=session_id,
        state="idle",
        mode="interactive",
        provider="demo",
        sandboxProvider="local",
    )
    assert event.session_id == session_id


@pytest.mark.requirement(
    "push:contract:streaming", "push:send:starts-run", "push:event:assistant_token", "push:event:run_complete"
)
async def test_a_message_streams_ordered_tokens_and_then_completes(client_per_transport: PushClient, workspace: Path) -> None:
    session = await client_per_transport.start_session(workspace)
    response = await client_per_transport.request(
        "send_user_message",
        {"sessionId": session.session_id, "clientMessageId": "msg_1", "text": "count 5"},
        session_id=session.session_id,
    )
    assert response.payload is not None
    run_id = response.payload["runId"]
    assert response.payload == {"runId": run_id, "accepted": True}

    started, *events = await client_per_transport.read_until("run_complete")
    assert started.type == "session_started"
    assert [event.seq for event in events] == list(range(2, 2 + len(events)))
    assert {event.run_id for event in events} == {run_id}
    tokens = [event for event in events if event.type == "assistant_token"]
    assert [event.payload["text"] for event in tokens] == ["1 ", "2 ", "3 ", "4 ", "5"]
    complete = events[-1]
    assert complete.frame == expect_envelope(
        complete,
        complete.seq,
        "run_complete",
        runId=run_id,
        outcome="success",
        summary="1 2 3 4 5",
        acceptance={"total": 0, "passed": 0, "results": []},
        headless={"exitCodeHint": 0},
    )


@pytest.mark.requirement("push:contract:tool-visibility", "push:event:tool_call", "push:event:tool_result", "push:tools:names")
async def test_a_tool_call_and_its_result_carry_the_same_tool_name(client_per_transport: PushClient, workspace: Path) -> None:
    session = await client_per_transport.start_session(workspace)
    events = await client_per_transport.run(session.session_id, "read README.md")
    call = next(event for event in events if event.type == "tool_call")
    result = next(event for event in events if event.type == "tool_result")
    assert call.frame == expect_envelope(
        call, call.seq, "tool_call", source="sandbox", toolName="sandbox_read_file", args={"path": "README.md"}
    )
    assert result.frame == expect_envelope(
        result,
        result.seq,
        "tool_result",
        source="sandbox",
        toolName="sandbox_read_file",
        durationMs=result.payload["durationMs"],
        isError=False,
        text="# A workspace\nwith two lines\n",
        structuredError=None,
    )
    assert call.seq < result.seq


@pytest.mark.requirement(
    "push:contract:approval",
    "push:submit:resumes-run",
    "push:event:approval_required",
    "push:event:approval_received",
    "push:security:approval-provenance",
)
async def test_an_approval_pauses_the_run_and_an_approving_answer_resumes_it(
    client_per_transport: PushClient, workspace: Path, transport: str
) -> None:
    session = await client_per_transport.start_session(workspace)
    await client_per_transport.send(session.session_id, "write notes.txt: hello")
    asked = (await client_per_transport.read_until("approval_required"))[-1]
    assert asked.frame == expect_envelope(
        asked,
        asked.seq,
        "approval_required",
        approvalId=asked.payload["approvalId"],
        kind="write",
        title="Write a file",
        summary="notes.txt (5 bytes)",
        details={
            "tool": "write_file",
            "path": "notes.txt",
            "new": True,
            "bytes": 5,
            "diff": asked.payload["details"]["diff"],
            "reason": "it changes a file",
            "always": "allow write_file notes.txt",
        },
        options=["approve", "deny"],
        expiresAt=asked.payload["expiresAt"],
    )
    await client_per_transport.ping()
    assert not client_per_transport.events, "the run is paused"
    assert not (workspace / "notes.txt").exists()
    assert (await client_per_transport.attach(session.session_id, asked.seq))["state"] == "awaiting_approval"

    assert (await client_per_transport.decide(asked, "approve")).payload == {"accepted": True}
    received, *rest = await client_per_transport.read_until("run_complete")
    assert received.frame == expect_envelope(
        received,
        asked.seq + 1,
        "approval_received",
        approvalId=asked.payload["approvalId"],
        decision="approve",
        by="cli" if transport == "socket" else "app",
    )
    assert rest[-1].payload["outcome"] == "success"
    assert (workspace / "notes.txt").read_text() == "hello"


@pytest.mark.requirement("push:contract:cancel", "push:cancel:stops-run", "push:headless:exit-2-cancelled")
async def test_a_cancelled_run_completes_as_cancelled(client_per_transport: PushClient, workspace: Path) -> None:
    session = await client_per_transport.start_session(workspace)
    run_id = await client_per_transport.send(session.session_id, "count 1000000")
    await client_per_transport.read_until("assistant_token")
    assert (await client_per_transport.cancel(session.session_id, run_id)).payload == {"accepted": True}
    complete = (await client_per_transport.read_until("run_complete"))[-1]
    assert complete.frame == expect_envelope(
        complete,
        complete.seq,
        "run_complete",
        runId=run_id,
        outcome="cancelled",
        summary="The run was cancelled",
        acceptance={"total": 0, "passed": 0, "results": []},
        headless={"exitCodeHint": 2},
    )


@pytest.mark.requirement("push:contract:replay", "push:attach:replays-missed", "push:replay:seq-greater-than-last-seen")
async def test_attach_replays_the_missing_events_in_order(
    client_per_transport: PushClient, workspace: Path, connect: Connect, push_daemon: ManagedDaemon, transport: str
) -> None:
    session = await client_per_transport.start_session(workspace)
    live = [
        await client_per_transport.next_event(),
        *await client_per_transport.run(session.session_id, "count 20\nread README.md"),
    ]
    head, cursor = live[-1].seq, 7

    late = await connect(push_daemon, transport)
    response = await late.request(
        "attach_session",
        {"sessionId": session.session_id, "lastSeenSeq": cursor, "attachToken": session.attach_token},
        session_id=session.session_id,
        requestId="req_attach",
    )
    assert response.frame == {
        "v": V,
        "kind": "response",
        "requestId": "req_attach",
        "type": "attach_session",
        "sessionId": session.session_id,
        "ok": True,
        "payload": {
            "sessionId": session.session_id,
            "state": "completed",
            "replay": {"fromSeq": cursor + 1, "toSeq": head, "completed": True, "gap": False},
        },
        "error": None,
    }
    assert [event.raw for event in await late.read_until("run_complete")] == [event.raw for event in live if event.seq > cursor]
