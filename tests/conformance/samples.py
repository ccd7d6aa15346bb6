"""One message of each kind and type that the push document describes, in our own words."""

from typing import Any

NOW = 1_760_000_000_000

REPO = {"rootPath": "/srv/code", "remoteUrl": "git@example.org:a/b.git", "currentBranch": "main", "defaultBranch": "main"}
REQUESTS: dict[str, dict[str, Any]] = {
    "hello": {"clientName": "push", "clientVersion": "0.1.0", "capabilities": ["stream_tokens", "approvals", "replay_attach"]},
    "start_session": {
        "mode": "interactive",
        "provider": "ollama",
        "sandboxProvider": "local",
        "repo": REPO,
        "metadata": {"source": "cli"},
    },
    "list_sessions": {"limit": 20},
    "attach_session": {"sessionId": "sess_01", "lastSeenSeq": 135, "attachToken": "att_01"},
    "resume_session": {"sessionId": "sess_01", "lastSeenSeq": 0},
    "send_user_message": {
        "sessionId": "sess_01",
        "clientMessageId": "msg_01",
        "text": "Look at the last commit.",
        "acceptanceCriteria": [{"id": "build", "check": "make", "exitCode": 0, "description": "It builds"}],
    },
    "submit_approval": {
        "sessionId": "sess_01",
        "runId": "run_01",
        "approvalId": "appr_01",
        "decision": "approve",
        "comment": "Fine",
    },
    "cancel_run": {"sessionId": "sess_01", "runId": "run_01", "reason": "user_cancelled"},
    "ping": {},
}
ANSWERS: dict[str, dict[str, Any]] = {
    "hello": {"runtimeName": "pushd", "runtimeVersion": "1", "protocolVersion": "push.runtime.v1", "capabilities": ["headless"]},
    "start_session": {"sessionId": "sess_01", "state": "idle", "attachToken": "att_01"},
    "list_sessions": {
        "sessions": [
            {
                "sessionId": "sess_01",
                "state": "idle",
                "updatedAt": 1_760_000_000_000,
                "repo": {"rootPath": "/srv/code", "currentBranch": "main"},
            }
        ]
    },
    "attach_session": {
        "sessionId": "sess_01",
        "state": "running",
        "replay": {"fromSeq": 136, "toSeq": 149, "completed": True, "gap": False},
    },
    "resume_session": {
        "sessionId": "sess_01",
        "state": "running",
        "replay": {"fromSeq": 150, "toSeq": 149, "completed": True, "gap": True},
    },
    "send_user_message": {"runId": "run_01", "accepted": True},
    "submit_approval": {"accepted": True},
    "cancel_run": {"accepted": True},
    "ping": {"pong": True, "ts": 1_760_000_000_000},
}
APPROVAL = {
    "approvalId": "appr_01",
    "kind": "commit",
    "title": "Approve commit",
    "summary": "feat: something",
    "details": {"filesChanged": 4},
    "options": ["approve", "deny"],
    "expiresAt": 1_760_000_300_000,
}
EVENTS: dict[str, dict[str, Any]] = {
    "session_started": {
        "sessionId": "sess_01",
        "state": "idle",
        "mode": "interactive",
        "provider": "ollama",
        "sandboxProvider": "modal",
    },
    "session_snapshot": {
        "state": "running",
        "activeRunId": "run_01",
        "lastAssistantText": "So far",
        "pendingApproval": APPROVAL,
        "meta": {"provider": "ollama", "sandboxProvider": "local"},
    },
    "status": {"source": "orchestrator", "phase": "Executing tool", "detail": "sandbox_read_file"},
    "thinking_token": {"text": "Hm"},
    "assistant_token": {"text": "Well"},
    "assistant_done": {"messageId": "asst_01"},
    "tool_call": {"source": "sandbox", "toolName": "sandbox_read_file", "args": {"path": "a.py"}},
    "tool_result": {
        "source": "web-search",
        "toolName": "search",
        "durationMs": 124,
        "isError": True,
        "text": "nothing",
        "structuredError": {"type": "RATE_LIMITED", "retryable": True, "message": "later", "detail": "in a minute"},
    },
    "approval_required": APPROVAL,
    "approval_received": {"approvalId": "appr_01", "decision": "deny", "by": "app"},
    "warning": {"code": "EVENT_GAP", "message": "Gap", "detail": "Requested 120"},
    "error": {"code": "SANDBOX_UNAVAILABLE", "message": "No", "retryable": True, "detail": "timeout"},
    "run_complete": {
        "runId": "run_01",
        "outcome": "success",
        "summary": "Done",
        "acceptance": {
            "total": 1,
            "passed": 1,
            "results": [{"id": "build", "passed": True, "exitCode": 0, "output": ""}],
        },
        "headless": {"exitCodeHint": 0},
    },
}


def request_frame(type_: str, payload: Any, **changes: Any) -> dict[str, Any]:
    frame = {"v": "push.runtime.v1", "kind": "request", "requestId": "req_01", "type": type_, "payload": payload}
    return {**frame, **changes}


def make_response_frame(type_: str, payload: Any, **changes: Any) -> dict[str, Any]:
    frame = {"v": "push.runtime.v1", "kind": "response", "requestId": "req_01", "type": type_, "sessionId": "sess_01"}
    return {**frame, "ok": True, "payload": payload, "error": None, **changes}


def make_event_frame(type_: str, payload: Any, **changes: Any) -> dict[str, Any]:
    frame = {
        "v": "push.runtime.v1",
        "kind": "event",
        "sessionId": "sess_01",
        "runId": "run_01",
        "seq": 42,
        "ts": 1_760_000_000_000,
    }
    return {**frame, "type": type_, "payload": payload, **changes}


SAMPLES = [
    *(request_frame(type_, payload) for type_, payload in REQUESTS.items()),
    *(make_response_frame(type_, payload) for type_, payload in ANSWERS.items()),
    *(make_event_frame(type_, payload) for type_, payload in EVENTS.items()),
]
