"""Questions to people, with the fields of their method and no others."""

import json
from typing import Any

import msgspec
import pytest
from tests.protocols.pi.reels import APPROVAL, START_MS

from switchtower.core import events
from switchtower.protocols.pi import responses


def encode_request(question: events.Approval | events.Dialog, now_ms: int = START_MS) -> dict[str, Any]:
    request: dict[str, Any] = json.loads(msgspec.json.encode(responses.make_ui_request(question, now_ms)))
    assert request.pop("type") == "extension_ui_request"
    return request


def make_dialog(method: str, **fields: Any) -> events.Dialog:
    return events.Dialog(id="dlg_1", method=method, title="Title", expires_at_ms=START_MS + 1_000, **fields)


@pytest.mark.parametrize(
    ("asked", "fields"),
    [
        (make_dialog("select", options=("a", "b")), {"options": ["a", "b"]}),
        (make_dialog("confirm", message="Sure?"), {"message": "Sure?"}),
        (make_dialog("confirm"), {"message": ""}),
        (make_dialog("input", placeholder="a name"), {"placeholder": "a name"}),
        (make_dialog("input"), {}),
        (make_dialog("editor", prefill="text"), {"prefill": "text"}),
        (make_dialog("interview", questions=({"id": "q", "question": "?"},)), {"questions": [{"id": "q", "question": "?"}]}),
        (make_dialog("select", options=(), prefill="x", placeholder="y", questions=({},)), {"options": []}),
    ],
)
def test_a_dialog_has_the_fields_of_its_method(asked: events.Dialog, fields: dict[str, Any]) -> None:
    assert encode_request(asked) == {"requestId": "dlg_1", "method": asked.method, "title": "Title", **fields, "timeout": 1_000}


def test_an_approval_shows_what_it_takes_to_judge_it() -> None:
    details = {"path": "a.txt", "diff": "-old\n+new", "args": {}, "destructive": True, "tool": "edit_file"}
    asked = msgspec.structs.replace(APPROVAL, summary="a.txt", details=details, rule=None)
    request = encode_request(asked)
    assert request["message"] == "a.txt\ndiff:\n-old\n+new\ndestructive: yes"
    assert "always" not in request
    assert request["approval"] is True


def test_a_long_diff_is_shown_whole() -> None:
    asked = msgspec.structs.replace(APPROVAL, details={"diff": "x" * 100_000 + "; rm -rf ~"})
    assert encode_request(asked)["message"].endswith("x" * 100_000 + "; rm -rf ~")


def test_a_question_that_has_expired_has_no_time_left() -> None:
    assert encode_request(APPROVAL, now_ms=START_MS + 10**9)["timeout"] == 0
