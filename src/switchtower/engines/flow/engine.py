"""The flow engine: a flow is a session, its steps are tool calls that every subscriber sees, and any user may answer its
approvals.

A flow without steps for users and agents runs on its runtime as a whole. A flow that has such steps is controlled here: each
ordinary step is a flow of one node on the runtime, and this process does the steps for users and agents. Such a flow continues
after a restart.
"""

import asyncio
from collections.abc import Mapping
from functools import partial
from typing import Any

from switchtower.core import events
from switchtower.core.ports import engine
from switchtower.engines.flow import delegation, ir, ports, progress, recorder, session_steps
from switchtower.engines.flow.runtime import failures
from switchtower.engines.flow.runtime.event_buffer import clip_text, encode_json
from switchtower.engines.flow.runtime.kinds import catalog
from switchtower.tools import concurrency
from switchtower.tools.processes import commands, orphans

_BROKEN_EXIT = 4
_SHOWN = 4_000


class FlowEngine:
    """Implements `engine.Engine`."""

    def __init__(self, runtimes: ports.FlowRuntimes, agents: ports.FlowAgents) -> None:
        self._runtimes = runtimes
        self._agents = agents

    async def run(self, task: engine.Task, context: engine.RunContext) -> engine.RunResult:
        if task.flow is None:
            return engine.RunResult(events.Outcome.FAILED, "What was to run is not known any more")
        orphans.register_run(task.run_id)
        try:
            return await _FlowRun(task, task.flow, context, self._runtimes, self._agents).run()
        finally:
            await commands.end_run(task.run_id)


