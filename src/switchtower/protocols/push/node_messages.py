"""Requests about the nodes that share one store: who is there, and emptying one. Ours, and spelled like the document's own.
Knows nothing of the core.
"""

from typing import Annotated, Any

from msgspec import Meta, Struct

MAX_WAIT_SECONDS = 86_400
"""Seconds."""


# Requests


class ListNodes(Struct, frozen=True):
    pass


class DrainNode(Struct, frozen=True):
    """Empties the node that is asked: it takes up nothing new, gives its runs so long to end, hands its sessions over and lets
    clients go. Asked again it says what came of it the first time, so whoever lost the connection asks again."""

    waitSeconds: Annotated[float, Meta(ge=0, le=MAX_WAIT_SECONDS)] = 30.0


NodeRequest = ListNodes | DrainNode

NODE_REQUESTS: dict[str, type[NodeRequest]] = {"list_nodes": ListNodes, "drain_node": DrainNode}
NODE_CAPABILITIES = ["nodes"]


# Answers


class Node(Struct, frozen=True, forbid_unknown_fields=True):
    id: str
    """Of one start: a node that is started again is another."""
    name: str
    address: str
    """Where other nodes reach it."""
    version: str
    alive: bool
    draining: bool
    sessions: int
    """How many have it as their home."""
    joinedAt: int
    isThis: bool
    """The one that was asked."""


class Nodes(Struct, frozen=True, forbid_unknown_fields=True):
    """None where the daemon is alone."""

    nodes: list[Node]


class NodeDrained(Struct, frozen=True, forbid_unknown_fields=True):
    sessions: int
    """Handed over."""
    interrupted: int
    """Runs that did not end in time."""


NODE_ANSWERS: dict[str, type[Any]] = {"list_nodes": Nodes, "drain_node": NodeDrained}
