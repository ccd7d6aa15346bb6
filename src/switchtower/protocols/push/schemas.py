"""The protocol's JSON Schemas, made from the wire types: five documents under the names that the specification gives.

`documents/schemas/` holds them; a test compares. `python -m switchtower.protocols.push.schemas DIR` writes them (`make schemas`).
"""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from switchtower.protocols.push import extensions, messages

DIALECT = "https://json-schema.org/draft/2020-12/schema"
DEFS = "push-runtime-defs.schema.json"
ENVELOPE = "push-runtime-envelope.schema.json"
REQUEST = "push-runtime-request-envelope.schema.json"
RESPONSE = "push-runtime-response-envelope.schema.json"
EVENT = "push-runtime-event-envelope.schema.json"

Schema = dict[str, Any]

REQUESTS = {**messages.REQUESTS, **extensions.REQUESTS}
ANSWERS = {**messages.ANSWERS, **extensions.ANSWERS}
NEEDS_SESSION = messages.NEEDS_SESSION | extensions.NEEDS_SESSION


def documents() -> dict[str, Schema]:
    """File name to schema."""
    return {
        ENVELOPE: _document(ENVELOPE, "Any push message", {"oneOf": [{"$ref": name} for name in (REQUEST, RESPONSE, EVENT)]}),
        REQUEST: _document(REQUEST, "Push request", _requests()),
        RESPONSE: _document(RESPONSE, "Push response", _responses()),
        EVENT: _document(EVENT, "Push event", _events()),
        DEFS: _document(DEFS, "Push payloads and data types", {"$defs": _definitions()}),
    }


def _document(name: str, title: str, body: Schema) -> Schema:
    # What only Python's `$` needs is left out: in JSON Schema it means the very end, and not every validator can look ahead.
    portable: Schema = msgspec.json.decode(msgspec.json.encode(body).replace(rb"(?!\\n)$", b"$"))
    return {"$schema": DIALECT, "$id": name, "title": title, **portable}


def _definitions() -> Schema:
    payloads: list[type] = list(dict.fromkeys([*REQUESTS.values(), *ANSWERS.values(), *messages.EVENTS.values()]))
    _, components = msgspec.json.schema_components([*payloads, messages.ProtocolError], ref_template="#/$defs/{name}")
    # Response payloads of two names may share a type with an event; a definition is keyed by its class, so nothing is said twice.
    return dict(sorted(components.items()))


def _ref(payload: type) -> Schema:
    return {"$ref": f"{DEFS}#/$defs/{payload.__name__}"}


def _requests() -> Schema:
    return {
        "type": "object",
        "properties": {
            "v": {"const": messages.VERSION},
            "kind": {"const": "request"},
            "requestId": msgspec.json.schema(messages.RequestId),
            "type": {"enum": list(REQUESTS)},
            "sessionId": {"anyOf": [msgspec.json.schema(messages.SessionId), {"type": "null"}]},
            "payload": {"type": "object"},
        },
        "required": ["v", "kind", "requestId", "type", "payload"],
        "allOf": [*_payload_by_type(REQUESTS), _session_somewhere()],
    }


def _session_somewhere() -> Schema:
    """A session-targeted request names its session, in the envelope or in the payload."""
    named = {"required": ["sessionId"], "properties": {"sessionId": {"type": "string"}}}
    return {
        "if": {"properties": {"type": {"enum": sorted(NEEDS_SESSION)}}},
        "then": {"anyOf": [named, {"properties": {"payload": named}}]},
    }


def _responses() -> Schema:
    return {
        "type": "object",
        "properties": {
            "v": {"const": messages.VERSION},
            "kind": {"const": "response"},
            "requestId": msgspec.json.schema(messages.EchoedRequestId),
            "type": {"type": "string"},
            "sessionId": msgspec.json.schema(messages.SessionId),
            "ok": {"type": "boolean"},
            "payload": {"type": "object"},
            "error": {"anyOf": [_ref(messages.ProtocolError), {"type": "null"}]},
        },
        "required": ["v", "kind", "requestId", "type", "ok", "payload", "error"],
        "additionalProperties": False,
        "if": {"properties": {"ok": {"const": True}}},
        "then": {"properties": {"error": {"type": "null"}}, "allOf": _payload_by_type(ANSWERS)},
        "else": {"properties": {"error": _ref(messages.ProtocolError), "payload": {"maxProperties": 0}}},
    }


def _events() -> Schema:
    return {
        "type": "object",
        "properties": {
            "v": {"const": messages.VERSION},
            "kind": {"const": "event"},
            "sessionId": msgspec.json.schema(messages.SessionId),
            "runId": msgspec.json.schema(messages.RunId),
            "seq": {"type": "integer", "minimum": 1},
            "ts": {"type": "integer"},
            "type": {"type": "string"},
            "payload": {"type": "object"},
        },
        "required": ["v", "kind", "sessionId", "seq", "ts", "type", "payload"],
        "additionalProperties": False,
        "allOf": [
            *_payload_by_type(messages.EVENTS),
            {"if": {"properties": {"type": {"enum": sorted(messages.RUN_EVENTS)}}}, "then": {"required": ["runId"]}},
        ],
    }


def _payload_by_type(payloads: Mapping[str, type]) -> list[Schema]:
    return [
        {"if": {"properties": {"type": {"const": name}}}, "then": {"properties": {"payload": _ref(payload)}}}
        for name, payload in payloads.items()
    ]


def encode(schema: Schema) -> bytes:
    return msgspec.json.format(msgspec.json.encode(schema), indent=2) + b"\n"


def write(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, schema in documents().items():
        (folder / name).write_bytes(encode(schema))


if __name__ == "__main__":
    write(Path(sys.argv[1]))
