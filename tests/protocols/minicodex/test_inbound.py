"""Decoding: any bytes become a message or a refusal with a code of the document, and the document's own models agree."""

import json
from typing import Any

import pydantic
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.protocols.minicodex import closed

from switchtower.protocols.minicodex import inbound, messages

RUN_UUID = "0199c8b2-1c00-0000-0000-000000000007"
ENVELOPE = {"v": "1.0.0", "session_id": "s", "run_id": RUN_UUID, "event_id": 1, "ts": "2025-10-09T08:53:20Z", "req_id": "r1"}
COMMANDS: list[dict[str, Any]] = [
    {"type": "hello", "v": "1.0.0"},
    {"type": "hello", "v": "1.2.3-rc.1+b", "client_capabilities": ["reasoning", "replay"]},
    {"type": "resume"},
    {"type": "resume", "last_seen_event_id": None},
    {"type": "resume", "last_seen_event_id": 4096},
    {"type": "send", "text": "hello"},
    {"type": "send", "text": "grüße 😀", "client_msg_id": "m1"},
    {"type": "approve", "call_id": "call_1"},
    {"type": "deny", "call_id": "call_1"},
    {"type": "abort"},
    {"type": "abort", "run_id": RUN_UUID},
    {"type": "get_snapshot"},
    {"type": "get_snapshot", "include_transcript_window": True},
    {"type": "ping"},
    {"type": "ping", "nonce": "n"},
]
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**80), 2**80)
    | st.floats()
    | st.text(max_size=20)
    | st.sampled_from(["", "1.0.0", "1.0", RUN_UUID, "2025-10-09T08:53:20Z", "2025-10-09", "\n"])
)
ANY_JSON = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3), max_leaves=8
)
FIELDS = sorted({name for command in [*COMMANDS, ENVELOPE] for name in command})


def parse_frame(
    frame: bytes, capabilities: frozenset[str] = frozenset()
) -> messages.ClientMessage | inbound.MiniCodexRequestError:
    """One of the two; any other exception is the failure that this looks for."""
    try:
        return inbound.parse(frame, capabilities)
    except inbound.MiniCodexRequestError as refused:
        return is_answerable(refused)


def is_answerable(refused: inbound.MiniCodexRequestError) -> inbound.MiniCodexRequestError:
    assert refused.code in ("INVALID_COMMAND", "MISSING_FIELD", "BAD_ARGUMENT")
    assert 0 < len(refused.message) <= inbound.MAX_ERROR_LENGTH
    json.dumps([refused.message, refused.req_id, refused.details], ensure_ascii=False).encode()
    return refused


def get_code(command: dict[str, Any] | bytes) -> str:
    refused = parse_frame(command if isinstance(command, bytes) else json.dumps(command).encode())
    assert isinstance(refused, inbound.MiniCodexRequestError), f"{command!r} was accepted"
    return refused.code


@pytest.mark.parametrize("command", COMMANDS, ids=json.dumps)
def test_every_command_of_the_document_is_understood_with_any_envelope(command: dict[str, Any]) -> None:
    for whole in (command, {**ENVELOPE, **command}):
        frame = json.dumps(whole).encode()
        closed.check_command(frame)
        message = inbound.parse(frame)
        assert message.__struct_config__.tag == command["type"]
        for name, value in whole.items():
            if name not in ("type", "ts"):
                assert getattr(message, name) == value


@pytest.mark.parametrize(
    "frame",
    [b"", b"{", b"[]", b"null", b'"hello"', b"\xff", b'{"type":"\xed\xa0\x80"}', b'{"type":"\\ud800"}', b'{"type":NaN}',
     b"[" * 100_000, b'{"type":' * 50_000, b'{"type":"ping","nonce":' + b"[" * 50_000, b'{"type":"dance"}', b'{"type":1}',
     b'{"type":null}', b'{"type":["ping"]}', b'{"type":"PING"}', b'{"type":"' + b"x" * 9_000 + b'"}'],
    ids=lambda frame: repr(frame[:20]),
)  # fmt: skip
def test_what_is_no_command_at_all_is_an_invalid_one(frame: bytes) -> None:
    assert get_code(frame) == "INVALID_COMMAND"


@pytest.mark.parametrize(
    ("command", "field"),
    [
        ({}, "type"),
        ({"type": "hello"}, "v"),
        ({"type": "send"}, "text"),
        ({"type": "approve"}, "call_id"),
        ({"type": "deny"}, "call_id"),
    ],
)
def test_a_missing_field_is_named(command: dict[str, Any], field: str) -> None:
    refused = parse_frame(json.dumps({**command, "req_id": "r1"}).encode())
    assert isinstance(refused, inbound.MiniCodexRequestError)
    assert (refused.code, refused.message) == ("MISSING_FIELD", f"`{field}` is required")
    assert (refused.req_id, refused.details) == ("r1", {"field": field})


