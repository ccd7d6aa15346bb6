"""Our wire types and the document's models have the same fields; and the TypeScript types are made from them."""

from pathlib import Path
from typing import get_args

import msgspec
import pytest
from tests.protocols.minicodex import closed

from switchtower.protocols.minicodex import messages, schemas

COMMITTED = Path(__file__).parents[3] / "documents" / "typescript" / "minicodex.ts"
WIRE = [
    *(member for union in (messages.ClientMessage, messages.ServerEvent, messages.TranscriptItem) for member in get_args(union)),
    messages.SessionState,
    messages.RunState,
    messages.ApprovalBrief,
]
OURS = {messages.Deny: {"abort"}}
"""Extensions, each behind a capability."""


@pytest.mark.parametrize("struct", WIRE, ids=lambda struct: struct.__name__)
def test_a_wire_type_has_the_documents_fields(struct: type[msgspec.Struct]) -> None:
    model = getattr(closed, struct.__name__)
    fields = {field.name: field.required for field in msgspec.structs.fields(struct) if field.name not in OURS.get(struct, ())}
    expected = {name: field.is_required() for name, field in model.model_fields.items() if name != "type"}
    assert fields == expected
    tag = struct.__struct_config__.tag
    if "type" in model.model_fields:
        assert get_args(model.model_fields["type"].annotation) == (tag,)
    else:
        assert tag is None


def test_what_the_document_lists_as_null_is_sent_and_what_is_optional_is_left_out() -> None:
    assert msgspec.json.encode(messages.Accepted()) == b'{"type":"accepted"}'
    state = messages.SessionState(
        session_id="s", version="1.0.0", capabilities=[], last_event_id=None, active_run_id=None, run_counter=0
    )
    assert msgspec.json.encode(messages.Welcome(v="1.0.0", session_state=state)) == (
        b'{"type":"welcome","v":"1.0.0","session_state":{"session_id":"s","version":"1.0.0","capabilities":[],'
        b'"last_event_id":null,"active_run_id":null,"run_counter":0}}'
    )


def test_the_committed_typescript_is_what_the_wire_types_make() -> None:
    assert COMMITTED.read_text() == schemas.generate_source(), "hint: make schemas"


@pytest.mark.parametrize(
    "line",
    [
        '  | { type: "function_call_output"; call_id: string; result: Record<string, unknown> }',
        '  | { type: "hello"; v: string; client_capabilities?: string[] }',
        '  | { type: "resume"; last_seen_event_id?: number | null }',
        '  | { type: "run_status"; run_state: RunState; event_id: number }',
        "  pending_approvals: ApprovalBrief[];",
        "  status: RunStatus;",
        "export type ServerMessage = ServerEvent | TranscriptEvent;",
    ],
)
def test_the_typescript_says_what_the_document_does(line: str) -> None:
    assert line in schemas.generate_source().splitlines()


def test_every_message_has_its_typescript() -> None:
    made = schemas.generate_source()
    for union in (messages.ClientMessage, messages.ServerEvent, messages.TranscriptItem):
        for member in get_args(union):
            assert f'{{ type: "{member.__struct_config__.tag}"' in made
