"""What a schema cannot say: names, order, switches, ends."""

import itertools
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.engines.flow.ir import documents
from tests.engines.flow.ir.documents import make_document, make_edge, make_node

from switchtower.engines.flow import ir
from switchtower.engines.flow.ir import flow as ir_flow
from switchtower.engines.flow.ir import graph, parser


def list_problems(flow: object) -> list[str]:
    try:
        ir.parse_flow(flow)
    except ir.InvalidFlow as invalid:
        refused = invalid.problems
    else:
        return []
    assert refused
    assert all(problem.path.startswith("$") for problem in refused)
    return [str(problem) for problem in refused]


def test_a_document_becomes_a_flow() -> None:
    fetch = make_node("fetch", "http.get", {"url": "$input.url"}, timeout_ms=5.0, retry={"max": 2, "backoff_ms": 10})
    flow = ir.parse_flow(
        make_document([fetch, make_node("end", "finish")], [make_edge("fetch", "end", case="x")], {"url": {"type": "string"}})
    )
    assert flow == ir.CheckedFlow(
        name="demo",
        nodes=(
            ir.FlowNode(id="fetch", kind="http.get", params={"url": "$input.url"}, timeout_ms=5, retry=ir.RetryPolicy(2, 10)),
            ir.FlowNode(id="end", kind="finish"),
        ),
        edges=(ir.FlowEdge(source="fetch", target="end", on="success"),),
        inputs_schema={"url": {"type": "string"}},
        policy_ref="default",
        source_file="demo.yaml",
    )
    assert isinstance(flow.nodes[0].timeout_ms, int)
    assert flow.list_step_kinds() == ["finish", "http.get"]
    assert flow.list_step_kinds(control=False) == ["http.get"]


def test_what_may_be_left_out_has_a_meaning() -> None:
    sparse = make_document([{"id": "a", "type": "log"}, {"id": "b", "type": "log"}], [{"from": "a", "to": "b"}])
    sparse |= {"flow": {"name": "x"}, "constants": {}, "metadata": {}}
    nodes = (ir.FlowNode(id="a", kind="log"), ir.FlowNode(id="b", kind="log"))
    assert ir.parse_flow(sparse) == ir.CheckedFlow(name="x", nodes=nodes, edges=(ir.FlowEdge(source="a", target="b"),))


@settings(max_examples=50)
@given(documents.valid_flows(), st.integers(0, 2**32))
def test_flows_without_circles_are_parsed_and_anything_else_is_refused_with_reasons(flow: documents.Document, seed: int) -> None:
    assert [each.id for each in ir.parse_flow(flow).nodes] == [each["id"] for each in flow["graph"]["nodes"]]
    chance = random.Random(seed)
    for _ in range(20):
        list_problems(documents.spoil_flow(flow, chance))


@pytest.mark.requirement("rep:ir:unique-ids")
def test_two_nodes_of_one_id_are_refused() -> None:
    assert list_problems(make_document([make_node("a"), make_node("b"), make_node("a")])) == [
        "node `a`: another node has this id too, at $.graph.nodes[0]; hint: ids are unique"
    ]


@pytest.mark.requirement("rep:ir:existing-nodes")
def test_an_edge_to_nowhere_is_refused_at_its_end() -> None:
    with pytest.raises(ir.InvalidFlow) as caught:
        ir.parse_flow(make_document([make_node("a")], [make_edge("a", "b"), make_edge("c", "a")]))
    assert [(problem.path, problem.message) for problem in caught.value.problems] == [
        ("$.graph.edges[0].to", "the edge `a` → `b` names a node that does not exist: `b`"),
        ("$.graph.edges[1].from", "the edge `c` → `a` names a node that does not exist: `c`"),
    ]