@pytest.mark.parametrize(
    "command",
    [
        {"type": "hello", "v": "1"},
        {"type": "hello", "v": "1.0.0\n"},
        {"type": "hello", "v": "01.0.0"},
        {"type": "hello", "v": None},
        {"type": "hello", "v": "1.0.0", "client_capabilities": "replay"},
        {"type": "hello", "v": "1.0.0", "client_capabilities": [1]},
        {"type": "hello", "v": "1.0.0", "client_capabilities": ["x"] * 101},
        {"type": "resume", "last_seen_event_id": -1},
        {"type": "resume", "last_seen_event_id": 2**53},
        {"type": "resume", "last_seen_event_id": 10**30},
        {"type": "resume", "last_seen_event_id": "1"},
        {"type": "resume", "last_seen_event_id": True},
        {"type": "resume", "last_seen_event_id": 1.5},
        {"type": "send", "text": ""},
        {"type": "send", "text": None},
        {"type": "send", "text": ["hello"]},
        {"type": "send", "text": "hello", "client_msg_id": ""},
        {"type": "send", "text": "hello", "client_msg_id": "m" * 257},
        {"type": "send", "text": "hello", "images": []},
        {"type": "approve", "call_id": ""},
        {"type": "approve", "call_id": 1},
        {"type": "abort", "run_id": "run_1"},
        {"type": "abort", "run_id": RUN_UUID + "\n"},
        {"type": "abort", "run_id": RUN_UUID.replace("-", "")},
        {"type": "abort", "event_id": -1},
        {"type": "abort", "ts": "yesterday"},
        {"type": "abort", "ts": "2025-10-09T08:53:20"},
        {"type": "get_snapshot", "include_transcript_window": 1},
        {"type": "ping", "nonce": 1},
        {"type": "ping", "x" * 5_000: 1},
        {"type": "ping", "v": "one"},
        {"type": "ping", "req_id": 7},
        {"type": "ping", "req_id": "r" * 257},
    ],
    ids=lambda command: json.dumps(command)[:60],
)
def test_a_bad_argument_is_refused(command: dict[str, Any]) -> None:
    assert get_code(command) == "BAD_ARGUMENT"


def test_a_refusal_says_what_is_wanted_without_a_pattern() -> None:
    for command, wanted in (
        ({"type": "hello", "v": "1"}, "`v`: must be a semantic version such as `1.0.0`"),
        ({"type": "abort", "run_id": "x"}, "`run_id`: must be a UUID"),
        ({"type": "resume", "last_seen_event_id": -1}, "`last_seen_event_id`: expected `int` >= 0"),
    ):
        refused = parse_frame(json.dumps(command).encode())
        assert isinstance(refused, inbound.MiniCodexRequestError)
        assert refused.message == wanted


@pytest.mark.parametrize("req_id", [7, None, "r" * 257, ["r"]])
def test_only_a_request_id_that_is_one_is_echoed(req_id: object) -> None:
    refused = parse_frame(json.dumps({"type": "dance", "req_id": req_id}).encode())
    assert isinstance(refused, inbound.MiniCodexRequestError)
    assert refused.req_id is None


@pytest.mark.parametrize("abort", [True, False])
def test_a_denial_that_aborts_is_unknown_until_it_is_negotiated(abort: bool) -> None:
    frame = json.dumps({"type": "deny", "call_id": "c", "abort": abort}).encode()
    assert get_code(frame) == "BAD_ARGUMENT"
    message = inbound.parse(frame, frozenset({"deny_abort"}))
    assert isinstance(message, messages.Deny)
    assert message.abort is abort
    with pytest.raises(inbound.MiniCodexRequestError, match="abort"):
        inbound.parse(b'{"type":"approve","call_id":"c","abort":true}', frozenset({"deny_abort"}))


def test_a_name_that_stands_twice_counts_as_it_stands_last() -> None:
    message = inbound.parse(b'{"type":"abort","nonce":"n","type":"ping"}')
    assert isinstance(message, messages.Ping)
    sent = inbound.parse(b'{"type":"send","text":"a","text":"b"}')
    assert isinstance(sent, messages.Send)
    assert sent.text == "b"


@given(st.binary(max_size=200))
@example(b"9" * 5_000)
@example(b"1e999")
def test_any_bytes_are_a_message_or_a_refusal(frame: bytes) -> None:
    parse_frame(frame)


@given(ANY_JSON)
def test_any_json_is_a_message_or_a_refusal(value: Any) -> None:
    parse_frame(json.dumps(value).encode())


@settings(max_examples=120, deadline=None)
@given(st.sampled_from(COMMANDS), st.sampled_from(FIELDS) | st.text(max_size=5), ANY_JSON)
def test_whatever_is_accepted_would_be_by_the_documents_models(command: dict[str, Any], field: str, value: Any) -> None:
    frame = json.dumps({**command, field: value}).encode()
    message = parse_frame(frame)
    if not isinstance(message, inbound.MiniCodexRequestError):
        try:
            closed.check_command(frame)
        except pydantic.ValidationError as problem:
            pytest.fail(f"{frame!r}: {problem}")
