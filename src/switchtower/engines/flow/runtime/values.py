"""Resolves the references in a step's parameters, `$input.a.b` and `$step.id.path`; any other value is a literal. Scalars in an
IR are strings, so a kind that needs a number or a boolean converts it here.
"""

import math
from collections.abc import Iterable, Mapping
from typing import Any

from switchtower.engines.flow import ir
from switchtower.engines.flow.ir import parser as declared_inputs
from switchtower.engines.flow.ir import references
from switchtower.engines.flow.runtime import failures

_DEEPEST = 64
_LONGEST_SHOWN = 200
_TRUE, _FALSE = frozenset({"true", "yes", "1", "on"}), frozenset({"false", "no", "0", "off", "", "null", "none"})


class MissingValue(Exception):
    """A reference has no value. The text, if any, gives the reason and continues a sentence."""


class StepSkipped(MissingValue):
    """A reference leads to a step that was skipped."""


class ReferenceValues:
    """The values of a run's references. The flow declares the names; the run provides the values so far."""

    def __init__(self, flow: ir.CheckedFlow, inputs: Mapping[str, Any]) -> None:
        self._declared_inputs = declared_inputs.list_declarations(flow.inputs_schema).keys()
        self._declared_steps = {node.id for node in flow.nodes}
        self._inputs = inputs
        self.steps: dict[str, Any] = {}
        """The outputs of the steps that have ended, by id."""

    def resolve(self, value: Any, *, skipped_is_null: bool = False, depth: int = 0) -> Any:
        """Raises `StepFailed` for a reference without a value. With `skipped_is_null`, a step that did not run yields null."""
        if depth > _DEEPEST:
            raise failures.StepFailed(f"what it is given is nested more than {_DEEPEST} deep")
        if isinstance(value, dict):
            return {key: self.resolve(one, skipped_is_null=skipped_is_null, depth=depth + 1) for key, one in value.items()}
        if isinstance(value, list):
            return [self.resolve(one, skipped_is_null=skipped_is_null, depth=depth + 1) for one in value]
        reference = references.parse_reference(value)
        if reference is None:
            return value
        try:
            return self._find_value(reference)
        except MissingValue as missing:
            if skipped_is_null and isinstance(missing, StepSkipped):
                return None
            shown = str(value)[:_LONGEST_SHOWN]
            raise failures.StepFailed(f"`{shown}` refers to nothing{missing}", details={"reference": shown}) from None

    def resolve_key(self, value: object) -> Any:
        """Resolves the key of a switch, which has its own spelling. Raises `MissingValue`."""
        reference = references.parse_key(value)
        if reference is None:
            raise MissingValue
        return self._find_value(reference)

    def _find_value(self, reference: references.Reference) -> Any:
        if reference.source == "input" and not reference.parts:
            return dict(self._inputs)
        meant = reference.split(inputs=self._declared_inputs, steps=self._declared_steps)
        if meant is None and reference.source == "step":
            raise MissingValue
        # The name of an input that is not declared has no dots.
        name, way = meant or (reference.parts[0], reference.parts[1:])
        known = self._inputs if reference.source == "input" else self.steps
        if name not in known:
            raise StepSkipped if reference.source == "step" else MissingValue
        if way and reference.source == "step" and known[name] == {}:
            raise MissingValue(f": the step `{name[:_LONGEST_SHOWN]}` gave no outputs")
        return _walk(known[name], way)


def _walk(value: Any, way: Iterable[str]) -> Any:
    for part in way:
        if isinstance(value, Mapping) and part in value:
            value = value[part]
        elif isinstance(value, list) and part.isascii() and part.isdecimal() and len(part) < 10 and int(part) < len(value):
            value = value[int(part)]
        else:
            raise MissingValue
    return value


def get_text(given: Mapping[str, Any], name: str, default: str | None = None) -> str:
    value = given.get(name, default)
    if value is None:
        raise failures.StepFailed(f"`{name}` is missing")
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        raise failures.StepFailed(f"`{name}` is not a text")
    return str(value)


def get_number(given: Mapping[str, Any], name: str, default: float | None = None, *, most: float = math.inf) -> float:
    """Returns a number that is not negative."""
    value = given.get(name, default)
    if value is None:
        raise failures.StepFailed(f"`{name}` is missing")
    try:
        wanted = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError, OverflowError):
        wanted = math.nan
    if not 0 <= wanted <= most or math.isinf(wanted):
        raise failures.StepFailed(f"`{name}` is not a number from 0 on" + ("" if math.isinf(most) else f" to {most:g}"))
    return wanted


def parse_truth(value: Any) -> bool:
    """Converts a value to a boolean; a string is interpreted by its text."""
    if isinstance(value, str):
        return value.strip().lower() not in _FALSE
    return bool(value)


def get_flag(given: Mapping[str, Any], name: str, *, default: bool) -> bool:
    value = given.get(name, default)
    spelled = value.strip().lower() if isinstance(value, str) else value
    if isinstance(spelled, bool):
        return spelled
    if spelled in _TRUE or spelled in _FALSE:
        return spelled in _TRUE
    raise failures.StepFailed(f"`{name}` is neither true nor false")


def get_texts(given: Mapping[str, Any], name: str) -> dict[str, str]:
    """Returns a mapping of names to texts, such as headers."""
    value = given.get(name) or {}
    if not isinstance(value, Mapping):
        raise failures.StepFailed(f"`{name}` is not a set of names and texts")
    return {str(key): get_text(value, key) for key in value}
