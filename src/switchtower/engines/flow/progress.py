"""Computes a flow's progress before a restart from the calls of its session.

A step that was active when the daemon ended has an unknown outcome: that attempt counts as failed, and the step's own retry
policy decides whether there is another. Only steps for users and agents are waited for again; control nodes, which have no effect
outside of the flow, run again.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import Struct, field

from switchtower.core import events
from switchtower.core.ports import engine
from switchtower.core.redact import MARK
from switchtower.engines.flow import ir
from switchtower.engines.flow.ir import flow as flows
from switchtower.engines.flow.ir import references
from switchtower.engines.flow.runtime import failures
from switchtower.engines.flow.runtime import run as runs
from switchtower.engines.flow.runtime.event_buffer import encode_json
from switchtower.engines.flow.runtime.kinds import catalog

_INTERRUPTED = "the daemon ended while the step was under way, and nobody knows what became of it"


class FlowStateLost(Exception):
    """State that the flow needs to continue was redacted or cut in the journal, so it no longer exists."""


class StepCalls(Struct):
    """The calls of a flow's steps in its session's journal."""

    called: dict[str, events.ToolCalled] = field(default_factory=dict)
    finished: dict[str, events.ToolFinished] = field(default_factory=dict)
    answers: dict[str, engine.ApprovalAnswer] = field(default_factory=dict)
    """The decisions, by approval."""
    attempts: dict[str, int] = field(default_factory=dict)
    """The last attempt of each step."""

    @property
    def open(self) -> list[str]:
        return [call_id for call_id in self.called if call_id not in self.finished]


def make_call_id(step_id: str, attempt: int) -> str:
    """Returns the id of the call for one attempt of a step."""
    return f"step:{step_id}:{attempt}"


def read_calls(recorded: Iterable[engine.FlowEvent]) -> StepCalls:
    found = StepCalls()
    for event in recorded:
        match event:
            case events.ToolCalled():
                found.called[event.call_id] = event
                step, attempt = event.args.get("step"), event.args.get("attempt")
                if isinstance(step, str) and isinstance(attempt, int):
                    found.attempts[step] = max(attempt, found.attempts.get(step, 0))
            case events.ToolFinished():
                found.finished[event.call_id] = event
            case events.ApprovalDecided():
                found.answers[event.approval_id] = engine.ApprovalAnswer(event.verdict, event.comment, None, event.by)
            case events.ApprovalExpired():
                found.answers[event.approval_id] = engine.ApprovalAnswer(None)
    return found


class FlowProgress(Struct):
    before: runs.ResumePoint
    interrupted: list[tuple[str, int, failures.StepFailure]]
    """Attempts whose end is to be reported now: step, number, and the failure that it counts as."""


def compute_progress(flow: ir.CheckedFlow, calls: StepCalls) -> FlowProgress:
    """Raises `FlowStateLost`."""
    before, interrupted = runs.ResumePoint(), list[tuple[str, int, failures.StepFailure]]()
    hidden = set()
    for node in flow.nodes:
        attempt = calls.attempts.get(node.id)
        if attempt is None:
            continue
        finished = calls.finished.get(make_call_id(node.id, attempt))
        if finished is not None and not finished.is_error:
            before.ended[node.id] = finished.outputs or {}
            if finished.outputs is None and node.kind == flows.EMIT:
                raise FlowStateLost(f"what `{node.id}` put out was too large to be kept; hint: run the flow again")
            if finished.outputs is None or is_hidden(finished.outputs):
                hidden.add(node.id)
            continue
        if finished is None and node.kind in catalog.CONTROL:
            continue
        if finished is None and node.kind in catalog.SESSION_KINDS:
            before.attempts[node.id] = attempt
            continue
        if finished is None:
            failure = _make_interruption(node, attempt)
            interrupted.append((node.id, attempt, failure))
        else:
            failure = _make_failure(finished, node, attempt)
            if finished.outputs is None or is_hidden(finished.outputs):
                hidden.add(node.id)
        if failure.retriable and attempt < node.retry.max:
            before.attempts[node.id] = attempt + 1
        else:
            before.ended[node.id] = failure
    _check_references(flow, before, hidden)
    return FlowProgress(before, interrupted)


def is_hidden(value: object) -> bool:
    """Returns whether a part of the value was redacted as a secret."""
    return MARK.encode() in encode_json(value)


def _make_interruption(node: ir.FlowNode, attempt: int) -> failures.StepFailure:
    return failures.StepFailure(
        code=failures.STEP_FAILED, message=_INTERRUPTED, step_id=node.id, attempt=attempt, retriable=True, cause="Interrupted"
    )


def _make_failure(finished: events.ToolFinished, node: ir.FlowNode, attempt: int) -> failures.StepFailure:
    error = (finished.outputs or {}).get("error")
    told: Mapping[str, Any] = error if isinstance(error, dict) else {}
    data = told.get("data")
    more: Mapping[str, Any] = data if isinstance(data, dict) else {}
    code, message, details, cause = told.get("code"), told.get("message"), more.get("details"), more.get("cause")
    return failures.StepFailure(
        code=code if isinstance(code, int) else failures.STEP_FAILED,
        message=message if isinstance(message, str) else finished.text,
        step_id=node.id,
        attempt=attempt,
        retriable=more.get("retriable") is True,
        details=details if isinstance(details, dict) else {},
        cause=cause if isinstance(cause, str) else None,
    )


def _check_references(flow: ir.CheckedFlow, before: runs.ResumePoint, hidden: set[str]) -> None:
    if not hidden:
        return
    ids = {node.id for node in flow.nodes}
    inputs = flow.inputs_schema
    for node in flow.nodes:
        if node.id in before.ended:
            continue
        found = [reference for _, reference in references.iterate_references(node.params, "")]
        if (key := references.parse_key(node.params.get("key_from"))) is not None:
            found.append(key)
        for reference in found:
            meant = reference.split(inputs=inputs, steps=ids) if reference.source == "step" else None
            if meant is not None and meant[0] in hidden:
                raise FlowStateLost(
                    f"`{node.id}` needs what `{meant[0]}` gave, and that was not kept because it held a secret or was too "
                    "large; hint: run the flow again"
                )
