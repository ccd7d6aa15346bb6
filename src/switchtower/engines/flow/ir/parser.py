"""Turns a decoded document into a `CheckedFlow`, or reports every problem; also checks the inputs of a run.

All checks run, whatever the earlier ones have found, on as much of the graph as can be read: a node without a type still has an
id, and a wrong name in one edge does not hide a wrong reference elsewhere. Only consequences of a reported problem are left out,
such as an order of nodes whose edges are wrong.

The IR leaves the contents of `inputs_schema` to the runtime. Two forms are supported: `{name: {type, default, required}}`, and a
JSON Schema of an object. A type that is not one of `schema.TYPES`, such as `list<string>`, accepts any value, and a run may be
given inputs that the schema does not declare.
"""

import itertools
from collections.abc import Collection, Mapping
from datetime import date
from typing import Any

from switchtower.engines.flow.ir import flow as flows
from switchtower.engines.flow.ir import graph, references, schema

_GENERATED_AT = schema.FLOW_IR["properties"]["metadata"]["properties"]["generated_at"]


def parse_flow(document: object, *, kinds: Collection[str] | None = None) -> flows.CheckedFlow:
    """Parses a document. With `kinds`, a node of any other kind is a problem. Raises `InvalidFlow`."""
    found = flows.FlowProblems()
    check_document(document, found, kinds=kinds)
    found.raise_any()
    assert isinstance(document, dict), "it was checked"
    return _make_flow(document)


def check_document(
    document: object,
    found: flows.FlowProblems,
    *,
    kinds: Collection[str] | None = None,
    is_wired: bool = True,
    are_inputs_closed: bool = False,
) -> None:
    """Adds every problem. With `kinds`, a node of any other kind is one. Without `is_wired`, edges are known to be missing. With
    `are_inputs_closed`, a reference to an input that is not declared is a problem; otherwise a run may be given it.
    """
    schema.check_shape(document, schema.FLOW_IR, found)
    if not isinstance(document, dict):
        return
    _check_day(document.get("metadata"), found)
    parts = document.get("graph")
    listed = (parts.get("nodes"), parts.get("edges")) if isinstance(parts, dict) else (None, None)
    if not isinstance(listed[0], list) or not isinstance(listed[1], list):
        return
    if len(listed[0]) > graph.MOST_NODES:
        found.add("$.graph.nodes", f"a flow has at most {graph.MOST_NODES} nodes, and this one has {len(listed[0])}")
        return
    nodes = [_make_readable_node(node, index) for index, node in enumerate(listed[0])]
    of_kind = {node.id: node.kind for node in nodes}
    written = [(index, _make_edge(edge, of_kind.get(edge["from"]))) for index, edge in enumerate(listed[1]) if _has_ends(edge)]
    edges = graph.check_names(nodes, written, found)
    is_complete = is_wired and len(edges) == len(listed[1]) and len(of_kind) == len(nodes)
    schema_of_inputs = document.get("inputs_schema")
    declared = list_declarations(schema_of_inputs if isinstance(schema_of_inputs, dict) else {})
    if kinds is not None:
        _check_kinds(nodes, kinds, found)
    _check_graph(nodes, edges, references.ReferenceNames(declared, are_inputs_closed, {}, None), found, is_complete=is_complete)


def _check_graph(
    nodes: list[flows.FlowNode],
    edges: list[graph.PlacedEdge],
    known: references.ReferenceNames,
    found: flows.FlowProblems,
    *,
    is_complete: bool,
) -> None:
    places: dict[str, int] = {}
    for index, node in enumerate(nodes):
        places.setdefault(node.id, index)
    graph.check_edges({node.id: node for node in reversed(nodes)}, edges, found)
    # When nodes share an id, only the first has a place in the order, and the others are isolated.
    order = graph.NodeOrder(places, [edge for _, edge in edges], count=len(nodes))
    # In a cycle, and between edges that are wrong, the order of two nodes is unknown.
    has_order = graph.check_order(order, nodes, found) and is_complete
    names = references.ReferenceNames(known.inputs, known.are_inputs_closed, places, order.before if has_order else None)
    leading: dict[str, list[graph.PlacedEdge]] = {}
    for index, edge in edges:
        if edge.on == "success":
            leading.setdefault(edge.source, []).append((index, edge))
    for index, node in enumerate(nodes):
        path = f"$.graph.nodes[{index}]"
        if node.kind == flows.SWITCH:
            graph.check_switch(node, path, places, leading.get(node.id, []) if is_complete else None, found)
        elif node.kind == flows.FINISH and node.params:
            found.add(f"{path}.with", "a `finish` takes nothing; hint: a `dsl.emit` before it gives outputs", node.id)
        references.check_references(node, path, names, found)


def _check_kinds(nodes: list[flows.FlowNode], kinds: Collection[str], found: flows.FlowProblems) -> None:
    for index, node in enumerate(nodes):
        if node.kind and node.kind not in kinds:
            import difflib  # imported late: only for this hint

            near = difflib.get_close_matches(node.kind[:100], kinds, n=1)
            hint = f"`{near[0]}`?" if near else "`tower flow kinds` lists those that exist"
            message = f"there is no step kind `{flows.clip_name(node.kind)}` here; hint: {hint}"
            found.add(f"$.graph.nodes[{index}].type", message, node.id)


def _check_day(metadata: object, found: flows.FlowProblems) -> None:
    """The schema's pattern accepts 31 days in every month."""
    if isinstance(metadata, dict) and "generated_at" in metadata:
        of_shape = flows.FlowProblems()
        schema.check_shape(metadata["generated_at"], _GENERATED_AT, of_shape)
        if of_shape:
            return
        try:
            date.fromisoformat(metadata["generated_at"][:10])
        except ValueError:
            found.add("$.metadata.generated_at", "`metadata.generated_at` is a day that no calendar has")


