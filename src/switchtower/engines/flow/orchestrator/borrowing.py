"""Drives the control nodes of a flow for a runtime that has none: our executor directs, and each other step is a flow of one
node that the foreign runtime runs. Knows no wire; whoever lends a runtime does.

Retries, time limits and edges are the executor's then. A runtime that breaks ends the run, as it would have by itself; no
failure edge takes that over.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec

from switchtower.engines.flow.ir import flow as flows
from switchtower.engines.flow.runtime import events, executor, faults, reading
from switchtower.engines.flow.runtime import run as runs
from switchtower.engines.flow.runtime.kinds import port, registry
from switchtower.tools.running import patience

CONTROL = frozenset({flows.SWITCH, flows.EMIT, flows.FINISH})
_ENDS = ("completed", "failed")

Lend = Callable[[dict[str, Any], str], Awaitable[Mapping[str, Any]]]
"""Runs a flow of one node of this kind to its end: `{status, summary, events}`."""
HandOn = Callable[[list[dict[str, Any]], int], Awaitable[None]]
"""Takes events, and how long they are as JSON."""


class Director:
    """One run."""

    def __init__(
        self,
        document: dict[str, Any],
        inputs: Mapping[str, Any],
        *,
        run_id: str,
        workspace: str,
        allow_shell: bool = False,
        own: Mapping[str, port.Kind] | None = None,
        before: runs.Before | None = None,
    ) -> None:
        """`own` are kinds that are not borrowed but done here. `before` is what an earlier part of the same run has done."""
        self._document = document
        self._inputs = inputs
        self._own = own or {}
        self._before = before
        self._news = asyncio.Event()
        told = events.Events(on_news=self._news.set)
        self._setting = port.Setting(run_id=run_id, workspace=workspace, events=told, allow_shell=allow_shell)
        self._broken: dict[str, Any] | None = None

    async def __call__(self, lend: Lend, cancel: asyncio.Event, hand_on: HandOn) -> dict[str, Any]:
        """The status and the summary of the run."""
        halt = asyncio.Event()
        try:
            flow = reading.flow_of(self._document)
            kinds = {node.kind for node in flow.nodes} - CONTROL - self._own.keys()
            borrowed: dict[str, port.Kind] = {kind: _Borrowed(self, kind, lend, halt) for kind in kinds}
            at_hand = registry.Registry({**borrowed, **self._own})
            run = runs.Run(flow, reading.inputs_for(flow, self._inputs), at_hand, self._setting, before=self._before)
        except faults.Invalid as invalid:
            failure = faults.Failure(code=invalid.code, message=str(invalid), step_id=invalid.step_id, details=invalid.details)
            return {"status": "failed", "summary": {"completed_steps": 0, "failed_steps": 0, "error": failure.spelled()}}
        execution = executor.Execution(run)
        running = asyncio.create_task(execution.execute())
        running.add_done_callback(lambda _: self._news.set())
        stops = [asyncio.create_task(_after(event, execution.cancel)) for event in (cancel, halt)]
        try:
            told = await self._hand_on(run, hand_on)
            while told["status"] not in _ENDS:
                if running.done():
                    running.result()
                else:
                    # Nothing is looked for meanwhile: a flow may wait for days until somebody decides.
                    await self._news.wait()
                told = await self._hand_on(run, hand_on)
            await asyncio.wait([running])
        finally:
            for task in (running, *stops):
                task.cancel()
            await patience.to_the_end(asyncio.wait([running, *stops]))
        summary = told["summary"]
        if self._broken is not None and told["status"] == "failed":
            summary["error"] = self._broken
        return {"status": told["status"], "summary": summary}

    def step_alone(self, kind: str, given: Mapping[str, Any], step_id: str) -> dict[str, Any]:
        """The flow with nothing but this step, its parameters filled in."""
        node = {"id": step_id, "type": kind, "with": dict(given)}
        return {**self._document, "graph": {"nodes": [node], "edges": []}}

    def note_break(self, error: dict[str, Any]) -> None:
        self._broken = self._broken or error

    async def _hand_on(self, run: runs.Run, hand_on: HandOn) -> dict[str, Any]:
        """What a poll would be told."""
        self._news.clear()
        spelled = run.told()
        told = msgspec.json.decode(spelled, type=dict[str, Any])
        await hand_on(told["events"], len(spelled))
        return told


class _Borrowed:
    """A kind of the foreign runtime."""

    def __init__(self, director: Director, kind: str, lend: Lend, halt: asyncio.Event) -> None:
        self._director = director
        self._kind = kind
        self._lend = lend
        self._halt = halt

    async def run(self, given: Mapping[str, Any], context: port.Context) -> Mapping[str, Any]:
        ended = await self._lend(self._director.step_alone(self._kind, given, context.step_id), self._kind)
        for event in ended["events"]:
            # The step's own events are ours to report; all others, of unknown types too, are the runtime's.
            if event.get("type") == "log":
                context.setting.events.forward({"step_id": context.step_id, **event})
            elif event.get("type") != "step":
                context.setting.events.forward(event)
        if ended["status"] == "completed":
            return _outputs_of(ended)
        error = ended["summary"]["error"]
        if not 2000 <= error["code"] <= 2999:
            # rep 6: not the step failed, but the runtime.
            self._director.note_break(error)
            self._halt.set()
        data = error["data"]
        details = data.get("details")
        raise faults.StepFailed(
            error["message"],
            retriable=data.get("retriable") is True,
            details=details if isinstance(details, dict) else None,
        )


async def _after(event: asyncio.Event, then: Callable[[], None]) -> None:
    await event.wait()
    then()


def _outputs_of(ended: Mapping[str, Any]) -> Mapping[str, Any]:
    """From the step's own event, or from the summary where the event has none."""
    for event in reversed(ended["events"]):
        if event.get("type") == "step" and event.get("state") == "succeeded" and isinstance(event.get("outputs"), dict):
            outputs: Mapping[str, Any] = event["outputs"]
            return outputs
    outputs = ended["summary"].get("outputs")
    return outputs if isinstance(outputs, dict) else {}
