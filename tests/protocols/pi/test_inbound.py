"""Decoding pi commands: any bytes become a request or a refusal in pi's words, and nothing else."""

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from switchtower.protocols.pi import inbound, messages, responses

IMAGE = {"type": "image", "data": "aGk=", "mimeType": "image/png"}
COMMANDS: dict[str, dict[str, Any]] = {
    "list_sessions": {},
    "create_session": {"sessionId": "s", "cwd": "/tmp", "preset": "review"},
    "delete_session": {"sessionId": "s"},
    "switch_session": {"sessionId": "s"},
    "get_metrics": {},
    "health_check": {},
    "list_stored_sessions": {},
    "load_session": {"sessionPath": "/home/x/.pi/agent/sessions/a.jsonl", "sessionId": "s"},
    "prompt": {"sessionId": "s", "message": "hello", "images": [IMAGE], "streamingBehavior": "followUp"},
    "steer": {"sessionId": "s", "message": "left", "images": []},
    "follow_up": {"sessionId": "s", "message": "and then"},
    "set_model": {"sessionId": "s", "provider": "demo", "modelId": "demo"},
    "cycle_model": {"sessionId": "s", "direction": "backward"},
    "set_thinking_level": {"sessionId": "s", "level": "xhigh"},
    "set_session_name": {"sessionId": "s", "name": "A name"},
    "compact": {"sessionId": "s", "customInstructions": "short"},
    "set_auto_compaction": {"sessionId": "s", "enabled": True},
    "set_auto_retry": {"sessionId": "s", "enabled": False},
    "bash": {"sessionId": "s", "command": "ls", "excludeFromContext": True},
    "export_html": {"sessionId": "s", "outputPath": "/tmp/x.html"},
    "new_session": {"sessionId": "s", "parentSession": "p"},
    "switch_session_file": {"sessionId": "s", "sessionPath": "/x"},
    "fork": {"sessionId": "s", "entryId": "e1"},
    "extension_ui_response": {"sessionId": "s", "requestId": "r", "response": {"method": "select", "value": "A"}},
}
FRAMES = [{"type": type_, "id": "c1", **COMMANDS.get(type_, {"sessionId": "s"})} for type_ in messages.COMMANDS]


def parse(command: Any) -> inbound.PiRequest:
    return inbound.parse_request(json.dumps(command).encode())


def get_refusal(frame: bytes) -> inbound.PiRequestError:
    with pytest.raises(inbound.PiRequestError) as refused:
        inbound.parse_request(frame)
    return refused.value


def parse_frame(frame: bytes) -> inbound.PiRequest | inbound.PiRequestError:
    """One of the two; any other exception is the failure that this looks for."""
    try:
        request = inbound.parse_request(frame)
        assert (request.fingerprint == "") == (request.id is None and request.idempotency_key is None)
        return request
    except inbound.PiRequestError as invalid:
        answer = responses.encode_error_response(invalid.command, invalid.id, invalid.error)
        assert len(answer) < 5_000
        return invalid


@pytest.mark.parametrize("command", FRAMES, ids=lambda command: str(command["type"]))
def test_every_command_of_the_document_is_read_with_all_its_fields(command: dict[str, Any]) -> None:
    envelope = {"dependsOn": ["c0"], "idempotencyKey": "k", "somethingNew": {"x": [1]}}
    if "sessionId" in command:
        envelope["ifSessionVersion"] = 3
    request = parse({**command, **envelope})
    assert (request.type, request.id, request.session_id) == (command["type"], "c1", command.get("sessionId"))
    assert (request.depends_on, request.idempotency_key) == (["c0"], "k")
    assert request.if_session_version == envelope.get("ifSessionVersion")
    assert type(request.body) is messages.COMMANDS[request.type]
    for field in COMMANDS.get(request.type, {}):
        assert getattr(request.body, field) not in (None, "")


def test_fields_that_may_be_left_out_may_be_null() -> None:
    request = parse({"type": "prompt", "sessionId": "s", "message": "", "id": None, "images": None, "dependsOn": None})
    assert request.id is None
    assert request.depends_on == []


@pytest.mark.parametrize(
    ("method", "fields"),
    [
        ("select", {"value": "A"}),
        ("confirm", {"confirmed": False}),
        ("input", {"value": ""}),
        ("editor", {"value": "a\nb"}),
        ("interview", {"responses": {"q": ["any", {"thing": None}]}}),
        ("cancelled", {}),
    ],
)
def test_each_kind_of_answer_to_an_extension_is_read(method: str, fields: dict[str, Any]) -> None:
    response = {"method": method, **fields}
    body = parse({"type": "extension_ui_response", "sessionId": "s", "requestId": "r", "response": response}).body
    assert isinstance(body, messages.ExtensionUiResponse)
    for name, value in fields.items():
        assert getattr(body.response, name) == value


