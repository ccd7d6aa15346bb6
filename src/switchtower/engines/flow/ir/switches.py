"""Switches: which way a flow goes on, by a value. Pure.

`cases` says which value leads to which node; `_DEFAULT` among them, or `default` beside them, is the way of all other values.
Compilers write `default: "_DEFAULT"`, which names that case and not a node. To every node that a switch can choose a separate
edge leads, which carries the `case`.
"""

from collections.abc import Iterator
from typing import Any

from switchtower.engines.flow.ir import flow as flows
from switchtower.engines.flow.ir import problems, references

_KEY_HINT = "hint: `$.inputs.<name>` or `$.vars.<step>.<field>`"


def list_targets(node: flows.FlowNode) -> dict[str, str]:
    """Case to node id, of a switch that was checked; the default is `_DEFAULT`."""
    cases: dict[str, str] = dict(node.params.get("cases") or {})
    if (default := _find_default_node(cases, node.params.get("default"))) is not None:
        cases.setdefault(flows.OTHERWISE, default)
    return cases


def _find_default_node(cases: dict[str, Any], default: Any) -> Any:
    """The node of the default; None when only `cases` has one, or none at all."""
    return None if default == flows.OTHERWISE and flows.OTHERWISE in cases else default


def check_switch(
    node: flows.FlowNode,
    path: str,
    names: dict[str, int],
    leading: list[tuple[int, flows.FlowEdge]] | None,
    found: problems.FlowProblems,
) -> None:
    """`leading` are the edges that leave it on success, with their places; None when they are not known to be complete."""
    path = f"{path}.with"
    key = node.params.get("key_from")
    if references.parse_key(key) is None:
        found.add(f"{path}.key_from", f"`key_from` must say what the switch looks at; {_KEY_HINT}", node.id)
    cases, default = node.params.get("cases"), node.params.get("default")
    if cases is not None and not isinstance(cases, dict):
        found.add(f"{path}.cases", "`cases` must be an object of values and node ids", node.id)
        return
    cases = cases or {}
    default = _find_default_node(cases, default)
    if not cases and default is None:
        found.add(path, "it leads nowhere; hint: give it `cases`, a `default`, or both", node.id)
    fine = True
    for place, target in _iterate_targets(cases, default, path):
        if not isinstance(target, str):
            found.add(place, "a switch leads to nodes, and this is no node's id", node.id)
        elif target not in names:
            found.add(place, f"it leads to `{problems.clip_name(target)}`, which does not exist", node.id)
        else:
            continue
        fine = False
    if default is not None and cases.get(flows.OTHERWISE, default) != default:
        found.add(f"{path}.default", f"`default` and the case `{flows.OTHERWISE}` disagree; hint: keep one", node.id)
    elif fine and leading is not None:
        _check_edges(node, path, leading, found)


def _iterate_targets(cases: dict[str, Any], default: object, path: str) -> Iterator[tuple[str, object]]:
    for case, target in cases.items():
        yield problems.join_path(f"{path}.cases", str(case)), target
    if default is not None:
        yield f"{path}.default", default


def _check_edges(
    node: flows.FlowNode, path: str, leading: list[tuple[int, flows.FlowEdge]], found: problems.FlowProblems
) -> None:
    chosen = list_targets(node)
    reachable = set(chosen.values())
    for index, edge in leading:
        place = f"$.graph.edges[{index}]"
        case = flows.OTHERWISE if edge.case == "default" and "default" not in chosen else edge.case
        to = f"`{problems.clip_name(edge.target)}`"
        if edge.target not in reachable:
            found.add(f"{place}.to", f"an edge leads to {to}, and no case does", node.id)
        elif case is not None and chosen.get(case) != edge.target:
            found.add(f"{place}.case", f"the case `{problems.clip_name(case)}` does not lead to {to}", node.id)
    for target in dict.fromkeys(chosen.values()):
        if all(edge.target != target for _, edge in leading):
            hint = f'hint: add {{"from": "{problems.clip_name(node.id)}", "to": "{problems.clip_name(target)}", "on": "success"}}'
            found.add(path, f"a case leads to `{problems.clip_name(target)}`, and no edge does; {hint}", node.id)
