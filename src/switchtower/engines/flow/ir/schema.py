"""The JSON Schema of the Flow IR, as data, and a validator for it. The schema is published: `publish` writes the file.

Members that the interoperability notes list, but not as required, may be left out; `flow` has their defaults.

The validator supports the few keywords of JSON Schema that ours uses, has helpful messages, and continues after each problem. A
test compares it with a complete validator. The recursion is bounded by the depth of the schema.
"""

import re
from typing import Any

from switchtower.engines.flow.ir import flow

TYPES = ("string", "number", "integer", "boolean", "object", "array")
"""The types of inputs that are checked. A schema may name others, which any value satisfies."""

Schema = dict[str, Any]

_NAME: Schema = {"type": "string", "pattern": "^[A-Za-z0-9_.-]+$"}
_MILLISECONDS: Schema = {"type": "integer", "minimum": 0, "maximum": 2**31 - 1}
_COUNT: Schema = {"type": "integer", "minimum": 0}
_DATE_TIME = (
    "^[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])[Tt]([01][0-9]|2[0-3]):[0-5][0-9]:([0-5][0-9]|60)([.][0-9]+)?"
    "([Zz]|[+-]([01][0-9]|2[0-3]):[0-5][0-9])$"
)


def _make_object_schema(properties: Schema, *, required: tuple[str, ...] = (), closed: bool = False) -> Schema:
    schema: Schema = {"type": "object", "properties": properties}
    if required:
        schema["required"] = list(required)
    if closed:
        schema["additionalProperties"] = False
    return schema


_RETRY = _make_object_schema({"max": _COUNT, "backoff_ms": _MILLISECONDS}, closed=True)
_NODE = _make_object_schema(
    {
        "id": _NAME,
        "type": {"type": "string", "minLength": 1},
        "with": {"type": "object"},
        "timeout_ms": _MILLISECONDS,
        "retry": _RETRY,
    },
    required=("id", "type"),
)
_EDGE = _make_object_schema(
    {"from": _NAME, "to": _NAME, "on": {"type": "string", "enum": ["success", "failure"]}}, required=("from", "to")
)

FLOW_IR: Schema = _make_object_schema(
    {
        "version": {"type": "string", "const": flow.VERSION},
        "flow": _make_object_schema({"name": _NAME, "timeout_ms": _MILLISECONDS}, required=("name",), closed=True),
        "constants": _make_object_schema(
            {"policyRef": {"type": "string", "minLength": 1}, "policy": {"type": "object"}}, closed=True
        ),
        # The IR leaves its contents open: `parser` checks the parts that it supports.
        "inputs_schema": {"type": "object"},
        "graph": _make_object_schema(
            {"nodes": {"type": "array", "minItems": 1, "items": _NODE}, "edges": {"type": "array", "items": _EDGE}},
            required=("nodes", "edges"),
            closed=True,
        ),
        "metadata": _make_object_schema(
            {
                "generated_at": {"type": "string", "format": "date-time", "pattern": _DATE_TIME},
                "source_file": {"type": ["string", "null"]},
            }
        ),
    },
    required=("version", "flow", "constants", "inputs_schema", "graph", "metadata"),
)


_KINDS = {
    "string": "a string",
    "number": "a number",
    "integer": "a whole number",
    "boolean": "`true` or `false`",
    "object": "an object",
    "array": "a list",
    "null": "`null`",
}
_EXPLAINED = {
    "^[A-Za-z0-9_.-]+$": "must be made of letters, digits, `_`, `.` and `-`",
}
_DATE_TIME_PATTERN = "must be a date and time such as `2024-06-30T18:25:43Z`"


def check_shape(document: object, schema: Schema, found: flow.FlowProblems) -> None:
    _check(document, schema, "$", "", None, found)


def is_json_type(value: object, kind: str) -> bool:
    """Implements JSON Schema's types: `true` is not a number, and `2.0` is an integer."""
    match kind:
        case "string":
            return isinstance(value, str)
        case "number":
            return isinstance(value, int | float) and not isinstance(value, bool)
        case "integer":
            return (isinstance(value, int) and not isinstance(value, bool)) or (isinstance(value, float) and value.is_integer())
        case "boolean":
            return isinstance(value, bool)
        case "object":
            return isinstance(value, dict)
        case "array":
            return isinstance(value, list)
        case _:
            return value is None