@pytest.mark.parametrize(
    ("command", "error"),
    [
        ({}, "Validation failed: type: must be a string"),
        ({"type": 7}, "Validation failed: type: must be a string"),
        ({"type": "fly"}, "Unknown command type 'fly'"),
        ({"type": "get_state"}, "Validation failed: sessionId: is required"),
        ({"type": "get_state", "sessionId": 5}, "Validation failed: sessionId: expected `str`, got `int`"),
        ({"type": "get_state", "sessionId": ""}, "Validation failed: sessionId: must be"),
        ({"type": "get_state", "sessionId": "a/b"}, "Validation failed: sessionId: must be"),
        ({"type": "get_state", "sessionId": "a\n"}, "Validation failed: sessionId: must be"),
        ({"type": "get_state", "sessionId": "a" * 257}, "Validation failed: sessionId: must be"),
        ({"type": "create_session", "sessionId": "../x"}, "Validation failed: sessionId: must be"),
        ({"type": "list_sessions", "id": 5}, "Validation failed: id: expected"),
        ({"type": "list_sessions", "id": ""}, "Validation failed: id: expected"),
        ({"type": "list_sessions", "id": "x" * 257}, "Validation failed: id: expected"),
        ({"type": "list_sessions", "id": "anon:1:1"}, "Validation failed: id: must not begin with `anon:`"),
        ({"type": "list_sessions", "idempotencyKey": "x" * 257}, "Validation failed: idempotencyKey: expected"),
        ({"type": "list_sessions", "idempotencyKey": []}, "Validation failed: idempotencyKey: expected"),
        ({"type": "list_sessions", "dependsOn": ["a"]}, "Validation failed: id: is required with dependsOn"),
        ({"type": "list_sessions", "id": "i", "dependsOn": "a"}, "Validation failed: dependsOn: expected"),
        ({"type": "list_sessions", "id": "i", "dependsOn": [1]}, "Validation failed: dependsOn[0]: expected"),
        ({"type": "list_sessions", "id": "i", "dependsOn": ["a"] * 33}, "Validation failed: dependsOn: expected"),
        ({"type": "list_sessions", "ifSessionVersion": 1}, "Validation failed: sessionId: is required with ifSessionVersion"),
        ({"type": "abort", "sessionId": "s", "ifSessionVersion": -1}, "Validation failed: ifSessionVersion: expected"),
        ({"type": "abort", "sessionId": "s", "ifSessionVersion": 1.5}, "Validation failed: ifSessionVersion: expected"),
        ({"type": "abort", "sessionId": "s", "ifSessionVersion": True}, "Validation failed: ifSessionVersion: expected"),
        ({"type": "abort", "sessionId": "s", "ifSessionVersion": 2**80}, "Validation failed: ifSessionVersion: expected"),
        ({"type": "prompt", "sessionId": "s"}, "Validation failed: message: is required"),
        ({"type": "prompt", "sessionId": "s", "message": "x" * 200_001}, "Validation failed: message: expected"),
        (
            {"type": "prompt", "sessionId": "s", "message": "x", "streamingBehavior": "queue"},
            "Validation failed: streamingBehavior: invalid enum value 'queue'",
        ),
        (
            {"type": "prompt", "sessionId": "s", "message": "x", "images": [{"type": "image"}]},
            "Validation failed: images[0].data",
        ),
        (
            {"type": "prompt", "sessionId": "s", "message": "x", "images": [{**IMAGE, "type": "video"}]},
            "Validation failed: images[0].type",
        ),
        ({"type": "bash", "sessionId": "s", "command": "x" * 20_001}, "Validation failed: command: expected"),
        ({"type": "set_session_name", "sessionId": "s", "name": "x" * 257}, "Validation failed: name: expected"),
        ({"type": "load_session", "sessionPath": "/" * 4_097}, "Validation failed: sessionPath: expected"),
        ({"type": "cycle_model", "sessionId": "s", "direction": "up"}, "Validation failed: direction: invalid"),
        ({"type": "set_thinking_level", "sessionId": "s", "level": "extreme"}, "Validation failed: level: invalid"),
        ({"type": "set_auto_retry", "sessionId": "s", "enabled": "yes"}, "Validation failed: enabled: expected"),
        (
            {"type": "extension_ui_response", "sessionId": "s", "requestId": "r", "response": {"method": "shout"}},
            "Validation failed: response.method: invalid",
        ),
        (
            {"type": "extension_ui_response", "sessionId": "s", "requestId": "r", "response": {"method": "confirm"}},
            "Validation failed: response.confirmed: is required",
        ),
        (
            {"type": "extension_ui_response", "sessionId": "s", "requestId": "r" * 257, "response": {"method": "cancelled"}},
            "Validation failed: requestId: expected",
        ),
    ],
)
def test_what_is_wrong_with_a_command_is_said_with_the_field(command: dict[str, Any], error: str) -> None:
    invalid = get_refusal(json.dumps(command).encode())
    assert invalid.error.startswith(error)
    assert len(invalid.error) < 400
    type_ = command.get("type")
    assert invalid.command == (type_ if isinstance(type_, str) else "unknown")


