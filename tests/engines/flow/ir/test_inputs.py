"""What a run is given, and the spelling that hashes are made of."""

from typing import Any

import pytest

from switchtower.engines.flow import ir
from switchtower.engines.flow.ir import manifest, parser

SCHEMA: dict[str, dict[str, Any]] = {
    "city": {"type": "string"},
    "days": {"type": "integer", "default": 3},
    "note": {"type": "object", "required": False},
}


def list_problems(given: object) -> list[str]:
    with pytest.raises(ir.InvalidFlow) as caught:
        parser.check_inputs(SCHEMA, given)
    return [str(problem) for problem in caught.value.problems]


def test_inputs_get_their_defaults_and_what_may_be_left_out_is() -> None:
    assert parser.check_inputs(SCHEMA, {"city": "Ulm"}) == {"city": "Ulm", "days": 3}
    assert parser.check_inputs(SCHEMA, {"city": "", "days": 1, "note": {}}) == {"city": "", "days": 1, "note": {}}


def test_an_input_that_says_it_is_required_is() -> None:
    with pytest.raises(ir.InvalidFlow):
        parser.check_inputs({"x": {"type": "string", "required": True}}, {})


@pytest.mark.requirement("rep:ir:inputs")
def test_every_wrong_input_is_told_without_its_value() -> None:
    assert list_problems({"days": "hunter2", "note": ["hunter2"], "ctiy": "x", "1": 2}) == [
        "the input `city` is missing; it must be a string",
        "the input `days` must be a whole number",
        "the input `note` must be an object",
    ]


@pytest.mark.requirement("rep:ir:inputs-undeclared")
def test_inputs_that_are_not_declared_pass_and_can_be_listed() -> None:
    assert parser.check_inputs(SCHEMA, {"city": "Ulm", "more": 1}) == {"city": "Ulm", "days": 3, "more": 1}
    assert parser.describe_undeclared(SCHEMA, {"city": "Ulm", "ctiy": "hunter2", "1": 2}) == [
        "the flow declares no input `ctiy`; hint: `city`?",
        "the flow declares no input `1`",
    ]


@pytest.mark.requirement("rep:ir:inputs-free-form")
def test_types_that_are_not_understood_accept_any_value_of_an_input_that_is_still_required() -> None:
    schema = {"endpoint": {"type": "string"}, "nodes": {"type": "list<string>"}}
    given = {"endpoint": "opc.tcp://localhost:4840", "nodes": ["ns=2;i=2"]}
    assert parser.check_inputs(schema, given) == given
    assert parser.check_inputs(schema, {**given, "nodes": 7}) == {**given, "nodes": 7}
    with pytest.raises(ir.InvalidFlow) as caught:
        parser.check_inputs(schema, {})
    assert [str(problem) for problem in caught.value.problems] == [
        "the input `endpoint` is missing; it must be a string",
        "the input `nodes` is missing",
    ]


@pytest.mark.requirement("rep:ir:inputs-free-form")
def test_a_json_schema_of_the_inputs_is_checked_as_far_as_it_is_understood() -> None:
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "properties": {"city": {"type": "string"}, "days": {"type": ["integer", "null"], "default": 3}, "any": True},
        "required": ["city"],
    }
    assert parser.check_inputs(schema, {"city": "Ulm"}) == {"city": "Ulm", "days": 3}
    with pytest.raises(ir.InvalidFlow) as caught:
        parser.check_inputs(schema, {"days": "x"})
    assert [str(problem) for problem in caught.value.problems] == ["the input `city` is missing; it must be a string"]
    for odd in ({"a": 1}, {"a": None, "b": []}, {"properties": {"x": {}}}, {"type": "object"}, {"a": {"type": ["string"]}}):
        assert parser.check_inputs(odd, {"z": 1}) == {"z": 1}


def test_inputs_that_are_no_object_are_refused() -> None:
    assert list_problems([]) == list_problems(None) == ["inputs must be an object of names and values"]


@pytest.mark.requirement("rep:ir:inputs")
@pytest.mark.parametrize(
    ("kind", "fits", "does_not"),
    [
        ("string", ["", "x"], [1, None, True, [], {}]),
        ("number", [1, 1.5, -2], ["1", None, True, [], {}]),
        ("integer", [1, 2.0], ["1", 1.5, None, False, float("inf"), float("nan")]),
        ("boolean", [True, False], [0, 1, "true", None]),
        ("object", [{}, {"a": 1}], [[], None, ""]),
        ("array", [[], [1]], [{}, None, ""]),
    ],
)
def test_each_type_takes_its_own_values_only(kind: str, fits: list[Any], does_not: list[Any]) -> None:
    for value in fits:
        assert parser.check_inputs({"x": {"type": kind}}, {"x": value}) == {"x": value}
    for value in does_not:
        with pytest.raises(ir.InvalidFlow):
            parser.check_inputs({"x": {"type": kind}}, {"x": value})


@pytest.mark.requirement("rep:manifest:hash")
def test_the_canonical_spelling_sorts_names_and_keeps_characters() -> None:
    assert manifest.encode_canonical({"b": [1, 2.5, None], "a": "ä\n"}) == '{"a":"ä\\n","b":[1,2.5,null]}'.encode()
    assert manifest.compute_digest({}) == "sha256:44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"
    assert (
        manifest.compute_digest({"a": 1, "b": 2})
        == manifest.compute_digest({"b": 2, "a": 1})
        != manifest.compute_digest({"a": 2, "b": 1})
    )


@pytest.mark.parametrize("value", [float("nan"), float("inf"), "\ud800"])
def test_what_has_no_place_in_json_has_no_hash(value: object) -> None:
    with pytest.raises(ValueError):
        manifest.compute_digest([value])
