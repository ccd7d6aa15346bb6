"""References: what is one, what it names, and that it is known by then."""

from typing import Any

import pytest
from tests.engines.flow.ir.documents import make_document, make_edge, make_node

from switchtower.engines.flow import ir
from switchtower.engines.flow.ir import flow as ir_flow
from switchtower.engines.flow.ir import parser, references

INPUTS = {"a": {"type": "object"}, "s": {"type": "string"}, "x.y": {"type": "string"}}


def list_problems(value: object) -> list[str]:
    """Problems of a node `here` that is given this, behind `first` and `sec.ond`, and beside `other`."""
    names = ("first", "sec.ond", "here", "after", "other")
    nodes = [make_node(name, params={"value": value} if name == "here" else None) for name in names]
    edges = [make_edge("first", "sec.ond", "failure"), make_edge("sec.ond", "here"), make_edge("here", "after")]
    try:
        ir.parse_flow(make_document(nodes, edges, INPUTS))
    except ir.InvalidFlow as invalid:
        return [problem.message for problem in invalid.problems]
    return []


@pytest.mark.requirement("rep:ir:references")
@pytest.mark.parametrize(
    "value",
    [
        *("$input.a", "$input.a.b.c", "$input.s", "$input.x.y", "$input", "$step.first", "$step.first.body.0", "$step.sec.ond.f"),
        *("$5", "$", "$.data.items", "$inputs.zz", "$steps.zz", "costs $input.zz", "$INPUT.zz", "", "$.inputs.zz"),
        *(1, None, True, [], {}, [["$input.a"], {"deep": {"er": "$step.first"}}]),
        *("$input.zz", "$input.x", "$input.zz.inside"),  # a run may be given inputs that are not declared
    ],
)
def test_references_to_what_is_there_and_literals_are_fine(value: object) -> None:
    assert list_problems(value) == []


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        ("$input.s.t", "it refers to `s.t`, but the input `s` is a string and has nothing inside"),
        ("$input.", "a reference has an empty part; hint: write it as `$input.name`"),
        ("$input.a..b", "a reference has an empty part; hint: write it as `$input.name`"),
        ("$step", "a reference has an empty part; hint: write it as `$step.id.field`"),
        ("$step.zz.f", "it refers to the step `zz.f`, which does not exist"),
        ("$step.here.f", "it refers to its own outcome, which is not known before it ran"),
        (
            "$step.after",
            "it refers to the step `after`, which does not come before it; "
            "hint: let an edge lead from `after` to it, or to a node before it",
        ),
        (
            "$step.other.f",
            "it refers to the step `other`, which does not come before it; "
            "hint: let an edge lead from `other` to it, or to a node before it",
        ),
    ],
)
def test_references_to_what_is_not_there_by_then_are_refused(value: object, sentence: str) -> None:
    assert list_problems(value) == [sentence]


@pytest.mark.parametrize("name", ["zz", "x"])
def test_where_inputs_are_closed_a_reference_to_one_that_is_not_declared_is_a_problem(name: str) -> None:
    found = ir_flow.FlowProblems()
    flow = make_document([make_node("here", params={"value": f"$input.{name}"})], inputs=INPUTS)
    parser.check_document(flow, found, are_inputs_closed=True)
    assert [problem.message for problem in found.listed] == [
        f"it refers to the input `{name}`, which `inputs_schema` does not have"
    ]


def test_a_problem_says_where_in_the_parameters_it_is() -> None:
    params = {"list": ["x", {"odd name": "$step.zz"}]}
    with pytest.raises(ir.InvalidFlow) as caught:
        ir.parse_flow(make_document([make_node("here", params=params)]))
    (problem,) = caught.value.problems
    assert (problem.path, problem.node) == ('$.graph.nodes[0].with.list[1]["odd name"]', "here")


def test_deep_parameters_need_no_deep_stack() -> None:
    value: Any = "$step.zz"
    for _ in range(100_000):
        value = [value]
    ((place, reference),) = ((place(), reference) for place, reference in references.iterate_references(value, "$"))
    assert (place, reference) == ("$" + "[0]" * 100_000, references.Reference("step", ("zz",)))
    while isinstance(value, list):
        value = value.pop()


def test_of_names_with_dots_the_longest_is_meant() -> None:
    reference = references.parse_reference("$step.a.b.c")
    assert reference is not None
    assert reference.split(inputs=(), steps={"a", "a.b"}) == ("a.b", ("c",))
    assert reference.split(inputs=(), steps={"a"}) == ("a", ("b", "c"))
    assert reference.split(inputs=(), steps={"b"}) is None


def test_a_path_without_end_is_cut() -> None:
    params: Any = "$step.zz"
    for _ in range(100):
        params = {"a name of some length": params}
    with pytest.raises(ir.InvalidFlow) as caught:
        ir.parse_flow(make_document([make_node("here", params=params)]))
    assert len(caught.value.problems[0].path) == 501
