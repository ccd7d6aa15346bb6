"""A decoded document becomes a `Flow`, or every problem is told. Pure.

The shape comes first. What looks at names needs a sound shape, and what looks at the order of nodes needs sound names: each of
the three tells all it finds, and the next begins only when there was nothing.
"""

from datetime import date
from typing import Any

from switchtower.engines.flow.ir import flow as flows
from switchtower.engines.flow.ir import graph, problems, references, schema, shape, switches


def parse(document: object) -> flows.Flow:
    """Raises `InvalidFlow`."""
    found = problems.Problems()
    shape.check(document, schema.FLOW_IR, found)
    found.raise_any()
    assert isinstance(document, dict), "the shape was checked"
    flow = _flow(document)
    _check_day(document["metadata"], found)
    graph.check_names(flow.nodes, flow.edges, found)
    found.raise_any()
    _check_graph(flow, found)
    found.raise_any()
    return flow


def _check_graph(flow: flows.Flow, found: problems.Problems) -> None:
    places = {node.id: index for index, node in enumerate(flow.nodes)}
    by_id = {node.id: node for node in flow.nodes}
    graph.check_edges(by_id, flow.edges, found)
    order = graph.Order(places, flow.edges)
    graph.check_order(order, flow.nodes, found)
    # In a circle, who comes before whom has no answer.
    names = None if found else references.Names(flow.inputs_schema, places, order.before)
    leading: dict[str, list[tuple[int, flows.Edge]]] = {}
    for index, edge in enumerate(flow.edges):
        if edge.on == "success":
            leading.setdefault(edge.source, []).append((index, edge))
    for index, node in enumerate(flow.nodes):
        path = f"$.graph.nodes[{index}]"
        if node.kind == flows.SWITCH:
            switches.check(node, path, places, leading.get(node.id, []), found)
        elif node.kind == flows.FINISH and node.params:
            found.add(f"{path}.with", "a `finish` takes nothing; hint: a `dsl.emit` before it gives outputs", node.id)
        if names is not None:
            references.check(node, path, names, found)


def _check_day(metadata: dict[str, Any], found: problems.Problems) -> None:
    """The schema's pattern knows 31 days in every month."""
    if "generated_at" in metadata:
        try:
            date.fromisoformat(metadata["generated_at"][:10])
        except ValueError:
            found.add("$.metadata.generated_at", "`metadata.generated_at` is a day that no calendar has")


def _flow(document: dict[str, Any]) -> flows.Flow:
    head, constants, parts = document["flow"], document["constants"], document["graph"]
    nodes = tuple(_node(node) for node in parts["nodes"])
    kinds = {node.id: node.kind for node in nodes}
    return flows.Flow(
        name=head["name"],
        nodes=nodes,
        edges=tuple(_edge(edge, kinds.get(edge["from"])) for edge in parts["edges"]),
        timeout_ms=int(head.get("timeout_ms", 0)),
        inputs_schema=document["inputs_schema"],
        policy_ref=constants.get("policyRef"),
        policy=constants.get("policy", {}),
        source_file=document["metadata"].get("source_file"),
    )


def _node(node: dict[str, Any]) -> flows.Node:
    retry = node.get("retry", {})
    return flows.Node(
        id=node["id"],
        kind=node["type"],
        params=node.get("with", {}),
        timeout_ms=int(node.get("timeout_ms", 0)),
        retry=flows.Retry(int(retry.get("max", 0)), int(retry.get("backoff_ms", 0))),
    )


def _edge(edge: dict[str, Any], source_kind: str | None) -> flows.Edge:
    # More keys are allowed, and mean nothing to us: a `case` counts on the edges of a switch alone.
    case = edge.get("case") if source_kind == flows.SWITCH else None
    return flows.Edge(
        source=edge["from"], target=edge["to"], on=edge.get("on", "success"), case=case if isinstance(case, str) else None
    )
