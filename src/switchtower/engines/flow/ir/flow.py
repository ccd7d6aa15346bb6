"""A flow that was checked. Made by `parsing` alone; whoever holds one need not ask whether its names exist. Pure."""

from typing import Any, Literal

from msgspec import Struct

VERSION = "1.0.0"
SWITCH, EMIT, FINISH = "switch", "dsl.emit", "finish"
CONTROL_KINDS = (EMIT, FINISH, SWITCH)
"""Nodes that only direct the flow."""
OTHERWISE = "_DEFAULT"
"""The case of a switch that is taken when no other is."""

On = Literal["success", "failure"]


class RetryPolicy(Struct, frozen=True):
    max: int = 0
    """Tries after the first one."""
    backoff_ms: int = 0
    """Between two tries, always the same."""


class FlowNode(Struct, frozen=True, kw_only=True):
    id: str
    kind: str
    """The document's `type`."""
    params: dict[str, Any] = {}
    """The document's `with`: literals, and references as `references` reads them."""
    timeout_ms: int = 0
    """Of each try; 0 is none."""
    retry: RetryPolicy = RetryPolicy()


class FlowEdge(Struct, frozen=True, kw_only=True):
    source: str
    target: str
    on: On = "success"
    case: str | None = None
    """Which case of a switch it belongs to. None on every other edge."""


class CheckedFlow(Struct, frozen=True, kw_only=True):
    name: str
    nodes: tuple[FlowNode, ...]
    """In the document's order."""
    edges: tuple[FlowEdge, ...] = ()
    timeout_ms: int = 0
    """Of the whole run; 0 is none."""
    inputs_schema: dict[str, Any] = {}
    """As the document has it; `inputs.declarations` reads it."""
    policy_ref: str | None = None
    policy: dict[str, Any] = {}
    source_file: str | None = None

    def list_step_kinds(self, *, control: bool = True) -> list[str]:
        """Sorted, each once. Without `control`, only what a runtime must bring for itself."""
        kinds = {node.kind for node in self.nodes}
        return sorted(kinds if control else kinds.difference(CONTROL_KINDS))
