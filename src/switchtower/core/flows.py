"""The rules of a flow, which runs once from its session's start to its end and takes no messages; and its report in REP's
events, read from the journal. Pure. Text that was redacted on its way into the journal is redacted here too.
"""

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from switchtower.core import codec, commands, errors, events, ids
from switchtower.core.ports import journal
from switchtower.core.rules import Decision
from switchtower.core.session import Session


def parse_flow(engine: str, flow: events.Flow | None) -> events.Flow | None:
    """Returns the flow that a session runs, from the fields of a protocol's request."""
    if (engine == "flow") != (flow is not None):
        raise errors.InvalidCommand("`engine: flow` and `flow` belong together")
    if flow is not None and any("\0" in word for word in flow.argv):
        raise errors.InvalidCommand("the runtime is not one that can be started")
    return flow


def start_flow(command: commands.StartSession, mint: ids.Mint) -> Decision | None:
    if command.flow is None:
        return None
    run_id = mint("run")
    started = events.RunStarted(
        text=command.flow.name, by=command.actor, purpose=events.Purpose.FLOW, headless=command.mode == "headless"
    )
    return Decision([started], run_id, {"run_id": run_id}, ephemeral_input=command.flow)


def refuse_message(session: Session) -> None:
    if session.flow is not None:
        raise errors.InvalidCommand("a flow takes no messages", hint="start it anew with `tower flow run`")


FLOW = "flow"
"""The tool name of the call that represents the flow itself."""
MOST_EVENTS = 100_000
MOST_BYTES = 16 * 1024 * 1024
BROKEN = 3001
CONTINUED = "  "
"""The prefix of each further line of a log that has several: other lines start with their level."""

_ALSO_TOLD: tuple[str, ...] = ("session_id", "approval_id")
_READ = frozenset(kind.kind for kind in (events.ToolCalled, events.ToolFinished, events.ToolProgressed, events.RunCompleted))


