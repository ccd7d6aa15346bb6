"""Flows for runtimes that lack `finish` and nothing else. Pure.

Where it is nothing but the end of what went well, a flow without it ends the same, and the runtime can have all of it at once.
A `finish` that swallows a failure or is chosen by a case cannot be left out; `borrowing` directs such flows step by step.
"""

from collections.abc import Collection
from typing import Any

FINISH = "finish"


def remove_kinds(ir: dict[str, Any], lacking: Collection[str]) -> dict[str, Any] | None:
    """The same flow without nodes of these kinds, or None when it would not be the same. Takes an IR that was found valid."""
    if set(lacking) != {FINISH}:
        return None
    graph = ir["graph"]
    kind_of = {node["id"]: node["type"] for node in graph["nodes"]}
    dropped = {node["id"] for node in graph["nodes"] if node["type"] == FINISH}
    has_meaning = any(node.get("with") for node in graph["nodes"] if node["id"] in dropped)
    if has_meaning or len(dropped) == len(kind_of):
        return None
    for edge in graph["edges"]:
        if edge["from"] in dropped:
            return None
        if edge["to"] in dropped and (edge.get("on", "success") != "success" or kind_of[edge["from"]] == "switch"):
            return None
    nodes = [node for node in graph["nodes"] if node["id"] not in dropped]
    edges = [edge for edge in graph["edges"] if edge["to"] not in dropped]
    return {**ir, "graph": {**graph, "nodes": nodes, "edges": edges}}
