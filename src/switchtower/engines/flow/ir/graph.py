"""Checks of a graph that a schema cannot express: names are unique and exist, there are no cycles, every node can be reached, and
switches are complete.

Success edges are followed after success, failure edges after the last failed attempt. A node may have any number of both, and
both may lead to the same node, which then runs either way. A duplicate edge is a mistake, and so is an edge that leaves a
`finish`.

A switch chooses the next node by a value. `cases` maps values to nodes; `_DEFAULT` among them, or `default` beside them, applies
to all other values. Compilers write `default: "_DEFAULT"`, which names that case and not a node. A separate edge, which carries
the `case`, leads to every node that a switch can choose.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from switchtower.engines.flow.ir import flow as flows
from switchtower.engines.flow.ir import references

MOST_NODES = 10_000
_LONGEST_CYCLE_SHOWN = 20


PlacedEdge = tuple[int, flows.FlowEdge]
"""An edge, and its place in the document."""


def check_names(nodes: Sequence[flows.FlowNode], edges: Sequence[PlacedEdge], found: flows.FlowProblems) -> list[PlacedEdge]:
    """Returns the edges between nodes that exist."""
    places: dict[str, int] = {}
    for index, node in enumerate(nodes):
        if node.id in places:
            other = f"$.graph.nodes[{places[node.id]}]"
            found.add(f"$.graph.nodes[{index}].id", f"another node has this id too, at {other}; hint: ids are unique", node.id)
        places.setdefault(node.id, index)
    known = []
    for index, edge in edges:
        if edge.source in places and edge.target in places:
            known.append((index, edge))
            continue
        for end, name in (("from", edge.source), ("to", edge.target)):
            if name not in places:
                message = f"the edge `{flows.clip_name(edge.source)}` → `{flows.clip_name(edge.target)}` names a node"
                found.add(f"$.graph.edges[{index}].{end}", f"{message} that does not exist: `{flows.clip_name(name)}`")
    return known


def check_edges(nodes: dict[str, flows.FlowNode], edges: Sequence[PlacedEdge], found: flows.FlowProblems) -> None:
    """Checks how edges are combined. Every name in them exists."""
    seen: set[flows.FlowEdge] = set()
    for index, edge in edges:
        path = f"$.graph.edges[{index}]"
        if edge in seen:
            found.add(path, f"the edge to `{flows.clip_name(edge.target)}` on {edge.on} is there twice", edge.source)
        seen.add(edge)
        if nodes[edge.source].kind == flows.FINISH:
            target = flows.clip_name(edge.target)
            found.add(path, f"a `finish` ends the flow, and an edge leads from it to `{target}`", edge.source)


class NodeOrder:
    """The partial order of the nodes. Nodes are their places in the document. Every name in the edges exists."""

    def __init__(self, places: dict[str, int], edges: Iterable[flows.FlowEdge], *, count: int | None = None) -> None:
        """`count` is the number of nodes, where some of them have no separate name."""
        count = len(places) if count is None else count
        self._after: list[list[int]] = [[] for _ in range(count)]
        self._waits_for = [0] * count
        # An edge on success and one on failure between the same two nodes imply the same order.
        for source, target in {(places[edge.source], places[edge.target]): None for edge in edges}:
            self._after[source].append(target)
            self._waits_for[target] += 1
        self.starts = [node for node in range(count) if not self._waits_for[node]]
        self.before = [0] * count
        """For each node, the nodes that come before it: one bit for each place. It is incomplete for nodes in a cycle or behind
        one.
        """
        self._left = set(range(count))
        """The nodes in a cycle, or behind one."""
        self._sort_nodes(self.starts)

    def _sort_nodes(self, free: Iterable[int]) -> None:
        waiting = list(free)
        while waiting:
            node = waiting.pop()
            self._left.discard(node)
            for target in self._after[node]:
                self.before[target] |= self.before[node] | 1 << node
                self._waits_for[target] -= 1
                if not self._waits_for[target]:
                    waiting.append(target)

    def find_cycles(self, most: int) -> list[list[int]]:
        """Returns at most `most` cycles in the graph; each node is in at most one of them."""
        found: list[list[int]] = []
        state: dict[int, bool] = {}  # True while it is on the current path
        for start in sorted(self._left):
            if start in state:
                continue
            way, ways_on = [start], [iter(self._after[start])]
            state[start] = True
            while way and len(found) < most:
                target = next(ways_on[-1], None)
                if target is None:
                    state[way.pop()] = False
                    ways_on.pop()
                elif state.get(target):
                    found.append(way[way.index(target) :])
                    # One cycle through these nodes is enough for the report: continue behind it.
                    while way and way[-1] != target:
                        state[way.pop()] = False
                        ways_on.pop()
                    state[way.pop()] = False
                    ways_on.pop()
                elif target in self._left and target not in state:
                    way.append(target)
                    ways_on.append(iter(self._after[target]))
                    state[target] = True
        return found

    def find_unreached(self) -> list[int]:
        """Returns nodes that no start leads to. A graph without cycles has none."""
        reached, waiting = set(self.starts), list(self.starts)
        while waiting:
            fresh = [target for target in self._after[waiting.pop()] if target not in reached]
            reached.update(fresh)
            waiting += fresh
        return [node for node in range(len(self._after)) if node not in reached]


def check_order(order: NodeOrder, nodes: Sequence[flows.FlowNode], found: flows.FlowProblems) -> bool:
    """Returns whether every node has its place in the order."""
    circles = order.find_cycles(flows.MOST)
    for circle in circles:
        names = [flows.clip_name(nodes[place].id) for place in circle[:_LONGEST_CYCLE_SHOWN]]
        more = ["…"] if len(circle) > _LONGEST_CYCLE_SHOWN else []
        way = " → ".join(f"`{name}`" if name != "…" else name for name in [*names, *more, names[0]])
        hint = "hint: a flow goes forward only; `retry` repeats a node"
        found.add(f"$.graph.nodes[{circle[0]}]", f"these nodes wait for each other: {way}; {hint}", nodes[circle[0]].id)
    in_circles = {place for circle in circles for place in circle}
    for place in order.find_unreached():
        if place not in in_circles:
            message = "no way leads to it from a node that the flow could start with"
            found.add(f"$.graph.nodes[{place}]", message, nodes[place].id)
    return not circles


_KEY_HINT = "hint: `$.inputs.<name>` or `$.vars.<step>.<field>`"


def list_targets(node: flows.FlowNode) -> dict[str, str]:
    """Returns the node id of each case of a switch that was checked; the default is `_DEFAULT`."""
    cases: dict[str, str] = dict(node.params.get("cases") or {})
    if (default := _find_default_node(cases, node.params.get("default"))) is not None:
        cases.setdefault(flows.OTHERWISE, default)
    return cases


def _find_default_node(cases: dict[str, Any], default: Any) -> Any:
    """Returns the node of the default; None when only `cases` has one, or when there is none."""
    return None if default == flows.OTHERWISE and flows.OTHERWISE in cases else default


def check_switch(
    node: flows.FlowNode,
    path: str,
    names: dict[str, int],
    leading: list[tuple[int, flows.FlowEdge]] | None,
    found: flows.FlowProblems,
) -> None:
    """`leading` are the edges that leave the switch on success, with their places; None when they may be incomplete."""
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
            found.add(place, f"it leads to `{flows.clip_name(target)}`, which does not exist", node.id)
        else:
            continue
        fine = False
    if default is not None and cases.get(flows.OTHERWISE, default) != default:
        found.add(f"{path}.default", f"`default` and the case `{flows.OTHERWISE}` disagree; hint: keep one", node.id)
    elif fine and leading is not None:
        _check_edges(node, path, leading, found)


def _iterate_targets(cases: dict[str, Any], default: object, path: str) -> Iterator[tuple[str, object]]:
    for case, target in cases.items():
        yield flows.join_path(f"{path}.cases", str(case)), target
    if default is not None:
        yield f"{path}.default", default


def _check_edges(node: flows.FlowNode, path: str, leading: list[tuple[int, flows.FlowEdge]], found: flows.FlowProblems) -> None:
    chosen = list_targets(node)
    reachable = set(chosen.values())
    for index, edge in leading:
        place = f"$.graph.edges[{index}]"
        case = flows.OTHERWISE if edge.case == "default" and "default" not in chosen else edge.case
        to = f"`{flows.clip_name(edge.target)}`"
        if edge.target not in reachable:
            found.add(f"{place}.to", f"an edge leads to {to}, and no case does", node.id)
        elif case is not None and chosen.get(case) != edge.target:
            found.add(f"{place}.case", f"the case `{flows.clip_name(case)}` does not lead to {to}", node.id)
    for target in dict.fromkeys(chosen.values()):
        if all(edge.target != target for _, edge in leading):
            hint = f'hint: add {{"from": "{flows.clip_name(node.id)}", "to": "{flows.clip_name(target)}", "on": "success"}}'
            found.add(path, f"a case leads to `{flows.clip_name(target)}`, and no edge does; {hint}", node.id)
