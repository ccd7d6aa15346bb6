"""The JSON Schema of the Flow IR, as data. `shape` reads it to check a document, and others can too: it is published.

What the interoperability notes list as a member of an object, but not as required, may be left out; `flow` says what it then is.
`publish` writes the file.
"""

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
        # The IR leaves its contents open: `inputs` checks as much of it as it understands.
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
