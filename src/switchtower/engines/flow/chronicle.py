"""What a runtime tells of a flow, as events of its session. A step is a call of a tool named like its kind, a try of it is one
call, and its logs are the call's output; the flow is a call too, around them all. So every protocol shows it as it is.

What a runtime says is not trusted: it is bounded, put in order, and given the ends that it left out.
"""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from switchtower.core import engine, events, flow_report
from switchtower.engines.flow import calls
from switchtower.engines.flow.runtime.events import clipped, encoded

TOOL = "flow"
MOST_NODES_DRAWN = 500
"""Of a larger graph nobody makes a picture."""
MOST_OUTPUTS = 1024 * 1024
"""Bytes of JSON that are kept of what one step gave."""
MOST_SUMMARY = 8 * MOST_OUTPUTS
"""Of the flow's own end."""
MOST_EVENTS, MOST_EVENT_BYTES = 20_000, 4 * MOST_OUTPUTS
"""Of a runtime's own events, kept with the flow's end. Outputs do not count: their step's call has them."""
MOST_OPEN = 1_000
MOST_TOLD = 100_000
"""Tries of steps; a runtime that tells of more is not listened to any more."""
_SHOWN = 4_000
_LOGS = 16_000


class _Call(Struct):
    kind: str
    logs: list[str] = []
    logged: int = 0


