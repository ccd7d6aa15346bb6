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


class Before(msgspec.Struct):
    """How far a run had come when it was interrupted."""

    ended: dict[str, Mapping[str, Any] | faults.Failure] = msgspec.field(default_factory=dict)
    """The steps that were over, by id, with what they gave or how they failed. They are not done again, nor told."""
    attempts: dict[str, int] = msgspec.field(default_factory=dict)
    """The try that a step goes on with."""


class Failed(Exception):
    """The run is over."""

    def __init__(self, failure: faults.Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


class Run:
    def __init__(
        self,
        flow: ir.Flow,
        inputs: Mapping[str, Any],
        kinds: registry.Registry,
        setting: port.Setting,
        *,
        before: Before | None = None,
    ) -> None:
        """`before` is what an earlier part of the same run has done. Raises `faults.Invalid` for a flow that cannot be run
        here, before any of it runs."""
        self._before = before or Before()
        self.flow = flow
        self.setting = setting
        self.status = "pending"
        self.waiting: deque[steps.Step] = deque()
        """What may start and takes its time."""
        self._failure: faults.Failure | None = None
        self._outputs: dict[str, Any] = {}
        self._completed_steps = self._failed_steps = 0
        self._graph = graph.Graph(flow)
        self._scope = values.Scope(flow, inputs)
        own = control.kinds_for(self._graph, self._scope)
        self._steps = {
            node.id: steps.Step(
                node,
                own.get(node.kind) or kinds.kind(node, setting),
                self._scope,
                setting,
                first_attempt=self._before.attempts.get(node.id, 0),
            )
            for node in flow.nodes
        }

    @property
    def over(self) -> bool:
        return self.status in ("completed", "failed")

    def begin(self) -> None:
        """Does what can be done at once, which may be all."""
        self.status = "running"
        try:
            is_over = self.proceed() or not self.waiting
        except Failed as failed:
            self.end(failed.failure)
        except Exception as error:
            self.end(faults.panic(error))
        else:
            if is_over:
                self.end(None)

    def proceed(self) -> bool:
        """Goes on as far as it goes without waiting. Whether a `finish` was reached. Raises `Failed`."""
        ready = deque(self._graph.ready())
        cut: deque[str] = deque()
        while ready or cut:
            is_last = not ready
            step = self._steps[(ready or cut).popleft()]
            if not is_last and _was_cut(self._before.ended.get(step.node.id)):
                # Another step had ended the flow, and its end is the one that counts.
                cut.append(step.node.id)
            elif (ended := self._before.ended.pop(step.node.id, None)) is not None:
                if self.settle(step, ended):
                    return True
                ready.extend(self._graph.ready())
            elif not step.is_instant:
                self.waiting.append(step)
            elif self.settle(step, step.at_once()):
                return True
            else:
                ready.extend(self._graph.ready())
        return False

    def settle(self, step: steps.Step, ended: Mapping[str, Any] | faults.Failure) -> bool:
        """A step has ended; what follows from it may start. Whether it was a `finish`. Raises `Failed`."""
        node = step.node
        if isinstance(ended, faults.Failure):
            self._failed_steps += 1
            # For whoever takes over along the failure edge.
            self._scope.steps[node.id] = {"error": ended.spelled()}
            if not self._graph.failed(node.id):
                raise Failed(ended)
            return False
        if node.kind == flows.EMIT:
            self._emit(node, ended)
        self._completed_steps += 1
        self._scope.steps[node.id] = dict(ended)
        self._graph.succeeded(node.id, chosen=ended.get("chosen") if node.kind == flows.SWITCH else None)
        return node.kind == flows.FINISH

    def end(self, failure: faults.Failure | None) -> None:
        """Steps that were not let finish have failed with it: each that has started has an end."""
        why = "the flow is over" if failure is None else failure.message
        cause = faults.TIMEOUT if failure is not None and failure.cause == faults.TIMEOUT else faults.CANCELLED
        self._failed_steps += sum(step.cut(why, cause) for step in self._steps.values())
        self._failure = failure
        # Last: whoever sees that it is over finds all the rest in place.
        self.status = "completed" if failure is None else "failed"

    def told(self) -> bytes:
        """rep 5.3: what a poll is answered with, from any thread. The end is told with the last event, never before it."""
        is_over = self.over  # asked first: everything that was told before the end is there to be drained then
        drained, is_all = self.setting.events.drain()
        summary: dict[str, Any] = {"completed_steps": self._completed_steps, "failed_steps": self._failed_steps}
        if is_over and is_all:
            status = self.status
            summary["outputs"] = self._outputs
            if self._failure is not None:
                summary["error"] = self._failure.spelled()
        else:
            status = "pending" if self.status == "pending" else "running"
        return events.encoded({"status": status, "events": drained, "summary": msgspec.Raw(events.encoded(summary))})

    def _emit(self, node: ir.Node, outputs: Mapping[str, Any]) -> None:
        together = {**self._outputs, **outputs}
        if len(events.encoded(together)) > MOST_OUTPUTS:
            message = f"the outputs of the flow are larger than {MOST_OUTPUTS // 1024**2} MiB"
            raise Failed(faults.Failure(code=faults.STEP_FAILED, message=message, step_id=node.id))
        self._outputs = together


def _was_cut(ended: Mapping[str, Any] | faults.Failure | None) -> bool:
    """Whether a try was not let finish because the flow was over."""
    return isinstance(ended, faults.Failure) and (ended.code, ended.cause) == (faults.STOPPED, faults.CANCELLED)
