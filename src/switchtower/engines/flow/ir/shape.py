"""Whether a document has the shape that the schema asks for: the few words of JSON Schema that ours uses, with sentences that
help. Looks at one member after the other and goes on after each problem. Pure.

A test compares it with a complete validator. The schema is no deeper than it is written, so recursion ends with it.
"""

import re
from typing import Any

from switchtower.engines.flow.ir import problems
from switchtower.engines.flow.ir.schema import Schema

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


def check_shape(document: object, schema: Schema, found: problems.FlowProblems) -> None:
    _check(document, schema, "$", "", None, found)


def is_json_type(value: object, kind: str) -> bool:
    """JSON Schema's types: `true` is no number, and `2.0` is a whole one."""
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


def _check(value: object, schema: Schema, path: str, name: str, node: str | None, found: problems.FlowProblems) -> None:
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
    """The kind of a value, never the value: it may be a secret, or a megabyte."""
    kinds = ("boolean", "string", "integer", "number", "object", "array", "null")
    kind = next((kind for kind in kinds if is_json_type(value, kind)), None)
    return {"boolean": "a boolean", None: "something that JSON does not have"}.get(kind) or _KINDS[kind or "null"]


def _check_text(value: str, schema: Schema) -> str:
    if "const" in schema and value != schema["const"]:
        return f"must be `{schema['const']}`, not `{problems.clip_name(value)}`"
    if "enum" in schema and value not in schema["enum"]:
        *others, last = (f"`{allowed}`" for allowed in schema["enum"])
        return f"must be {', '.join(others)} or {last}, not `{problems.clip_name(value)}`"
    if len(value) < schema.get("minLength", 0):
        return "must not be empty"
    # In JSON Schema `$` is the very end; in Python a newline may follow it.
    if "pattern" in schema and not re.fullmatch(schema["pattern"].removesuffix("$"), value):
        return _EXPLAINED.get(schema["pattern"], _DATE_TIME_PATTERN) + f", and is `{problems.clip_name(value)}`"
    return ""


def _check_object(
    value: dict[Any, Any], schema: Schema, path: str, name: str, node: str | None, found: problems.FlowProblems
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
            _check(each, properties[key], problems.join_path(path, key), f"{inside}{key}", node, found)
        elif others is False:
            known = ", ".join(f"`{each}`" for each in properties)
            found.add(problems.join_path(path, key), f"`{name}` has no `{problems.clip_name(key)}`; hint: it knows {known}", node)
        elif isinstance(others, dict):
            _check(each, others, problems.join_path(path, key), f"{inside}{problems.clip_name(key)}", node, found)


def _check_list(value: list[Any], schema: Schema, path: str, name: str, found: problems.FlowProblems) -> None:
    if len(value) < schema.get("minItems", 0):
        found.add(path, f"`{name}` must not be empty")
    items: Schema | None = schema.get("items")
    for index, each in enumerate(value if items is not None else ()):
        assert items is not None, "a list without `items` is not looked into"
        node = _find_id(each) if name == "graph.nodes" else None
        # Behind a node's id its members are enough; without one, the place in the list says which is meant.
        _check(each, items, f"{path}[{index}]", "" if node is not None else f"{name}[{index}]", node, found)


def _find_id(value: object) -> str | None:
    identity = value.get("id") if isinstance(value, dict) else None
    return identity if isinstance(identity, str) and identity else None
