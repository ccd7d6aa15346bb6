"""The flow engine: a flow is a session, its steps are calls that everybody sees, and its approvals are questions to anybody.

A flow without people and agents goes to its runtime whole. One that has them is directed here: each ordinary step is a flow
of one node on the runtime, and what only a tower can do is done by the tower. Such a flow goes on after a restart.
"""

import asyncio
from collections.abc import Mapping
from functools import partial
from typing import Any

from switchtower.core import engine, events
from switchtower.engines.flow import calls, chronicle, ir, ports, tower_steps
from switchtower.engines.flow.orchestrator import borrowing
from switchtower.engines.flow.runtime import faults
from switchtower.engines.flow.runtime.events import clipped, encoded
from switchtower.engines.flow.runtime.kinds import catalogue
from switchtower.tools.running import adoption, patience, processes

_BROKEN_EXIT = 4
_SHOWN = 4_000


class FlowEngine:
    """Implements `engine.Engine`."""

    def __init__(self, runtimes: ports.Runtimes, agents: ports.Agents) -> None:
        self._runtimes = runtimes
        self._agents = agents

    async def run(self, task: engine.Task, desk: engine.Desk) -> engine.Result:
        if task.flow is None:
            return engine.Result(events.Outcome.FAILED, "What was to run is not known any more")
        adoption.expect(task.run_id)
        try:
            return await _Work(task, task.flow, desk, self._runtimes, self._agents).to_the_end()
        finally:
            await processes.end_run(task.run_id)


class _Work:
    """One flow at work."""

    def __init__(
        self, task: engine.Task, flow: events.Flow, desk: engine.Desk, runtimes: ports.Runtimes, agents: ports.Agents
    ) -> None:
        self._task = task
        self._flow = flow
        self._desk = desk
        self._runtimes = runtimes
        self._agents = agents
        self._before = calls.read(task.steps)
        self._chronicle = chronicle.Chronicle(desk, flow, task.run_id, self._before)
        self._order = ports.Order(flow=flow, run_id=task.run_id, workspace=task.workspace.root, sandbox=task.sandbox)
        self._cancel = asyncio.Event()
        self._denied_by: events.Actor | None = None
        self._is_pausing = False
        """The daemon stops: nothing is reported any more, and what is open continues after the next start, or is closed then."""

    async def to_the_end(self) -> engine.Result:
        await self._chronicle.begin()
        working = asyncio.ensure_future(self._directed() if self._flow.lasting else self._whole())
        try:
            ended = await asyncio.shield(working)
        except asyncio.CancelledError:
            self._is_pausing = self._desk.pausing()
            self._cancel.set()
            await patience.to_the_end(asyncio.wait([working]))
            if not self._is_pausing and not working.cancelled() and working.exception() is None:
                # A user cancelled it: how each step and the flow ended is part of the report.
                await patience.to_the_end(self._chronicle.end(working.result().status, working.result().summary))
            raise
        return await self._told(ended)

    async def _whole(self) -> ports.Ended:
        return await self._runtimes.run(self._order, self._cancel, self._take)

    async def _directed(self) -> ports.Ended:
        try:
            # Asked also when nothing is told yet: the daemon may have ended before the flow's first word.
            if calls.is_hidden([self._flow.document, self._flow.inputs]):
                raise calls.Gone("the flow or its inputs held a secret, which is not kept; hint: run the flow again")
            flow = ir.parse(self._flow.document)
            standing = calls.standing(flow, self._before)
        except calls.Gone as gone:
            return self._failed(faults.Failure(code=faults.STOPPED, message=str(gone), cause="Interrupted").spelled())
        for step_id, attempt, failure in standing.interrupted:
            await self._chronicle.interrupted(step_id, attempt, failure.spelled())
        kinds = [kind for kind in flow.step_kinds(control=False) if kind not in catalogue.TOWERS]
        if kinds and (error := await self._runtimes.lacks(self._order, kinds)) is not None:
            return self._failed(error)
        return await self._direct(standing)

    async def _direct(self, standing: calls.Standing) -> ports.Ended:
        desk = tower_steps.Desk(self._task, self._desk, self._chronicle, self._before)
        director = borrowing.Director(
            self._flow.document,
            self._flow.inputs,
            run_id=self._task.run_id,
            workspace=self._task.workspace.root,
            allow_shell=self._flow.allow_shell,
            own={"agent.run": tower_steps.RunAgent(desk, self._agents), "approval": tower_steps.Approval(desk)},
            before=standing.before,
        )
        stopping = asyncio.ensure_future(self._cancel_after(desk.stop))
        try:
            told = await director(self._lend, self._cancel, partial(self._take_all, desk))
        finally:
            stopping.cancel()
        status, summary = told["status"], told["summary"]
        if desk.denied is not None and status == "failed":
            self._denied_by = desk.denied.by
            summary["error"] = desk.denied.failure.spelled()
        return self._ended(status, summary)

    async def _cancel_after(self, stop: asyncio.Event) -> None:
        await stop.wait()
        self._cancel.set()

    async def _lend(self, document: dict[str, Any], kind: str) -> Mapping[str, Any]:
        return await self._runtimes.run_step(self._order, document, kind)

    async def _take_all(self, desk: tower_steps.Desk, told: list[dict[str, Any]], size: int) -> None:
        for event in told:
            denied = None if desk.denied is None else desk.denied.failure
            if denied is not None and (event.get("step_id"), event.get("state")) == (denied.step_id, "failed"):
                event = {**event, "error": denied.spelled()}  # the denial ended the step, not the end of the flow
            await self._take(event)

    async def _take(self, event: Mapping[str, Any]) -> None:
        if not self._is_pausing:
            await self._chronicle.take(event)

    def _failed(self, error: dict[str, Any]) -> ports.Ended:
        return self._ended("failed", {"completed_steps": 0, "failed_steps": 0, "error": error})

    def _ended(self, status: str, summary: dict[str, Any]) -> ports.Ended:
        return ports.Ended(status, summary, self._runtimes.exit_code(status, summary))

    async def _told(self, ended: ports.Ended) -> engine.Result:
        await self._chronicle.end(ended.status, ended.summary)
        name = self._flow.name
        if self._denied_by is not None:
            return engine.Result(events.Outcome.DENIED, f"{name} was denied by {self._denied_by.name}", ended.exit_code)
        steps = ended.summary.get("completed_steps")
        if ended.status == "completed":
            said = f"{name}: completed, {steps} steps"
            await self._say(said, ended.summary.get("outputs"))
            return engine.Result(events.Outcome.SUCCESS, said, ended.exit_code)
        error = ended.summary.get("error") or {}
        step = (error.get("data") or {}).get("step_id")
        where = f" in step `{step}`" if step else ""
        said = f"{name} failed{where}: {clipped(str(error.get('message', '')))}"
        detail = clipped(encoded(error).decode(), _SHOWN)
        code = "FLOW_BROKEN" if ended.exit_code == _BROKEN_EXIT else "FLOW_FAILED"
        await self._desk.emit(events.ErrorRaised(code=code, message=said, detail=detail))
        return engine.Result(events.Outcome.FAILED, said, ended.exit_code)

    async def _say(self, said: str, outputs: object) -> None:
        """For who reads along as with an agent: the last word."""
        text = f"{said}\n\n```json\n{clipped(encoded(outputs).decode(), _SHOWN)}\n```" if outputs else said
        await self._desk.emit(events.TextDelta(text))
        await self._desk.emit(events.MessageCompleted(message_id=self._desk.mint("msg"), text=text))
