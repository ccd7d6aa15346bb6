"""One run of one flow: which steps may start, its progress and its end. It never waits: instant steps run here, all others wait
for the executor. Most small flows need no event loop, which takes longer to import than everything else.

A document and its inputs become an executable flow, or are refused with REP's error numbers.

A node is decided when all edges to it have been taken or skipped. It is ready if at least one edge to it was taken, and skipped
otherwise; a skipped node skips its own edges. Nodes without incoming edges are ready at once. The control kinds `switch`,
`dsl.emit` and `finish` are built into every runtime of Switchtower.
"""

from collections import deque
from collections.abc import Mapping
from typing import Any

import msgspec

from switchtower.engines.flow import ir
from switchtower.engines.flow.ir import flow as flows
from switchtower.engines.flow.ir import graph
from switchtower.engines.flow.ir import parser as checked_inputs
from switchtower.engines.flow.runtime import event_buffer, failures, steps, values
from switchtower.engines.flow.runtime.kinds import port, registry

MOST_OUTPUTS = 8 * 1024 * 1024
"""The most bytes that all `dsl.emit` of a run may emit, as JSON."""


class ResumePoint(msgspec.Struct):
    """The progress of a run when it was interrupted."""

    ended: dict[str, Mapping[str, Any] | failures.StepFailure] = msgspec.field(default_factory=dict)
    """The steps that had ended, by id, with their outputs or failures. They are neither done again nor reported again."""
    attempts: dict[str, int] = msgspec.field(default_factory=dict)
    """The attempt that a step continues with."""


class FlowRunFailed(Exception):
    """The run is over."""

    def __init__(self, failure: failures.StepFailure) -> None:
        super().__init__(failure.message)
        self.failure = failure


class FlowRunState:
    def __init__(
        self,
        flow: ir.CheckedFlow,
        inputs: Mapping[str, Any],
        kinds: registry.KindRegistry,
        setting: port.StepEnvironment,
        *,
        before: ResumePoint | None = None,
    ) -> None:
        """`before` is the progress of an earlier part of the same run. Raises `failures.FlowRejected` for a flow that cannot be
        run here, before any of it runs.
        """
        self._before = before or ResumePoint()
        self.flow = flow
        self.setting = setting
        self.status = "pending"
        self.waiting: deque[steps.StepExecution] = deque()
        """The steps that may start and have to wait for something."""
        self._failure: failures.StepFailure | None = None
        self._outputs: dict[str, Any] = {}
        self._completed_steps = self._failed_steps = 0
        self._graph = RunGraph(flow)
        self._scope = values.ReferenceValues(flow, inputs)
        own = make_control_kinds(self._graph, self._scope)
        self._steps = {
            node.id: steps.StepExecution(
                node,
                own.get(node.kind) or kinds.load_kind(node, setting),
                self._scope,
                setting,
                first_attempt=self._before.attempts.get(node.id, 0),
            )
            for node in flow.nodes
        }

    @property
    def is_over(self) -> bool:
        return self.status in ("completed", "failed")

    def begin(self) -> None:
        """Does the instant steps, which may be all."""
        self.status = "running"
        try:
            is_over = self.proceed() or not self.waiting
        except FlowRunFailed as failed:
            self.end(failed.failure)
        except Exception as error:
            self.end(failures.make_panic(error))
        else:
            if is_over:
                self.end(None)

    def proceed(self) -> bool:
        """Continues as far as possible without waiting; returns whether a `finish` was reached. Raises `FlowRunFailed`."""
        ready = deque(self._graph.take_ready())
        cut: deque[str] = deque()
        while ready or cut:
            is_last = not ready
            step = self._steps[(ready or cut).popleft()]
            if not is_last and _was_interrupted(self._before.ended.get(step.node.id)):
                # Another step had ended the flow, and its end is the one that counts.
                cut.append(step.node.id)
            elif (ended := self._before.ended.pop(step.node.id, None)) is not None:
                if self.settle(step, ended):
                    return True
                ready.extend(self._graph.take_ready())
            elif not step.is_instant:
                self.waiting.append(step)
            elif self.settle(step, step.run_instant()):
                return True
            else:
                ready.extend(self._graph.take_ready())
        return False

    def settle(self, step: steps.StepExecution, ended: Mapping[str, Any] | failures.StepFailure) -> bool:
        """Records the end of a step; its successors may start. Returns whether it was a `finish`. Raises `FlowRunFailed`."""
        node = step.node
        if isinstance(ended, failures.StepFailure):
            self._failed_steps += 1
            # The node behind the failure edge may refer to the error.
            self._scope.steps[node.id] = {"error": ended.to_error_object()}
            if not self._graph.mark_failed(node.id):
                raise FlowRunFailed(ended)
            return False
        if node.kind == flows.EMIT:
            self._emit(node, ended)
        self._completed_steps += 1
        self._scope.steps[node.id] = dict(ended)
        self._graph.mark_succeeded(node.id, chosen=ended.get("chosen") if node.kind == flows.SWITCH else None)
        return node.kind == flows.FINISH

    def end(self, failure: failures.StepFailure | None) -> None:
        """Ends the run. Steps that could not finish have failed with it: each step that has started has an end."""
        why = "the flow is over" if failure is None else failure.message
        cause = failures.TIMEOUT if failure is not None and failure.cause == failures.TIMEOUT else failures.CANCELLED
        self._failed_steps += sum(step.interrupt(why, cause) for step in self._steps.values())
        self._failure = failure
        # This is set last: a thread that sees that the run is over finds all the rest in place.
        self.status = "completed" if failure is None else "failed"

    def encode_poll(self) -> bytes:
        """rep 5.3: encodes the response to a poll, from any thread. The end is reported with the last event, never before it."""
        is_over = self.is_over  # read first: then every event before the end can be drained
        drained, is_all = self.setting.events.drain()
        summary: dict[str, Any] = {"completed_steps": self._completed_steps, "failed_steps": self._failed_steps}
        if is_over and is_all:
            status = self.status
            summary["outputs"] = self._outputs
            if self._failure is not None:
                summary["error"] = self._failure.to_error_object()
        else:
            status = "pending" if self.status == "pending" else "running"
        return event_buffer.encode_json(
            {"status": status, "events": drained, "summary": msgspec.Raw(event_buffer.encode_json(summary))}
        )

    def _emit(self, node: ir.FlowNode, outputs: Mapping[str, Any]) -> None:
        together = {**self._outputs, **outputs}
        if len(event_buffer.encode_json(together)) > MOST_OUTPUTS:
            message = f"the outputs of the flow are larger than {MOST_OUTPUTS // 1024**2} MiB"
            raise FlowRunFailed(failures.StepFailure(code=failures.STEP_FAILED, message=message, step_id=node.id))
        self._outputs = together