def test_success_and_failure_may_lead_to_the_same_node_but_no_edge_is_there_twice() -> None:
    nodes = [make_node("a"), make_node("b")]
    both = [make_edge("a", "b"), make_edge("a", "b", "failure")]
    assert list_problems(make_document(nodes, both)) == []
    assert list_problems(make_document(nodes, [*both, make_edge("a", "b")])) == [
        "node `a`: the edge to `b` on success is there twice"
    ]


def test_a_day_that_no_calendar_has_is_refused() -> None:
    flow = make_document([make_node("a")])
    flow["metadata"]["generated_at"] = "2023-02-29T00:00:00Z"
    assert list_problems(flow) == ["`metadata.generated_at` is a day that no calendar has"]


def test_a_finish_takes_nothing_and_leads_nowhere() -> None:
    assert list_problems(make_document([make_node("end", "finish", {"x": "1"}), make_node("b")], [make_edge("end", "b")])) == [
        "node `end`: a `finish` ends the flow, and an edge leads from it to `b`",
        "node `end`: a `finish` takes nothing; hint: a `dsl.emit` before it gives outputs",
    ]


# Circles


@pytest.mark.requirement("rep:ir:cycles")
def test_a_circle_is_refused_with_the_names_of_its_nodes() -> None:
    nodes = [make_node(name) for name in ("start", "a", "b", "c", "after")]
    edges = [
        make_edge("start", "a"),
        make_edge("a", "b"),
        make_edge("b", "c", "failure"),
        make_edge("c", "a"),
        make_edge("c", "after"),
    ]
    assert list_problems(make_document(nodes, edges)) == [
        "node `a`: these nodes wait for each other: `a` → `b` → `c` → `a`; hint: a flow goes forward only; `retry` repeats a node"
    ]


def test_a_node_that_follows_itself_is_a_circle() -> None:
    assert "`a` → `a`" in list_problems(make_document([make_node("a")], [make_edge("a", "a", "failure")]))[0]


def test_what_only_a_circle_leads_to_cannot_be_reached() -> None:
    sentences = list_problems(
        make_document(
            [make_node("a"), make_node("b"), make_node("c")], [make_edge("a", "b"), make_edge("b", "a"), make_edge("b", "c")]
        )
    )
    assert len(sentences) == 2
    assert sentences[1] == "node `c`: no way leads to it from a node that the flow could start with"


@pytest.mark.requirement("rep:ir:cycles")
@settings(max_examples=150)
@given(st.integers(1, 7).flatmap(lambda count: st.tuples(st.just(count), st.sets(st.tuples(*[st.integers(0, count - 1)] * 2)))))
def test_circles_are_found_exactly_where_there_are_some(case: tuple[int, set[tuple[int, int]]]) -> None:
    count, pairs = case
    reach = {place: {target for source, target in pairs if source == place} for place in range(count)}
    for _ in range(count):
        reach = {place: ways | {far for way in ways for far in reach[way]} for place, ways in reach.items()}
    order = graph.NodeOrder({str(place): place for place in range(count)}, [_make_edge(*pair) for pair in sorted(pairs)])
    circles = order.find_cycles(100)
    assert bool(circles) == any(place in ways for place, ways in reach.items())
    for circle in circles:
        assert all((source, target) in pairs for source, target in zip(circle, [*circle[1:], circle[0]], strict=True))
    if not circles:
        assert order.find_unreached() == []
        before = {place: {other for other in range(count) if order.before[place] >> other & 1} for place in range(count)}
        assert before == {place: {other for other in range(count) if place in reach[other]} for place in range(count)}


def _make_edge(source: int, target: int) -> ir.FlowEdge:
    return ir.FlowEdge(source=str(source), target=str(target))


