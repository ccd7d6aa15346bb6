"""Validates frames against the committed JSON Schemas, from the entry point down. Every frame that a test's client receives
passes through here.

A validation takes milliseconds and a stream has thousands of frames, so each shape of frame is validated a limited number of
times; the closed wire types check every frame.
"""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import jsonschema
import referencing

from switchtower.testing import push_client

FOLDER = Path(__file__).parents[2] / "documents" / "schemas"
TIMES_A_SHAPE = 10

DOCUMENTS: dict[str, dict[str, Any]] = {path.name: json.loads(path.read_bytes()) for path in sorted(FOLDER.glob("*.json"))}
_registry: referencing.Registry[Any] = referencing.Registry().with_resources(
    (name, referencing.Resource.from_contents(document)) for name, document in DOCUMENTS.items()
)


def get_validator(name: str) -> jsonschema.Draft202012Validator:
    return jsonschema.Draft202012Validator(DOCUMENTS[name], registry=_registry)


ANY_MESSAGE = get_validator("push-runtime-envelope.schema.json")
REQUESTS = get_validator("push-runtime-request-envelope.schema.json")

_validated: Counter[Any] = Counter()
_BRANCHING = frozenset({"kind", "type", "ok", "code", "outcome", "state", "decision"})
"""Fields whose value decides which other fields are allowed."""


def check(frame: push_client.Frame) -> None:
    push_client.check_closed(frame)
    shape = _get_shape(frame)
    if _validated[shape] < TIMES_A_SHAPE:
        _validated[shape] += 1
        ANY_MESSAGE.validate(frame)


def _get_shape(value: Any, name: str = "") -> Any:
    if isinstance(value, dict):
        return tuple((key, _get_shape(held, key)) for key, held in sorted(value.items()))
    if isinstance(value, list):
        return frozenset(_get_shape(item) for item in value)
    return value if name in _BRANCHING else type(value)
