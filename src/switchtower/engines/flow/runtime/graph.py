"""What may start, given what has ended. Pure bookkeeping over a flow that was checked: it runs nothing.

A node is decided on when all that leads to it has ended or was skipped. It is ready if at least one edge to it was taken, and
skipped otherwise; being skipped goes on along its own edges. Nodes that nothing leads to are ready at once.
"""

from typing import Any

from switchtower.engines.flow import ir
from switchtower.engines.flow.ir import flow as flows
from switchtower.engines.flow.ir import switches


class RunGraph:
    def __init__(self, flow: ir.CheckedFlow) -> None:
        self._out: dict[str, list[ir.FlowEdge]] = {node.id: [] for node in flow.nodes}
        self._undecided = dict.fromkeys(self._out, 0)
        """How many edges to each node are still open."""
        self._taken: set[str] = set()
        """Nodes that some edge has led to."""
        self._cases = {node.id: switches.list_targets(node) for node in flow.nodes if node.kind == flows.SWITCH}
        for edge in flow.edges:
            self._out[edge.source].append(edge)
            self._undecided[edge.target] += 1
        self._ready = [node.id for node in flow.nodes if not self._undecided[node.id]]

    def take_ready(self) -> list[str]:
        """Those that became ready since the last time."""
        ready, self._ready = self._ready, []
        return ready

    def resolve_switch(self, switch_id: str, key: str | None) -> str | None:
        """Where a switch leads for this key; None is no key at all."""
        cases = self._cases[switch_id]
        otherwise = cases.get(flows.OTHERWISE)
        return otherwise if key is None else cases.get(key, otherwise)

    def mark_succeeded(self, node_id: str, *, chosen: str | None = None) -> None:
        """`chosen` is where a switch leads. All its other ways are skipped."""
        for edge in self._out[node_id]:
            self._decide(edge.target, is_taken=edge.on == "success" and chosen in (None, edge.target))

    def mark_failed(self, node_id: str) -> bool:
        """Whether somebody takes over: a failure without an edge of its own fails the run."""
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
    """A value as cases spell it: scalars there are strings."""
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
