"""Decoding, fuzzed: any bytes become a request or a refusal in push's words, and nothing else; and the schemas agree."""

import copy
import json
import math
import random
from typing import Any

import msgspec
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from tests.conformance import samples, schema_check

from switchtower.protocols.push import encoder, inbound, messages

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(-(2**80), 2**80)
    | st.floats()
    | st.text()
    | st.sampled_from(
        ["", "sess_1", "req_1", "run_1", "msg_1", "appr_1", "att_1", "approve", "local", "push.runtime.v1", "sess_a\n"]
    )
)
ANY_JSON = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3), max_leaves=10
)
REQUESTS = [samples.request_frame(type_, payload) for type_, payload in samples.REQUESTS.items()]


def parse_frame(frame: bytes) -> inbound.PushRequest | inbound.PushRequestError:
    """One of the two; any other exception is the failure that this looks for."""
    try:
        return inbound.parse(frame)
    except inbound.PushRequestError as refused:
        # Whatever was refused can be answered, and the answer is valid.
        answer = encoder.encode_error_response(refused.request_id, refused.type, None, refused.error)
        checked = msgspec.json.decode(answer, type=messages.ResponseEnvelope)
        assert checked.error is not None
        assert len(checked.error.message) < 2_000
        return refused


@given(st.binary())
@example(b"[" * 100_000)
@example(b'{"v":' * 50_000)
@example(b"9" * 5_000)
@example(b'"\\ud800"')
def test_any_bytes_are_a_request_or_a_refusal(frame: bytes) -> None:
    parse_frame(frame)


@given(ANY_JSON)
def test_any_json_is_a_request_or_a_refusal(value: Any) -> None:
    parse_frame(json.dumps(value).encode())  # not always JSON: NaN and lone surrogates come through


@given(st.sampled_from(REQUESTS), st.randoms(use_true_random=False), st.integers(1, 6))
def test_requests_with_damaged_bytes_are_requests_or_refusals(request: dict[str, Any], chance: random.Random, times: int) -> None:
    frame = bytearray(json.dumps(request, ensure_ascii=False).encode())
    for _ in range(times):
        place = chance.randrange(len(frame))
        match chance.randrange(3):
            case 0:
                frame[place] = chance.randrange(256)
            case 1:
                del frame[place : place + chance.randrange(1, 8)]
            case _:
                frame[place:place] = frame[max(0, place - chance.randrange(30)) : place]
        if not frame:
            break
    parse_frame(bytes(frame))


@given(st.sampled_from(REQUESTS), st.data())
def test_the_beginning_of_a_request_is_never_one(request: dict[str, Any], data: st.DataObject) -> None:
    frame = json.dumps(request).encode()
    cut = data.draw(st.integers(0, len(frame) - 1))
    assert isinstance(parse_frame(frame[:cut]), inbound.PushRequestError)


def list_places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place inside, the whole itself left out."""
    inside: list[tuple[Any, ...]] = []
    children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, held in children:
        inside += [(*path, key), *list_places(held, (*path, key))]
    return inside


def is_beyond_schema(value: Any) -> bool:
    """What the two judge differently, and why that is fine.

    A whole number written as a fraction, which JSON Schema calls an integer; an id with a final line feed, which Python's
    validator lets through; what is no JSON at all; numbers and strings that JSON can spell and nothing can hold.
    """
    if isinstance(value, float):
        return value.is_integer() or not math.isfinite(value)
    if isinstance(value, str):
        return value.endswith("\n") or any("\ud800" <= character <= "\udfff" for character in value)
    if isinstance(value, dict):
        return any(is_beyond_schema(part) for item in value.items() for part in item)
    return isinstance(value, list) and any(map(is_beyond_schema, value))


@pytest.mark.requirement("push:schemas:daemon-agrees")
@settings(max_examples=100)
@given(st.sampled_from(REQUESTS), st.data())
def test_the_schema_and_the_decoder_agree_about_changed_requests(request: dict[str, Any], data: st.DataObject) -> None:
    frame = copy.deepcopy(request)
    path = data.draw(st.sampled_from(list_places(frame)))
    holder: Any = frame
    for key in path[:-1]:
        holder = holder[key]
    replacement = data.draw(st.just("leave out") | ANY_JSON)
    if replacement == "leave out" and isinstance(holder, dict):
        del holder[path[-1]]
    else:
        holder[path[-1]] = replacement
    assume(not is_beyond_schema(frame))
    in_envelope, payload = frame.get("sessionId"), frame.get("payload")
    assume(not (in_envelope and isinstance(payload, dict) and payload.get("sessionId") not in (None, in_envelope)))
    taken = isinstance(parse_frame(json.dumps(frame).encode()), inbound.PushRequest)
    assert taken is bool(schema_check.REQUESTS.is_valid(frame))


@pytest.mark.parametrize("request_", REQUESTS, ids=lambda frame: frame["type"])
def test_a_request_of_the_document_becomes_its_typed_payload(request_: dict[str, Any]) -> None:
    request = inbound.parse(json.dumps(request_).encode())
    assert (request.request_id, request.type) == ("req_01", request_["type"])
    assert type(request.payload) is messages.REQUESTS[request_["type"]]
    assert request.session_id == request_["payload"].get("sessionId")
    given = msgspec.to_builtins(request.payload)
    assert {key: value for key, value in given.items() if value is not None} | request_["payload"] == {
        key: value for key, value in given.items() if value is not None
    }