@pytest.mark.parametrize(
    "frame",
    [
        b"",
        b" ",
        b"{",
        b"nonsense",
        b"\xff\xfe",
        b"\x00" * 100,
        b'{"type":"list_sessions"}{"type":"list_sessions"}',
        b'{"type":"list_sessions","x":NaN}',
        b'{"type":"list_sessions","x":Infinity}',
        b'{"type":"list_sessions","x":1e999}',
        b'{"type":"list_sessions","x":' + b"9" * 5_000 + b"}",
        b'{"type":"list_sessions","x":"\\ud800"}',
        b'{"type":"list_sessions","x":"\xff"}',
        b'{"type":"list_sessions","x":' + b"[" * 100_000,
        b'{"type":' * 50_000,
        b'{"type":"list_sessions","x":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b"[]",
        b"null",
        b'"list_sessions"',
        b"17",
    ],
    ids=lambda frame: repr(frame[:30]),
)
def test_a_frame_that_is_no_json_object_is_refused_as_an_unknown_command(frame: bytes) -> None:
    invalid = get_refusal(frame)
    assert (invalid.command, invalid.id) == ("unknown", None)
    assert invalid.error.startswith("Invalid")


def test_nesting_that_json_readers_bear_but_nobody_needs_is_refused_with_the_id() -> None:
    deep = b'{"type":"list_sessions","id":"i","x":' + b"[" * 64 + b"]" * 64 + b"}"
    invalid = get_refusal(deep)
    assert (invalid.command, invalid.id) == ("list_sessions", "i")
    assert "nested too deeply" in invalid.error
    just_right = b'{"type":"list_sessions","id":"i","x":' + b"[" * 63 + b"]" * 63 + b"}"
    assert inbound.parse_request(just_right).fingerprint
    assert inbound.parse_request(b'{"type":"list_sessions","id":"i","x":[' + b"[]," * 5_000 + b"1]}").fingerprint


def test_the_id_comes_back_although_another_field_is_wrong() -> None:
    assert get_refusal(b'{"type":"get_state","id":"mine"}').id == "mine"
    assert get_refusal(b'{"type":"fly","id":"mine"}').id == "mine"
    assert get_refusal(b'{"id":"mine"}').id == "mine"
    assert get_refusal(b'{"type":"get_state","id":["mine"]}').id is None
    assert get_refusal(json.dumps({"type": "fly", "id": "x" * 300}).encode()).id is None


def test_a_huge_type_is_not_sent_back() -> None:
    invalid = get_refusal(json.dumps({"type": "x" * 1_000_000}).encode())
    assert len(invalid.command) < 200
    assert len(invalid.error) < 200


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.sampled_from(["s", "a\n", "steer", "anon:x"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=10,
)


@given(st.binary())
@example(b"[" * 100_000)
@example(b"9" * 5_000)
@example(b'"\\ud800"')
def test_any_bytes_are_a_request_or_a_refusal(frame: bytes) -> None:
    parse_frame(frame)


@given(st.sampled_from(FRAMES), st.dictionaries(st.sampled_from(sorted({key for frame in FRAMES for key in frame})), JSON))
def test_a_command_with_any_field_changed_is_a_request_or_a_refusal(command: dict[str, Any], changes: dict[str, Any]) -> None:
    parse_frame(json.dumps({**command, **changes}).encode())


@given(st.sampled_from(FRAMES), st.data())
def test_the_beginning_of_a_command_is_never_one(command: dict[str, Any], data: st.DataObject) -> None:
    frame = json.dumps(command).encode()
    assert isinstance(parse_frame(frame[: data.draw(st.integers(0, len(frame) - 1))]), inbound.PiRequestError)