def _was_interrupted(ended: Mapping[str, Any] | failures.StepFailure | None) -> bool:
    """Returns whether an attempt could not finish because the flow was over."""
    return isinstance(ended, failures.StepFailure) and (ended.code, ended.cause) == (failures.STOPPED, failures.CANCELLED)


_LONGEST_VERSION = 100
_MOST_REPORTED = 20


def load_flow(document: Mapping[str, Any]) -> ir.CheckedFlow:
    """Raises `failures.FlowRejected`."""
    version = document.get("version")
    if version != ir.VERSION:
        # rep 5.2: the version is checked first. A document of another version may have any shape.
        shown = version[:_LONGEST_VERSION] if isinstance(version, str) else None
        details = {"expected": ir.VERSION, "received": shown}
        raise failures.FlowRejected(failures.UNSUPPORTED_IR_VERSION, "Unsupported IR version", details=details)
    try:
        return ir.parse_flow(document)
    except ir.InvalidFlow as invalid:
        raise _make_rejection("Invalid IR payload", invalid) from None


def resolve_inputs(flow: ir.CheckedFlow, given: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the inputs with the defaults. Inputs that the flow does not declare are passed on. Raises
    `failures.FlowRejected`.
    """
    try:
        return checked_inputs.check_inputs(flow.inputs_schema, given)
    except ir.InvalidFlow as invalid:
        raise _make_rejection("Invalid inputs", invalid) from None


def _make_rejection(what: str, invalid: ir.InvalidFlow) -> failures.FlowRejected:
    told = invalid.problems[:_MOST_REPORTED]
    problems = [{"path": problem.path, "message": problem.message, "node": problem.node} for problem in told]
    left_out = invalid.left_out + len(invalid.problems) - len(told)
    return failures.FlowRejected(
        failures.INVALID_IR,
        f"{what}: {told[0]}" + (f" (and {left_out + len(told) - 1} more)" if left_out + len(told) > 1 else ""),
        step_id=told[0].node,
        details={"problems": problems, "left_out": left_out},
    )


class RunGraph:
    def __init__(self, flow: ir.CheckedFlow) -> None:
        self._out: dict[str, list[ir.FlowEdge]] = {node.id: [] for node in flow.nodes}
        self._undecided = dict.fromkeys(self._out, 0)
        """The number of edges to each node that are still open."""
        self._taken: set[str] = set()
        """Nodes that at least one edge has led to."""
        self._cases = {node.id: graph.list_targets(node) for node in flow.nodes if node.kind == flows.SWITCH}
        for edge in flow.edges:
            self._out[edge.source].append(edge)
            self._undecided[edge.target] += 1
        self._ready = [node.id for node in flow.nodes if not self._undecided[node.id]]

    def take_ready(self) -> list[str]:
        """Returns the nodes that became ready since the last call."""
        ready, self._ready = self._ready, []
        return ready

    def resolve_switch(self, switch_id: str, key: str | None) -> str | None:
        """Returns the node that a switch chooses for this key; None means that there is no key."""
        cases = self._cases[switch_id]
        otherwise = cases.get(flows.OTHERWISE)
        return otherwise if key is None else cases.get(key, otherwise)

    def mark_succeeded(self, node_id: str, *, chosen: str | None = None) -> None:
        """`chosen` is the node that a switch chooses. All its other edges are skipped."""
        for edge in self._out[node_id]:
            self._decide(edge.target, is_taken=edge.on == "success" and chosen in (None, edge.target))

    def mark_failed(self, node_id: str) -> bool:
        """Returns whether a failure edge handles it: a failure without such an edge fails the run."""
        is_handled = any(edge.on == "failure" for edge in self._out[node_id])
        for edge in self._out[node_id]:
            self._decide(edge.target, is_taken=edge.on == "failure")
        return is_handled

    def _decide(self, target: str, *, is_taken: bool) -> None:
        if is_taken:
            self._taken.add(target)
        undecided = [target]
        while undecided:
            node_id = undecided.pop()
            self._undecided[node_id] -= 1
            if self._undecided[node_id]:
                continue
            if node_id in self._taken:
                self._ready.append(node_id)
            else:
                undecided.extend(edge.target for edge in self._out[node_id])


def format_case_key(value: Any) -> str:
    """Returns a value as cases spell it: scalars there are strings."""
    match value:
        case str():
            return value
        case bool():
            return "true" if value else "false"
        case None:
            return "null"
        case float() if value.is_integer():
            return str(int(value))
        case _:
            return str(value)


def make_control_kinds(of: RunGraph, scope: values.ReferenceValues) -> dict[str, "port.StepKind"]:
    return {flows.SWITCH: _SwitchKind(of, scope), flows.EMIT: _EmitKind(), flows.FINISH: _FinishKind()}


class _SwitchKind:
    """Gets its parameters unresolved: the value of its key may be missing, which is the purpose of the default."""

    instant = True

    def __init__(self, of: RunGraph, scope: values.ReferenceValues) -> None:
        self._graph = of
        self._scope = scope

    async def run(self, given: Mapping[str, Any], context: "port.StepContext") -> Mapping[str, Any]:
        try:
            key = format_case_key(self._scope.resolve_key(given.get("key_from")))
        except values.MissingValue:
            key = None
        chosen = self._graph.resolve_switch(context.step_id, key)
        if chosen is None:
            shown = "nothing" if key is None else f"`{event_buffer.clip_text(key, 100)}`"
            raise failures.StepFailed(f"the switch has no case for {shown}; hint: give it a `default`")
        return {"key": None if key is None else event_buffer.clip_text(key), "chosen": chosen}


class _EmitKind:
    instant = True

    async def run(self, given: Mapping[str, Any], context: "port.StepContext") -> Mapping[str, Any]:
        outputs = given.get("outputs")
        return outputs if len(given) == 1 and isinstance(outputs, Mapping) else given


class _FinishKind:
    instant = True

    async def run(self, given: Mapping[str, Any], context: "port.StepContext") -> Mapping[str, Any]:
        return {}
