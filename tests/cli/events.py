"""Events as the client hands them out, for tests of what is made of them."""

from collections.abc import Iterator
from itertools import count
from typing import Any

import msgspec

from switchtower.client import frames
from switchtower.client.frames import PushEvent

EVENT_SESSION, EVENT_RUN = "sess_1", "run_1"


class PushEventFactory:
    """Numbers events as the daemon does."""

    def __init__(self) -> None:
        self._seqs: Iterator[int] = count(1)

    def make_event(self, type_: str, payload: dict[str, Any], *, run_id: str | None = EVENT_RUN) -> PushEvent:
        envelope = {
            "v": "push.runtime.v1",
            "kind": "event",
            "sessionId": EVENT_SESSION,
            "seq": next(self._seqs),
            "ts": 1_800_000_000_000,
            "type": type_,
            "payload": payload,
        }
        line = msgspec.json.encode(envelope if run_id is None else {**envelope, "runId": run_id})
        return frames.decode_event(frames.decode_frame(line), line)

    def make_user_message(self, text: str) -> PushEvent:
        return self.make_status("Run started", text)

    def make_token(self, text: str, *, thinking: bool = False) -> PushEvent:
        return self.make_event("thinking_token" if thinking else "assistant_token", {"text": text})

    def make_done(self) -> PushEvent:
        return self.make_event("assistant_done", {"messageId": "m"})

    def make_status(self, phase: str, detail: str | None = None) -> PushEvent:
        return self.make_event("status", {"source": "x", "phase": phase, **({} if detail is None else {"detail": detail})})

    def make_warning(self, code: str, message: str = "", detail: str | None = None) -> PushEvent:
        return self.make_event("warning", {"code": code, "message": message, **({} if detail is None else {"detail": detail})})

    def call(self, tool: str, **arguments: Any) -> PushEvent:
        return self.make_event("tool_call", {"source": "sandbox", "toolName": tool, "args": arguments})

    def make_tool_result(self, tool: str, text: str, *, is_error: bool = False, problem: str | None = None) -> PushEvent:
        error = None if problem is None else {"type": "UNKNOWN", "retryable": False, "message": problem}
        payload = {"source": "sandbox", "toolName": tool, "durationMs": 5, "isError": is_error, "text": text}
        return self.make_event("tool_result", {**payload, "structuredError": error})

    def make_approval(self, approval_id: str = "appr_1", **details: Any) -> PushEvent:
        about = {"approvalId": approval_id, "kind": "exec", "title": "Run a command", "summary": "make test"}
        return self.make_event("approval_required", {**about, "details": details, "options": ["approve", "deny"], "expiresAt": 1})

    def make_decision(self, approval_id: str = "appr_1", decision: str = "approve", by: str = "cli") -> PushEvent:
        return self.make_event("approval_received", {"approvalId": approval_id, "decision": decision, "by": by})

    def complete(self, outcome: str = "success", summary: str = "done", *results: dict[str, Any]) -> PushEvent:
        acceptance = {"total": len(results), "passed": sum(result["passed"] for result in results), "results": results}
        about = {"runId": EVENT_RUN, "outcome": outcome, "summary": summary}
        return self.make_event("run_complete", {**about, "acceptance": acceptance, "headless": {"exitCodeHint": 0}})
