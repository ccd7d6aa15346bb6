"""Names with dots in them: what a reference means is settled by the flow alone, in the check and in a run alike."""

import asyncio
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.engines.flow.runtime.stage import FlowRuntimeHarness, make_document, make_edge, make_node

from switchtower.engines.flow.runtime import failures

NAMES = ["a", "b", "a.b", "b.a", "a.b.a", "a.a", "a.b.a.b"]
INSIDE: dict[str, Any] = {"a": {"a": 1, "b": {"a": 2, "b": 3}}, "b": {"a": {"b": 4, "a": 5}}}
"""What every step gives and every input is. It has something at most places that a shorter name could lead to."""
NOTHING = object()

paths = st.lists(st.sampled_from("ab"), min_size=1, max_size=5).map(".".join)


def find_meant_name(path: str, declared: set[str]) -> tuple[str, list[str]] | None:
    """The longest declared name that the path begins with, and the rest."""
    fitting = [name for name in declared if f"{path}.".startswith(f"{name}.")]
    name = max(fitting, key=len, default=None)
    return None if name is None else (name, path[len(name) + 1 :].split(".") if path != name else [])


def read_inside(way: list[str]) -> Any:
    value: Any = INSIDE
    for part in way:
        if not isinstance(value, dict) or part not in value:
            return NOTHING
        value = value[part]
    return value


@settings(max_examples=300, deadline=None)
@given(ran=st.sets(st.sampled_from(NAMES)), skipped=st.sets(st.sampled_from(NAMES)), path=paths)
def test_a_reference_to_a_step_means_the_same_whoever_ran(ran: set[str], skipped: set[str], path: str) -> None:
    skipped -= ran
    nodes = [
        make_node("go", "work"),
        *(make_node(name, "work", **INSIDE) for name in sorted(ran | skipped)),
        make_node("tell", "dsl.emit", answer=f"$step.{path}"),
    ]
    # The failure edges are those that are not taken.
    edges = [make_edge("go", name, on="success" if name in ran else "failure") for name in sorted(ran | skipped)]
    edges += [make_edge(name, "tell") for name in ("go", *sorted(ran | skipped))]
    wanted = find_meant_name(path, ran | skipped)

    try:
        stage = FlowRuntimeHarness(make_document(nodes, edges))
    except failures.FlowRejected:
        assert wanted is None
        return
    told = asyncio.run(stage.play())

    assert wanted is not None
    name, way = wanted
    value = None if name in skipped else read_inside(way)
    if value is NOTHING:
        assert told["summary"]["error"]["message"] == f"`$step.{path}` refers to nothing"
    else:
        assert told["summary"]["outputs"] == {"answer": value}


@settings(max_examples=300, deadline=None)
@given(
    declared=st.sets(st.sampled_from(NAMES)),
    given_too=st.sets(st.sampled_from(NAMES)),
    left_out=st.sets(st.sampled_from(NAMES)),
    path=paths,
)
def test_a_reference_to_an_input_means_the_same_whatever_is_given(
    declared: set[str], given_too: set[str], left_out: set[str], path: str
) -> None:
    described = make_document([make_node("tell", "dsl.emit", answer=f"$input.{path}")])
    described["inputs_schema"] = {name: {"type": "object", "required": name not in left_out} for name in declared}
    inputs = dict.fromkeys((declared - left_out) | (given_too - declared), INSIDE)
    first, *rest = path.split(".")
    name, way = find_meant_name(path, declared) or (first, rest)

    told = asyncio.run(FlowRuntimeHarness(described, inputs).play())

    value = read_inside(way) if name in inputs else NOTHING
    if value is NOTHING:
        assert told["summary"]["error"]["message"] == f"`$input.{path}` refers to nothing"
    else:
        assert told["summary"]["outputs"] == {"answer": value}
