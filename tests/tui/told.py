"""Events as the daemon sends them, through the same decoder as in life. Fixed ids and times."""

import json
from typing import Any

from switchtower.client import frames

SESSION = "sess_A"
RUN = "run_A"
T0 = 1_700_000_000_000


def make_event(
    seq: int, type: str, payload: dict[str, Any], *, run_id: str | None = RUN, ts: int | None = None
) -> frames.PushEvent:
    envelope: dict[str, Any] = {
        "v": "push.runtime.v1",
        "kind": "event",
        "sessionId": SESSION,
        "seq": seq,
        "ts": T0 + 1_000 * seq if ts is None else ts,
        "type": type,
        "payload": payload,
    }
    if run_id is not None:
        envelope["runId"] = run_id
    line = json.dumps(envelope).encode()
    return frames.decode_event(frames.decode_frame(line), line)


Told = tuple[str, dict[str, Any]]


def make_status(phase: str, detail: str | None = None, source: str = "orchestrator") -> Told:
    return "status", {"source": source, "phase": phase, **({} if detail is None else {"detail": detail})}


def make_user_message(text: str) -> Told:
    return make_status("Run started", text)


def make_token(text: str) -> Told:
    return "assistant_token", {"text": text}


def make_thinking(text: str) -> Told:
    return "thinking_token", {"text": text}


DONE: Told = ("assistant_done", {"messageId": "asst_1"})


def call(tool: str, **args: Any) -> Told:
    return "tool_call", {"source": "sandbox", "toolName": tool, "args": args}


def make_output(text: str) -> Told:
    return make_status("Tool output", text, "tool")


def make_tool_result(tool: str, text: str, *, ms: int = 12, error: str | None = None) -> Told:
    structured = None if error is None else {"type": "UNKNOWN", "retryable": False, "message": error}
    return "tool_result", {
        "source": "sandbox",
        "toolName": tool,
        "durationMs": ms,
        "isError": error is not None,
        "text": text,
        "structuredError": structured,
    }


def make_approval(approval_id: str = "appr_1", **details: Any) -> Told:
    return "approval_required", {
        "approvalId": approval_id,
        "kind": "exec",
        "title": "Run a command",
        "summary": details.get("command", "something"),
        "details": details,
        "options": ["approve", "deny"],
        "expiresAt": T0 + 3_600_000,
    }


def make_decision(approval_id: str = "appr_1", decision: str = "approve", by: str = "cli") -> Told:
    return "approval_received", {"approvalId": approval_id, "decision": decision, "by": by}


def make_warning(code: str, message: str, detail: str | None = None) -> Told:
    return "warning", {"code": code, "message": message, **({} if detail is None else {"detail": detail})}


def make_failure(code: str, message: str) -> Told:
    return "error", {"code": code, "message": message, "retryable": False}


def complete(outcome: str = "success", summary: str = "", results: list[dict[str, Any]] | None = None) -> Told:
    results = results or []
    passed = sum(one["passed"] for one in results)
    return "run_complete", {
        "runId": RUN,
        "outcome": outcome,
        "summary": summary,
        "acceptance": {"total": len(results), "passed": passed, "results": results},
        "headless": {"exitCodeHint": 0},
    }


def make_story(*told: Told, first: int = 1) -> list[frames.PushEvent]:
    return [make_event(first + at, type, payload) for at, (type, payload) in enumerate(told)]