def describe_type(kind: str) -> str:
    return _KINDS[kind]


def _check(value: object, schema: Schema, path: str, name: str, node: str | None, found: flow.FlowProblems) -> None:
    kinds = schema["type"]
    kinds = [kinds] if isinstance(kinds, str) else kinds
    subject = f"`{name}`" if name else "the document"
    if not any(is_json_type(value, kind) for kind in kinds):
        found.add(path, f"{subject} must be {_describe_expected(kinds, schema)}, not {_describe_value(value)}", node)
    elif isinstance(value, str):
        if complaint := _check_text(value, schema):
            found.add(path, f"{subject} {complaint}", node)
    elif isinstance(value, int | float):
        if not schema.get("minimum", value) <= value <= schema.get("maximum", value):
            found.add(path, f"{subject} must be {_describe_expected(kinds, schema)}", node)
    elif isinstance(value, dict):
        _check_object(value, schema, path, name, node, found)
    elif isinstance(value, list):
        _check_list(value, schema, path, name, found)


def _describe_expected(kinds: list[str], schema: Schema) -> str:
    said = " or ".join(_KINDS[kind] for kind in kinds)
    if "maximum" in schema:
        return f"{said} from {schema['minimum']} to {schema['maximum']}"
    return f"{said} from {schema['minimum']}" if "minimum" in schema else said


def _describe_value(value: object) -> str:
    """Returns the type of a value, never the value: it may be a secret, or a megabyte."""
    kinds = ("boolean", "string", "integer", "number", "object", "array", "null")
    kind = next((kind for kind in kinds if is_json_type(value, kind)), None)
    return {"boolean": "a boolean", None: "something that JSON does not have"}.get(kind) or _KINDS[kind or "null"]


def _check_text(value: str, schema: Schema) -> str:
    if "const" in schema and value != schema["const"]:
        return f"must be `{schema['const']}`, not `{flow.clip_name(value)}`"
    if "enum" in schema and value not in schema["enum"]:
        *others, last = (f"`{allowed}`" for allowed in schema["enum"])
        return f"must be {', '.join(others)} or {last}, not `{flow.clip_name(value)}`"
    if len(value) < schema.get("minLength", 0):
        return "must not be empty"
    # JSON Schema's `$` matches only at the very end; Python's also matches before a final newline.
    if "pattern" in schema and not re.fullmatch(schema["pattern"].removesuffix("$"), value):
        return _EXPLAINED.get(schema["pattern"], _DATE_TIME_PATTERN) + f", and is `{flow.clip_name(value)}`"
    return ""


def _check_object(
    value: dict[Any, Any], schema: Schema, path: str, name: str, node: str | None, found: flow.FlowProblems
) -> None:
    properties: Schema = schema.get("properties", {})
    others = schema.get("additionalProperties", True)
    inside = f"{name}." if name else ""
    for key in schema.get("required", ()):
        if key not in value:
            found.add(path, f"`{inside}{key}` is missing", node)
    for key, each in value.items():
        if not isinstance(key, str):
            found.add(path, f"a name in {f'`{name}`' if name else 'the document'} is not a string", node)
        elif key in properties:
            _check(each, properties[key], flow.join_path(path, key), f"{inside}{key}", node, found)
        elif others is False:
            known = ", ".join(f"`{each}`" for each in properties)
            found.add(flow.join_path(path, key), f"`{name}` has no `{flow.clip_name(key)}`; hint: it knows {known}", node)
        elif isinstance(others, dict):
            _check(each, others, flow.join_path(path, key), f"{inside}{flow.clip_name(key)}", node, found)


def _check_list(value: list[Any], schema: Schema, path: str, name: str, found: flow.FlowProblems) -> None:
    if len(value) < schema.get("minItems", 0):
        found.add(path, f"`{name}` must not be empty")
    items: Schema | None = schema.get("items")
    for index, each in enumerate(value if items is not None else ()):
        assert items is not None, "a list without `items` is not looked into"
        node = _find_id(each) if name == "graph.nodes" else None
        # After a node's id, its members are enough; without an id, the place in the list identifies it.
        _check(each, items, f"{path}[{index}]", "" if node is not None else f"{name}[{index}]", node, found)


def _find_id(value: object) -> str | None:
    identity = value.get("id") if isinstance(value, dict) else None
    return identity if isinstance(identity, str) and identity else None
