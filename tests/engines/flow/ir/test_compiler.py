"""YAML flows: what they become, where their mistakes are told, and what hostile files cannot do."""

import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from switchtower.engines.flow import ir
from switchtower.engines.flow.ir import compiler, source

NOW = datetime(2026, 1, 2, 3, 4, 5, 678, tzinfo=UTC)

WEATHER = """\
name: weather
description: Fetches a forecast
timeout: 2m
inputs:
  url: string
  days: {type: integer, default: 3}
steps:
  - id: fetch
    kind: http.get
    with: {url: $input.url, days: 72, deep: [yes, {a: $input.days}]}
    retry: {max: 2, backoff: 1.5s}
    timeout: 10s
    on_failure: alarm
  - id: alarm
    kind: log
  - id: route
    needs: fetch
    switch: $step.fetch.status
    cases: {200: good}
    default: bad
  - id: good
    kind: log
    retry: 1
  - id: bad
    kind: log
outputs:
  body: $step.fetch.body
"""

STEPS = "name: x\nsteps: {a: {kind: log}}"
NO_TIME = "must be a time with its unit, such as `500ms`, `30s`, `2m` or `1h`"
TYPES = "`string`, `number`, `integer`, `boolean`, `object`, `array`"
TAG = "tag:yaml.org,2002:python/object:os.x"


def compile_flow(text: str) -> dict[str, Any]:
    return compiler.compile_yaml(text, "flow.yaml", NOW)


def list_problems(text: str) -> list[str]:
    with pytest.raises(source.InvalidSource) as caught:
        compile_flow(text)
    return str(caught.value).splitlines()


def list_edges(text: str) -> list[str]:
    return sorted(
        f"{edge['from']} {edge['on']} {edge['to']}" + (f" {edge['case']}" if "case" in edge else "")
        for edge in compile_flow(text)["graph"]["edges"]
    )


@pytest.mark.requirement("rep:ir:compiled")
def test_a_flow_becomes_ir() -> None:
    flow = compile_flow(WEATHER)
    nodes = {node["id"]: node for node in flow["graph"]["nodes"]}
    assert flow | {"graph": None} == {
        "version": "1.0.0",
        "flow": {"name": "weather", "timeout_ms": 120_000},
        "constants": {"policyRef": "default", "policy": {}},
        "inputs_schema": {"url": {"type": "string"}, "days": {"type": "integer", "default": 3}},
        "graph": None,
        "metadata": {"generated_at": "2026-01-02T03:04:05Z", "source_file": "flow.yaml", "description": "Fetches a forecast"},
    }
    assert nodes["fetch"] == {
        "id": "fetch",
        "type": "http.get",
        "with": {"url": "$input.url", "days": "72", "deep": ["yes", {"a": "$input.days"}]},
        "timeout_ms": 10_000,
        "retry": {"max": 2, "backoff_ms": 1500},
    }
    assert nodes["route"]["with"] == {
        "key_from": "$.vars.fetch.status",
        "cases": {"200": "good", "_DEFAULT": "bad"},
        "default": "bad",
    }
    assert nodes["good"]["retry"] == {"max": 1, "backoff_ms": 0}
    assert list(nodes)[-2:] == ["outputs", "finish"]
    assert (nodes["outputs"]["type"], nodes["outputs"]["with"]) == ("dsl.emit", {"body": "$step.fetch.body"})
    assert (nodes["finish"]["type"], nodes["finish"]["with"]) == ("finish", {})
    assert ir.parse_flow(flow).list_step_kinds(control=False) == ["http.get", "log"]


def test_every_way_leads_to_the_end() -> None:
    assert list_edges(WEATHER) == [
        "alarm success outputs",
        "bad success outputs",
        "fetch failure alarm",
        "fetch success route",
        "good success outputs",
        "outputs success finish",
        "route success bad _DEFAULT",
        "route success good 200",
    ]


def test_a_list_runs_from_top_to_bottom_and_a_map_as_its_needs_say() -> None:
    steps = "{id: a, kind: log}, {id: b, kind: log}, {id: c, kind: log, needs: a}"
    assert list_edges(f"name: x\nsteps: [{steps}]") == ["a success b", "a success c", "b success finish", "c success finish"]
    steps = "{a: {kind: log}, b: {kind: log}, c: {kind: log, needs: [a, b]}}"
    assert list_edges(f"name: x\nsteps: {steps}") == ["a success c", "b success c", "c success finish"]


