"""The steps that only the daemon can do: a user decides, or a separate session does the work. Each starts with a call in the
journal that records its id, so that after a restart the daemon waits for the same decision and the same session.
"""

import asyncio
import json
from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from switchtower.core import errors, events
from switchtower.core.ports import engine
from switchtower.engines.flow import ports, progress
from switchtower.engines.flow.recorder import FlowRecorder, truncate_value
from switchtower.engines.flow.runtime import failures, values
from switchtower.engines.flow.runtime.event_buffer import clip_text
from switchtower.engines.flow.runtime.kinds import port
from switchtower.tools import concurrency

KIND = "flow"
"""The kind of the approvals that flows request."""
_LONGEST_TITLE = 200


class FlowDenied(Struct, frozen=True):
    """A user denied the step and ended the whole flow."""

    by: events.Actor | None
    failure: failures.StepFailure
    """The failure of the step that requested the approval."""


class StepServices:
    """The state that both kinds share: the run, its journal and the steps that it had started before a restart."""

    def __init__(
        self, task: engine.Task, context: engine.RunContext, chronicle: FlowRecorder, before: progress.StepCalls
    ) -> None:
        assert task.flow is not None, "a flow's run has a flow"
        self.flow = task.flow
        self.task = task
        self.context = context
        self.recorder = chronicle
        self.before = before
        self.denied: FlowDenied | None = None
        self.stop = asyncio.Event()
        """This event is set when the flow must end, whatever its edges are."""

    async def begin(self, context: port.StepContext, name: str, prefix: str) -> str:
        """Returns the id under which this attempt is known outside of the flow: a new one, or the one from before a restart."""
        call = self.before.called.get(progress.make_call_id(context.step_id, context.attempt))
        known = call.args.get(name) if call is not None else None
        if isinstance(known, str):
            return known
        fresh = self.context.mint(prefix)
        await self.recorder.record_call(context.step_id, context.attempt, {name: fresh})
        return fresh


class ApprovalStep:
    """`title`, `message` and `details` describe the request. The outputs are the user who decided, the client, and the
    comment.
    """

    patient = True

    def __init__(self, services: StepServices) -> None:
        self._services = services

    async def run(self, given: Mapping[str, Any], context: port.StepContext) -> Mapping[str, Any]:
        desk = self._services
        title = values.get_text(given, "title", f"{desk.flow.name}: {context.step_id}")[:_LONGEST_TITLE]
        message = values.get_text(given, "message", values.get_text(given, "summary", "Go on with the flow?"))
        approval_id = await desk.begin(context, "approval_id", "appr")
        answer = desk.before.answers.get(approval_id)
        if answer is None:
            answer = await self._request_approval(approval_id, title, message, given, context)
        told = {
            "comment": answer.comment,
            "by": answer.by.name if answer.by else None,
            "via": answer.by.via if answer.by else None,
        }
        if answer.verdict is events.Verdict.APPROVE:
            return {"approved": True, **told}
        if answer.verdict is None:
            raise failures.StepFailed("nobody decided in time", details={"expired": True})
        reason = f": {clip_text(answer.comment)}" if answer.comment else ""
        message, details = f"denied by {told['by']}{reason}", {"approved": False, **told}
        if answer.verdict is events.Verdict.DENY_STOP:
            await self._end_the_flow(answer.by, message, details, context)
        raise failures.StepFailed(message, details=details)

    async def _end_the_flow(
        self, by: events.Actor | None, message: str, details: dict[str, Any], context: port.StepContext
    ) -> None:
        """Never returns: a step that failed would be followed by others before the flow has ended."""
        failure = failures.StepFailure(
            code=failures.STEP_FAILED, message=message, step_id=context.step_id, attempt=context.attempt, details=details
        )
        self._services.denied = self._services.denied or FlowDenied(by, failure)
        self._services.stop.set()
        await asyncio.Event().wait()

    async def _request_approval(
        self, approval_id: str, title: str, message: str, given: Mapping[str, Any], context: port.StepContext
    ) -> engine.ApprovalAnswer:
        desk = self._services
        details: dict[str, object] = {"tool": "approval", "flow": desk.flow.name, "step": context.step_id}
        if "details" in given:
            details["details"] = truncate_value(given["details"])
        question = engine.ApprovalQuestion(
            call_id=progress.make_call_id(context.step_id, context.attempt),
            kind=KIND,
            title=title,
            summary=clip_text(message),
            details=details,
            subject=json.dumps([desk.flow.name, context.step_id, context.attempt, given], sort_keys=True),
            approval_id=approval_id,
        )
        try:
            return await desk.context.request_approval(question)
        except errors.IdentityConflict:
            # The request was withdrawn, and the daemon ended before it could report the end of the step.
            raise failures.StepFailed("nobody decided in time", retriable=True, details={"expired": True}) from None
        except errors.Unshowable as unshowable:
            raise failures.StepFailed(unshowable.message) from None
        except asyncio.CancelledError:
            if not desk.context.is_shutting_down():
                # The time is up, or the flow has ended: the request must not be decided any more.
                await concurrency.run_to_completion(
                    desk.context.withdraw_approval(approval_id, "the flow does not wait for it any more")
                )
            raise


