"""The shape of a document: our check, the published schema, and the sentences."""

import random
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.engines.flow.ir import documents

from switchtower.engines.flow.ir import flow, publish, schema

COMMITTED = Path(__file__).parents[4] / "documents" / "flow-ir" / publish.FILE


def _check_pattern(_validator: object, pattern: str, instance: object, _schema: object) -> Any:
    """In JSON Schema `$` is the very end. Python's lets a newline follow, and the library uses Python's."""
    if isinstance(instance, str) and not re.search(pattern.removesuffix("$") + r"\Z", instance):
        yield jsonschema.ValidationError("pattern")


VALIDATOR = jsonschema.validators.extend(jsonschema.Draft202012Validator, {"pattern": _check_pattern})(publish.build_schema())


def list_problems(document: object) -> list[flow.FlowProblem]:
    found = flow.FlowProblems()
    schema.check_shape(document, schema.FLOW_IR, found)
    try:
        found.raise_any()
    except flow.InvalidFlow as invalid:
        return invalid.problems
    return []


def list_schema_errors(document: object) -> list[str]:
    return [str(problem) for problem in list_problems(document)]


@pytest.mark.requirement("rep:ir:schema")
def test_the_committed_schema_is_the_generated_one_and_a_schema() -> None:
    assert COMMITTED.read_bytes() == publish.encode_schema(), "it is out of date; hint: `make schemas`"
    jsonschema.Draft202012Validator.check_schema(publish.build_schema())


@pytest.mark.requirement("rep:ir:schema")
@settings(max_examples=200)
@given(documents.valid_flows(), st.integers(0, 2**32))
def test_our_check_and_the_published_schema_agree_on_thousands_of_documents(document: documents.Document, seed: int) -> None:
    assert list_problems(document) == []
    assert VALIDATOR.is_valid(document)
    chance = random.Random(seed)
    for _ in range(20):
        spoilt = documents.spoil_flow(document, chance)
        assert (list_problems(spoilt) == []) == VALIDATOR.is_valid(spoilt), spoilt


@pytest.mark.requirement("rep:ir:messages")
@pytest.mark.parametrize(
    ("place", "value", "sentence"),
    [
        ("retry", {"max": -1}, "node `fetch`: `retry.max` must be a whole number from 0"),
        ("retry", {"max": 1.5}, "node `fetch`: `retry.max` must be a whole number from 0, not a number"),
        ("retry", {"max": True}, "node `fetch`: `retry.max` must be a whole number from 0, not a boolean"),
        ("retry", {"min": 1}, "node `fetch`: `retry` has no `min`; hint: it knows `max`, `backoff_ms`"),
        ("timeout_ms", 2**31, "node `fetch`: `timeout_ms` must be a whole number from 0 to 2147483647"),
        ("timeout_ms", "5", "node `fetch`: `timeout_ms` must be a whole number from 0 to 2147483647, not a string"),
        ("with", [], "node `fetch`: `with` must be an object, not a list"),
        ("type", "", "node `fetch`: `type` must not be empty"),
        ("type", None, "node `fetch`: `type` must be a string, not `null`"),
    ],
)
def test_a_problem_names_the_node_and_what_is_expected(place: str, value: object, sentence: str) -> None:
    assert list_schema_errors(documents.make_document([{**documents.make_node("fetch"), place: value}])) == [sentence]


def test_a_node_without_a_usable_id_is_named_by_its_place() -> None:
    nodes = [documents.make_node("a"), {"type": "log"}, {"id": "b c", "type": "log"}, 7]
    assert [(problem.path, str(problem)) for problem in list_problems(documents.make_document(nodes))] == [
        ("$.graph.nodes[1]", "`graph.nodes[1].id` is missing"),
        ("$.graph.nodes[2].id", "node `b c`: `id` must be made of letters, digits, `_`, `.` and `-`, and is `b c`"),
        ("$.graph.nodes[3]", "`graph.nodes[3]` must be an object, not a whole number"),
    ]


@pytest.mark.requirement("rep:ir:messages")
def test_every_problem_is_told_and_not_only_the_first() -> None:
    document = documents.make_document([documents.make_node("a", retry={"max": -1})], [{"from": "a", "on": "maybe"}])
    document |= {"version": "2.0.0", "flow": {"name": "a b", "extra": 1}, "metadata": {"generated_at": "yesterday"}}
    del document["constants"]
    assert sorted(list_schema_errors(document)) == [
        "`constants` is missing",
        "`flow.name` must be made of letters, digits, `_`, `.` and `-`, and is `a b`",
        "`flow` has no `extra`; hint: it knows `name`, `timeout_ms`",
        "`graph.edges[0].on` must be `success` or `failure`, not `maybe`",
        "`graph.edges[0].to` is missing",
        "`metadata.generated_at` must be a date and time such as `2024-06-30T18:25:43Z`, and is `yesterday`",
        "`version` must be `1.0.0`, not `2.0.0`",
        "node `a`: `retry.max` must be a whole number from 0",
    ]


def test_a_flood_of_problems_is_counted_and_not_kept() -> None:
    found = flow.FlowProblems()
    schema.check_shape(documents.make_document([{} for _ in range(5000)]), schema.FLOW_IR, found)
    with pytest.raises(flow.InvalidFlow) as caught:
        found.raise_any()
    assert len(caught.value.problems) == flow.MOST
    assert caught.value.left_out == 10_000 - flow.MOST
    assert str(caught.value).endswith(f"and {10_000 - flow.MOST} more")


@given(st.text(min_size=100))
def test_a_long_or_unprintable_text_stays_short_and_on_one_line_in_a_sentence(text: str) -> None:
    for sentence in list_schema_errors(documents.make_document([documents.make_node(text, retry={text: 1})])):
        assert len(sentence) < 400
        assert sentence.isprintable()


@pytest.mark.parametrize("document", [None, 1, "x", [], [1], {1: 2}, {"graph": {"nodes": {}}}, b"x", {"version": object()}])
def test_what_is_no_document_at_all_is_refused_with_a_sentence(document: object) -> None:
    assert list_schema_errors(document)
