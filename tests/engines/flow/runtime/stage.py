"""Flows for tests, and kinds whose steps wait until the test lets them go on."""

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from switchtower.engines.flow.runtime import event_buffer, executor, failures, run
from switchtower.engines.flow.runtime.kinds import port, registry


def make_node(
    node_id: str, kind: str, *, timeout_ms: int = 0, retries: int = 0, backoff_ms: int = 0, **given: Any
) -> dict[str, Any]:
    spelled: dict[str, Any] = {"id": node_id, "type": kind, "with": given}
    if timeout_ms:
        spelled["timeout_ms"] = timeout_ms
    if retries:
        spelled["retry"] = {"max": retries, "backoff_ms": backoff_ms}
    return spelled


def make_edge(source: str, target: str, *, on: str = "success", **more: str) -> dict[str, str]:
    return {"from": source, "to": target, "on": on, **more}


def make_document(
    nodes: list[dict[str, Any]], edges: list[dict[str, str]] | None = None, *, timeout_ms: int = 0, **inputs: str
) -> dict[str, Any]:
    return {
        "version": "1.0.0",
        "flow": {"name": "staged", "timeout_ms": timeout_ms},
        "constants": {"policyRef": "none", "policy": {}},
        "inputs_schema": {name: {"type": kind} for name, kind in inputs.items()},
        "graph": {"nodes": nodes, "edges": edges or []},
        "metadata": {"generated_at": "2026-01-02T03:04:05Z", "source_file": "staged.yaml"},
    }


class CountingStepKind:
    """A kind that keeps count: who ran, and how many at once. It puts out what it is given."""

    def __init__(self) -> None:
        self.ran: list[str] = []
        self.active = 0
        self.most_active = 0
        self.cancelled: list[str] = []

    async def run(self, given: Mapping[str, Any], context: port.StepContext) -> Mapping[str, Any]:
        self.ran.append(context.step_id)
        self.active += 1
        self.most_active = max(self.most_active, self.active)
        try:
            await self.do(given, context)
        except asyncio.CancelledError:
            self.cancelled.append(context.step_id)
            raise
        finally:
            self.active -= 1
        return given

    async def do(self, given: Mapping[str, Any], context: port.StepContext) -> None:
        for _ in range(int(given.get("turns", 0))):
            await asyncio.sleep(0)
        if context.attempt < int(given.get("fails", 0)):
            raise failures.StepFailed("it was told to fail", retriable=given.get("retriable", True), details={"why": "told"})


class BlockingStepKind(CountingStepKind):
    """Waits to be opened."""

    def __init__(self) -> None:
        super().__init__()
        self.entered = asyncio.Event()
        self.opened = asyncio.Event()

    async def do(self, given: Mapping[str, Any], context: port.StepContext) -> None:
        self.entered.set()
        await self.opened.wait()


class FlowRuntimeHarness:
    def __init__(
        self,
        described: Mapping[str, Any],
        inputs: Mapping[str, Any] | None = None,
        *,
        workspace: Path = Path("/nonexistent"),
        concurrency: int = 4,
        allow_shell: bool = False,
        tower: port.SessionSteps | None = None,
        **more: port.StepKind,
    ) -> None:
        self.work = CountingStepKind()
        self.setting = port.StepEnvironment(
            run_id="run-1", workspace=str(workspace), events=event_buffer.EventBuffer(), allow_shell=allow_shell, tower=tower
        )
        flow = run.load_flow(described)
        kinds = registry.KindRegistry({"work": self.work, **more})
        self.run = run.FlowRunState(flow, run.resolve_inputs(flow, inputs or {}), kinds, self.setting)
        self.execution = executor.FlowExecution(self.run, concurrency=concurrency)

    async def play(self) -> dict[str, Any]:
        """Executes, and returns what one poll says afterwards."""
        async with asyncio.timeout(60):
            await self.execution.execute()
        return self.poll()

    def poll(self) -> dict[str, Any]:
        told: dict[str, Any] = json.loads(self.run.encode_poll())
        return told


async def play(described: Mapping[str, Any], inputs: Mapping[str, Any] | None = None, **options: Any) -> dict[str, Any]:
    return await FlowRuntimeHarness(described, inputs, **options).play()


def list_states(told: Mapping[str, Any]) -> list[tuple[str, str, int]]:
    return [(event["step_id"], event["state"], event["attempt"]) for event in told["events"] if event["type"] == "step"]
