"""Events as the client hands them out, for tests of what is made of them."""

from collections.abc import Iterator
from itertools import count
from typing import Any

import msgspec

from switchtower.client import frames
from switchtower.client.frames import Event

SESSION, RUN = "sess_1", "run_1"


class Told:
    """Numbers events as the daemon does."""

    def __init__(self) -> None:
        self._seqs: Iterator[int] = count(1)

    def event(self, type_: str, payload: dict[str, Any], *, run_id: str | None = RUN) -> Event:
        envelope = {
            "v": "push.runtime.v1",
            "kind": "event",
            "sessionId": SESSION,
            "seq": next(self._seqs),
            "ts": 1_800_000_000_000,
            "type": type_,
            "payload": payload,
        }
        line = msgspec.json.encode(envelope if run_id is None else {**envelope, "runId": run_id})
        return frames.event(frames.decode(line), line)

    def said(self, text: str) -> Event:
        return self.status("Run started", text)

    def token(self, text: str, *, thinking: bool = False) -> Event:
        return self.event("thinking_token" if thinking else "assistant_token", {"text": text})

    def done(self) -> Event:
        return self.event("assistant_done", {"messageId": "m"})

    def status(self, phase: str, detail: str | None = None) -> Event:
        return self.event("status", {"source": "x", "phase": phase, **({} if detail is None else {"detail": detail})})

    def warning(self, code: str, message: str = "", detail: str | None = None) -> Event:
        return self.event("warning", {"code": code, "message": message, **({} if detail is None else {"detail": detail})})

    def call(self, tool: str, **arguments: Any) -> Event:
        return self.event("tool_call", {"source": "sandbox", "toolName": tool, "args": arguments})

    def result(self, tool: str, text: str, *, is_error: bool = False, problem: str | None = None) -> Event:
        error = None if problem is None else {"type": "UNKNOWN", "retryable": False, "message": problem}
        payload = {"source": "sandbox", "toolName": tool, "durationMs": 5, "isError": is_error, "text": text}
        return self.event("tool_result", {**payload, "structuredError": error})

    def asked(self, approval_id: str = "appr_1", **details: Any) -> Event:
        about = {"approvalId": approval_id, "kind": "exec", "title": "Run a command", "summary": "make test"}
        return self.event("approval_required", {**about, "details": details, "options": ["approve", "deny"], "expiresAt": 1})

    def decided(self, approval_id: str = "appr_1", decision: str = "approve", by: str = "cli") -> Event:
        return self.event("approval_received", {"approvalId": approval_id, "decision": decision, "by": by})

    def complete(self, outcome: str = "success", summary: str = "done", *results: dict[str, Any]) -> Event:
        acceptance = {"total": len(results), "passed": sum(result["passed"] for result in results), "results": results}
        about = {"runId": RUN, "outcome": outcome, "summary": summary}
        return self.event("run_complete", {**about, "acceptance": acceptance, "headless": {"exitCodeHint": 0}})
