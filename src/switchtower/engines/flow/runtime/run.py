"""One run of one flow: what it may start, how far it is, how it ended. Waits for nothing and starts nothing that does; steps that
can be done at once are done here, all others wait for the executor. Most of a small flow needs no event loop, which takes longer
to load than everything else.
"""

from collections import deque
from collections.abc import Mapping
from typing import Any

import msgspec

from switchtower.engines.flow import ir
from switchtower.engines.flow.ir import flow as flows
from switchtower.engines.flow.runtime import control, events, faults, graph, steps, values
from switchtower.engines.flow.runtime.kinds import port, registry

MOST_OUTPUTS = 8 * 1024 * 1024
"""Bytes that all `dsl.emit` of a run may come to, as JSON."""


class ResumePoint(msgspec.Struct):
    """How far a run had come when it was interrupted."""

    ended: dict[str, Mapping[str, Any] | faults.StepFailure] = msgspec.field(default_factory=dict)
    """The steps that were over, by id, with what they gave or how they failed. They are not done again, nor told."""
    attempts: dict[str, int] = msgspec.field(default_factory=dict)
    """The try that a step goes on with."""


class FlowRunFailed(Exception):
    """The run is over."""

    def __init__(self, failure: faults.StepFailure) -> None:
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
        """`before` is what an earlier part of the same run has done. Raises `faults.Invalid` for a flow that cannot be run
        here, before any of it runs."""
        self._before = before or ResumePoint()
        self.flow = flow
        self.setting = setting
        self.status = "pending"
        self.waiting: deque[steps.StepExecution] = deque()
        """What may start and takes its time."""
        self._failure: faults.StepFailure | None = None
        self._outputs: dict[str, Any] = {}
        self._completed_steps = self._failed_steps = 0
        self._graph = graph.RunGraph(flow)
        self._scope = values.ReferenceValues(flow, inputs)
        own = control.make_control_kinds(self._graph, self._scope)
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
        """Does what can be done at once, which may be all."""
        self.status = "running"
        try:
            is_over = self.proceed() or not self.waiting
        except FlowRunFailed as failed:
            self.end(failed.failure)
        except Exception as error:
            self.end(faults.make_panic(error))
        else:
            if is_over:
                self.end(None)

    def proceed(self) -> bool:
        """Goes on as far as it goes without waiting. Whether a `finish` was reached. Raises `Failed`."""
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

    def settle(self, step: steps.StepExecution, ended: Mapping[str, Any] | faults.StepFailure) -> bool:
        """A step has ended; what follows from it may start. Whether it was a `finish`. Raises `Failed`."""
        node = step.node
        if isinstance(ended, faults.StepFailure):
            self._failed_steps += 1
            # For whoever takes over along the failure edge.
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

    def end(self, failure: faults.StepFailure | None) -> None:
        """Steps that were not let finish have failed with it: each that has started has an end."""
        why = "the flow is over" if failure is None else failure.message
        cause = faults.TIMEOUT if failure is not None and failure.cause == faults.TIMEOUT else faults.CANCELLED
        self._failed_steps += sum(step.interrupt(why, cause) for step in self._steps.values())
        self._failure = failure
        # Last: whoever sees that it is over finds all the rest in place.
        self.status = "completed" if failure is None else "failed"

    def encode_poll(self) -> bytes:
        """rep 5.3: what a poll is answered with, from any thread. The end is told with the last event, never before it."""
        is_over = self.is_over  # asked first: everything that was told before the end is there to be drained then
        drained, is_all = self.setting.events.drain()
        summary: dict[str, Any] = {"completed_steps": self._completed_steps, "failed_steps": self._failed_steps}
        if is_over and is_all:
            status = self.status
            summary["outputs"] = self._outputs
            if self._failure is not None:
                summary["error"] = self._failure.to_error_object()
        else:
            status = "pending" if self.status == "pending" else "running"
        return events.encode_json({"status": status, "events": drained, "summary": msgspec.Raw(events.encode_json(summary))})

    def _emit(self, node: ir.FlowNode, outputs: Mapping[str, Any]) -> None:
        together = {**self._outputs, **outputs}
        if len(events.encode_json(together)) > MOST_OUTPUTS:
            message = f"the outputs of the flow are larger than {MOST_OUTPUTS // 1024**2} MiB"
            raise FlowRunFailed(faults.StepFailure(code=faults.STEP_FAILED, message=message, step_id=node.id))
        self._outputs = together


def _was_interrupted(ended: Mapping[str, Any] | faults.StepFailure | None) -> bool:
    """Whether a try was not let finish because the flow was over."""
    return isinstance(ended, faults.StepFailure) and (ended.code, ended.cause) == (faults.STOPPED, faults.CANCELLED)
