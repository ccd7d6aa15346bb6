"""Strict models of every MiniCodex message, written from the document's fields: whatever they do not name is refused.

Transcript items as messages also carry `event_id`, `run_id` and `ts`, as the document's TypeScript and our reading have it.
"""

from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter


class StrictMiniCodexModel(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class Envelope(StrictMiniCodexModel):
    v: str | None = None
    session_id: str | None = None
    run_id: str | None = None
    event_id: int | None = None
    ts: datetime | None = None
    req_id: str | None = None


class SessionState(StrictMiniCodexModel):
    session_id: str
    version: str
    capabilities: list[str]
    last_event_id: int | None
    active_run_id: UUID | None
    run_counter: int


class ApprovalBrief(StrictMiniCodexModel):
    call_id: str
    tool_key: str
    args: dict[str, Any]


class RunState(StrictMiniCodexModel):
    run_id: UUID
    status: Literal["idle", "starting", "running", "awaiting_approval", "aborting", "finished", "error"]
    started_at: datetime
    finished_at: datetime | None
    pending_approvals: list[ApprovalBrief]
    last_event_id: int | None


class UserText(StrictMiniCodexModel):
    type: Literal["user_text"]
    text: str


class AssistantText(StrictMiniCodexModel):
    type: Literal["assistant_text"]
    text: str


class ToolCall(StrictMiniCodexModel):
    type: Literal["tool_call"]
    name: str
    args: dict[str, Any]
    call_id: str


class FunctionCallOutput(StrictMiniCodexModel):
    type: Literal["function_call_output"]
    call_id: str
    result: dict[str, Any]


class ReasoningChunk(StrictMiniCodexModel):
    type: Literal["reasoning"]
    text: str


TranscriptItem = Annotated[UserText | AssistantText | ToolCall | FunctionCallOutput | ReasoningChunk, Field(discriminator="type")]


class StrictStreamedItem(StrictMiniCodexModel):
    event_id: int
    ts: datetime
    run_id: UUID | None = None


class ToldUserText(UserText, StrictStreamedItem):
    pass


class ToldAssistantText(AssistantText, StrictStreamedItem):
    pass


class ToldToolCall(ToolCall, StrictStreamedItem):
    pass


class ToldFunctionCallOutput(FunctionCallOutput, StrictStreamedItem):
    pass


class ToldReasoningChunk(ReasoningChunk, StrictStreamedItem):
    pass


class Welcome(Envelope):
    type: Literal["welcome"]
    v: str
    session_state: SessionState


class Snapshot(Envelope):
    type: Literal["snapshot"]
    v: str
    session_state: SessionState
    run_state: RunState | None
    transcript: list[TranscriptItem]
    event_id: int


class Accepted(Envelope):
    type: Literal["accepted"]


class RunStatusEvt(Envelope):
    type: Literal["run_status"]
    run_state: RunState


class ApprovalPendingEvt(Envelope):
    type: Literal["approval_pending"]
    call_id: str
    tool_key: str
    args_json: str | None = None


class ApprovalDecisionEvt(Envelope):
    type: Literal["approval_decision"]
    call_id: str
    decision: Literal["approve", "deny_continue", "deny_abort"]


class TurnDone(Envelope):
    type: Literal["turn_done"]


class ErrorEvt(Envelope):
    type: Literal["error"]
    code: str
    message: str
    details: dict[str, Any] | None = None


class HeartbeatEvt(Envelope):
    type: Literal["heartbeat"]
    interval_ms: int


class BackpressureEvt(Envelope):
    type: Literal["backpressure"]
    state: Literal["drain", "ok"]


ServerMessage = Annotated[
    Welcome
    | Snapshot
    | Accepted
    | RunStatusEvt
    | ApprovalPendingEvt
    | ApprovalDecisionEvt
    | TurnDone
    | ErrorEvt
    | HeartbeatEvt
    | BackpressureEvt
    | ToldUserText
    | ToldAssistantText
    | ToldToolCall
    | ToldFunctionCallOutput
    | ToldReasoningChunk,
    Field(discriminator="type"),
]


class Hello(Envelope):
    type: Literal["hello"]
    v: str
    client_capabilities: list[str] = []


class Resume(Envelope):
    type: Literal["resume"]
    last_seen_event_id: int | None = None


class Send(Envelope):
    type: Literal["send"]
    text: str
    client_msg_id: str | None = None


class Approve(Envelope):
    type: Literal["approve"]
    call_id: str


class Deny(Envelope):
    type: Literal["deny"]
    call_id: str


class Abort(Envelope):
    type: Literal["abort"]


class GetSnapshot(Envelope):
    type: Literal["get_snapshot"]
    include_transcript_window: bool = False


class Ping(Envelope):
    type: Literal["ping"]
    nonce: str | None = None


ClientMessage = Annotated[Hello | Resume | Send | Approve | Deny | Abort | GetSnapshot | Ping, Field(discriminator="type")]

_server: TypeAdapter[Any] = TypeAdapter(ServerMessage)
_client: TypeAdapter[Any] = TypeAdapter(ClientMessage)


def check(frame: bytes) -> dict[str, Any]:
    """What is in a frame that a server sends; raises when a strict client would refuse it."""
    checked: dict[str, Any] = _server.validate_json(frame).model_dump(mode="json", exclude_unset=True)
    return checked


def check_command(frame: bytes) -> None:
    """Raises when the document's models would refuse what a client sends."""
    _client.validate_json(frame)
