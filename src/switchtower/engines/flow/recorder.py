"""Records the reports of a runtime as events of the flow's session. A step is a call of a tool named like its kind, each attempt
is one call, and its logs are the call's output; the flow is a call too, around them all. So every protocol can show a flow.

A runtime's reports are not trusted: they are bounded, put in order, and completed with the ends that it left out.
"""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from switchtower.core import events, flows
from switchtower.core.ports import engine
from switchtower.engines.flow import progress
from switchtower.engines.flow.runtime.event_buffer import clip_text, encode_json

TOOL = "flow"
MOST_NODES_DRAWN = 500
"""The largest graph that is drawn."""
MOST_OUTPUTS = 1024 * 1024
"""The most bytes of JSON that are kept of one step's outputs."""
MOST_SUMMARY = 8 * MOST_OUTPUTS
"""The most bytes of the flow's own end."""
MOST_EVENTS, MOST_EVENT_BYTES = 20_000, 4 * MOST_OUTPUTS
"""The limits of a runtime's own events, which are kept with the flow's end. Outputs do not count: their step's call has them."""
MOST_OPEN = 1_000
MOST_REPORTED = 100_000
"""The most attempts of steps; further reports of the runtime are ignored."""
_SHOWN = 4_000
_LOGS = 16_000


class _RecordedCall(Struct):
    kind: str
    logs: list[str] = []
    logged: int = 0


