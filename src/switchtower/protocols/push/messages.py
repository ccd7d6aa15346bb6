"""The push runtime protocol's wire types, exactly as specified. They import nothing of the core and do no I/O.

Requests tolerate unknown fields (existing clients send some); the structs that we send are closed. Field names are the
document's.
"""

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

VERSION = "push.runtime.v1"

# `(?!\n)` because Python's `$`, unlike JSON Schema's, also matches before a final line feed.
RequestId = Annotated[str, Meta(pattern=r"^req_[A-Za-z0-9._:-]+(?!\n)$", max_length=256)]
EchoedRequestId = Annotated[str, Meta(min_length=1, max_length=256)]
"""A response repeats its request's id, even when the request is refused because of that id."""
SessionId = Annotated[str, Meta(pattern=r"^sess_[A-Za-z0-9._:-]+(?!\n)$", max_length=256)]
RunId = Annotated[str, Meta(pattern=r"^run_[A-Za-z0-9._:-]+(?!\n)$", max_length=256)]
ClientMessageId = Annotated[str, Meta(pattern=r"^msg_[A-Za-z0-9._:-]+(?!\n)$", max_length=256)]
ApprovalId = Annotated[str, Meta(pattern=r"^appr_[A-Za-z0-9._:-]+(?!\n)$", max_length=256)]
DialogId = Annotated[str, Meta(pattern=r"^dlg_[A-Za-z0-9._:-]+(?!\n)$", max_length=256)]
"""Our addition."""
AttachToken = Annotated[str, Meta(pattern=r"^att_[A-Za-z0-9._:-]+(?!\n)$", max_length=256)]
TerminalSize = Annotated[int, Meta(ge=1, le=1000)]
Engine = Literal["agent", "pty", "flow"]
Seq = Annotated[int, Meta(ge=1)]
Cursor = Annotated[int, Meta(ge=0, le=2**53 - 1)]
"""The upper bound is the largest integer that a JSON number holds exactly; stores can count further."""
ExitCode = Annotated[int, Meta(ge=-(2**31), le=2**31 - 1)]
NonEmpty = Annotated[str, Meta(min_length=1)]
RulePart = Annotated[str, Meta(min_length=1, max_length=4096)]
FlowRuntimeName = Annotated[str, Meta(min_length=1, max_length=256)]
FlowArgv = Annotated[list[str], Meta(max_length=1_000)]
ProgramCommand = (
    Annotated[str, Meta(min_length=1, max_length=65_536)] | Annotated[list[str], Meta(min_length=1, max_length=1_000)]
)

SessionState = Literal["idle", "running", "awaiting_approval", "completed", "failed", "cancelled"]
RunOutcome = Literal["success", "failed", "cancelled", "denied"]
ApprovalDecision = Literal["approve", "deny"]
Mode = Literal["interactive", "headless"]
WishedMode = Literal["interactive", "headless", "tui"]
"""Deployed clients call the session of a terminal UI `tui`; the daemon treats it as `interactive`."""
SandboxProvider = Literal["local", "modal"]
SandboxWish = Literal["local", "modal", "bubblewrap", "auto"]
"""The sandboxes that a client may ask for; `bubblewrap` is our addition and is reported as `local`, which existing clients
know."""
PolicyProfile = Literal["read-only", "ask", "auto", "yolo"]
PresetName = Annotated[str, Meta(min_length=1, max_length=256)]
ThinkingLevel = Literal["off", "minimal", "low", "medium", "high", "xhigh"]
ApprovalScope = Literal["once", "session"]
ToolSource = Literal["github", "sandbox", "delegate", "scratchpad", "web-search", "unknown"]
ToolErrorType = Literal[
    "FILE_NOT_FOUND",
    "EXEC_TIMEOUT",
    "EXEC_NON_ZERO_EXIT",
    "SANDBOX_UNREACHABLE",
    "EDIT_HASH_MISMATCH",
    "EDIT_CONTENT_NOT_FOUND",
    "AUTH_FAILURE",
    "RATE_LIMITED",
    "STALE_FILE",
    "EDIT_GUARD_BLOCKED",
    "WRITE_FAILED",
    "UNKNOWN",
]
ErrorCode = Literal[
    "UNSUPPORTED_PROTOCOL_VERSION",
    "UNSUPPORTED_REQUEST_TYPE",
    "INVALID_REQUEST",
    "SESSION_NOT_FOUND",
    "ATTACH_FORBIDDEN",
    "RUN_IN_PROGRESS",
    "NO_ACTIVE_RUN",
    "APPROVAL_NOT_FOUND",
    "APPROVAL_EXPIRED",
    "PROVIDER_NOT_CONFIGURED",
    "SANDBOX_UNAVAILABLE",
    "INTERNAL_ERROR",
]