def test_long_chains_and_long_circles_need_no_deep_stack() -> None:
    names = [f"n{place}" for place in range(graph.MOST_NODES)]
    nodes = [make_node(name) for name in names]
    edges = [make_edge(source, target) for source, target in itertools.pairwise(names)]
    nodes[-1]["with"] = {"first": "$step.n0"}
    assert list_problems(make_document(nodes, edges)) == []
    nodes[-1]["with"] = {}
    (sentence,) = list_problems(make_document(nodes, [*edges, make_edge(names[-1], names[0])]))
    assert "`n19` → … → `n0`" in sentence
    assert list_problems(make_document([*nodes, make_node("more")], edges)) == [
        "a flow has at most 10000 nodes, and this one has 10001"
    ]


# Switches

NO_KEY = "`key_from` must say what the switch looks at; hint: `$.inputs.<name>` or `$.vars.<step>.<field>`"


def switch(**params: Any) -> documents.Document:
    """A switch that leads to `a` and `b`, and what differs from that."""
    cases = {"key_from": "$.inputs.x", "cases": {"1": "a", "2": "b"}}
    given = {key: value for key, value in (cases | params).items() if value is not None}
    edges = [make_edge("s", "a", case="1"), make_edge("s", "b", case="2")]
    return make_document([make_node("s", "switch", given), make_node("a"), make_node("b")], edges, {"x": {"type": "string"}})


@pytest.mark.requirement("rep:control:switch-shape")
def test_a_switch_with_cases_and_edges_is_fine() -> None:
    flow = ir.parse_flow(switch())
    assert [each.case for each in flow.edges] == ["1", "2"]
    assert graph.list_targets(flow.nodes[0]) == {"1": "a", "2": "b"}
    assert graph.list_targets(ir.parse_flow(switch(default="b")).nodes[0]) == {"1": "a", "2": "b", "_DEFAULT": "b"}
    assert list_problems(switch(cases={"1": "a", "2": "b", "_DEFAULT": "b"}, default="b")) == []


@pytest.mark.requirement("rep:control:switch-shape")
@pytest.mark.parametrize(
    ("params", "sentence"),
    [
        ({"key_from": "x"}, NO_KEY),
        ({"key_from": None}, NO_KEY),
        (
            {"key_from": "$.inputs."},
            NO_KEY,
        ),
        ({"key_from": "$.vars.zz.f"}, "it refers to the step `zz.f`, which does not exist"),
        ({"cases": ["a"]}, "`cases` must be an object of values and node ids"),
        ({"cases": {"1": "a", "2": 3}}, "a switch leads to nodes, and this is no node's id"),
        ({"cases": {"1": "a", "2": "zz"}}, "it leads to `zz`, which does not exist"),
        (
            {"cases": {"1": "a", "2": "b", "_DEFAULT": "a"}, "default": "b"},
            "`default` and the case `_DEFAULT` disagree; hint: keep one",
        ),
        ({"cases": {"1": "b", "2": "a"}}, "the case `1` does not lead to `a`"),
    ],
)
def test_a_malformed_switch_is_refused(params: dict[str, Any], sentence: str) -> None:
    assert f"node `s`: {sentence}" in list_problems(switch(**params))


COMPILED = make_document(
    [
        make_node("read", "opcua.read", {"endpoint": "$input.endpoint", "node_ids": "$input.nodes"}),
        make_node("decide", "policy.apply", {"values": "$step.read.values"}),
        make_node(
            "when_0",
            "switch",
            {
                "key_from": "$.vars.decide.action",
                "cases": {"WRITE_BACK": "write", "SHUTDOWN": "write", "_DEFAULT": "emit_1"},
                "default": "_DEFAULT",
            },
        ),
        make_node("write", "opcua.write", {"endpoint": "$input.endpoint", "node_id": "$step.decide.target_node"}),
        make_node("emit_1", "dsl.emit", {"decision": "$step.decide"}),
        make_node("finish_2", "finish"),
    ],
    [
        make_edge("read", "decide"),
        make_edge("when_0", "write", case="WRITE_BACK"),
        make_edge("when_0", "write", case="SHUTDOWN"),
        make_edge("decide", "when_0"),
        make_edge("write", "emit_1"),
        make_edge("when_0", "emit_1", case="_DEFAULT"),
        make_edge("emit_1", "finish_2"),
    ],
    {"endpoint": {"type": "string"}, "nodes": {"type": "list<string>"}},
)
"""The shape that the public compiler gives its own example."""


