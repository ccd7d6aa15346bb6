"""References and scalars, as steps get them."""

from typing import Any

import pytest
from tests.engines.flow.runtime.stage import make_document, make_node

from switchtower.engines.flow.runtime import failures, run, values


def make_scope() -> values.ReferenceValues:
    nodes = [make_node(name, "work") for name in ("fetch", "fetch.again", "fetch.never", "later")]
    flow = run.load_flow(make_document(nodes, **{"a": "object", "dotted.name": "integer", "a.left.out": "string"}))
    made = values.ReferenceValues(flow, {"a": {"b": [10, {"c": "deep"}], "left": {"out": 1}}, "dotted.name": 1, "undeclared": 1})
    made.steps["fetch"] = {"status": 200, "items": ["x"]}
    made.steps["fetch.again"] = {"status": 201}
    return made


@pytest.mark.requirement("rep:ir:references")
@pytest.mark.parametrize(
    ("reference", "value"),
    [
        ("$input.a.b.1.c", "deep"),
        ("$input.a.b.0", 10),
        ("$input.dotted.name", 1),
        ("$input.undeclared", 1),
        ("$step.fetch.status", 200),
        ("$step.fetch.items.0", "x"),
        ("$step.fetch.again.status", 201),
        ("$step.fetch", {"status": 200, "items": ["x"]}),
        ("costs $input.a", "costs $input.a"),
        ("$5", "$5"),
        ("$inputs.a", "$inputs.a"),
        ({"in": ["$step.fetch.status"]}, {"in": [200]}),
        (None, None),
    ],
)
def test_a_reference_is_replaced_and_a_literal_stays(reference: Any, value: Any) -> None:
    assert make_scope().resolve(reference) == value


@pytest.mark.parametrize(
    "reference",
    [
        *("$input.zzz", "$input.a.b.2", "$input.a.b.-1", "$step.later", "$step.fetch.status.x", "$step.zzz"),
        *("$input.undeclared.x", "$input.a.left.out", "$step.fetch.never"),
    ],
)
def test_a_reference_to_nothing_fails_the_step_for_good(reference: str) -> None:
    with pytest.raises(failures.StepFailed, match="refers to nothing") as failed:
        make_scope().resolve({"x": [reference]})
    assert not failed.value.retriable


def test_a_reference_into_a_step_without_outputs_names_that_step() -> None:
    made = make_scope()
    made.steps["later"] = {}
    with pytest.raises(failures.StepFailed, match=r"^`\$step\.later\.x` refers to nothing: the step `later` gave no outputs$"):
        made.resolve("$step.later.x")


def test_a_step_that_did_not_run_is_null_for_who_asks_for_that_and_what_is_missing_in_one_that_ran_is_not() -> None:
    asked = {"x": ["$step.later.field", "$step.fetch.never"], "y": "$step.fetch.status"}
    assert make_scope().resolve(asked, skipped_is_null=True) == {"x": [None, None], "y": 200}
    for nothing in ("$step.fetch.zzz", "$input.a.left.out", "$step.zzz"):
        with pytest.raises(failures.StepFailed, match="refers to nothing"):
            make_scope().resolve(nothing, skipped_is_null=True)


def test_what_is_nested_too_deeply_fails_the_step() -> None:
    deep: Any = "x"
    for _ in range(100):
        deep = [deep]
    with pytest.raises(failures.StepFailed, match="deep"):
        make_scope().resolve(deep)


def test_a_switch_has_its_own_spelling_of_references() -> None:
    assert make_scope().resolve_key("$.inputs.a.b.0") == 10
    assert make_scope().resolve_key("$.vars.fetch.status") == 200
    for nothing in ("$.inputs.zzz", "$input.a", 7, None):
        with pytest.raises(values.MissingValue):
            make_scope().resolve_key(nothing)


@pytest.mark.requirement("rep:ir:scalars")
@pytest.mark.parametrize(("value", "number"), [("72", 72), (1.5, 1.5), ("0", 0), ("1e2", 100)])
def test_a_number_may_be_spelled_as_a_text(value: Any, number: float) -> None:
    assert values.get_number({"n": value}, "n") == number


@pytest.mark.parametrize("value", ["", "x", "nan", "inf", "-1", -1, True, [], {}, 10**400, None])
def test_what_is_no_number_from_0_on_is_refused(value: Any) -> None:
    with pytest.raises(failures.StepFailed, match="`n`"):
        values.get_number({"n": value}, "n")


def test_a_number_above_the_most_is_refused_and_a_missing_one_has_its_default() -> None:
    assert values.get_number({}, "n", 3) == 3
    with pytest.raises(failures.StepFailed, match="to 5"):
        values.get_number({"n": 6}, "n", most=5)


@pytest.mark.requirement("rep:ir:scalars")
@pytest.mark.parametrize(("value", "flag"), [("true", True), ("No", False), (False, False), ("1", True), ("", False)])
def test_a_flag_may_be_spelled_as_a_text(value: Any, flag: bool) -> None:
    assert values.get_flag({"f": value}, "f", default=not flag) is flag


@pytest.mark.parametrize("value", ["perhaps", 7, None])
def test_what_is_neither_true_nor_false_is_refused(value: Any) -> None:
    with pytest.raises(failures.StepFailed, match="neither"):
        values.get_flag({"f": value}, "f", default=True)


def test_texts_are_names_with_scalars() -> None:
    assert values.get_texts({"h": {"a": 1, "b": "x"}}, "h") == {"a": "1", "b": "x"}
    for wrong in ({"a": []}, {"a": True}, "x"):
        with pytest.raises(failures.StepFailed):
            values.get_texts({"h": wrong}, "h")
