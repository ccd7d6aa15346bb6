"""Builds the protocol's JSON Schemas from the wire types: five documents under the names that the specification gives.

`documents/schemas/` holds them; a test compares. `python -m switchtower.protocols.push.schemas DIR` writes them (`make schemas`).
"""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from switchtower.protocols.push import extension_messages, messages

DIALECT = "https://json-schema.org/draft/2020-12/schema"
DEFS = "push-runtime-defs.schema.json"
ENVELOPE = "push-runtime-envelope.schema.json"
REQUEST = "push-runtime-request-envelope.schema.json"
RESPONSE = "push-runtime-response-envelope.schema.json"
EVENT = "push-runtime-event-envelope.schema.json"

JsonSchema = dict[str, Any]

REQUESTS = {**messages.REQUESTS, **extension_messages.REQUESTS}
ANSWERS = {**messages.ANSWERS, **extension_messages.ANSWERS}
NEEDS_SESSION = messages.NEEDS_SESSION | extension_messages.NEEDS_SESSION


def build_documents() -> dict[str, JsonSchema]:
    """Returns the schemas by file name."""
    return {
        ENVELOPE: _build_document(
            ENVELOPE, "Any push message", {"oneOf": [{"$ref": name} for name in (REQUEST, RESPONSE, EVENT)]}
        ),
        REQUEST: _build_document(REQUEST, "Push request", _build_requests()),
        RESPONSE: _build_document(RESPONSE, "Push response", _build_responses()),
        EVENT: _build_document(EVENT, "Push event", _build_events()),
        DEFS: _build_document(DEFS, "Push payloads and data types", {"$defs": _build_definitions()}),
    }


def _build_document(name: str, title: str, body: JsonSchema) -> JsonSchema:
    # The lookahead is needed only because of Python's `$`: in JSON Schema `$` means the very end, and not every validator has
    # lookahead.
    portable: JsonSchema = msgspec.json.decode(msgspec.json.encode(body).replace(rb"(?!\\n)$", b"$"))
    return {"$schema": DIALECT, "$id": name, "title": title, **portable}


def _build_definitions() -> JsonSchema:
    payloads: list[type] = list(dict.fromkeys([*REQUESTS.values(), *ANSWERS.values(), *messages.EVENTS.values()]))
    _, components = msgspec.json.schema_components([*payloads, messages.ProtocolError], ref_template="#/$defs/{name}")
    # Response payloads of two names may share a type with an event; a definition is keyed by its class, so none is repeated.
    return dict(sorted(components.items()))


def _make_ref(payload: type) -> JsonSchema:
    return {"$ref": f"{DEFS}#/$defs/{payload.__name__}"}


def _build_requests() -> JsonSchema:
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
        "allOf": [*_build_payloads(REQUESTS), _require_session_id()],
    }


def _require_session_id() -> JsonSchema:
    """A request about a session names the session, in the envelope or in the payload."""
    named = {"required": ["sessionId"], "properties": {"sessionId": {"type": "string"}}}
    return {
        "if": {"properties": {"type": {"enum": sorted(NEEDS_SESSION)}}},
        "then": {"anyOf": [named, {"properties": {"payload": named}}]},
    }


def _build_responses() -> JsonSchema:
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
            "error": {"anyOf": [_make_ref(messages.ProtocolError), {"type": "null"}]},
        },
        "required": ["v", "kind", "requestId", "type", "ok", "payload", "error"],
        "additionalProperties": False,
        "if": {"properties": {"ok": {"const": True}}},
        "then": {"properties": {"error": {"type": "null"}}, "allOf": _build_payloads(ANSWERS)},
        "else": {"properties": {"error": _make_ref(messages.ProtocolError), "payload": {"maxProperties": 0}}},
    }


def _build_events() -> JsonSchema:
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
            *_build_payloads(messages.EVENTS),
            {"if": {"properties": {"type": {"enum": sorted(messages.RUN_EVENTS)}}}, "then": {"required": ["runId"]}},
        ],
    }


def _build_payloads(payloads: Mapping[str, type]) -> list[JsonSchema]:
    return [
        {"if": {"properties": {"type": {"const": name}}}, "then": {"properties": {"payload": _make_ref(payload)}}}
        for name, payload in payloads.items()
    ]


def encode_schema(schema: JsonSchema) -> bytes:
    return msgspec.json.format(msgspec.json.encode(schema), indent=2) + b"\n"


def write_documents(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, schema in build_documents().items():
        (folder / name).write_bytes(encode_schema(schema))


if __name__ == "__main__":
    write_documents(Path(sys.argv[1]))
