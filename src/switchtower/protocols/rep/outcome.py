"""The outcome of a run as the orchestrator reports it: the runtime's own summary, or the error that ended it. Pure."""

from typing import Any, Literal

import msgspec
from msgspec import Struct

from switchtower.protocols.rep import errors, messages

VALIDATION = 1000
"""A validation error without a more specific code, such as capabilities that lack a field."""
OutcomeStatus = Literal["completed", "failed"]
FailureCause = Literal["Timeout", "Cancelled"]


class FlowRunOutcome(Struct, frozen=True, kw_only=True):
    flow: str
    status: OutcomeStatus
    summary: dict[str, Any]
    events: list[dict[str, Any]]
    events_left_out: int = 0
    """The number of events that were too many to keep. They were handed on nevertheless."""
    before_handshake: bool = False
    """No runtime was started, because the flow is not valid."""

    @property
    def error(self) -> dict[str, Any] | None:
        return self.summary.get("error") if self.status == "failed" else None

    @property
    def exit_code(self) -> errors.RepExitCode:
        """rep 6."""
        if self.status == "completed":
            return errors.RepExitCode.OK
        if self.before_handshake:
            return errors.RepExitCode.INVALID_BEFORE_HANDSHAKE
        error = self.error
        return errors.get_exit_code(error["code"]) if error is not None else errors.RepExitCode.STEP_FAILURE

    def make_report(self) -> dict[str, Any]:
        """Returns the report that `tm runtime run` prints."""
        told: dict[str, Any] = {
            "flow": self.flow,
            "status": self.status,
            "summary": self.summary,
            "events": self.events,
        }
        return told | {"events_left_out": self.events_left_out} if self.events_left_out else told


def make_invalid(flow: str, problem: str) -> FlowRunOutcome:
    """rep 11: makes the outcome of an IR that was refused before any runtime was started."""
    summary = {"completed_steps": 0, "failed_steps": 0, "error": make_error(errors.RepErrorCode.INVALID_IR, problem)}
    return FlowRunOutcome(flow=flow, status="failed", summary=summary, events=[], before_handshake=True)


def make_error(
    code: int, message: str, *, details: dict[str, Any] | None = None, cause: FailureCause | None = None
) -> dict[str, Any]:
    """Makes one of our own errors, in the form that REP has for a runtime's."""
    data = messages.ErrorData(details=details or {}, cause=cause or msgspec.UNSET)
    built: dict[str, Any] = msgspec.to_builtins(messages.Error(code, message, data))
    return built


def convert_runtime_error(code: int, message: str, data: Any) -> dict[str, Any]:
    """Returns a runtime's error, with the fields that it left out."""
    known = make_error(code, message or "the runtime gave no reason")
    if isinstance(data, dict):
        known["data"] |= {name: value for name, value in data.items() if isinstance(name, str)}
    elif data is not None:
        known["data"]["details"] = {"data": data}
    return known


def parse_error(found: Any) -> dict[str, Any] | None:
    """Returns the error inside a summary or an event, if it has one."""
    if isinstance(found, dict) and isinstance(code := found.get("code"), int) and not isinstance(code, bool):
        message = found.get("message")
        return convert_runtime_error(code, message if isinstance(message, str) else "", found.get("data"))
    return None
