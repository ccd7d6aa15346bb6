"""When two commands mean the same."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from switchtower.protocols.pi import inbound


def fingerprint_frame(frame: str) -> str:
    return inbound.parse_request(frame.encode()).fingerprint


BASE = '{"type":"set_model","id":"1","sessionId":"s","provider":"p","modelId":"m"}'


@pytest.mark.parametrize(
    "same",
    [
        '{"modelId":"m","provider":"p","sessionId":"s","id":"1","type":"set_model"}',
        '{"type":"set_model","id":"another","idempotencyKey":"k","sessionId":"s","provider":"p","modelId":"m"}',
        '{ "type" : "set_model", "id": "1", "sessionId": "\\u0073", "provider": "p", "modelId": "m" }',
    ],
)
def test_order_spelling_and_identity_do_not_change_the_meaning(same: str) -> None:
    assert fingerprint_frame(same) == fingerprint_frame(BASE)


@pytest.mark.parametrize(
    "other",
    [
        '{"type":"set_model","id":"1","sessionId":"t","provider":"p","modelId":"m"}',
        '{"type":"set_model","id":"1","sessionId":"s","provider":"m","modelId":"p"}',
        '{"type":"set_model","id":"1","sessionId":"s","provider":"p","modelId":"m","ifSessionVersion":0}',
        '{"type":"set_model","id":"1","sessionId":"s","provider":"p","modelId":"m","dependsOn":["0"]}',
        '{"type":"set_model","id":"1","sessionId":"s","provider":"p","modelId":"m","later":"field"}',
    ],
)
def test_any_other_difference_changes_it(other: str) -> None:
    assert fingerprint_frame(other) != fingerprint_frame(BASE)


def test_nested_keys_and_numbers_may_be_spelled_in_any_way() -> None:
    first = '{"type":"list_sessions","id":"1","x":{"b":[1,{"d":2.5,"c":"é"}],"a":100}}'
    second = '{"type":"list_sessions","id":"2","x":{"a":1e2,"b":[1.0,{"c":"\\u00e9","d":25e-1}]}}'
    assert fingerprint_frame(first) == fingerprint_frame(second)
    assert fingerprint_frame(first) != fingerprint_frame(first.replace("100", "101"))
    assert fingerprint_frame('{"type":"list_sessions","id":"1","x":[1,2]}') != fingerprint_frame(
        '{"type":"list_sessions","id":"1","x":[2,1]}'
    )


def test_numbers_beyond_what_a_double_holds_are_still_told_apart() -> None:
    frame = '{"type":"list_sessions","id":"1","x":%d}'
    assert fingerprint_frame(frame % 2**80) != fingerprint_frame(frame % (2**80 + 1))


@given(st.dictionaries(st.text(), st.integers() | st.text() | st.lists(st.booleans()), max_size=6), st.randoms())
def test_shuffled_keys_keep_the_fingerprint_whatever_the_size(fields: dict[str, Any], chance: Any) -> None:
    names = list(fields)
    chance.shuffle(names)
    for padding in ("", "x" * inbound.KEPT_FRAME):
        whole = {"type": "list_sessions", "extra": fields, "padding": padding}
        shuffled = {"padding": padding, "extra": {name: fields[name] for name in names}, "type": "list_sessions"}
        prints = {fingerprint_frame(json.dumps({**command, "id": id_})) for command, id_ in ((whole, "a"), (shuffled, "b"))}
        assert prints == {inbound.compute_digest(json.loads(json.dumps(whole)))}


def test_a_command_without_identity_has_no_fingerprint() -> None:
    assert fingerprint_frame('{"type":"list_sessions"}') == ""