# Envelopes


class ProtocolError(Struct, frozen=True, forbid_unknown_fields=True):
    code: ErrorCode
    message: str
    retryable: bool
    detail: str | UnsetType = UNSET


class ResponseEnvelope(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Any response: a payload when `ok`, an error and an empty payload when not."""

    v: str = VERSION
    kind: Literal["response"] = "response"
    requestId: EchoedRequestId
    type: str
    sessionId: SessionId | UnsetType = UNSET
    ok: bool
    payload: dict[str, Any]
    """An object in every response; the encoder takes a struct for one."""
    error: ProtocolError | None


class EventEnvelope(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Any event. `seq` is dense per session; clients dedupe by (sessionId, seq)."""

    v: str = VERSION
    kind: Literal["event"] = "event"
    sessionId: SessionId
    runId: RunId | UnsetType = UNSET
    seq: Seq
    ts: int
    type: str
    payload: dict[str, Any]


# Requests


class Hello(Struct, frozen=True):
    """Deployed clients leave all of it out."""

    clientName: str = ""
    clientVersion: str = ""
    capabilities: list[str] = []


class Repo(Struct, frozen=True):
    """A folder outside of git has no branches; deployed clients never send them."""

    rootPath: NonEmpty
    currentBranch: str | None = None
    defaultBranch: str | None = None
    remoteUrl: str | None = None


class Limits(Struct, frozen=True):
    """Of each run of a session. Ours."""

    maxTurns: Annotated[int, Meta(ge=1, le=2**31)] | None = None
    maxTokens: Annotated[int, Meta(ge=1, le=2**53)] | None = None
    maxCost: Annotated[float, Meta(gt=0, le=1e9)] | None = None
    maxMinutes: Annotated[float, Meta(gt=0, le=1e9)] | None = None


class FlowWish(Struct, frozen=True):
    """A flow, and the runtime for it. Without `argv` that is the daemon's own."""

    document: dict[str, Any]
    inputs: dict[str, Any] = {}
    runtime: FlowRuntimeName = "python"
    argv: FlowArgv = []
    allowShell: bool = False
    timeoutSeconds: Annotated[float, Meta(gt=0, le=1e9)] | None = None
    logJson: bool = False


class StartSession(Struct, frozen=True):
    """All behind `metadata` is ours. `worktree` asks for a worktree of the repository, for this session alone."""

    mode: WishedMode
    provider: NonEmpty
    repo: Repo
    sandboxProvider: SandboxWish | None = None
    """`auto`, which is ours, leaves it to the daemon, and so does a client that does not send it."""
    metadata: dict[str, Any] = {}
    model: str | None = None
    policy: PolicyProfile | None = None
    thinking: ThinkingLevel | None = None
    limits: Limits | None = None
    worktree: bool = False
    preset: PresetName | None = None
    engine: Engine = "agent"
    command: ProgramCommand | None = None
    """With `engine: pty`: what runs in the terminal, as a list of arguments or as one line for a shell."""
    tool: NonEmpty | None = None
    """With `engine: pty`: whose prompts to look for; otherwise the program's name says it."""
    cols: TerminalSize | None = None
    rows: TerminalSize | None = None
    flow: FlowWish | None = None
    """With `engine: flow`: what is run."""
    trust: bool = False
    """The owner trusts the folder: its instructions count. Refused but on the owner's own socket."""
    allowDemo: bool = False
    """With `provider: auto`: the demo model may answer when no model is named and none is configured. A client sets it for a
    person at a terminal. Without it, and in a headless session, such a request is refused."""


class ListSessions(Struct, frozen=True):
    limit: Annotated[int, Meta(ge=1, le=200)] = 20


class AttachSession(Struct, frozen=True):
    lastSeenSeq: Cursor
    sessionId: SessionId | None = None
    attachToken: AttachToken | None = None


class ResumeSession(AttachSession, frozen=True):
    pass


class AcceptanceCriterion(Struct, frozen=True):
    id: NonEmpty
    check: NonEmpty
    exitCode: ExitCode = 0
    description: str | None = None


class RunRule(Struct, frozen=True):
    """A rule of the policy. Ours."""

    effect: Literal["allow", "ask", "deny"]
    tool: RulePart | None = None
    path: RulePart | None = None
    command: RulePart | None = None


class SendUserMessage(Struct, frozen=True, kw_only=True):
    """`rules` is ours: rules of the policy for this run alone."""

    clientMessageId: ClientMessageId | None = None
    """Deployed clients send none. Such a message is never taken for a duplicate."""
    text: NonEmpty
    sessionId: SessionId | None = None
    acceptanceCriteria: Annotated[list[AcceptanceCriterion], Meta(max_length=100)] = []
    rules: Annotated[list[RunRule], Meta(max_length=100)] = []


class SubmitApproval(Struct, frozen=True, kw_only=True):
    runId: RunId | None = None
    """Deployed clients send none. An approval belongs to one run."""
    approvalId: ApprovalId
    decision: ApprovalDecision
    sessionId: SessionId | None = None
    comment: str | None = None
    scope: ApprovalScope = "once"
    """Ours: `session` lets the rule that the approval shows as `details.always` hold from now on."""
    stop: bool | None = None
    """Ours, with `deny`: whether the run ends. Without it, a run continues after a comment, a program always."""


class CancelRun(Struct, frozen=True):
    sessionId: SessionId | None = None
    runId: RunId | None = None
    reason: str | None = None
    force: bool = False
    """Ours: a program in a terminal is killed rather than asked to end."""


class Ping(Struct, frozen=True):
    pass


Request = (
    Hello | StartSession | ListSessions | AttachSession | ResumeSession | SendUserMessage | SubmitApproval | CancelRun | Ping
)

REQUESTS: dict[str, type[Request]] = {
    "hello": Hello,
    "start_session": StartSession,
    "list_sessions": ListSessions,
    "attach_session": AttachSession,
    "resume_session": ResumeSession,
    "send_user_message": SendUserMessage,
    "submit_approval": SubmitApproval,
    "cancel_run": CancelRun,
    "ping": Ping,
}

NEEDS_SESSION = frozenset({"attach_session", "resume_session", "send_user_message", "submit_approval", "cancel_run"})


# Responses


class HelloAnswer(Struct, frozen=True, forbid_unknown_fields=True):
    runtimeName: str
    runtimeVersion: str
    protocolVersion: str
    capabilities: list[str]


class StartSessionAnswer(Struct, frozen=True, forbid_unknown_fields=True):
    sessionId: SessionId
    state: SessionState
    attachToken: AttachToken


class ListedRepo(Struct, frozen=True, forbid_unknown_fields=True):
    rootPath: str
    currentBranch: str


class ListedSession(Struct, frozen=True, forbid_unknown_fields=True):
    sessionId: SessionId
    state: SessionState
    updatedAt: int
    repo: ListedRepo


class ListSessionsAnswer(Struct, frozen=True, forbid_unknown_fields=True):
    sessions: list[ListedSession]


class Replay(Struct, frozen=True, forbid_unknown_fields=True):
    """Nothing to replay is `fromSeq = toSeq + 1`."""

    fromSeq: int
    toSeq: int
    completed: bool
    gap: bool


class AttachAnswer(Struct, frozen=True, forbid_unknown_fields=True):
    sessionId: SessionId
    state: SessionState
    replay: Replay


class SendAnswer(Struct, frozen=True, forbid_unknown_fields=True):
    runId: RunId
    accepted: bool


class Accepted(Struct, frozen=True, forbid_unknown_fields=True):
    accepted: bool


class Pong(Struct, frozen=True, forbid_unknown_fields=True):
    pong: bool
    ts: int


ANSWERS: dict[str, type[Struct]] = {
    "hello": HelloAnswer,
    "start_session": StartSessionAnswer,
    "list_sessions": ListSessionsAnswer,
    "attach_session": AttachAnswer,
    "resume_session": AttachAnswer,
    "send_user_message": SendAnswer,
    "submit_approval": Accepted,
    "cancel_run": Accepted,
    "ping": Pong,
}


# Events


class SessionStarted(Struct, frozen=True, forbid_unknown_fields=True):
    sessionId: SessionId
    state: SessionState
    mode: Mode
    provider: str
    sandboxProvider: SandboxProvider


class SnapshotMeta(Struct, frozen=True, forbid_unknown_fields=True):
    provider: str
    sandboxProvider: SandboxProvider


class ApprovalRequired(Struct, frozen=True, forbid_unknown_fields=True):
    approvalId: ApprovalId
    kind: str
    title: str
    summary: str
    details: dict[str, Any]
    options: list[ApprovalDecision]
    expiresAt: int


class SessionSnapshot(Struct, frozen=True, forbid_unknown_fields=True):
    state: SessionState
    activeRunId: RunId | None
    lastAssistantText: str
    pendingApproval: ApprovalRequired | None
    meta: SnapshotMeta


class Status(Struct, frozen=True, forbid_unknown_fields=True):
    source: str
    phase: str
    detail: str | UnsetType = UNSET


class Token(Struct, frozen=True, forbid_unknown_fields=True):
    text: str


class AssistantDone(Struct, frozen=True, forbid_unknown_fields=True):
    messageId: str


class ToolCall(Struct, frozen=True, forbid_unknown_fields=True):
    source: ToolSource
    toolName: str
    args: dict[str, Any]


class StructuredError(Struct, frozen=True, forbid_unknown_fields=True):
    type: ToolErrorType
    retryable: bool
    message: str
    detail: str | UnsetType = UNSET


class ToolResult(Struct, frozen=True, forbid_unknown_fields=True):
    source: ToolSource
    toolName: str
    durationMs: int
    isError: bool
    text: str
    structuredError: StructuredError | None


class ApprovalReceived(Struct, frozen=True, forbid_unknown_fields=True):
    approvalId: ApprovalId
    decision: ApprovalDecision
    by: str


class Warn(Struct, frozen=True, forbid_unknown_fields=True):
    code: str
    message: str
    detail: str | UnsetType = UNSET


class Failure(Struct, frozen=True, forbid_unknown_fields=True):
    """The payload of an `error` event. Its codes are open: models and tools have their own."""

    code: str
    message: str
    retryable: bool
    detail: str | UnsetType = UNSET


class CriterionResult(Struct, frozen=True, forbid_unknown_fields=True):
    id: str
    passed: bool
    exitCode: int
    output: str


class Acceptance(Struct, frozen=True, forbid_unknown_fields=True):
    total: int
    passed: int
    results: list[CriterionResult]


class Headless(Struct, frozen=True, forbid_unknown_fields=True):
    exitCodeHint: Annotated[int, Meta(ge=0, le=4)]


class RunComplete(Struct, frozen=True, forbid_unknown_fields=True):
    runId: RunId
    outcome: RunOutcome
    summary: str
    acceptance: Acceptance
    headless: Headless


EVENTS: dict[str, type[Struct]] = {
    "session_started": SessionStarted,
    "session_snapshot": SessionSnapshot,
    "status": Status,
    "thinking_token": Token,
    "assistant_token": Token,
    "assistant_done": AssistantDone,
    "tool_call": ToolCall,
    "tool_result": ToolResult,
    "approval_required": ApprovalRequired,
    "approval_received": ApprovalReceived,
    "warning": Warn,
    "error": Failure,
    "run_complete": RunComplete,
}

RUN_EVENTS = frozenset(
    {
        "status",
        "thinking_token",
        "assistant_token",
        "assistant_done",
        "tool_call",
        "tool_result",
        "approval_required",
        "approval_received",
        "run_complete",
    }
)
"""Events that always carry a `runId`."""