def _make_readable_node(node: object, index: int) -> flows.FlowNode:
    """Returns as much of a node as can be read. Without an id it gets one that no edge and no reference can name."""
    given: dict[str, Any] = node if isinstance(node, dict) else {}
    name, kind, params = given.get("id"), given.get("type"), given.get("with")
    return flows.FlowNode(
        id=name if isinstance(name, str) and name else f"\0{index}",
        kind=kind if isinstance(kind, str) else "",
        params=params if isinstance(params, dict) else {},
    )


def _has_ends(edge: object) -> bool:
    return isinstance(edge, dict) and isinstance(edge.get("from"), str) and isinstance(edge.get("to"), str)


def _make_flow(document: dict[str, Any]) -> flows.CheckedFlow:
    head, constants, parts = document["flow"], document["constants"], document["graph"]
    nodes = tuple(_make_node(node) for node in parts["nodes"])
    kinds = {node.id: node.kind for node in nodes}
    return flows.CheckedFlow(
        name=head["name"],
        nodes=nodes,
        edges=tuple(_make_edge(edge, kinds.get(edge["from"])) for edge in parts["edges"]),
        timeout_ms=int(head.get("timeout_ms", 0)),
        inputs_schema=document["inputs_schema"],
        policy_ref=constants.get("policyRef"),
        policy=constants.get("policy", {}),
        source_file=document["metadata"].get("source_file"),
    )


def _make_node(node: dict[str, Any]) -> flows.FlowNode:
    retry = node.get("retry", {})
    return flows.FlowNode(
        id=node["id"],
        kind=node["type"],
        params=node.get("with", {}),
        timeout_ms=int(node.get("timeout_ms", 0)),
        retry=flows.RetryPolicy(int(retry.get("max", 0)), int(retry.get("backoff_ms", 0))),
    )


def _make_edge(edge: dict[str, Any], source_kind: str | None) -> flows.FlowEdge:
    # Further keys are allowed and ignored: a `case` counts on the edges of a switch alone.
    case = edge.get("case") if source_kind == flows.SWITCH else None
    return flows.FlowEdge(
        source=edge["from"],
        target=edge["to"],
        on="failure" if edge.get("on") == "failure" else "success",
        case=case if isinstance(case, str) else None,
    )


_MOST_COMPARED = 200
"""The most names that a misspelt one is compared with."""
_MOST_UNDECLARED = 20
"""The most undeclared inputs that are listed."""


def list_declarations(inputs_schema: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Returns the inputs that the schema declares: for each name its `type` (None for an unsupported type), whether it is
    `required`, and its `default` where it has one. Unsupported parts of the schema declare nothing.
    """
    properties = inputs_schema.get("properties")
    if inputs_schema.get("type") == "object" and isinstance(properties, dict):
        listed = inputs_schema.get("required")
        required = {name for name in listed if isinstance(name, str)} if isinstance(listed, list) else set()
        return {name: _make_declaration(said, is_required=name in required) for name, said in properties.items()}
    return {
        name: _make_declaration(said, is_required=said.get("required") is not False)
        for name, said in inputs_schema.items()
        if isinstance(said, dict) and isinstance(said.get("type"), str)
    }


def _make_declaration(property_schema: object, *, is_required: bool) -> dict[str, Any]:
    known: Mapping[str, Any] = property_schema if isinstance(property_schema, dict) else {}
    kind = known.get("type")
    declared = {"type": kind if isinstance(kind, str) and kind in schema.TYPES else None, "required": is_required}
    return declared if "default" not in known else {**declared, "default": known["default"]}


def check_inputs(inputs_schema: Mapping[str, Any], inputs: object) -> dict[str, Any]:
    """Returns the inputs with their defaults. Raises `InvalidFlow` with every problem."""
    found = flows.FlowProblems()
    if not isinstance(inputs, dict):
        found.add("$", "inputs must be an object of names and values")
        found.raise_any()
        return {}
    declared = list_declarations(inputs_schema)
    complete = {name: said["default"] for name, said in declared.items() if "default" in said} | inputs
    for name, said in declared.items():
        shown, kind = flows.clip_name(name), said["type"]
        if name in complete:
            if kind is not None and not schema.is_json_type(complete[name], kind):
                found.add(flows.join_path("$", name), f"the input `{shown}` must be {schema.describe_type(kind)}")
        elif said["required"]:
            expected = "" if kind is None else f"; it must be {schema.describe_type(kind)}"
            found.add("$", f"the input `{shown}` is missing{expected}")
    found.raise_any()
    return complete


def describe_undeclared(inputs_schema: Mapping[str, Any], inputs: Mapping[str, Any]) -> list[str]:
    """Returns a sentence for each input that the schema does not declare. Such an input is passed on; it may be a misspelt
    name.
    """
    declared = list_declarations(inputs_schema)
    known = [name for name in itertools.islice(declared, _MOST_COMPARED) if len(name) <= 100]
    sentences = []
    for name in itertools.islice((name for name in inputs if name not in declared), _MOST_UNDECLARED):
        import difflib  # imported late: only for this hint

        near = difflib.get_close_matches(str(name)[:100], known, n=1)
        hint = f"; hint: `{near[0]}`?" if near else ""
        sentences.append(f"the flow declares no input `{flows.clip_name(str(name))}`{hint}")
    return sentences