def test_names_of_the_end_give_way_to_those_of_steps() -> None:
    flow = compile_flow("name: x\nsteps: {finish: {kind: log}, outputs: {kind: log}}\noutputs: {a: b}")
    assert [node["id"] for node in flow["graph"]["nodes"]] == ["finish", "outputs", "outputs_", "finish_"]


@pytest.mark.parametrize(
    ("said", "kind", "value"),
    [
        *[("3", "integer", 3), ("-2.5", "number", -2.5), ("1e3", "number", 1000.0), ("true", "boolean", True)],
        *[("x", "string", "x"), ("12", "string", "12"), ("[1]", "array", ["1"]), ("{a: 1}", "object", {"a": "1"})],
    ],
)
def test_a_default_has_the_type_of_its_input(said: str, kind: str, value: object) -> None:
    declared = f"{{type: {kind}, default: {said}, required: false, description: d}}"
    assert compile_flow(f"name: x\ninputs: {{i: {declared}}}\nsteps: {{a: {{kind: log}}}}")["inputs_schema"] == {
        "i": {"type": kind, "default": value, "required": False, "description": "d"}
    }


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        ("x", "integer"),
        ("1.5", "integer"),
        ("1_0", "integer"),
        ("1e999", "number"),
        ("nan", "number"),
        ("yes", "boolean"),
        ("1", "array"),
    ],
)
def test_a_default_of_another_type_is_refused(said: str, kind: str) -> None:
    (sentence,) = list_problems(f"name: x\ninputs:\n  i: {{type: {kind}, default: {said}}}\nsteps: {{a: {{kind: log}}}}")
    assert sentence.startswith(f"flow.yaml:3:{24 + len(kind)}: the default of the input `i` must be ")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("x: [", "2:1: this is no YAML: did not find expected node content"),
        ("", "1:1: there is nothing in it; hint: a flow has `name` and `steps`"),
        ("[]", "1:1: a flow must be a map"),
        ("name: a b\nsteps: {a: {kind: log}}", "1:7: `name` must be made of letters, digits, `_`, `.` and `-`, and is `a b`"),
        ("name: x", "1:1: a flow needs `steps`"),
        ("name: x\nsteps: []", "2:8: `steps` must not be empty"),
        ("name: x\nsteps: no", "2:8: `steps` must be a list of steps, or a map of ids and steps"),
        ("name: x\nsteps:\n  - kind: log", "3:5: a step in a list needs an `id`"),
        ("name: x\nsteps:\n  a: {}", "3:3: the step `a` needs a `kind`, such as `http.get`, or a `switch`"),
        ("name: x\nsteps:\n  a: {kind: log, tmeout: 1s}", "3:18: the step `a` has no `tmeout`; hint: `timeout`?"),
        ("name: x\nsteps:\n  a: {kind: log, id: b}", "3:18: the step `a` has no `id`; hint: `kind`?"),
        ("name: x\nname: y", "2:1: `name` is there twice; the first one is in line 1"),
        (f"{STEPS}\ntimeout: 30", f"3:10: `timeout` {NO_TIME}"),
        (f"{STEPS}\ntimeout: 600h", "3:10: `timeout` must be at most 2147483647 ms, which is almost 25 days"),
        ("name: x\nsteps: {a: {kind: log, retry: -1}}", "2:31: `retry` must be a whole number from 0"),
        ("name: x\nsteps: {a: {kind: log, needs: b}}", "2:31: there is no step `b`"),
        ("name: x\nsteps: {a: {kind: log, on_failure: [b]}}", "2:37: there is no step `b`"),
        ("name: x\nsteps: {a: {kind: log, with: [1]}}", "2:30: `with` must be a map"),
        ("name: x\nsteps: {a: {kind: log, cases: {x: a}}}", "2:31: only a step with `switch` has `cases`"),
        (
            "name: x\nsteps: {a: {switch: x, default: b}}",
            "2:21: `switch` must say what it looks at; hint: `$input.name` or `$step.id.field`",
        ),
        ("name: x\nsteps: {a: {switch: $input.x}}", "2:21: a switch needs `cases`, a `default`, or both"),
        ("name: x\noutputs: [1]\nsteps: {a: {kind: log}}", "2:10: `outputs` must be a map of names and values"),
        (f"{STEPS}\ninputs: {{i: text}}", f"3:13: the type of the input `i` must be one of {TYPES}"),
        ("a: !!python/object:os.x [x]", f"1:4: tags such as `{TAG}` are not read; hint: leave it out"),
        ("a: &a {<<: b}", "1:8: `<<` is not read; hint: write the names out"),
        ("a: *b", "1:4: `*b` stands for nothing that is complete by here"),
        ("a: &a [*a]", "1:8: `*a` stands for nothing that is complete by here"),
        ("? [a]\n: b", "1:3: a name must be a text"),
        ("a: 1\n---\nb: 2", "2:1: a file holds one flow, and here begins another document"),
    ],
)
def test_a_mistake_is_told_at_its_line_and_column(text: str, sentence: str) -> None:
    assert f"flow.yaml:{sentence}" in list_problems(text)


