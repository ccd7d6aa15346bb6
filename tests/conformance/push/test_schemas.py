"""The JSON Schemas: as generated, as committed, and against one message of each kind."""

from pathlib import Path
from typing import Any

import jsonschema
import pytest
from tests.conformance import samples, schema_check

from switchtower.protocols.push import messages, schemas

FIVE = {
    "push-runtime-envelope.schema.json",
    "push-runtime-request-envelope.schema.json",
    "push-runtime-response-envelope.schema.json",
    "push-runtime-event-envelope.schema.json",
    "push-runtime-defs.schema.json",
}


ERROR = {"code": "INTERNAL_ERROR", "message": "", "retryable": False}


def name_frame(frame: dict[str, Any]) -> str:
    return f"{frame['kind']} {frame['type']}"


def is_valid(frame: dict[str, Any]) -> bool:
    return bool(schema_check.ANY_MESSAGE.is_valid(frame))


@pytest.mark.requirement("push:schemas:committed", "push:version:changes-are-seen")
def test_the_committed_schemas_are_the_generated_ones() -> None:
    generated = {name: schemas.encode_schema(schema) for name, schema in schemas.build_documents().items()}
    committed = {path.name: path.read_bytes() for path in schema_check.FOLDER.iterdir()}
    assert generated.keys() == committed.keys() == FIVE
    for name, content in generated.items():
        assert content == committed[name], f"{name} is out of date; hint: `make schemas`"


@pytest.mark.requirement("push:schemas:committed")
def test_the_command_writes_the_same(tmp_path: Path) -> None:
    schemas.write_documents(tmp_path / "new")
    assert {path.name: path.read_bytes() for path in (tmp_path / "new").iterdir()} == {
        path.name: path.read_bytes() for path in schema_check.FOLDER.iterdir()
    }


@pytest.mark.requirement("push:schemas:committed")
def test_every_schema_is_a_valid_schema_without_look_aheads() -> None:
    for name, document in schema_check.DOCUMENTS.items():
        jsonschema.Draft202012Validator.check_schema(document)
        assert "(?" not in str(document), f"{name}: not every validator can look ahead"


@pytest.mark.requirement("push:schemas:examples", "push:envelope:kinds")
@pytest.mark.parametrize("frame", samples.SAMPLES, ids=name_frame)
def test_a_message_as_the_document_shows_it_is_valid(frame: dict[str, Any]) -> None:
    schema_check.ANY_MESSAGE.validate(frame)


@pytest.mark.requirement("push:schemas:examples")
def test_there_is_a_sample_of_every_message() -> None:
    assert set(samples.REQUESTS) == set(messages.REQUESTS)
    assert set(samples.ANSWERS) == set(messages.ANSWERS)
    assert set(samples.EVENTS) == set(messages.EVENTS)


@pytest.mark.requirement("push:envelope:closed-when-sent", "push:schemas:required-fields")
@pytest.mark.parametrize(
    "frame",
    [frame for frame in samples.SAMPLES if frame["kind"] != "request"],
    ids=lambda frame: f"{frame['kind']} {frame['type']}",
)
def test_what_we_send_is_closed_and_its_required_fields_are_required(frame: dict[str, Any]) -> None:
    assert not is_valid({**frame, "extra": 1})
    assert not is_valid({**frame, "payload": {**frame["payload"], "extra": 1}})
    optional = {"status": {"detail"}, "warning": {"detail"}, "error": {"detail"}}.get(frame["type"], set())
    for field in frame["payload"].keys() - optional:
        lacking = {name: value for name, value in frame["payload"].items() if name != field}
        assert not is_valid({**frame, "payload": lacking}), f"`{field}` can be left out"


@pytest.mark.requirement("push:envelope:event-fields", "push:envelope:response-payload-or-error", "push:error:shape")
@pytest.mark.parametrize(
    "frame",
    [
        samples.make_event_frame("status", samples.EVENTS["status"], seq=0),
        samples.make_event_frame("status", samples.EVENTS["status"], seq=1.5),
        samples.make_event_frame("status", samples.EVENTS["status"], ts="now"),
        samples.make_event_frame("status", samples.EVENTS["status"], sessionId=None),
        samples.make_event_frame("status", samples.EVENTS["status"], runId=None),
        samples.make_event_frame("status", samples.EVENTS["status"], sessionId="run_1"),
        samples.make_event_frame("status", samples.EVENTS["status"], v="push.runtime.v2"),
        samples.make_event_frame("run_complete", {**samples.EVENTS["run_complete"], "outcome": "done"}),
        samples.make_event_frame("run_complete", {**samples.EVENTS["run_complete"], "headless": {"exitCodeHint": 5}}),
        samples.make_event_frame("tool_call", {**samples.EVENTS["tool_call"], "source": "elsewhere"}),
        samples.make_event_frame("approval_received", {**samples.EVENTS["approval_received"], "decision": "maybe"}),
        samples.make_response_frame("ping", samples.ANSWERS["ping"], sessionId=None),
        samples.make_response_frame("ping", None),
        samples.make_response_frame("ping", samples.ANSWERS["ping"], ok=False),
        samples.make_response_frame("ping", {}, ok=False, error={"code": "NONSENSE", "message": "", "retryable": False}),
        samples.make_response_frame("ping", {}, ok=False, error={"code": "INTERNAL_ERROR", "message": ""}),
        samples.make_response_frame("ping", None, ok=False, error=ERROR),
        samples.make_response_frame("ping", [], ok=False, error=ERROR),
        samples.make_response_frame("ping", samples.ANSWERS["ping"], ok=False, error=ERROR),
        {key: value for key, value in samples.make_response_frame("ping", {}, ok=False, error=ERROR).items() if key != "payload"},
        samples.make_response_frame("ping", samples.ANSWERS["ping"], requestId=""),
        samples.make_response_frame("ping", samples.ANSWERS["ping"], requestId="x" * 257),
        samples.make_response_frame(
            "ping", samples.ANSWERS["ping"], error={"code": "INTERNAL_ERROR", "message": "", "retryable": False}
        ),
    ],
)
def test_messages_that_we_must_not_send_are_invalid(frame: dict[str, Any]) -> None:
    assert not is_valid(frame)


@pytest.mark.requirement("push:envelope:event-fields")
@pytest.mark.parametrize("type_", sorted(messages.RUN_EVENTS))
def test_an_event_of_a_run_without_its_run_is_invalid(type_: str) -> None:
    frame = samples.make_event_frame(type_, samples.EVENTS[type_])
    del frame["runId"]
    assert not is_valid(frame)


@pytest.mark.requirement("push:envelope:event-fields")
@pytest.mark.parametrize("type_", sorted(messages.EVENTS.keys() - messages.RUN_EVENTS))
def test_an_event_of_a_session_needs_no_run(type_: str) -> None:
    frame = samples.make_event_frame(type_, samples.EVENTS[type_])
    del frame["runId"]
    assert is_valid(frame)


@pytest.mark.requirement("push:error:shape")
@pytest.mark.parametrize("code", messages.ErrorCode.__args__)  # type: ignore[attr-defined]
def test_every_error_code_of_the_document_is_in_the_schema(code: str) -> None:
    error = {"code": code, "message": "why", "retryable": False}
    assert is_valid(samples.make_response_frame("ping", {}, ok=False, error=error))
    assert is_valid(samples.make_response_frame("ping", {}, ok=False, error={**error, "detail": "more"}))
