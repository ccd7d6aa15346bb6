"""What a run is given, against the `inputs_schema` of its flow. Pure.

The IR leaves the contents of that schema to the runtime. Two forms are understood: `{name: {type, default, required}}`, and a
JSON Schema of an object. A type that is not one of `schema.TYPES`, such as `list<string>`, accepts any value, and a run may be
given inputs that the schema does not declare.
"""

import itertools
from collections.abc import Mapping
from typing import Any

from switchtower.engines.flow.ir import problems, schema, shape

_MOST_COMPARED = 200
"""Names that a misspelt one is compared with."""
_MOST_UNDECLARED = 20
"""Undeclared inputs that are listed."""


def list_declarations(inputs_schema: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The inputs that the schema declares: for each name its `type` (None for a type that is not understood), whether it is
    `required`, and its `default` where it has one. Parts of the schema that are not understood declare nothing."""
    properties = inputs_schema.get("properties")
    if inputs_schema.get("type") == "object" and isinstance(properties, dict):
        listed = inputs_schema.get("required")
        required = {name for name in listed if isinstance(name, str)} if isinstance(listed, list) else set()
        return {name: _make_declaration(said, is_required=name in required) for name, said in properties.items()}
    return {
        name: _make_declaration(said, is_required=said.get("required") is not False)
        for name, said in inputs_schema.items()
        if isinstance(said, dict) and isinstance(said.get("type"), str)
    }


def _make_declaration(property_schema: object, *, is_required: bool) -> dict[str, Any]:
    known: Mapping[str, Any] = property_schema if isinstance(property_schema, dict) else {}
    kind = known.get("type")
    declared = {"type": kind if isinstance(kind, str) and kind in schema.TYPES else None, "required": is_required}
    return declared if "default" not in known else {**declared, "default": known["default"]}


def check_inputs(inputs_schema: Mapping[str, Any], inputs: object) -> dict[str, Any]:
    """The inputs with their defaults. Raises `InvalidFlow` with all that is wrong."""
    found = problems.FlowProblems()
    if not isinstance(inputs, dict):
        found.add("$", "inputs must be an object of names and values")
        found.raise_any()
        return {}
    declared = list_declarations(inputs_schema)
    complete = {name: said["default"] for name, said in declared.items() if "default" in said} | inputs
    for name, said in declared.items():
        shown, kind = problems.clip_name(name), said["type"]
        if name in complete:
            if kind is not None and not shape.is_json_type(complete[name], kind):
                found.add(problems.join_path("$", name), f"the input `{shown}` must be {shape.describe_type(kind)}")
        elif said["required"]:
            expected = "" if kind is None else f"; it must be {shape.describe_type(kind)}"
            found.add("$", f"the input `{shown}` is missing{expected}")
    found.raise_any()
    return complete


def describe_undeclared(inputs_schema: Mapping[str, Any], inputs: Mapping[str, Any]) -> list[str]:
    """A sentence for each input that the schema does not declare. Such an input is passed on; it may be a misspelt name."""
    declared = list_declarations(inputs_schema)
    known = [name for name in itertools.islice(declared, _MOST_COMPARED) if len(name) <= 100]
    sentences = []
    for name in itertools.islice((name for name in inputs if name not in declared), _MOST_UNDECLARED):
        import difflib  # late: only for this hint

        near = difflib.get_close_matches(str(name)[:100], known, n=1)
        hint = f"; hint: `{near[0]}`?" if near else ""
        sentences.append(f"the flow declares no input `{problems.clip_name(str(name))}`{hint}")
    return sentences
