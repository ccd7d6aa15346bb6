"""A session's log read as a story: which runs there were, what they asked, how they ended. Checks what is always true of one."""

from dataclasses import dataclass, field
from typing import Any

from tests.crash.tower_process import AnyPushFrame

_TOLD_LATER = ("assistant_token", "thinking_token")


@dataclass
class LoggedRun:
    id: str
    text: str
    tool_calls: int = 0
    asked: list[str] = field(default_factory=list)
    closed: dict[str, str] = field(default_factory=dict)
    """Approvals that are no longer pending: how each was closed (`approve`, `deny`, `expired`, `withdrawn`)."""
    cancelling: bool = False
    errors: list[str] = field(default_factory=list)
    outcome: str | None = None

    @property
    def pending(self) -> list[str]:
        return [approval_id for approval_id in self.asked if approval_id not in self.closed]

    @property
    def approved(self) -> bool:
        return "approve" in self.closed.values()


def read(frames: list[AnyPushFrame]) -> dict[str, LoggedRun]:
    """The runs of one session, in order."""
    runs: dict[str, LoggedRun] = {}
    for frame in frames:
        if frame.type in _TOLD_LATER:
            assert frame.runId in runs, f"a token of a run that had not started: {frame}"
            assert runs[frame.runId].outcome is None, f"a token after the run's end: {frame}"
        elif frame.type == "status" and (content := frame.content)["phase"] == "Run started":
            assert frame.runId is not None
            assert frame.runId not in runs, f"a run starts once: {frame}"
            assert all(run.outcome is not None for run in runs.values()), f"one active run per session: {frame}"
            runs[frame.runId] = LoggedRun(frame.runId, content["detail"])
        elif frame.runId is not None:
            assert runs[frame.runId].outcome is None, f"an event after the run's end: {frame}"
            _apply_event(runs[frame.runId], frame.type, frame.content)
    return runs


def _apply_event(run: LoggedRun, type_: str, content: dict[str, Any]) -> None:
    match type_:
        case "status":
            run.cancelling = run.cancelling or content["phase"] == "Cancelling run"
        case "tool_call":
            run.tool_calls += 1
        case "approval_required":
            run.asked.append(content["approvalId"])
        case "approval_received":
            _close(run, content["approvalId"], content["decision"])
        case "warning" if content["code"] in ("APPROVAL_EXPIRED", "APPROVAL_WITHDRAWN"):
            _close(run, content["detail"], content["code"].removeprefix("APPROVAL_").lower())
        case "error":
            run.errors.append(content["code"])
        case "run_complete":
            assert not run.pending, "no question without an answer"
            run.outcome = content["outcome"]
            if "RUN_INTERRUPTED" in run.errors:
                assert run.outcome == ("cancelled" if run.cancelling else "failed")


def _close(run: LoggedRun, approval_id: str, how: str) -> None:
    assert approval_id in run.asked, "only what was asked is answered"
    assert approval_id not in run.closed, "an approval is closed once"
    run.closed[approval_id] = how
