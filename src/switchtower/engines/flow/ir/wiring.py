"""The graph of a YAML flow: its steps as nodes, what they say of each other as edges, and the end. Pure.

In a list a step follows the one above it, unless it says `needs` or somebody leads to it: a case of a switch, or an `on_failure`.
What is not followed by anything leads to the end: a `dsl.emit` with the outputs, where there are some, and a `finish`.
"""

from collections.abc import Iterator
from typing import Any

from switchtower.engines.flow.ir import flow as flows
from switchtower.engines.flow.ir import problems, reading, source
from switchtower.engines.flow.ir import steps as stepping

SourceEdge = dict[str, Any]


def build_graph(
    steps: list[stepping.SourceStep],
    outputs: source.SourceItem | None,
    source_problems: reading.SourceProblems,
    *,
    in_order: bool,
) -> dict[str, Any]:
    by_id = {step.id: step for step in steps}
    edges: dict[tuple[str, ...], SourceEdge] = {}

    def lead(origin: str, target: str, on: str, case: str | None = None) -> None:
        edge = {"from": origin, "to": target, "on": on}
        edges.setdefault((origin, target, on, case or ""), edge if case is None else {**edge, "case": case})

    for step, needs in _collect_needs(steps, source_problems, in_order=in_order):
        for needed, at in _keep_known(needs, by_id, source_problems):
            if by_id[needed].kind == flows.SWITCH:
                source_problems.add(
                    at, f"`{needed}` is a switch, and its cases say what follows; hint: name this step in a case of it"
                )
            lead(needed, step.id, "success")
    for step in steps:
        for case, (target, at) in step.cases.items():
            if _keep_known([(target, at)], by_id, source_problems):
                lead(step.id, target, "success", case)
        for target, _ in _keep_known(step.on_failure, by_id, source_problems):
            lead(step.id, target, "failure")

    nodes = [step.make_node() for step in steps]
    goes_on = {edge["from"] for edge in edges.values() if edge["on"] == "success"}
    ends = [step.id for step in steps if step.id not in goes_on]
    taken = set(by_id)
    if outputs is not None and outputs.value:
        nodes.append(_make_end_node("outputs", flows.EMIT, taken, outputs.to_plain()))
        for end in ends:
            lead(end, nodes[-1]["id"], "success")
        ends = [nodes[-1]["id"]]
    nodes.append(_make_end_node("finish", flows.FINISH, taken, {}))
    for end in ends:
        lead(end, nodes[-1]["id"], "success")
    return {"nodes": nodes, "edges": list(edges.values())}


def _collect_needs(
    steps: list[stepping.SourceStep], source_problems: reading.SourceProblems, *, in_order: bool
) -> Iterator[tuple[stepping.SourceStep, list[stepping.NamedTarget]]]:
    """Each step with those that it follows."""
    led_to = {target for each in steps for target, _ in [*each.cases.values(), *each.on_failure]}
    above: stepping.SourceStep | None = None
    for step in steps:
        if step.needs is not None or not in_order or above is None or step.id in led_to:
            yield step, step.needs or []
        elif above.kind == flows.SWITCH:
            source_problems.add(
                step.at, "the step above is a switch, and no case leads here; hint: name this step in one, or say `needs`"
            )
        elif above.id in led_to:
            # Whether it is to follow only that one, or every way, nobody can tell.
            hint = f"hint: say `needs: {problems.clip_name(above.id)}`, or name all steps that it follows"
            source_problems.add(step.at, f"the step above runs only sometimes, so what this one follows is not clear; {hint}")
        else:
            yield step, [(above.id, step.at)]
        above = step


def _keep_known(
    named: list[stepping.NamedTarget], by_id: dict[str, stepping.SourceStep], source_problems: reading.SourceProblems
) -> list[stepping.NamedTarget]:
    for name, at in named:
        if name not in by_id:
            source_problems.add(at, f"there is no step `{problems.clip_name(name)}`")
    return [(name, at) for name, at in named if name in by_id]


def _make_end_node(name: str, kind: str, taken: set[str], params: Any) -> dict[str, Any]:
    while name in taken:
        name += "_"
    return {"id": name, "type": kind, "with": params, "timeout_ms": 0, "retry": {"max": 0, "backoff_ms": 0}}