@pytest.mark.requirement("rep:control:switch-compiled", "rep:ir:inputs-free-form")
def test_a_switch_whose_default_names_the_case_is_read_as_compilers_mean_it() -> None:
    flow = ir.parse_flow(COMPILED)
    assert graph.list_targets(flow.nodes[2]) == {"WRITE_BACK": "write", "SHUTDOWN": "write", "_DEFAULT": "emit_1"}
    assert list_problems(switch(default="_DEFAULT")) == ["node `s`: it leads to `_DEFAULT`, which does not exist"]


@pytest.mark.requirement("rep:ir:messages")
def test_no_problem_hides_another() -> None:
    flow = make_document(
        [
            make_node("a", params={"x": "$step.nowhere"}),
            make_node("a", timeout_ms=-1),
            {"type": "log"},
            make_node("s", "switch", {"key_from": "$.vars.gone.field", "cases": {"1": "missing"}}),
            make_node("b", "lgo"),
        ],
        [make_edge("a", "zz"), make_edge("b", "s", on="maybe")],
    )
    del flow["constants"]
    found = ir_flow.FlowProblems()
    parser.check_document(flow, found, kinds=["log", "switch"])
    assert [str(problem) for problem in found.listed] == [
        "`constants` is missing",
        "node `a`: `timeout_ms` must be a whole number from 0 to 2147483647",
        "`graph.nodes[2].id` is missing",
        "`graph.edges[1].on` must be `success` or `failure`, not `maybe`",
        "node `a`: another node has this id too, at $.graph.nodes[0]; hint: ids are unique",
        "the edge `a` → `zz` names a node that does not exist: `zz`",
        "node `b`: there is no step kind `lgo` here; hint: `log`?",
        "node `a`: it refers to the step `nowhere`, which does not exist",
        "node `s`: it leads to `missing`, which does not exist",
        "node `s`: it refers to the step `gone.field`, which does not exist",
    ]


def test_a_switch_without_any_way_leads_nowhere() -> None:
    empty = make_document([make_node("s", "switch", {"key_from": "$.inputs.x", "cases": {}})], [], {"x": {"type": "string"}})
    assert list_problems(empty) == ["node `s`: it leads nowhere; hint: give it `cases`, a `default`, or both"]


@pytest.mark.requirement("rep:control:switch-shape")
def test_the_ways_of_a_switch_and_its_edges_agree() -> None:
    flow = switch()
    flow["graph"]["edges"] = [make_edge("s", "a", case="1")]
    assert list_problems(flow) == [
        'node `s`: a case leads to `b`, and no edge does; hint: add {"from": "s", "to": "b", "on": "success"}',
    ]
    flow = switch(cases={"1": "a"})
    assert list_problems(flow) == ["node `s`: an edge leads to `b`, and no case does"]


def test_a_switch_may_fail_over_to_another_node() -> None:
    flow = switch()
    flow["graph"]["nodes"].append(make_node("rescue"))
    flow["graph"]["edges"].append(make_edge("s", "rescue", "failure"))
    assert list_problems(flow) == []


@pytest.mark.parametrize("case", ["_DEFAULT", "default"])
def test_the_edge_of_the_default_may_carry_either_of_its_names(case: str) -> None:
    flow = switch(cases={"1": "a"}, default="b")
    flow["graph"]["edges"] = [make_edge("s", "a", case="1"), make_edge("s", "b", case=case)]
    assert list_problems(flow) == []
    flow["graph"]["edges"][0]["case"] = case
    assert list_problems(flow) == ["node `s`: the case `_DEFAULT` does not lead to `a`"]
