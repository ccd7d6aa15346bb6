"""Random graphs without circles, executed side by side and by an interpreter that takes one node after the other."""

import asyncio
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.engines.flow.runtime.stage import FlowRuntimeHarness, make_document, make_edge, make_node

Graph = tuple[list[dict[str, Any]], list[dict[str, str]]]


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    """Edges lead from earlier nodes to later ones. Some nodes fail, some fail at first, some are switches."""
    count = draw(st.integers(1, 9))
    names = [f"n{number}" for number in range(count)]
    nodes: list[dict[str, Any]] = []
    edges: list[dict[str, str]] = []
    for place, name in enumerate(names):
        later = names[place + 1 :]
        targets = draw(st.lists(st.sampled_from(later), unique=True, max_size=4)) if later else []
        if targets and draw(st.integers(0, 3)) == 0:
            cases = dict(zip("abcd", targets, strict=False))
            key = draw(st.sampled_from("abcdz"))
            default = {"default": draw(st.sampled_from(targets))} if draw(st.booleans()) else {}
            nodes.append(make_node(name, "switch", key_from=f"$.inputs.{key}", cases=cases, **default))
            edges += [make_edge(name, target) for target in targets]
            if draw(st.booleans()):
                edges.append(make_edge(name, draw(st.sampled_from(later)), on="failure"))
            continue
        fails = draw(st.sampled_from([0, 0, 0, 1, 9]))
        nodes.append(make_node(name, "work", fails=fails, turns=draw(st.integers(0, 4)), retries=draw(st.sampled_from([0, 2]))))
        edges += [make_edge(name, target, on=draw(st.sampled_from(["success", "success", "failure"]))) for target in targets]
    return nodes, edges


def is_successful(described: dict[str, Any]) -> bool:
    if described["type"] == "switch":
        return choose_branch(described) is not None
    return bool(described["with"]["fails"] <= described.get("retry", {}).get("max", 0))


def choose_branch(switch: dict[str, Any]) -> str | None:
    key = switch["with"]["key_from"].removeprefix("$.inputs.")
    target: str | None = switch["with"]["cases"].get(key, switch["with"].get("default"))
    return target


def interpret(graph: Graph, *, stop_at_failure: bool) -> tuple[set[str], set[str]]:
    """Who is executed, and who of them fails the run, in the order of the document, which is an order of the graph too."""
    nodes, edges = graph
    ended: dict[str, str] = {}
    fatal: set[str] = set()
    for described in nodes:
        name = described["id"]
        leading = [one for one in edges if one["to"] == name]
        taken = [
            one
            for one in leading
            if ended.get(one["from"]) == one["on"]
            and (
                one["on"] == "failure"
                or next(n for n in nodes if n["id"] == one["from"])["type"] != "switch"
                or choose_branch(next(n for n in nodes if n["id"] == one["from"])) == name
            )
        ]
        if leading and not taken:
            continue
        ended[name] = "success" if is_successful(described) else "failure"
        if ended[name] == "failure" and not any(one["from"] == name and one["on"] == "failure" for one in edges):
            fatal.add(name)
            if stop_at_failure:
                break
    return set(ended), fatal


@settings(max_examples=300, deadline=None)
@given(graph=graphs(), concurrency=st.integers(1, 4))
def test_a_run_executes_what_the_reference_executes_and_ends_as_it_does(graph: Graph, concurrency: int) -> None:
    described = make_document(*graph, a="string", b="string", c="string", d="string", z="string")
    stage = FlowRuntimeHarness(described, {letter: letter for letter in "abcdz"}, concurrency=concurrency)
    told = asyncio.run(stage.play())

    wanted, fatal = interpret(graph, stop_at_failure=False)
    executed = {event["step_id"] for event in told["events"]}
    assert told["status"] == ("failed" if fatal else "completed")
    assert stage.work.most_active <= concurrency
    assert stage.work.active == 0
    if fatal:
        # Which of two mishaps comes first is a matter of time; nothing runs that should not.
        assert told["summary"]["error"]["data"]["step_id"] in fatal
        assert executed <= wanted
    else:
        assert executed == wanted
        assert told["summary"]["completed_steps"] + told["summary"]["failed_steps"] == len(wanted)