class AgentStep:
    """`prompt` is the message to the agent. The outputs are its session, its result, and its last message."""

    patient = True

    def __init__(self, services: StepServices, agents: ports.FlowAgents) -> None:
        self._services = services
        self._agents = agents

    async def run(self, given: Mapping[str, Any], context: port.StepContext) -> Mapping[str, Any]:
        wanted = _read_order(given)
        session_id = await self._services.begin(context, "session_id", "sess")
        task, flow = self._services.task, self._services.flow
        order = ports.AgentOrder(
            session_id=session_id,
            workspace=task.workspace.root,
            sandbox=task.sandbox,
            title=f"{flow.name}: {context.step_id}"[:_LONGEST_TITLE],
            by=events.Actor(name=f"flow {flow.name}"[:_LONGEST_TITLE], via="flow"),
            metadata={"flow_session": task.session_id, "step": context.step_id, "attempt": context.attempt},
            **wanted,
        )
        try:
            ended = await self._agents.run_agent(order)
        except ports.AgentRefused as refused:
            raise failures.StepFailed(str(refused), retriable=refused.retriable) from None
        except asyncio.CancelledError:
            if not self._services.context.is_shutting_down():
                await concurrency.run_to_completion(self._agents.stop_agent(session_id))
            raise
        return _make_outputs(session_id, ended)


def _make_outputs(session_id: str, ended: ports.AgentResult) -> Mapping[str, Any]:
    outputs = {
        "session_id": session_id,
        "run_id": ended.run_id,
        "outcome": ended.outcome.value,
        "summary": ended.summary,
        "text": ended.text,
        "acceptance": [{"id": result.id, "passed": result.passed, "exit_code": result.exit_code} for result in ended.acceptance],
        "tokens": ended.tokens,
        "cost": ended.cost,
    }
    if ended.outcome is events.Outcome.SUCCESS:
        return outputs
    raise failures.StepFailed(
        f"the agent's run ended as {ended.outcome.value}: {clip_text(ended.summary)}",
        retriable=ended.outcome is events.Outcome.FAILED,
        details=outputs,
    )


def _read_order(given: Mapping[str, Any]) -> dict[str, Any]:
    prompt = values.get_text(given, "prompt")
    if not prompt.strip():
        raise failures.StepFailed("`prompt` is empty; hint: say what the agent is to do")
    known: dict[str, Any] = {"prompt": prompt}
    for name in ("provider", "model", "preset", "policy", "thinking"):
        if name in given:
            known[name] = values.get_text(given, name)
    if "worktree" in given:
        known["worktree"] = values.parse_truth(given["worktree"])
    known["acceptance"] = tuple(_parse_criterion(one, number) for number, one in enumerate(_to_list(given.get("acceptance", []))))
    limits: dict[str, Any] = {
        name: values.get_number(given, name, most=1e9)
        for name in ("max_turns", "max_tokens", "max_cost", "max_minutes")
        if name in given
    }
    if limits:
        whole = {name: int(value) if name in ("max_turns", "max_tokens") else value for name, value in limits.items()}
        known["budget"] = events.Budget(**whole)
    return known


def _to_list(value: object) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _parse_criterion(one: object, number: int) -> events.Criterion:
    if isinstance(one, str):
        return events.Criterion(id=f"check-{number + 1}", check=one)
    if isinstance(one, dict) and isinstance(check := one.get("check"), str):
        code = int(values.get_number(one, "exit_code", most=255)) if "exit_code" in one else 0
        return events.Criterion(id=str(one.get("id", f"check-{number + 1}")), check=check, exit_code=code)
    raise failures.StepFailed("`acceptance` is a command, or a list of commands or of `{id, check, exit_code}`")
