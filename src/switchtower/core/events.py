"""Everything that can happen in a session, in the past tense. The journal holds these and nothing else.

Each event has a short `kind`, the name it is stored under. Kinds are forever: a field may be added with a default, never
renamed or removed. Whether an event may be pruned is part of its definition here.
"""

from enum import StrEnum
from typing import Any, ClassVar

from msgspec import Struct, field


class Actor(Struct, frozen=True, omit_defaults=True):
    """Who asked, and from where. `via` is how the request arrived (`cli`, `app`, `web` …): seen by us, not claimed by them."""

    name: str
    via: str
    client: str | None = None


SYSTEM = Actor(name="switchtower", via="daemon")


class Workspace(Struct, frozen=True, omit_defaults=True):
    """The folder that a session works in."""

    root: str
    branch: str | None = None
    default_branch: str | None = None
    remote_url: str | None = None


class Criterion(Struct, frozen=True, omit_defaults=True):
    """A command that must end with this exit code for a run to count as accepted."""

    id: str
    check: str
    exit_code: int = 0
    description: str | None = None


class CriterionResult(Struct, frozen=True):
    id: str
    passed: bool
    exit_code: int
    output: str


class ToolError(Struct, frozen=True, omit_defaults=True):
    """Why a tool failed, in a form that a program can act on. Types are push's taxonomy."""

    type: str
    message: str
    retryable: bool = False
    detail: str | None = None


class Approval(Struct, frozen=True, omit_defaults=True):
    """A question that must be answered before something happens. `fingerprint` binds it to exactly what will run."""

    id: str
    call_id: str
    kind: str
    title: str
    summary: str
    details: dict[str, Any]
    expires_at_ms: int
    fingerprint: str
    options: tuple[str, ...] = ("approve", "deny")


class Verdict(StrEnum):
    APPROVE = "approve"
    DENY_CONTINUE = "deny_continue"
    DENY_STOP = "deny_stop"


class Outcome(StrEnum):
    SUCCESS = "success"
    FAILED = "failed"
    CANCELLED = "cancelled"
    DENIED = "denied"


class SessionState(StrEnum):
    IDLE = "idle"
    RUNNING = "running"
    AWAITING_APPROVAL = "awaiting_approval"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


class Event(Struct, frozen=True, omit_defaults=True):
    """The base of all events."""

    kind: ClassVar[str]
    prunable: ClassVar[bool] = False
    """Retention may remove it: only what a later event holds again, such as the pieces of a finished message."""


class SessionStarted(Event, frozen=True):
    kind: ClassVar[str] = "session.started"
    engine: str
    mode: str
    provider: str
    sandbox: str
    workspace: Workspace
    by: Actor
    attach_token_sha256: str
    model: str | None = None
    metadata: dict[str, Any] = field(default_factory=dict)


class SessionResumed(Event, frozen=True):
    """Somebody came back and asked where things stand; this is what they were told."""

    kind: ClassVar[str] = "session.resumed"
    by: Actor
    state: SessionState
    provider: str
    sandbox: str
    active_run_id: str | None = None
    last_assistant_text: str = ""
    pending_approval: Approval | None = None


class RunStarted(Event, frozen=True):
    kind: ClassVar[str] = "run.started"
    text: str
    by: Actor
    message_id: str | None = None
    headless: bool = False
    acceptance: tuple[Criterion, ...] = ()


class PhaseChanged(Event, frozen=True):
    """What a run is busy with, for people to read."""

    kind: ClassVar[str] = "run.phase"
    prunable: ClassVar[bool] = True
    phase: str
    detail: str | None = None


class ThinkingDelta(Event, frozen=True):
    kind: ClassVar[str] = "thinking.delta"
    prunable: ClassVar[bool] = True
    text: str


class TextDelta(Event, frozen=True):
    kind: ClassVar[str] = "text.delta"
    prunable: ClassVar[bool] = True
    text: str


class ToolRequest(Struct, frozen=True):
    """A tool call as the model asked for it."""

    call_id: str
    tool: str
    args: dict[str, Any]


class MessageCompleted(Event, frozen=True):
    """One whole assistant message: the deltas before it, again in one piece, with the calls it asks for."""

    kind: ClassVar[str] = "message.completed"
    message_id: str
    text: str
    thinking: str = ""
    calls: tuple[ToolRequest, ...] = ()


class ToolCalled(Event, frozen=True):
    kind: ClassVar[str] = "tool.called"
    call_id: str
    tool: str
    args: dict[str, Any]


class ToolFinished(Event, frozen=True):
    kind: ClassVar[str] = "tool.finished"
    call_id: str
    tool: str
    duration_ms: int
    text: str
    is_error: bool = False
    error: ToolError | None = None


class ApprovalRequested(Event, frozen=True):
    kind: ClassVar[str] = "approval.requested"
    approval: Approval


class ApprovalDecided(Event, frozen=True):
    kind: ClassVar[str] = "approval.decided"
    approval_id: str
    verdict: Verdict
    by: Actor
    comment: str | None = None


class ApprovalExpired(Event, frozen=True):
    """Nobody decided in time. Not a denial: nobody said no."""

    kind: ClassVar[str] = "approval.expired"
    approval_id: str


class ApprovalWithdrawn(Event, frozen=True):
    """The run that asked has ended, so there is nothing left to decide."""

    kind: ClassVar[str] = "approval.withdrawn"
    approval_id: str
    reason: str


class WarningRaised(Event, frozen=True):
    kind: ClassVar[str] = "warning"
    code: str
    message: str
    detail: str | None = None


class ErrorRaised(Event, frozen=True):
    kind: ClassVar[str] = "error"
    code: str
    message: str
    retryable: bool = False
    detail: str | None = None


class RunCancelRequested(Event, frozen=True):
    kind: ClassVar[str] = "run.cancel_requested"
    by: Actor
    reason: str | None = None


class RunCompleted(Event, frozen=True):
    kind: ClassVar[str] = "run.completed"
    outcome: Outcome
    summary: str
    exit_code_hint: int
    acceptance: tuple[CriterionResult, ...] = ()


AnyEvent = (
    SessionStarted
    | SessionResumed
    | RunStarted
    | PhaseChanged
    | ThinkingDelta
    | TextDelta
    | MessageCompleted
    | ToolCalled
    | ToolFinished
    | ApprovalRequested
    | ApprovalDecided
    | ApprovalExpired
    | ApprovalWithdrawn
    | WarningRaised
    | ErrorRaised
    | RunCancelRequested
    | RunCompleted
)

BY_KIND: dict[str, type[AnyEvent]] = {event_type.kind: event_type for event_type in AnyEvent.__args__}
