"""Runs the control nodes of a flow for a runtime that lacks them: our executor controls the flow, and the foreign runtime runs
each other step as a flow of one node. This module knows no wire protocol; the caller provides the runtime.

Retries, time limits and edges then belong to our executor. A runtime that breaks ends the run, as it would have by itself; no
failure edge handles that.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec

from switchtower.engines.flow.ir import flow as flows
from switchtower.engines.flow.runtime import event_buffer, executor, failures
from switchtower.engines.flow.runtime import run as runtime_run
from switchtower.engines.flow.runtime.kinds import port, registry
from switchtower.tools import concurrency

CONTROL = frozenset({flows.SWITCH, flows.EMIT, flows.FINISH})
_ENDS = ("completed", "failed")

RunBorrowedStep = Callable[[dict[str, Any], str], Awaitable[Mapping[str, Any]]]
"""Runs a flow of one node of this kind to its end and returns `{status, summary, events}`."""
ForwardEvent = Callable[[list[dict[str, Any]], int], Awaitable[None]]
"""Receives events, and their length as JSON."""


class StepDelegator:
    """Runs one flow."""

    def __init__(
        self,
        document: dict[str, Any],
        inputs: Mapping[str, Any],
        *,
        run_id: str,
        workspace: str,
        allow_shell: bool = False,
        own: Mapping[str, port.StepKind] | None = None,
        before: runtime_run.ResumePoint | None = None,
    ) -> None:
        """`own` are kinds that are executed here instead of being delegated. `before` is the progress of an earlier part of the
        same run.
        """
        self._document = document
        self._inputs = inputs
        self._own = own or {}
        self._before = before
        self._new_events = asyncio.Event()
        told = event_buffer.EventBuffer(on_news=self._new_events.set)
        self._setting = port.StepEnvironment(run_id=run_id, workspace=workspace, events=told, allow_shell=allow_shell)
        self._broken: dict[str, Any] | None = None

    async def __call__(self, lend: RunBorrowedStep, cancel: asyncio.Event, hand_on: ForwardEvent) -> dict[str, Any]:
        """Returns the status and the summary of the run."""
        halt = asyncio.Event()
        try:
            flow = runtime_run.load_flow(self._document)
            kinds = {node.kind for node in flow.nodes} - CONTROL - self._own.keys()
            borrowed: dict[str, port.StepKind] = {kind: _DelegatedKind(self, kind, lend, halt) for kind in kinds}
            at_hand = registry.KindRegistry({**borrowed, **self._own})
            run = runtime_run.FlowRunState(
                flow, runtime_run.resolve_inputs(flow, self._inputs), at_hand, self._setting, before=self._before
            )
        except failures.FlowRejected as invalid:
            failure = failures.StepFailure(
                code=invalid.code, message=str(invalid), step_id=invalid.step_id, details=invalid.details
            )
            return {"status": "failed", "summary": {"completed_steps": 0, "failed_steps": 0, "error": failure.to_error_object()}}
        execution = executor.FlowExecution(run)
        running = asyncio.create_task(execution.execute())
        running.add_done_callback(lambda _: self._new_events.set())
        stops = [asyncio.create_task(_call_after(event, execution.cancel)) for event in (cancel, halt)]
        try:
            told = await self._forward_events(run, hand_on)
            while told["status"] not in _ENDS:
                if running.done():
                    running.result()
                else:
                    # There is no polling here: a flow may wait for days until a user decides.
                    await self._new_events.wait()
                told = await self._forward_events(run, hand_on)
            await asyncio.wait([running])
        finally:
            for task in (running, *stops):
                task.cancel()
            await concurrency.run_to_completion(asyncio.wait([running, *stops]))
        summary = told["summary"]
        if self._broken is not None and told["status"] == "failed":
            summary["error"] = self._broken
        return {"status": told["status"], "summary": summary}

    def make_single_step_flow(self, kind: str, given: Mapping[str, Any], step_id: str) -> dict[str, Any]:
        """Returns the flow with only this step, its parameters filled in."""
        node = {"id": step_id, "type": kind, "with": dict(given)}
        return {**self._document, "graph": {"nodes": [node], "edges": []}}

    def record_failure(self, error: dict[str, Any]) -> None:
        self._broken = self._broken or error

    async def _forward_events(self, run: runtime_run.FlowRunState, hand_on: ForwardEvent) -> dict[str, Any]:
        """Forwards what a poll would return."""
        self._new_events.clear()
        spelled = run.encode_poll()
        told = msgspec.json.decode(spelled, type=dict[str, Any])
        await hand_on(told["events"], len(spelled))
        return told


class _DelegatedKind:
    """A kind of the foreign runtime."""

    def __init__(self, director: StepDelegator, kind: str, lend: RunBorrowedStep, halt: asyncio.Event) -> None:
        self._delegator = director
        self._kind = kind
        self._run_step = lend
        self._halt = halt

    async def run(self, given: Mapping[str, Any], context: port.StepContext) -> Mapping[str, Any]:
        ended = await self._run_step(self._delegator.make_single_step_flow(self._kind, given, context.step_id), self._kind)
        for event in ended["events"]:
            # We report the step's own events; all others, even of unknown types, are the runtime's.
            if event.get("type") == "log":
                context.setting.events.forward({"step_id": context.step_id, **event})
            elif event.get("type") != "step":
                context.setting.events.forward(event)
        if ended["status"] == "completed":
            return _find_outputs(ended)
        error = ended["summary"]["error"]
        if not 2000 <= error["code"] <= 2999:
            # rep 6: the runtime failed, not the step.
            self._delegator.record_failure(error)
            self._halt.set()
        data = error["data"]
        details = data.get("details")
        raise failures.StepFailed(
            error["message"],
            retriable=data.get("retriable") is True,
            details=details if isinstance(details, dict) else None,
        )


async def _call_after(event: asyncio.Event, then: Callable[[], None]) -> None:
    await event.wait()
    then()


def _find_outputs(ended: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns the outputs from the step's own event, or from the summary where the event has none."""
    for event in reversed(ended["events"]):
        if event.get("type") == "step" and event.get("state") == "succeeded" and isinstance(event.get("outputs"), dict):
            outputs: Mapping[str, Any] = event["outputs"]
            return outputs
    outputs = ended["summary"].get("outputs")
    return outputs if isinstance(outputs, dict) else {}
