"""The schemas and the daemon agree: what one refuses the other refuses, and what one takes the other takes."""

import copy
from typing import Any

import pytest
from tests.conformance import samples, schema_check

from switchtower.testing.push_client import PushClient

LEAVE_OUT = object()
EMPTY: list[Any] = []


def change_sample(type_: str, path: str, value: Any) -> dict[str, Any]:
    frame: dict[str, Any] = samples.request_frame(type_, copy.deepcopy(samples.REQUESTS[type_]))
    *parents, last = path.split(".")
    place: Any = frame
    for parent in parents:
        place = place[int(parent)] if isinstance(place, list) else place[parent]
    if value is LEAVE_OUT:
        del place[last]
    else:
        place[last] = value
    return frame


INVALID = [
    *(("list_sessions", "payload.limit", value) for value in (0, 201, -1, 1.5, "20", None, 10**30)),
    *((type_, "payload.lastSeenSeq", value) for type_ in ("attach_session", "resume_session") for value in (-1, 0.5, "0", 2**53)),
    *((type_, "payload.lastSeenSeq", LEAVE_OUT) for type_ in ("attach_session", "resume_session")),
    *(("attach_session", "payload.attachToken", value) for value in ("", "x", "att_", 5)),
    *(
        ("attach_session", "payload.sessionId", value)
        for value in (LEAVE_OUT, None, "", "x", "sess_", "sess_a b", "sess_" + "x" * 252)
    ),
    *(("send_user_message", "payload.text", value) for value in ("", None, 5, LEAVE_OUT)),
    *(("send_user_message", "payload.clientMessageId", value) for value in ("", "x", "msg_", "run_1")),
    ("send_user_message", "payload.acceptanceCriteria", None),
    ("send_user_message", "payload.acceptanceCriteria", [{"id": "a", "check": "true"}] * 101),
    *(("send_user_message", "payload.acceptanceCriteria.0.id", value) for value in ("", None, LEAVE_OUT)),
    *(("send_user_message", "payload.acceptanceCriteria.0.check", value) for value in ("", None, LEAVE_OUT)),
    *(("send_user_message", "payload.acceptanceCriteria.0.exitCode", value) for value in (None, "0", 0.5, 2**31)),
    *(("submit_approval", f"payload.{field}", LEAVE_OUT) for field in ("approvalId", "decision", "sessionId")),
    *(("submit_approval", "payload.decision", value) for value in ("", "yes", "APPROVE", "deny ", None)),
    *(("submit_approval", "payload.runId", value) for value in ("", "appr_1")),
    *(("submit_approval", "payload.approvalId", value) for value in (None, "", "run_1")),
    *(("cancel_run", "payload.runId", value) for value in ("", "x", 5)),
    *(("start_session", f"payload.{field}", LEAVE_OUT) for field in ("mode", "provider", "repo")),
    ("start_session", "payload.repo.rootPath", LEAVE_OUT),
    *(("start_session", "payload.mode", value) for value in ("", "batch", None)),
    *(("start_session", "payload.sandboxProvider", value) for value in ("", "docker")),
    *(("start_session", "payload.provider", value) for value in ("", None)),
    *(("start_session", "payload.repo", value) for value in (None, EMPTY, "/srv")),
    ("start_session", "payload.repo.rootPath", ""),
    *(("start_session", "payload.metadata", value) for value in (None, EMPTY, "x")),
    *(("hello", f"payload.{field}", value) for field in ("clientName", "clientVersion") for value in (None, 5)),
    *(("hello", "payload.capabilities", value) for value in (None, "x", [1], [None])),
    *(("ping", "requestId", value) for value in ("", "req_", "x", "req_a b", "req_" + "x" * 253, None, 5, LEAVE_OUT)),
    *(("ping", "payload", value) for value in (None, EMPTY, "x", LEAVE_OUT)),
    *(("ping", "kind", value) for value in ("", "event", "response", None, LEAVE_OUT)),
    *(("ping", "v", value) for value in ("push.runtime.v2", "", None, LEAVE_OUT)),
    *(("ping", "type", value) for value in ("", "pong", None, LEAVE_OUT)),
    *(("ping", "sessionId", value) for value in ("", "x", 5)),
]
VALID = [
    *(("list_sessions", "payload.limit", value) for value in (1, 200, LEAVE_OUT)),
    *(("attach_session", "payload.lastSeenSeq", value) for value in (0, 2**53 - 1)),
    *(("attach_session", "payload.attachToken", value) for value in (LEAVE_OUT, None, "att_x")),
    ("attach_session", "payload.sessionId", "sess_A.b:c-1_" + "x" * 200),
    *(("send_user_message", "payload.text", value) for value in (" ", "\0", "ü" * 1000)),
    *(("send_user_message", "payload.acceptanceCriteria", value) for value in (LEAVE_OUT, [])),
    *(("send_user_message", "payload.acceptanceCriteria.0.exitCode", value) for value in (LEAVE_OUT, -1, 255)),
    *(("send_user_message", "payload.acceptanceCriteria.0.description", value) for value in (LEAVE_OUT, None, "")),
    *(("submit_approval", "payload.comment", value) for value in (LEAVE_OUT, None, "")),
    *(("submit_approval", "payload.runId", value) for value in (LEAVE_OUT, None)),
    *(("send_user_message", "payload.clientMessageId", value) for value in (LEAVE_OUT, None)),
    ("start_session", "payload.mode", "tui"),
    *(("start_session", "payload.sandboxProvider", value) for value in (LEAVE_OUT, None)),
    *(
        ("start_session", f"payload.repo.{field}", value)
        for field in ("currentBranch", "defaultBranch")
        for value in (LEAVE_OUT, None)
    ),
    *(("cancel_run", f"payload.{field}", value) for field in ("runId", "reason") for value in (LEAVE_OUT, None)),
    *(("start_session", "payload.repo.remoteUrl", value) for value in (LEAVE_OUT, None, "")),
    *(("start_session", "payload.metadata", value) for value in (LEAVE_OUT, {})),
    ("start_session", "payload.extra", 1),
    *(("hello", f"payload.{field}", LEAVE_OUT) for field in ("clientName", "clientVersion", "capabilities")),
    ("hello", "payload", {}),
    ("hello", "payload.clientName", ""),
    *(("ping", "sessionId", value) for value in (None, "sess_1")),
    ("ping", "extra", {}),
    ("ping", "payload", {"extra": 1}),
]