def test_all_mistakes_are_told_in_the_order_of_the_file() -> None:
    assert list_problems("name: x\ntimeout: 1\nsteps:\n  a: {kind: log, retry: x}\n  b: {kind: finish}\n  c d: {kind: log}") == [
        f"flow.yaml:2:10: `timeout` {NO_TIME}",
        "flow.yaml:4:25: `retry` must be a whole number from 0",
        "flow.yaml:5:13: `kind` must name work to do; hint: `switch` chooses, `outputs` emits, and the end comes by itself",
        "flow.yaml:6:3: the id of a step must be made of letters, digits, `_`, `.` and `-`, and is `c d`",
    ]


def test_what_the_graph_check_finds_is_told_where_it_stands_in_the_file() -> None:
    (circle,) = list_problems("name: x\nsteps:\n  a: {kind: log, needs: b}\n  b: {kind: log, needs: a}")
    assert circle.startswith("flow.yaml:3:3: node `a`: these nodes wait for each other: `a` → `b` → `a`")
    (early,) = list_problems("name: x\nsteps:\n- id: a\n  kind: log\n  with:\n    list:\n    - $step.b\n- {id: b, kind: log}")
    assert early.startswith("flow.yaml:7:7: node `a`: it refers to the step `b`, which does not come before it")
    (nothing,) = list_problems("name: x\nsteps: {a: {kind: log}}\noutputs:\n  o: $input.zz")
    assert nothing == "flow.yaml:4:6: node `outputs`: it refers to the input `zz`, which `inputs_schema` does not have"


def test_in_a_list_what_a_step_follows_must_be_clear() -> None:
    (sentence,) = list_problems(
        "name: x\nsteps:\n- {id: a, kind: log, on_failure: b}\n- {id: b, kind: log}\n- {id: c, kind: log}"
    )
    assert sentence.startswith("flow.yaml:5:8: the step above runs only sometimes")
    steps = "- {id: s, switch: $input.i, default: b}\n- {id: c, kind: log}\n- {id: b, kind: log}"
    (sentence,) = list_problems(f"name: x\ninputs: {{i: string}}\nsteps:\n{steps}")
    assert sentence.startswith("flow.yaml:5:8: the step above is a switch, and no case leads here")


# Hostile files


def test_an_alias_stands_for_what_it_names() -> None:
    flow = compile_flow("name: x\nsteps: {a: {kind: log, with: &w {m: 1}}, b: {kind: log, with: *w}}")
    assert [node["with"] for node in flow["graph"]["nodes"]] == [{"m": "1"}, {"m": "1"}, {}]


def test_aliases_that_multiply_are_refused_before_they_are_expanded() -> None:
    levels = [f"l{level}: &l{level} [{', '.join([f'*l{level - 1}'] * 10)}]" for level in range(1, 20)]
    (sentence,) = list_problems("\n".join(["l0: &l0 [x]", *levels]))
    assert "this becomes more than 50000 items" in sentence


def test_nesting_is_bounded_with_and_without_aliases() -> None:
    assert "flow.yaml:1:51: this is more than 50 levels deep" in list_problems("[" * 100_000)
    deep = [f"l{level}: &l{level} [*l{level - 1}]" for level in range(1, 100)]
    assert "this is more than 50 levels deep" in list_problems("\n".join(["l0: &l0 [x]", *deep]))[0]


def test_a_file_that_is_too_long_is_not_read() -> None:
    assert list_problems("#" * (source.LARGEST + 1)) == ["flow.yaml:1:1: a flow has at most 256 KiB"]


@pytest.mark.parametrize(
    "text", ["\x00", "a: \x07", "\ud800", 'x: "\\UFFFFFFFF"', "\ufffe", "%YAML 9.9\n---\na: b", "a: @b", "\t- a"]
)
def test_rubbish_is_refused_with_a_place(text: str) -> None:
    assert list_problems(text)[0].startswith("flow.yaml:")


