"""The model of a checked flow, and the problems that a check can find. Only `parser` makes a `CheckedFlow`, so its users can rely
on every name in it. Every problem states its place and the remedy.
"""

from typing import Any, Literal

from msgspec import Struct

VERSION = "1.0.0"
SWITCH, EMIT, FINISH = "switch", "dsl.emit", "finish"
CONTROL_KINDS = (EMIT, FINISH, SWITCH)
"""Nodes that only control the flow."""
OTHERWISE = "_DEFAULT"
"""The case of a switch that is taken when no other matches."""

On = Literal["success", "failure"]


class RetryPolicy(Struct, frozen=True):
    max: int = 0
    """The number of attempts after the first one."""
    backoff_ms: int = 0
    """The constant delay between two attempts."""


class FlowNode(Struct, frozen=True, kw_only=True):
    id: str
    kind: str
    """The document's `type`."""
    params: dict[str, Any] = {}
    """The document's `with`: literals, and references as `references` parses them."""
    timeout_ms: int = 0
    """The limit of each attempt; 0 is none."""
    retry: RetryPolicy = RetryPolicy()


class FlowEdge(Struct, frozen=True, kw_only=True):
    source: str
    target: str
    on: On = "success"
    case: str | None = None
    """The case of a switch that the edge belongs to; None on every other edge."""


class CheckedFlow(Struct, frozen=True, kw_only=True):
    name: str
    nodes: tuple[FlowNode, ...]
    """The nodes in the document's order."""
    edges: tuple[FlowEdge, ...] = ()
    timeout_ms: int = 0
    """The limit of the whole run; 0 is none."""
    inputs_schema: dict[str, Any] = {}
    """The schema as the document has it; `parser.list_declarations` reads it."""
    policy_ref: str | None = None
    policy: dict[str, Any] = {}
    source_file: str | None = None

    def list_step_kinds(self, *, control: bool = True) -> list[str]:
        """Lists the kinds, sorted, each once. Without `control`, it lists only the kinds that a runtime must implement."""
        kinds = {node.kind for node in self.nodes}
        return sorted(kinds if control else kinds.difference(CONTROL_KINDS))


MOST = 100
"""The most problems that are listed. A hostile document can have any number."""
_LONGEST_SHOWN = 60
_LONGEST_PATH = 500


class FlowProblem(Struct, frozen=True, kw_only=True):
    path: str
    """The place in the document: `$.graph.nodes[2].retry.max`."""
    message: str
    node: str | None = None
    """The id of the node that the problem is about."""

    def __str__(self) -> str:
        return f"node `{self.node}`: {self.message}" if self.node is not None else self.message


class InvalidFlow(Exception):
    """The document is not a flow that can be run."""

    def __init__(self, problems: list[FlowProblem], *, left_out: int = 0) -> None:
        super().__init__(problems, left_out)
        self.problems = problems
        self.left_out = left_out
        """The number of further problems."""

    def __str__(self) -> str:
        lines = [f"{problem} (at {problem.path})" for problem in self.problems]
        return "\n".join([*lines, f"and {self.left_out} more"] if self.left_out else lines)


class FlowProblems:
    """Collects problems in the order of the checks, and counts those beyond the limit."""

    def __init__(self) -> None:
        self._problems: list[FlowProblem] = []
        self._found = 0

    def __bool__(self) -> bool:
        return self._found > 0

    @property
    def listed(self) -> list[FlowProblem]:
        """The problems without those that were only counted."""
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
    """Shortens a name from a document for use in a sentence: one line, printable, and not a page long."""
    shown = "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in text[: _LONGEST_SHOWN + 1])
    return shown if len(text) <= _LONGEST_SHOWN else shown[:_LONGEST_SHOWN] + "…"


def join_path(path: str, key: str) -> str:
    """Returns the path of an object's member: `$.a.b`, or `$.a["b c"]` when the name is not a plain word."""
    plain = key.replace("_", "a").replace("-", "a")
    return (
        f"{path}.{key}" if plain.isalnum() and plain.isascii() and len(key) <= _LONGEST_SHOWN else f'{path}["{clip_name(key)}"]'
    )