class FlowRecorder:
    def __init__(self, context: engine.RunContext, flow: events.Flow, run_id: str, before: progress.StepCalls) -> None:
        self._context = context
        self._flow = flow
        self._run_id = run_id
        self._kinds = {node["id"]: node["type"] for node in flow.document["graph"]["nodes"]}
        self._given = {node["id"]: node.get("with", {}) for node in flow.document["graph"]["nodes"]}
        self._known = set(before.called)
        self._open = {call_id: _RecordedCall(before.called[call_id].tool) for call_id in before.open}
        self._latest = dict(before.attempts)
        """The last known attempt of each step."""
        self._flow_call = _RecordedCall(TOOL)
        self._reported: list[list[Any]] | None = None if flow.lasting or before.called else []
        """A runtime's events in order of arrival: `[event]`, or `[event, call]` where that call has the event's outputs. None for
        a flow that is controlled here or was interrupted: only its calls are known.
        """
        self._reported_bytes = self._not_kept = 0

    async def record_start(self) -> None:
        if self._run_id not in self._known:
            flow = self._flow
            args: dict[str, Any] = {"flow": flow.name, "runtime": flow.runtime, "inputs": truncate_value(flow.inputs)}
            if len(self._kinds) <= MOST_NODES_DRAWN:
                args["graph"] = _make_graph(flow.document)
            await self._emit_call(self._run_id, TOOL, args)

    async def record_call(self, step_id: str, attempt: int, more: Mapping[str, Any]) -> None:
        """Records the start of a step that is done here; the record is stored when this returns."""
        await self._record_call_start(step_id, attempt, more)
        await self._context.flush()

    async def record_event(self, event: Mapping[str, Any]) -> None:
        """Records one event of REP. Types other than its two are kept for the report and not shown."""
        step_id = event.get("step_id")
        self._buffer_event(event)
        if event.get("type") == "log":
            await self._record_log(step_id if isinstance(step_id, str) else None, event)
        elif event.get("type") == "step" and isinstance(step_id, str) and step_id in self._kinds:
            await self._record_step(step_id, event)

    async def record_interruption(self, step_id: str, attempt: int, error: Mapping[str, Any]) -> None:
        """Records the end of an attempt whose real end is unknown."""
        await self._record_call_end(
            progress.make_call_id(step_id, attempt), 0, {"error": dict(error)}, is_error=True, head=str(error["message"])
        )

    async def record_end(self, status: str, summary: Mapping[str, Any]) -> None:
        """Records the flow's own end. Steps that a runtime left open end with it."""
        for call_id in [call_id for call_id in self._open if call_id != self._run_id]:
            await self._record_call_end(call_id, 0, None, is_error=True, head="the runtime told no end of it")
        error = summary.get("error")
        is_error = status != "completed"
        head = f"{self._flow.name}: {status}"
        if isinstance(error, Mapping):
            head += f": {clip_text(str(error.get('message', '')))}"
        kept = dict(summary)
        if len(encode_json(kept)) > MOST_SUMMARY:
            # The outcome is kept in any case.
            kept = {name: summary[name] for name in ("completed_steps", "failed_steps") if isinstance(summary.get(name), int)}
            kept |= {"error": _shorten_error(error)} if isinstance(error, Mapping) else {"outputs_left_out": True}
            head += "\nwhat it put out is too large to be kept"
        told: dict[str, Any] = {"status": status, "summary": kept}
        if self._reported is not None:
            told |= {"events": self._reported, "events_left_out": self._not_kept}
        await self._record_call_end(self._run_id, 0, told, is_error=is_error, head=head, shown=kept.get("outputs"), most=None)

    def _buffer_event(self, event: Mapping[str, Any]) -> None:
        if self._reported is None:
            return
        entry: list[Any] = [dict(event)]
        step_id = event.get("step_id")
        is_end = event.get("type") == "step" and event.get("state") == "succeeded" and isinstance(event.get("outputs"), dict)
        if is_end and isinstance(step_id, str) and step_id in self._kinds:
            entry = [
                {name: value for name, value in event.items() if name != "outputs"},
                progress.make_call_id(step_id, self._record_attempt(step_id, event)),
            ]
        size = len(encode_json(entry))
        if len(self._reported) >= MOST_EVENTS or self._reported_bytes + size > MOST_EVENT_BYTES:
            self._not_kept += 1
            return
        self._reported.append(entry)
        self._reported_bytes += size

    async def _record_step(self, step_id: str, event: Mapping[str, Any]) -> None:
        attempt = self._record_attempt(step_id, event)
        call_id = progress.make_call_id(step_id, attempt)
        match event.get("state"):
            case "started":
                await self._record_call_start(step_id, attempt, {})
            case "succeeded" | "failed" as state:
                await self._record_call_start(step_id, attempt, {})  # where the runtime left it out
                took = event.get("duration_ms")
                if state == "succeeded":
                    given = event.get("outputs")
                    outputs = given if isinstance(given, dict) else {}
                    await self._record_call_end(call_id, took, outputs, head=f"{step_id}: succeeded", shown=outputs)
                else:
                    error = event.get("error")
                    spelled = error if isinstance(error, dict) else {"message": "it failed; the runtime gave no reason"}
                    head = f"{step_id}: failed: {clip_text(str(spelled.get('message', '')))}"
                    await self._record_call_end(call_id, took, {"error": spelled}, is_error=True, head=head)
            case _:
                pass

    def _record_attempt(self, step_id: str, event: Mapping[str, Any]) -> int:
        """Deployed runtimes do not number their attempts: each `started` is then one more."""
        told = event.get("attempt")
        if isinstance(told, int) and not isinstance(told, bool) and 0 <= told < 2**31:
            return told
        latest = self._latest.get(step_id, -1)
        return latest + 1 if event.get("state") == "started" or latest < 0 else latest

    async def _record_call_start(self, step_id: str, attempt: int, more: Mapping[str, Any]) -> None:
        call_id = progress.make_call_id(step_id, attempt)
        if call_id in self._known or len(self._open) > MOST_OPEN or len(self._known) > MOST_REPORTED:
            return
        self._latest[step_id] = max(attempt, self._latest.get(step_id, 0))
        args = {"step": step_id, "attempt": attempt, "with": truncate_value(self._given[step_id]), **more}
        await self._emit_call(call_id, self._kinds[step_id], args)

    async def _emit_call(self, call_id: str, kind: str, args: dict[str, Any]) -> None:
        self._known.add(call_id)
        self._open[call_id] = _RecordedCall(kind)
        await self._context.emit(events.ToolCalled(call_id=call_id, tool=kind, args=args))

    async def _record_call_end(
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
            return  # a duplicate report
        text = head + (f"\n{_format_value(shown)}" if shown else "")
        if call.logs:
            text += "\n" + "".join(call.logs).rstrip()
        kept = outputs if outputs is not None and (most is None or len(encode_json(outputs)) <= most) else None
        if outputs is not None and kept is None:
            text += "\nwhat it gave is too large to be kept"
        finished = events.ToolFinished(
            call_id=call_id,
            tool=call.kind,
            duration_ms=_to_milliseconds(took),
            text=text,
            is_error=is_error,
            error=events.ToolError(type="UNKNOWN", message=clip_text(head)) if is_error else None,
            outputs=kept,
        )
        await self._context.emit(finished)

    async def _record_log(self, step_id: str | None, event: Mapping[str, Any]) -> None:
        message, level = event.get("message"), event.get("level")
        if not isinstance(message, str):
            return
        shown = level if isinstance(level, str) and len(level) < 20 else "info"
        line = f"[{shown}] {clip_text(message)}".replace("\n", f"\n{flows.CONTINUED}") + "\n"
        call_id = progress.make_call_id(step_id, self._latest.get(step_id, 0)) if step_id is not None else self._run_id
        if call_id not in self._open:
            call_id = self._run_id
        call = self._open.get(call_id)
        if call is None:
            return
        # Streamed output may be pruned later; the end of the call has it again, within its bounds.
        if call.logged < _LOGS:
            call.logs.append(line)
            call.logged += len(line)
        await self._context.emit(events.ToolProgressed(call_id=call_id, text=line))


def _make_graph(document: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the graph without the parameters of its steps."""
    graph = document["graph"]
    edges = [{name: edge[name] for name in ("from", "to", "on", "case") if name in edge} for edge in graph["edges"]]
    return {"nodes": [{"id": node["id"], "type": node["type"]} for node in graph["nodes"]], "edges": edges}


def _shorten_error(error: Mapping[str, Any]) -> dict[str, Any]:
    code = error.get("code")
    return {"code": code if isinstance(code, int) else 0, "message": clip_text(str(error.get("message", ""))), "data": {}}


def _to_milliseconds(took: object) -> int:
    """Some runtimes report fractions of milliseconds."""
    if isinstance(took, bool) or not isinstance(took, int | float) or not 0 <= took < 2**53:
        return 0
    return int(took)


def truncate_value(value: object) -> object:
    """Returns the value itself, or its start when it is long."""
    spelled = encode_json(value)
    return value if len(spelled) <= _SHOWN else {"truncated": spelled[:_SHOWN].decode(errors="ignore")}


def _format_value(value: object) -> str:
    return clip_text(encode_json(value).decode(), _SHOWN)
