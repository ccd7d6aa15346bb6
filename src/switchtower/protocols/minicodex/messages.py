"""The MiniCodex protocol's wire types, field for field as in its document. They import nothing of the core and do no I/O.

All types are closed: unknown fields are refused on input and never sent. Fields of the envelope and those that the document marks
with `?` are left out when they are None. All others have no default here, so that they are always sent: a field that the document
lists as `… | null` is null then.
"""

from datetime import datetime
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

VERSION = "1.0.0"

DENY_ABORT = "deny_abort"
"""With this capability, `deny` may have an `abort`."""

# `(?!\n)` because Python's `$` also matches before a final line feed.
SemVer = Annotated[
    str,
    Meta(
        pattern=r"^(0|[1-9][0-9]{0,8})\.(0|[1-9][0-9]{0,8})\.(0|[1-9][0-9]{0,8})"
        r"(-[0-9A-Za-z-]+(\.[0-9A-Za-z-]+)*)?(\+[0-9A-Za-z-]+(\.[0-9A-Za-z-]+)*)?(?!\n)$",
        max_length=64,
    ),
]
RunId = Annotated[str, Meta(pattern=r"^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}(?!\n)$")]
"""A UUID."""
EventId = Annotated[int, Meta(ge=0, le=2**53 - 1)]
"""The upper bound is the largest integer that a JSON number holds exactly."""
Timestamp = Annotated[datetime, Meta(tz=True)]
"""RFC 3339."""
Label = Annotated[str, Meta(max_length=256)]
CallId = Annotated[str, Meta(min_length=1, max_length=1_024)]
"""Models make these up; some are long."""

RunStatus = Literal["idle", "starting", "running", "awaiting_approval", "aborting", "finished", "error"]
Decision = Literal["approve", "deny_continue", "deny_abort"]
FlowState = Literal["drain", "ok"]
JsonObject = dict[str, Any]


class Envelope(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True, tag_field="type"):
    """What any message may carry beside its own fields."""

    v: SemVer | None = None
    session_id: Label | None = None
    run_id: RunId | None = None
    event_id: EventId | None = None
    ts: Timestamp | None = None
    req_id: Label | None = None


# State


class SessionState(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    session_id: str
    version: str
    capabilities: list[str]
    last_event_id: EventId | None
    active_run_id: RunId | None
    run_counter: int


class ApprovalBrief(Struct, frozen=True, forbid_unknown_fields=True):
    call_id: str
    tool_key: str
    args: JsonObject


class RunState(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    run_id: RunId
    status: RunStatus
    started_at: Timestamp
    finished_at: Timestamp | None
    pending_approvals: list[ApprovalBrief]
    last_event_id: EventId | None


# Transcript items


class Item(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, tag_field="type"):
    """A piece of the transcript, as a snapshot has it."""


class UserText(Item, frozen=True, tag="user_text"):
    text: str


class AssistantText(Item, frozen=True, tag="assistant_text"):
    text: str


class ToolCall(Item, frozen=True, tag="tool_call"):
    name: str
    args: JsonObject
    call_id: str


class FunctionCallOutput(Item, frozen=True, tag="function_call_output"):
    call_id: str
    result: JsonObject
    """A serialized MCP CallToolResult."""


class ReasoningChunk(Item, frozen=True, tag="reasoning"):
    text: str


TranscriptItem = UserText | AssistantText | ToolCall | FunctionCallOutput | ReasoningChunk


# Client → server


class Hello(Envelope, frozen=True, kw_only=True, tag="hello"):
    v: SemVer
    client_capabilities: Annotated[list[Label], Meta(max_length=100)] = []


class Resume(Envelope, frozen=True, kw_only=True, tag="resume"):
    last_seen_event_id: EventId | None = None


class Send(Envelope, frozen=True, kw_only=True, tag="send"):
    text: Annotated[str, Meta(min_length=1)]
    client_msg_id: Annotated[str, Meta(min_length=1, max_length=256)] | None = None


class Approve(Envelope, frozen=True, kw_only=True, tag="approve"):
    call_id: CallId


class Deny(Envelope, frozen=True, kw_only=True, tag="deny"):
    call_id: CallId
    abort: bool = False
    """Ours: a denial that ends the run. Only for a client that has negotiated `deny_abort`."""


class Abort(Envelope, frozen=True, kw_only=True, tag="abort"):
    """Its `run_id` is the envelope's."""


class GetSnapshot(Envelope, frozen=True, kw_only=True, tag="get_snapshot"):
    include_transcript_window: bool = False


class Ping(Envelope, frozen=True, kw_only=True, tag="ping"):
    nonce: Label | None = None


ClientMessage = Hello | Resume | Send | Approve | Deny | Abort | GetSnapshot | Ping


# Server → client


class Welcome(Envelope, frozen=True, kw_only=True, tag="welcome"):
    v: SemVer
    session_state: SessionState


class Snapshot(Envelope, frozen=True, kw_only=True, tag="snapshot"):
    v: SemVer
    session_state: SessionState
    run_state: RunState | None
    transcript: list[TranscriptItem]
    event_id: EventId


class Accepted(Envelope, frozen=True, kw_only=True, tag="accepted"):
    pass


class RunStatusEvt(Envelope, frozen=True, kw_only=True, tag="run_status"):
    run_state: RunState


class ApprovalPendingEvt(Envelope, frozen=True, kw_only=True, tag="approval_pending"):
    call_id: str
    tool_key: str
    args_json: str | None = None


class ApprovalDecisionEvt(Envelope, frozen=True, kw_only=True, tag="approval_decision"):
    call_id: str
    decision: Decision


class TurnDone(Envelope, frozen=True, kw_only=True, tag="turn_done"):
    pass


class ErrorEvt(Envelope, frozen=True, kw_only=True, tag="error"):
    code: str
    message: str
    details: JsonObject | None = None


class HeartbeatEvt(Envelope, frozen=True, kw_only=True, tag="heartbeat"):
    interval_ms: int


class BackpressureEvt(Envelope, frozen=True, kw_only=True, tag="backpressure"):
    state: FlowState


ServerEvent = (
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
)
"""All messages of a server, with `TranscriptItem`. As messages, items carry `event_id`, `ts` and mostly `run_id` too."""

PLACED = (RunStatusEvt, ApprovalPendingEvt, ApprovalDecisionEvt, TurnDone)
"""These always have an `event_id` when they are sent. A snapshot has one by its type, an error only as part of the stream."""