@settings(max_examples=150)
@given(st.text(alphabet="ab:-[]{}&*!|>'\"%@`#,? \n\t0\\x", max_size=40) | st.text(max_size=30))
def test_no_text_does_anything_but_compile_or_be_refused(text: str) -> None:
    try:
        flow = compile_flow(text)
    except source.InvalidSource as invalid:
        found = invalid.problems
    else:
        ir.parse_flow(flow)
        return
    assert found
    assert all(problem.line >= 1 and problem.column >= 1 for problem in found)


@st.composite
def sources(draw: st.DrawFn) -> str:
    """Flows that are right: steps that need earlier ones, and sometimes a switch or a rescue."""
    count = draw(st.integers(1, 6))
    lines = ["name: any", "inputs: {i: string}", "steps:"]
    for place in range(count):
        earlier = [f"s{other}" for other in range(place)]
        needs = draw(st.lists(st.sampled_from(earlier), unique=True)) if earlier else []
        said = [f"needs: [{', '.join(needs)}]"]
        if place + 1 < count and draw(st.booleans()):
            said.append(f"on_failure: s{draw(st.integers(place + 1, count - 1))}")
        value = draw(
            st.sampled_from(["$input.i", "x", "72", "null", "[a, {b: $input.i}]", *(f"$step.{step}.f" for step in needs)])
        )
        lines.append(f"  s{place}: {{kind: log, with: {{v: {value}}}, retry: {draw(st.integers(0, 9))}, {', '.join(said)}}}")
    if draw(st.booleans()):
        lines += ["  sw: {switch: $input.i, cases: {a: t0, b: t1}, default: t0}", "  t0: {kind: log}", "  t1: {kind: log}"]
    if draw(st.booleans()):
        lines.append(f"outputs: {{o: $step.s{draw(st.integers(0, count - 1))}.f, p: literal}}")
    return "\n".join(lines)


@settings(max_examples=150)
@given(sources())
def test_what_is_compiled_passes_every_check(text: str) -> None:
    flow = ir.parse_flow(compile_flow(text))
    assert flow.nodes[-1].kind == "finish"
    assert {edge.source for edge in flow.edges if edge.on == "success"} == {node.id for node in flow.nodes[:-1]}


# The room itself


def test_the_example_of_the_documentation_compiles() -> None:
    page = (Path(__file__).parents[4] / "docs" / "flows.md").read_text()
    example = page.split("```yaml\n")[1].split("```")[0]
    assert compile_flow(example)["flow"] == {"name": "weather", "timeout_ms": 120_000}


def test_the_room_is_imported_without_a_yaml_library() -> None:
    code = (
        "import sys; from switchtower.engines.flow.ir import compiler, manifest, parser as inputs; print('yaml' in sys.modules)"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert ran.stdout.strip() == "False"


@pytest.mark.requirement("rep:ir:messages", "rep:ir:validate-kinds")
def test_a_problem_of_the_file_hides_no_wrong_kind_and_no_wrong_reference() -> None:
    text = """\
name: x
steps:
  - id: a
    kind: lgo
    with: {message: $step.zz}
  - id: a
    kind: log
    with: {message: $input.other}
    retri: 1
  - id: b
    switch: $step.gone.field
    cases: {1: nowhere}
    needs: a
outputs: {x: $step.gone}
"""
    with pytest.raises(source.InvalidSource) as caught:
        compiler.compile_yaml(text, "flow.yaml", NOW, kinds=["log", "switch", "dsl.emit", "finish"])
    assert str(caught.value).splitlines() == [
        "flow.yaml:4:11: node `a`: there is no step kind `lgo` here; hint: `log`?",
        "flow.yaml:5:21: node `a`: it refers to the step `zz`, which does not exist",
        "flow.yaml:6:9: another step is called `a` too, in line 3; hint: ids are unique",
        "flow.yaml:8:21: node `a`: it refers to the input `other`, which `inputs_schema` does not have",
        "flow.yaml:9:5: the step `a` has no `retri`; hint: `retry`?",
        "flow.yaml:11:13: node `b`: it refers to the step `gone.field`, which does not exist",
        "flow.yaml:12:16: there is no step `nowhere`",
        "flow.yaml:14:14: node `outputs`: it refers to the step `gone`, which does not exist",
    ]