class FlowSessionReport:
    def __init__(self, flow: str) -> None:
        self.flow = flow
        self.status = "running"
        self.events: list[dict[str, Any]] = []
        self.left_out = 0
        self.last_seq = 0
        self._bytes = 0
        self._calls: dict[str, tuple[str, int]] = {}
        """The step and the attempt that a call belongs to."""
        self._partial: dict[str, str] = {}
        """The beginning of a log line, by call."""
        self._last_log: dict[str, dict[str, Any]] = {}
        self._succeeded: dict[str, bool] = {}
        """The result of the last attempt of each step."""
        self._outputs: dict[str, dict[str, Any] | None] = {}
        """The outputs by call; None where they were too large to keep."""
        self._summary: dict[str, Any] | None = None
        self._error: dict[str, Any] | None = None

    @property
    def summary(self) -> dict[str, Any]:
        """The runtime's own summary once it exists, and a summary of what was seen so far until then."""
        if self._summary is not None:
            return self._summary
        completed = sum(self._succeeded.values())
        seen: dict[str, Any] = {"completed_steps": completed, "failed_steps": len(self._succeeded) - completed}
        return seen if self._error is None else {**seen, "error": self._error}

    def add_entries(self, entries: Iterable[journal.Entry]) -> None:
        for entry in entries:
            self.last_seq = entry.seq
            if entry.kind in _READ:
                self._add_entry(codec.decode(entry.kind, entry.data), format_timestamp(entry.ts_ms), len(entry.data))

    def _add_entry(self, event: events.AnyEvent, at: str, size: int) -> None:
        match event:
            case events.ToolCalled() if isinstance(step := event.args.get("step"), str):
                attempt = event.args.get("attempt")
                self._calls[event.call_id] = step, attempt if isinstance(attempt, int) else 0
                more: dict[str, Any] = {name: event.args[name] for name in _ALSO_TOLD if name in event.args}
                self._add_step(event.call_id, "started", at, size, more)
            case events.ToolProgressed():
                self._add_log(event, at, size)
            case events.ToolFinished(tool="flow", outputs=dict(outputs)) if event.call_id not in self._calls:
                self.status = "completed" if outputs.get("status") == "completed" else "failed"
                summary = outputs.get("summary")
                self._summary = summary if isinstance(summary, dict) else None
                if isinstance(kept := outputs.get("events"), list):
                    # The runtime's own events, with its own times and with types that the journal does not store.
                    self.events = [self._format_report(*entry[:2]) for entry in kept if _is_kept_event(entry)]
                    left_out = outputs.get("events_left_out")
                    self.left_out = left_out if isinstance(left_out, int) else 0
            case events.ToolFinished() if event.call_id in self._calls:
                self._add_finish(event, at, size)
            case events.RunCompleted() if self.status == "running":
                # The run was cut short, so the runtime did not report its end.
                self.status = "failed"
                cause = {"cause": "Cancelled"} if event.outcome is events.Outcome.CANCELLED else {}
                data: dict[str, Any] = {"step_id": None, "attempt": 0, "retriable": False, "details": {}, **cause}
                self._error = {"code": BROKEN, "message": event.summary, "data": data}
            case _:
                pass

    def _add_finish(self, event: events.ToolFinished, at: str, size: int) -> None:
        given = event.outputs or {}
        self._outputs[event.call_id] = event.outputs
        self._succeeded[self._calls[event.call_id][0]] = not event.is_error
        if self._partial.get(event.call_id):
            self._add_log(events.ToolProgressed(event.call_id, "\n"), at, 0)
        self._partial.pop(event.call_id, None)
        self._last_log.pop(event.call_id, None)
        if event.is_error:
            error = given.get("error", {"code": BROKEN, "message": event.text, "data": {}})
            self._add_step(event.call_id, "failed", at, size, {"duration_ms": event.duration_ms, "error": error})
        else:
            more = {"duration_ms": event.duration_ms, "outputs": given}
            left_out = {"outputs_left_out": True} if event.outputs is None else {}
            self._add_step(event.call_id, "succeeded", at, size, {**more, **left_out})

    def _format_report(self, event: dict[str, Any], call_id: str | None = None) -> dict[str, Any]:
        if call_id is None:
            return event
        outputs = self._outputs.get(call_id)
        return {**event, "outputs": outputs or {}, **({"outputs_left_out": True} if outputs is None else {})}

    def _add_step(self, call_id: str, state: str, at: str, size: int, more: dict[str, Any]) -> None:
        step, attempt = self._calls[call_id]
        told = {"type": "step", "timestamp": at, "step_id": step, "state": state, "attempt": attempt}
        self._keep_event({**told, **more}, size)

    def _add_log(self, event: events.ToolProgressed, at: str, size: int) -> None:
        *lines, self._partial[event.call_id] = (self._partial.get(event.call_id, "") + event.text).split("\n")
        step = self._calls.get(event.call_id)
        for line in lines:
            if line.startswith(CONTINUED) and (last := self._last_log.get(event.call_id)) is not None:
                self._bytes += size // len(lines)
                if self._bytes <= MOST_BYTES:
                    last["message"] += "\n" + line.removeprefix(CONTINUED)
                continue
            level, mark, message = line.removeprefix("[").partition("] ")
            told = {"type": "log", "timestamp": at, "level": level if mark else "info", "message": message if mark else line}
            self._last_log[event.call_id] = told
            if step is not None:
                told["step_id"] = step[0]
            self._keep_event(told, size // len(lines))

    def _keep_event(self, told: dict[str, Any], size: int) -> None:
        self._bytes += size
        if len(self.events) >= MOST_EVENTS or self._bytes > MOST_BYTES:
            self.left_out += 1
        else:
            self.events.append(told)


def _is_kept_event(entry: object) -> bool:
    """`[event]`, or `[event, call]` where that call has the event's outputs."""
    return (
        isinstance(entry, list)
        and bool(entry)
        and isinstance(entry[0], dict)
        and all(isinstance(call, str) for call in entry[1:])
    )


def format_timestamp(ts_ms: int) -> str:
    """rep 7: RFC 3339."""
    return datetime.fromtimestamp(ts_ms / 1_000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