class Chronicle:
    def __init__(self, desk: engine.Desk, flow: events.Flow, run_id: str, before: calls.Calls) -> None:
        self._desk = desk
        self._flow = flow
        self._run_id = run_id
        self._kinds = {node["id"]: node["type"] for node in flow.document["graph"]["nodes"]}
        self._given = {node["id"]: node.get("with", {}) for node in flow.document["graph"]["nodes"]}
        self._known = set(before.called)
        self._open = {call_id: _Call(before.called[call_id].tool) for call_id in before.open}
        self._latest = dict(before.attempts)
        """The last try of each step that we know of."""
        self._flow_call = _Call(TOOL)
        self._reported: list[list[Any]] | None = None if flow.lasting or before.called else []
        """A runtime's events as they came: `[event]`, or `[event, call]` where that call has the event's outputs. None for a flow
        that is directed here or was interrupted: its calls are all that is known."""
        self._reported_bytes = self._not_kept = 0

    async def begin(self) -> None:
        if self._run_id not in self._known:
            flow = self._flow
            args: dict[str, Any] = {"flow": flow.name, "runtime": flow.runtime, "inputs": bounded(flow.inputs)}
            if len(self._kinds) <= MOST_NODES_DRAWN:
                args["graph"] = _drawn(flow.document)
            await self._call(self._run_id, TOOL, args)

    async def called(self, step_id: str, attempt: int, more: Mapping[str, Any]) -> None:
        """A step that is done here begins; stored when this returns."""
        await self._start(step_id, attempt, more)
        await self._desk.flush()

    async def take(self, event: Mapping[str, Any]) -> None:
        """One event of REP. Other types than its two are kept for the report and not shown."""
        step_id = event.get("step_id")
        self._keep(event)
        if event.get("type") == "log":
            await self._log(step_id if isinstance(step_id, str) else None, event)
        elif event.get("type") == "step" and isinstance(step_id, str) and step_id in self._kinds:
            await self._step(step_id, event)

    async def interrupted(self, step_id: str, attempt: int, error: Mapping[str, Any]) -> None:
        """The end of a try that nobody saw the end of."""
        await self._finish(calls.id_of(step_id, attempt), 0, {"error": dict(error)}, is_error=True, head=str(error["message"]))

    async def end(self, status: str, summary: Mapping[str, Any]) -> None:
        """The flow's own end. Steps that a runtime left open have ended with it."""
        for call_id in [call_id for call_id in self._open if call_id != self._run_id]:
            await self._finish(call_id, 0, None, is_error=True, head="the runtime told no end of it")
        error = summary.get("error")
        is_error = status != "completed"
        head = f"{self._flow.name}: {status}"
        if isinstance(error, Mapping):
            head += f": {clipped(str(error.get('message', '')))}"
        kept = dict(summary)
        if len(encoded(kept)) > MOST_SUMMARY:
            # How it ended is kept in any case.
            kept = {name: summary[name] for name in ("completed_steps", "failed_steps") if isinstance(summary.get(name), int)}
            kept |= {"error": _short(error)} if isinstance(error, Mapping) else {"outputs_left_out": True}
            head += "\nwhat it put out is too large to be kept"
        told: dict[str, Any] = {"status": status, "summary": kept}
        if self._reported is not None:
            told |= {"events": self._reported, "events_left_out": self._not_kept}
        await self._finish(self._run_id, 0, told, is_error=is_error, head=head, shown=kept.get("outputs"), most=None)

    def _keep(self, event: Mapping[str, Any]) -> None:
        if self._reported is None:
            return
        entry: list[Any] = [dict(event)]
        step_id = event.get("step_id")
        is_end = event.get("type") == "step" and event.get("state") == "succeeded" and isinstance(event.get("outputs"), dict)
        if is_end and isinstance(step_id, str) and step_id in self._kinds:
            entry = [
                {name: value for name, value in event.items() if name != "outputs"},
                calls.id_of(step_id, self._attempt(step_id, event)),
            ]
        size = len(encoded(entry))
        if len(self._reported) >= MOST_EVENTS or self._reported_bytes + size > MOST_EVENT_BYTES:
            self._not_kept += 1
            return
        self._reported.append(entry)
        self._reported_bytes += size

    async def _step(self, step_id: str, event: Mapping[str, Any]) -> None:
        attempt = self._attempt(step_id, event)
        call_id = calls.id_of(step_id, attempt)
        match event.get("state"):
            case "started":
                await self._start(step_id, attempt, {})
            case "succeeded" | "failed" as state:
                await self._start(step_id, attempt, {})  # where the runtime left it out
                took = event.get("duration_ms")
                if state == "succeeded":
                    given = event.get("outputs")
                    outputs = given if isinstance(given, dict) else {}
                    await self._finish(call_id, took, outputs, head=f"{step_id}: succeeded", shown=outputs)
                else:
                    error = event.get("error")
                    spelled = error if isinstance(error, dict) else {"message": "it failed; the runtime gave no reason"}
                    head = f"{step_id}: failed: {clipped(str(spelled.get('message', '')))}"
                    await self._finish(call_id, took, {"error": spelled}, is_error=True, head=head)
            case _:
                pass

    def _attempt(self, step_id: str, event: Mapping[str, Any]) -> int:
        """Deployed runtimes do not count their tries: each `started` is one more then."""
        told = event.get("attempt")
        if isinstance(told, int) and not isinstance(told, bool) and 0 <= told < 2**31:
            return told
        latest = self._latest.get(step_id, -1)
        return latest + 1 if event.get("state") == "started" or latest < 0 else latest

    async def _start(self, step_id: str, attempt: int, more: Mapping[str, Any]) -> None:
        call_id = calls.id_of(step_id, attempt)
        if call_id in self._known or len(self._open) > MOST_OPEN or len(self._known) > MOST_TOLD:
            return
        self._latest[step_id] = max(attempt, self._latest.get(step_id, 0))
        args = {"step": step_id, "attempt": attempt, "with": bounded(self._given[step_id]), **more}
        await self._call(call_id, self._kinds[step_id], args)

    async def _call(self, call_id: str, kind: str, args: dict[str, Any]) -> None:
        self._known.add(call_id)
        self._open[call_id] = _Call(kind)
        await self._desk.emit(events.ToolCalled(call_id=call_id, tool=kind, args=args))

    async def _finish(
        self,
        call_id: str,
        took: object,
        outputs: dict[str, Any] | None,
        *,
        head: str,
        is_error: bool = False,
        shown: object = None,
        most: int | None = MOST_OUTPUTS,
    ) -> None:
        call = self._open.pop(call_id, None)
        if call is None:
            return  # told twice
        text = head + (f"\n{_spelled(shown)}" if shown else "")
        if call.logs:
            text += "\n" + "".join(call.logs).rstrip()
        kept = outputs if outputs is not None and (most is None or len(encoded(outputs)) <= most) else None
        if outputs is not None and kept is None:
            text += "\nwhat it gave is too large to be kept"
        finished = events.ToolFinished(
            call_id=call_id,
            tool=call.kind,
            duration_ms=_milliseconds(took),
            text=text,
            is_error=is_error,
            error=events.ToolError(type="UNKNOWN", message=clipped(head)) if is_error else None,
            outputs=kept,
        )
        await self._desk.emit(finished)

    async def _log(self, step_id: str | None, event: Mapping[str, Any]) -> None:
        message, level = event.get("message"), event.get("level")
        if not isinstance(message, str):
            return
        shown = level if isinstance(level, str) and len(level) < 20 else "info"
        line = f"[{shown}] {clipped(message)}".replace("\n", f"\n{flow_report.CONTINUED}") + "\n"
        call_id = calls.id_of(step_id, self._latest.get(step_id, 0)) if step_id is not None else self._run_id
        if call_id not in self._open:
            call_id = self._run_id
        call = self._open.get(call_id)
        if call is None:
            return
        # What streams by may be pruned one day; the call's end has it again, as far as it is bounded.
        if call.logged < _LOGS:
            call.logs.append(line)
            call.logged += len(line)
        await self._desk.emit(events.ToolProgressed(call_id=call_id, text=line))


def _drawn(document: Mapping[str, Any]) -> dict[str, Any]:
    """The graph without what its steps are given."""
    graph = document["graph"]
    edges = [{name: edge[name] for name in ("from", "to", "on", "case") if name in edge} for edge in graph["edges"]]
    return {"nodes": [{"id": node["id"], "type": node["type"]} for node in graph["nodes"]], "edges": edges}


def _short(error: Mapping[str, Any]) -> dict[str, Any]:
    code = error.get("code")
    return {"code": code if isinstance(code, int) else 0, "message": clipped(str(error.get("message", ""))), "data": {}}


def _milliseconds(took: object) -> int:
    """Some runtimes measure in fractions of them."""
    if isinstance(took, bool) or not isinstance(took, int | float) or not 0 <= took < 2**53:
        return 0
    return int(took)


def bounded(value: object) -> object:
    """The value itself, or how it begins when it is long."""
    spelled = encoded(value)
    return value if len(spelled) <= _SHOWN else {"truncated": spelled[:_SHOWN].decode(errors="ignore")}


def _spelled(value: object) -> str:
    return clipped(encoded(value).decode(), _SHOWN)
