"""`answer_dialog`: what an answer may look like, and the command that it becomes."""

from typing import Any

import msgspec
import pytest

from switchtower.core import commands, errors, events
from switchtower.protocols.push import extension_messages, inbound
from switchtower.protocols.push.connection import CAPABILITIES

OWNER = events.Actor(name="owner", via="cli")


def make_frame(payload: dict[str, Any]) -> bytes:
    envelope = {"v": "push.runtime.v1", "kind": "request", "requestId": "req_1", "type": "answer_dialog", "payload": payload}
    return msgspec.json.encode(envelope)


def make_command(**payload: Any) -> commands.AnswerDialog:
    request = inbound.parse(make_frame({"sessionId": "sess_1", "dialogId": "dlg_1", **payload}))
    assert isinstance(request.payload, extension_messages.AnswerDialog)
    assert request.session_id == "sess_1"
    return inbound.build_answer_dialog(request.payload, "sess_1", OWNER)


def test_it_is_announced_as_a_capability() -> None:
    assert "dialogs" in CAPABILITIES


@pytest.mark.parametrize(
    ("payload", "response"),
    [
        ({"value": "red"}, {"value": "red"}),
        ({"value": ""}, {"value": ""}),
        ({"confirmed": False}, {"confirmed": False}),
        ({"responses": {"goal": "x"}}, {"responses": {"goal": "x"}}),
        ({"responses": {}}, {"responses": {}}),
        ({"dismissed": True}, None),
    ],
)
def test_one_answer_becomes_a_command(payload: dict[str, Any], response: dict[str, Any] | None) -> None:
    expected = commands.AnswerDialog(session_id="sess_1", actor=OWNER, dialog_id="dlg_1", response=response)

    assert make_command(**payload) == expected


@pytest.mark.parametrize(
    "payload", [{}, {"dismissed": False}, {"value": "x", "confirmed": True}, {"value": "x", "dismissed": True}, {"value": None}]
)
def test_no_answer_and_two_answers_are_refused(payload: dict[str, Any]) -> None:
    with pytest.raises(errors.InvalidCommand, match="one of `value`, `confirmed`, `responses` and `dismissed`"):
        make_command(**payload)


@pytest.mark.parametrize(
    "payload",
    [
        {"value": 7},
        {"confirmed": "yes"},
        {"confirmed": 1},
        {"responses": ["x"]},
        {"dismissed": "no"},
        {"dialogId": "appr_1", "value": "x"},
        {"dialogId": "dlg_" + "x" * 300, "value": "x"},
        {"sessionId": "run_1", "value": "x"},
    ],
)
def test_an_answer_of_another_type_is_refused(payload: dict[str, Any]) -> None:
    with pytest.raises(inbound.PushRequestError) as refused:
        make_command(**payload)

    assert refused.value.error.code == "INVALID_REQUEST"


def test_an_answer_without_a_session_is_refused() -> None:
    with pytest.raises(inbound.PushRequestError, match="`sessionId` is required"):
        inbound.parse(make_frame({"dialogId": "dlg_1", "value": "x"}))
