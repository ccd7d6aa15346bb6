"""A flow that was checked. Made by `parsing` alone; whoever holds one need not ask whether its names exist. Pure.

What is wrong with a flow: sentences that say where, and how it is put right. Pure."""

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


MOST = 100
"""Problems that are told. A hostile document has as many as it likes."""
_LONGEST_SHOWN = 60
_LONGEST_PATH = 500


class FlowProblem(Struct, frozen=True, kw_only=True):
    path: str
    """Where in the document: `$.graph.nodes[2].retry.max`."""
    message: str
    node: str | None = None
    """The id of the node it is about."""

    def __str__(self) -> str:
        return f"node `{self.node}`: {self.message}" if self.node is not None else self.message


class InvalidFlow(Exception):
    """The document is no flow that could be run."""

    def __init__(self, problems: list[FlowProblem], *, left_out: int = 0) -> None:
        super().__init__(problems, left_out)
        self.problems = problems
        self.left_out = left_out
        """How many more there are."""

    def __str__(self) -> str:
        lines = [f"{problem} (at {problem.path})" for problem in self.problems]
        return "\n".join([*lines, f"and {self.left_out} more"] if self.left_out else lines)


class FlowProblems:
    """Collects them in the order of the checks, and counts those that are too many."""

    def __init__(self) -> None:
        self._problems: list[FlowProblem] = []
        self._found = 0

    def __bool__(self) -> bool:
        return self._found > 0

    @property
    def listed(self) -> list[FlowProblem]:
        """Without those that were only counted."""
        return self._problems

    @property
    def is_full(self) -> bool:
        return self._found >= MOST

    def add(self, path: str, message: str, node: str | None = None) -> None:
        self._found += 1
        if self._found <= MOST:
            path = path if len(path) <= _LONGEST_PATH else path[:_LONGEST_PATH] + "…"
            self._problems.append(FlowProblem(path=path, message=message, node=None if node is None else clip_name(node)))

    def raise_any(self) -> None:
        if self._found:
            raise InvalidFlow(self._problems, left_out=self._found - len(self._problems))


def clip_name(text: str) -> str:
    """A name from a document as a sentence can carry it: one line, printable, and not a page long."""
    shown = "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in text[: _LONGEST_SHOWN + 1])
    return shown if len(text) <= _LONGEST_SHOWN else shown[:_LONGEST_SHOWN] + "…"


def join_path(path: str, key: str) -> str:
    """The path of an object's member: `$.a.b`, or `$.a["b c"]` where the name is no plain word."""
    plain = key.replace("_", "a").replace("-", "a")
    return (
        f"{path}.{key}" if plain.isalnum() and plain.isascii() and len(key) <= _LONGEST_SHOWN else f'{path}["{clip_name(key)}"]'
    )