def name_case(case: tuple[str, str, Any]) -> str:
    type_, path, value = case
    return f"{type_}.{path} {'left out' if value is LEAVE_OUT else repr(value)[:20]}"


FRAME_ERRORS = {"INVALID_REQUEST", "UNSUPPORTED_PROTOCOL_VERSION", "UNSUPPORTED_REQUEST_TYPE"}


@pytest.mark.requirement("push:schemas:daemon-agrees", "push:error:INVALID_REQUEST", "push:list:limit", "push:send:non-empty")
async def test_what_the_schema_refuses_the_daemon_refuses(client: PushClient) -> None:
    for case in INVALID:
        frame = change_sample(*case)
        assert not schema_check.REQUESTS.is_valid(frame), name_case(case)
        await client.send_frames(frame)
        response = await client.wait_for_response()
        assert response.code in FRAME_ERRORS, name_case(case)
        if case[1] not in ("v", "type"):
            assert response.code == "INVALID_REQUEST", name_case(case)


@pytest.mark.requirement("push:schemas:daemon-agrees", "push:envelope:unknown-fields-accepted")
async def test_what_the_schema_takes_the_daemon_takes(client: PushClient) -> None:
    for case in VALID:
        frame = change_sample(*case)
        schema_check.REQUESTS.validate(frame)
        await client.send_frames(frame)
        response = await client.wait_for_response()
        assert response.code not in FRAME_ERRORS, f"{name_case(case)}: {response.error}"
