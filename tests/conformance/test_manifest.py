"""The manifest is honest both ways: every requirement is shown by a test, and every mark on a test names a requirement.

Marks are read from the source, so that tests which were not selected count too.
"""

import ast
from collections import Counter
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path

import pytest
from tests.conformance.requirements.requirement import Requirement

TESTS = Path(__file__).parents[1]
PROTOCOLS = sorted(path.stem for path in (TESTS / "conformance" / "requirements").glob("*.py") if path.stem != "requirement")


def load_requirements(protocol: str) -> tuple[Requirement, ...]:
    found: tuple[Requirement, ...] = import_module(f"tests.conformance.requirements.{protocol}").REQUIREMENTS
    return found


@cache
def collect_marks() -> dict[str, list[str]]:
    """Maps each requirement id to the tests that carry it."""
    carried: dict[str, list[str]] = {}
    for path in sorted(TESTS.rglob("test_*.py")):
        for test, ids in _find_marks(path):
            for id_ in ids:
                carried.setdefault(id_, []).append(f"{path.relative_to(TESTS)}::{test}")
    return carried


def _find_marks(path: Path) -> Iterator[tuple[str, list[str]]]:
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            for decorator in node.decorator_list:
                if isinstance(decorator, ast.Call) and ast.unparse(decorator.func) == "pytest.mark.requirement":
                    assert node.name.startswith("test_"), f"{path}: {node.name} is no test"
                    assert decorator.args, f"{path}: {node.name} names no requirement"
                    yield node.name, [_get_text(argument, path) for argument in decorator.args]


def _get_text(argument: ast.expr, path: Path) -> str:
    assert isinstance(argument, ast.Constant), f"{path}: a requirement is named by its id, spelled out"
    assert isinstance(argument.value, str)
    return argument.value


def test_there_are_protocols_with_requirements() -> None:
    assert {"minicodex", "pi", "push", "relay", "rep"} <= set(PROTOCOLS)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_every_requirement_has_a_test_or_says_why_not(protocol: str) -> None:
    untested = [one.id for one in load_requirements(protocol) if one.divergence is None and one.id not in collect_marks()]
    assert untested == []


def test_every_mark_names_a_requirement() -> None:
    known = {one.id for protocol in PROTOCOLS for one in load_requirements(protocol)}
    assert {id_: tests for id_, tests in collect_marks().items() if id_ not in known} == {}


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_requirements_are_well_formed(protocol: str) -> None:
    counted = Counter(one.id for one in load_requirements(protocol))
    assert [id_ for id_, times in counted.items() if times > 1] == []
    for one in load_requirements(protocol):
        named, *topic = one.id.split(":")
        assert named == protocol
        assert len(topic) == 2
        assert one.section
        assert one.behaviour
        assert one.divergence is None or one.divergence