class _FlowRun:
    """One active flow."""

    def __init__(
        self,
        task: engine.Task,
        flow: events.Flow,
        context: engine.RunContext,
        runtimes: ports.FlowRuntimes,
        agents: ports.FlowAgents,
    ) -> None:
        self._task = task
        self._flow = flow
        self._context = context
        self._runtimes = runtimes
        self._agents = agents
        self._before = progress.read_calls(task.steps)
        self._recorder = recorder.FlowRecorder(context, flow, task.run_id, self._before)
        self._order = ports.FlowOrder(flow=flow, run_id=task.run_id, workspace=task.workspace.root, sandbox=task.sandbox)
        self._cancel = asyncio.Event()
        self._denied_by: events.Actor | None = None
        self._is_pausing = False
        """The daemon is stopping: nothing is reported any more, and open steps continue after the next start, or are closed
        then.
        """

    async def run(self) -> engine.RunResult:
        await self._recorder.record_start()
        working = asyncio.ensure_future(self._run_with_delegation() if self._flow.lasting else self._run_whole())
        try:
            ended = await asyncio.shield(working)
        except asyncio.CancelledError:
            self._is_pausing = self._context.is_shutting_down()
            self._cancel.set()
            await concurrency.run_to_completion(asyncio.wait([working]))
            if not self._is_pausing and not working.cancelled() and working.exception() is None:
                # A user cancelled the flow: the report includes how each step and the flow ended.
                await concurrency.run_to_completion(self._recorder.record_end(working.result().status, working.result().summary))
            raise
        return await self._make_result(ended)

    async def _run_whole(self) -> ports.FlowResult:
        return await self._runtimes.run(self._order, self._cancel, self._record_event)

    async def _run_with_delegation(self) -> ports.FlowResult:
        try:
            # This is checked even when no event exists yet: the daemon may have ended before the flow's first event.
            if progress.is_hidden([self._flow.document, self._flow.inputs]):
                raise progress.FlowStateLost("the flow or its inputs held a secret, which is not kept; hint: run the flow again")
            flow = ir.parse_flow(self._flow.document)
            standing = progress.compute_progress(flow, self._before)
        except progress.FlowStateLost as gone:
            return self._make_failed(
                failures.StepFailure(code=failures.STOPPED, message=str(gone), cause="Interrupted").to_error_object()
            )
        for step_id, attempt, failure in standing.interrupted:
            await self._recorder.record_interruption(step_id, attempt, failure.to_error_object())
        kinds = [kind for kind in flow.list_step_kinds(control=False) if kind not in catalog.SESSION_KINDS]
        if kinds and (error := await self._runtimes.find_missing_kinds(self._order, kinds)) is not None:
            return self._make_failed(error)
        return await self._delegate(standing)

    async def _delegate(self, standing: progress.FlowProgress) -> ports.FlowResult:
        desk = session_steps.StepServices(self._task, self._context, self._recorder, self._before)
        director = delegation.StepDelegator(
            self._flow.document,
            self._flow.inputs,
            run_id=self._task.run_id,
            workspace=self._task.workspace.root,
            allow_shell=self._flow.allow_shell,
            own={"agent.run": session_steps.AgentStep(desk, self._agents), "approval": session_steps.ApprovalStep(desk)},
            before=standing.before,
        )
        stopping = asyncio.ensure_future(self._cancel_after(desk.stop))
        try:
            told = await director(self._run_borrowed_step, self._cancel, partial(self._record_events, desk))
        finally:
            stopping.cancel()
        status, summary = told["status"], told["summary"]
        if desk.denied is not None and status == "failed":
            self._denied_by = desk.denied.by
            summary["error"] = desk.denied.failure.to_error_object()
        return self._make_ended(status, summary)

    async def _cancel_after(self, stop: asyncio.Event) -> None:
        await stop.wait()
        self._cancel.set()

    async def _run_borrowed_step(self, document: dict[str, Any], kind: str) -> Mapping[str, Any]:
        return await self._runtimes.run_step(self._order, document, kind)

    async def _record_events(self, services: session_steps.StepServices, recorded: list[dict[str, Any]], size: int) -> None:
        for event in recorded:
            denied = None if services.denied is None else services.denied.failure
            if denied is not None and (event.get("step_id"), event.get("state")) == (denied.step_id, "failed"):
                event = {**event, "error": denied.to_error_object()}  # the denial ended the step, not the end of the flow
            await self._record_event(event)

    async def _record_event(self, event: Mapping[str, Any]) -> None:
        if not self._is_pausing:
            await self._recorder.record_event(event)

    def _make_failed(self, error: dict[str, Any]) -> ports.FlowResult:
        return self._make_ended("failed", {"completed_steps": 0, "failed_steps": 0, "error": error})

    def _make_ended(self, status: str, summary: dict[str, Any]) -> ports.FlowResult:
        return ports.FlowResult(status, summary, self._runtimes.get_exit_code(status, summary))

    async def _make_result(self, ended: ports.FlowResult) -> engine.RunResult:
        await self._recorder.record_end(ended.status, ended.summary)
        name = self._flow.name
        if self._denied_by is not None:
            return engine.RunResult(events.Outcome.DENIED, f"{name} was denied by {self._denied_by.name}", ended.exit_code)
        steps = ended.summary.get("completed_steps")
        if ended.status == "completed":
            said = f"{name}: completed, {steps} steps"
            await self._emit_message(said, ended.summary.get("outputs"))
            return engine.RunResult(events.Outcome.SUCCESS, said, ended.exit_code)
        error = ended.summary.get("error") or {}
        step = (error.get("data") or {}).get("step_id")
        where = f" in step `{step}`" if step else ""
        said = f"{name} failed{where}: {clip_text(str(error.get('message', '')))}"
        detail = clip_text(encode_json(error).decode(), _SHOWN)
        code = "FLOW_BROKEN" if ended.exit_code == _BROKEN_EXIT else "FLOW_FAILED"
        await self._context.emit(events.ErrorRaised(code=code, message=said, detail=detail))
        return engine.RunResult(events.Outcome.FAILED, said, ended.exit_code)

    async def _emit_message(self, message: str, outputs: object) -> None:
        """Emits the result as a final message, for clients that show the flow like an agent's run."""
        text = f"{message}\n\n```json\n{clip_text(encode_json(outputs).decode(), _SHOWN)}\n```" if outputs else message
        await self._context.emit(events.TextDelta(text))
        await self._context.emit(events.MessageCompleted(message_id=self._context.mint("msg"), text=text))
