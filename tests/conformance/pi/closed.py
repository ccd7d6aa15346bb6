"""Closed types of everything that a pi server may send: a field that neither document names, and that is not listed here as our
addition, fails the test whose client received it.

The types follow the documents alone; this module imports nothing from the protocol's package.
"""

from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

Frame = dict[str, Any]

Count = Annotated[int, Meta(ge=0)]
Amount = Annotated[float, Meta(ge=0)]
Text = Annotated[str, Meta(min_length=1)]
Moment = Annotated[str, Meta(pattern=r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z$")]
Level = Literal["off", "none", "minimal", "low", "medium", "high", "xhigh"]
Breaker = Literal["closed", "open", "half_open"]


class StrictPiStruct(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    pass


# Content and messages


class TextPart(StrictPiStruct, frozen=True, kw_only=True, tag_field="type", tag="text"):
    text: str


class ThinkingPart(StrictPiStruct, frozen=True, kw_only=True, tag_field="type", tag="thinking"):
    thinking: str


class ToolCallPart(StrictPiStruct, frozen=True, kw_only=True, tag_field="type", tag="toolCall"):
    id: Text
    name: Text
    arguments: dict[str, Any]


class ImagePart(StrictPiStruct, frozen=True, kw_only=True, tag_field="type", tag="image"):
    data: str
    mimeType: str


class Cost(StrictPiStruct, frozen=True, kw_only=True):
    input: Amount
    output: Amount
    cacheRead: Amount
    cacheWrite: Amount
    total: Amount


class Usage(StrictPiStruct, frozen=True, kw_only=True):
    input: Count
    output: Count
    cacheRead: Count
    cacheWrite: Count
    totalTokens: Count
    cost: Cost


class User(StrictPiStruct, frozen=True, kw_only=True, tag_field="role", tag="user"):
    content: list[TextPart | ImagePart]
    timestamp: Count


class Assistant(StrictPiStruct, frozen=True, kw_only=True, tag_field="role", tag="assistant"):
    content: list[TextPart | ThinkingPart | ToolCallPart]
    api: Text
    provider: Text
    model: Text
    usage: Usage
    stopReason: Literal["stop", "length", "toolUse", "error", "aborted"]
    errorMessage: Text | UnsetType = UNSET
    timestamp: Count


class StrictPartialMessage(StrictPiStruct, frozen=True, kw_only=True, tag_field="role", tag="assistant"):
    """An assistant message of an update."""

    content: list[TextPart | ThinkingPart | ToolCallPart]
    api: Text
    provider: Text
    model: Text
    usage: Usage
    stopReason: Literal["stop", "length", "toolUse", "error", "aborted"]
    timestamp: Count
    truncated: bool | UnsetType = UNSET
    """Our addition: long blocks show only their end."""


class ToolResult(StrictPiStruct, frozen=True, kw_only=True, tag_field="role", tag="toolResult"):
    toolCallId: Text
    toolName: Text
    content: list[TextPart | ImagePart]
    isError: bool
    timestamp: Count


class BashExecution(StrictPiStruct, frozen=True, kw_only=True, tag_field="role", tag="bashExecution"):
    command: Text
    output: str
    exitCode: int | UnsetType = UNSET
    cancelled: bool
    truncated: bool
    timestamp: Count
    excludeFromContext: bool | UnsetType = UNSET


class CompactionSummary(StrictPiStruct, frozen=True, kw_only=True, tag_field="role", tag="compactionSummary"):
    summary: Text
    tokensBefore: Count
    timestamp: Count


Message = User | Assistant | ToolResult | BashExecution | CompactionSummary


# Session events


class AgentStart(StrictPiStruct, frozen=True, kw_only=True, tag_field="type", tag="agent_start"):
    pass


class AgentEnd(StrictPiStruct, frozen=True, kw_only=True, tag_field="type", tag="agent_end"):
    messages: list[Message]


class TurnStart(StrictPiStruct, frozen=True, kw_only=True, tag_field="type", tag="turn_start"):
    pass


class TurnEnd(StrictPiStruct, frozen=True, kw_only=True, tag_field="type", tag="turn_end"):
    message: Assistant
    toolResults: list[ToolResult]


class MessageStart(StrictPiStruct, frozen=True, kw_only=True, tag_field="type", tag="message_start"):
    message: Message


class MessageEnd(StrictPiStruct, frozen=True, kw_only=True, tag_field="type", tag="message_end"):
    message: Message


class TextStart(StrictPiStruct, frozen=True, kw_only=True, tag_field="type", tag="text_start"):
    contentIndex: Count
    partial: StrictPartialMessage


class TextDelta(StrictPiStruct, frozen=True, kw_only=True, tag_field="type", tag="text_delta"):
    contentIndex: Count
    partial: StrictPartialMessage
    delta: Text


class TextEnd(StrictPiStruct, frozen=True, kw_only=True, tag_field="type", tag="text_end"):
    contentIndex: Count
    partial: StrictPartialMessage
    content: str


class ThinkingStart(StrictPiStruct, frozen=True, kw_only=True, tag_field="type", tag="thinking_start"):
    contentIndex: Count
    partial: StrictPartialMessage


class ThinkingDelta(StrictPiStruct, frozen=True, kw_only=True, tag_field="type", tag="thinking_delta"):
    contentIndex: Count
    partial: StrictPartialMessage
    delta: Text


class ThinkingEnd(StrictPiStruct, frozen=True, kw_only=True, tag_field="type", tag="thinking_end"):
    contentIndex: Count
    partial: StrictPartialMessage
    content: str


class ToolcallStart(StrictPiStruct, frozen=True, kw_only=True, tag_field="type", tag="toolcall_start"):
    contentIndex: Count
    partial: StrictPartialMessage


class ToolcallDelta(StrictPiStruct, frozen=True, kw_only=True, tag_field="type", tag="toolcall_delta"):
    contentIndex: Count
    partial: StrictPartialMessage
    delta: Text


class ToolcallEnd(StrictPiStruct, frozen=True, kw_only=True, tag_field="type", tag="toolcall_end"):
    contentIndex: Count
    partial: StrictPartialMessage
    toolCall: ToolCallPart


Piece = (
    TextStart | TextDelta | TextEnd | ThinkingStart | ThinkingDelta | ThinkingEnd | ToolcallStart | ToolcallDelta | ToolcallEnd
)


class MessageUpdate(StrictPiStruct, frozen=True, kw_only=True, tag_field="type", tag="message_update"):
    message: StrictPartialMessage
    assistantMessageEvent: Piece


class ToolContent(StrictPiStruct, frozen=True, kw_only=True):
    content: list[TextPart | ImagePart]


class PartialContent(StrictPiStruct, frozen=True, kw_only=True):
    content: list[TextPart]
    truncated: bool | UnsetType = UNSET
    """Our addition."""


class ToolExecutionStart(StrictPiStruct, frozen=True, kw_only=True, tag_field="type", tag="tool_execution_start"):
    toolCallId: Text
    toolName: Text
    args: dict[str, Any]


class ToolExecutionUpdate(StrictPiStruct, frozen=True, kw_only=True, tag_field="type", tag="tool_execution_update"):
    toolCallId: Text
    toolName: Text
    args: dict[str, Any]
    partialResult: PartialContent
    delta: Text
    """Our addition."""


class ToolExecutionEnd(StrictPiStruct, frozen=True, kw_only=True, tag_field="type", tag="tool_execution_end"):
    toolCallId: Text
    toolName: Text
    result: ToolContent
    isError: bool


class CompactionResult(StrictPiStruct, frozen=True, kw_only=True):
    summary: Text
    firstKeptEntryId: Text
    tokensBefore: Count
    details: Any = UNSET


class AutoCompactionStart(StrictPiStruct, frozen=True, kw_only=True, tag_field="type", tag="auto_compaction_start"):
    reason: Literal["threshold", "overflow"]


class AutoCompactionEnd(StrictPiStruct, frozen=True, kw_only=True, tag_field="type", tag="auto_compaction_end"):
    result: CompactionResult | None
    aborted: bool
    willRetry: bool
    errorMessage: Text | UnsetType = UNSET


class AutoRetryStart(StrictPiStruct, frozen=True, kw_only=True, tag_field="type", tag="auto_retry_start"):
    attempt: Annotated[int, Meta(ge=1)]
    maxAttempts: Annotated[int, Meta(ge=1)]
    delayMs: Count
    errorMessage: Text


class AutoRetryEnd(StrictPiStruct, frozen=True, kw_only=True, tag_field="type", tag="auto_retry_end"):
    success: bool
    attempt: Annotated[int, Meta(ge=1)]
    finalError: Text | UnsetType = UNSET


class ExtensionUiRequest(StrictPiStruct, frozen=True, kw_only=True, tag_field="type", tag="extension_ui_request"):
    requestId: Annotated[str, Meta(min_length=1, max_length=256)]
    method: Literal["select", "confirm", "input", "editor", "interview"]
    title: Text
    message: str | UnsetType = UNSET
    options: list[str] | UnsetType = UNSET
    placeholder: str | UnsetType = UNSET
    prefill: str | UnsetType = UNSET
    questions: list[dict[str, Any]] | UnsetType = UNSET
    timeout: Count | UnsetType = UNSET
    approval: bool | UnsetType = UNSET
    """Our addition."""
    always: Text | UnsetType = UNSET
    """Our addition."""

    def __post_init__(self) -> None:
        needed = {"select": "options", "confirm": "message", "interview": "questions"}.get(self.method)
        if needed is not None and getattr(self, needed) is UNSET:
            raise ValueError(f"{self.method} without {needed}")
        for field, method in {"options": "select", "placeholder": "input", "prefill": "editor", "questions": "interview"}.items():
            if getattr(self, field) is not UNSET and self.method != method:
                raise ValueError(f"{self.method} with {field}")


# Session events that we add: pi-server 14, additive


class ExtensionUiClosed(StrictPiStruct, frozen=True, kw_only=True, tag_field="type", tag="extension_ui_closed"):
    requestId: Text
    reason: Text


class CompactionStart(StrictPiStruct, frozen=True, kw_only=True, tag_field="type", tag="compaction_start"):
    reason: Literal["manual"]


class CompactionEnd(StrictPiStruct, frozen=True, kw_only=True, tag_field="type", tag="compaction_end"):
    reason: Literal["manual"]
    result: CompactionResult | UnsetType = UNSET
    aborted: bool
    willRetry: bool
    errorMessage: Text | UnsetType = UNSET


class BashStart(StrictPiStruct, frozen=True, kw_only=True, tag_field="type", tag="bash_start"):
    command: Text


class BashEnd(StrictPiStruct, frozen=True, kw_only=True, tag_field="type", tag="bash_end"):
    exitCode: int | None
    output: str
    cancelled: bool


class SessionInfoChanged(StrictPiStruct, frozen=True, kw_only=True, tag_field="type", tag="session_info_changed"):
    sessionName: Text | UnsetType = UNSET
    provider: Text | UnsetType = UNSET
    model: Text | UnsetType = UNSET
    thinkingLevel: Level | UnsetType = UNSET
    policy: Text | UnsetType = UNSET
    autoCompaction: bool | UnsetType = UNSET
    autoRetry: bool | UnsetType = UNSET


class Notice(StrictPiStruct, frozen=True, kw_only=True, tag_field="type", tag="notice"):
    level: Literal["info", "warning", "error"]
    code: Text
    message: Text
    detail: Text | UnsetType = UNSET


SessionEvent = (
    AgentStart
    | AgentEnd
    | TurnStart
    | TurnEnd
    | MessageStart
    | MessageUpdate
    | MessageEnd
    | ToolExecutionStart
    | ToolExecutionUpdate
    | ToolExecutionEnd
    | AutoCompactionStart
    | AutoCompactionEnd
    | AutoRetryStart
    | AutoRetryEnd
    | ExtensionUiRequest
    | ExtensionUiClosed
    | CompactionStart
    | CompactionEnd
    | BashStart
    | BashEnd
    | SessionInfoChanged
    | Notice
)


# Sessions and models


class ModelCost(StrictPiStruct, frozen=True, kw_only=True):
    input: Amount
    output: Amount
    cacheRead: Amount
    cacheWrite: Amount


class Model(StrictPiStruct, frozen=True, kw_only=True):
    id: Text
    name: Text
    api: Text
    provider: Text
    baseUrl: str
    reasoning: bool
    input: list[Literal["text", "image"]]
    cost: ModelCost
    contextWindow: Count
    maxTokens: Count


class SessionInfo(StrictPiStruct, frozen=True, kw_only=True):
    sessionId: Text
    sessionName: Text | UnsetType = UNSET
    sessionFile: Text | UnsetType = UNSET
    model: Model | UnsetType = UNSET
    thinkingLevel: Level
    isStreaming: bool
    messageCount: Count
    createdAt: Moment
    sandbox: Text | UnsetType = UNSET  # our additions start here
    childOf: Text | UnsetType = UNSET


class StoredSessionInfo(StrictPiStruct, frozen=True, kw_only=True):
    sessionId: Text
    sessionName: Text | UnsetType = UNSET
    sessionFile: Text
    sessionPath: Text
    cwd: Text
    createdAt: Moment
    fileExists: bool
    messageCount: Count | UnsetType = UNSET


# Response data


class Sessions(StrictPiStruct, frozen=True, kw_only=True):
    sessions: list[SessionInfo]


class StoredSessions(StrictPiStruct, frozen=True, kw_only=True):
    sessions: list[StoredSessionInfo]


class MadeSession(StrictPiStruct, frozen=True, kw_only=True):
    sessionId: Text
    sessionInfo: SessionInfo


class Deleted(StrictPiStruct, frozen=True, kw_only=True):
    deleted: bool

    def __post_init__(self) -> None:
        if not self.deleted:
            raise ValueError("deleted is always true")


class Switched(StrictPiStruct, frozen=True, kw_only=True):
    sessionInfo: SessionInfo


class Health(StrictPiStruct, frozen=True, kw_only=True):
    healthy: bool
    issues: list[Text]
    hasOpenCircuit: bool
    hasOpenBashCircuit: bool


class Rejected(StrictPiStruct, frozen=True, kw_only=True):
    sessionLimit: Count
    messageSize: Count
    rateLimit: Count
    globalRateLimit: Count
    connectionLimit: Count
    inFlightLimit: Count
    """Our addition, like the three below."""
    conflict: Count
    validation: Count
    shutdown: Count


class RateLimitUsage(StrictPiStruct, frozen=True, kw_only=True):
    globalCount: Count
    globalLimit: Count
    sessionLimit: Count


class ReplayStore(StrictPiStruct, frozen=True, kw_only=True):
    inFlightCount: Count
    maxInFlight: Count
    outcomeCount: Count
    maxOutcomes: Count
    idempotencyCacheSize: Count


class VersionStore(StrictPiStruct, frozen=True, kw_only=True):
    sessionCount: Count


class ExecutionStore(StrictPiStruct, frozen=True, kw_only=True):
    laneCount: Count


class UiStore(StrictPiStruct, frozen=True, kw_only=True):
    pendingCount: Count


class Stores(StrictPiStruct, frozen=True, kw_only=True):
    replay: ReplayStore
    version: VersionStore
    execution: ExecutionStore
    extensionUI: UiStore


class CircuitBreaker(StrictPiStruct, frozen=True, kw_only=True):
    providerName: Text
    state: Breaker
    failureCount: Count
    lastFailureTime: Count | None
    totalCalls: Count
    totalRejected: Count
    totalSuccesses: Count
    totalFailures: Count
    avgLatencyMs: Amount


class BashCircuitBreaker(StrictPiStruct, frozen=True, kw_only=True):
    enabled: bool
    globalState: Breaker
    globalFailureCount: Count
    sessionCount: Count
    openSessionCount: Count
    totalCalls: Count
    totalTimeouts: Count
    totalRejected: Count


class Metrics(StrictPiStruct, frozen=True, kw_only=True):
    sessionCount: Count
    connectionCount: Count
    totalCommandsExecuted: Count
    commandsRejected: Rejected
    rateLimitUsage: RateLimitUsage
    stores: Stores
    circuitBreakers: list[CircuitBreaker]
    bashCircuitBreaker: BashCircuitBreaker


class Models(StrictPiStruct, frozen=True, kw_only=True):
    models: list[Model]


class SlashCommand(StrictPiStruct, frozen=True, kw_only=True):
    name: Text
    description: str | UnsetType = UNSET
    source: Literal["extension", "skill", "prompt"]
    path: Text | UnsetType = UNSET


class SlashCommands(StrictPiStruct, frozen=True, kw_only=True):
    commands: list[SlashCommand]


class Skill(StrictPiStruct, frozen=True, kw_only=True):
    name: Text
    description: str
    filePath: Text
    source: Text


class Skills(StrictPiStruct, frozen=True, kw_only=True):
    skills: list[Skill]


class Tool(StrictPiStruct, frozen=True, kw_only=True):
    name: Text
    description: Text


class Tools(StrictPiStruct, frozen=True, kw_only=True):
    tools: list[Tool]


class SessionFile(StrictPiStruct, frozen=True, kw_only=True):
    path: Text
    name: Text
    modifiedAt: Moment
    fileExists: bool
    """Our addition."""


class SessionFiles(StrictPiStruct, frozen=True, kw_only=True):
    files: list[SessionFile]


class Messages(StrictPiStruct, frozen=True, kw_only=True):
    messages: list[Message]


class ChosenModel(StrictPiStruct, frozen=True, kw_only=True):
    model: Model


class CycledModel(StrictPiStruct, frozen=True, kw_only=True):
    model: Model
    thinkingLevel: Level
    isScoped: bool


class CycledLevel(StrictPiStruct, frozen=True, kw_only=True):
    level: Level


class BashResult(StrictPiStruct, frozen=True, kw_only=True):
    exitCode: int | UnsetType = UNSET
    truncated: bool
    output: str
    cancelled: bool


class Tokens(StrictPiStruct, frozen=True, kw_only=True):
    input: Count
    output: Count
    cacheRead: Count
    cacheWrite: Count
    total: Count


class SessionStats(StrictPiStruct, frozen=True, kw_only=True):
    sessionFile: Text
    sessionId: Text
    userMessages: Count
    assistantMessages: Count
    toolCalls: Count
    toolResults: Count
    totalMessages: Count
    tokens: Tokens
    cost: Amount


class Exported(StrictPiStruct, frozen=True, kw_only=True):
    path: Text


class Replaced(StrictPiStruct, frozen=True, kw_only=True):
    cancelled: bool


class Forked(StrictPiStruct, frozen=True, kw_only=True):
    text: str
    cancelled: bool
    sessionId: Text


class ForkPoint(StrictPiStruct, frozen=True, kw_only=True):
    entryId: Text
    text: str


class ForkPoints(StrictPiStruct, frozen=True, kw_only=True):
    messages: list[ForkPoint]


class LastText(StrictPiStruct, frozen=True, kw_only=True):
    text: str | None


class ContextUsage(StrictPiStruct, frozen=True, kw_only=True):
    tokens: Count | None
    contextWindow: Count
    percent: Amount | None


NOTHING = UnsetType
"""The success of these commands has no `data`."""

DATA: dict[str, Any] = {
    "list_sessions": Sessions,
    "create_session": MadeSession,
    "delete_session": Deleted,
    "switch_session": Switched,
    "get_metrics": Metrics,
    "health_check": Health,
    "list_stored_sessions": StoredSessions,
    "load_session": MadeSession,
    "get_available_models": Models,
    "get_commands": SlashCommands,
    "get_skills": Skills,
    "get_tools": Tools,
    "list_session_files": SessionFiles,
    "prompt": NOTHING,
    "steer": NOTHING,
    "follow_up": NOTHING,
    "abort": NOTHING,
    "get_state": SessionInfo,
    "get_messages": Messages,
    "set_model": ChosenModel,
    "cycle_model": CycledModel | None,
    "set_thinking_level": NOTHING,
    "cycle_thinking_level": CycledLevel | None,
    "set_session_name": NOTHING,
    "compact": CompactionResult,
    "abort_compaction": NOTHING,
    "set_auto_compaction": NOTHING,
    "set_auto_retry": NOTHING,
    "abort_retry": NOTHING,
    "bash": BashResult,
    "abort_bash": NOTHING,
    "get_session_stats": SessionStats,
    "export_jsonl": Exported,
    "export_html": Exported,
    "new_session": Replaced,
    "switch_session_file": Replaced,
    "fork": Forked,
    "get_fork_messages": ForkPoints,
    "get_last_assistant_text": LastText,
    "get_context_usage": ContextUsage | None,
    "extension_ui_response": NOTHING,
}

WITHOUT_VERSION = {"list_sessions", "delete_session", "get_metrics", "health_check", "list_stored_sessions"}
"""Interop, Envelope: the success of every other command carries the session's version."""


# Frames


class Response(StrictPiStruct, frozen=True, kw_only=True, tag_field="type", tag="response"):
    command: Text
    success: bool
    id: str | UnsetType = UNSET
    data: Any = UNSET
    error: Text | UnsetType = UNSET
    sessionVersion: Count | UnsetType = UNSET
    replayed: bool | UnsetType = UNSET
    timedOut: bool | UnsetType = UNSET

    def __post_init__(self) -> None:
        if self.replayed is False or self.timedOut is False:
            raise ValueError("what is not so is left out")
        if not self.success:
            if self.error is UNSET or self.data is not UNSET or self.sessionVersion is not UNSET:
                raise ValueError("a failure has an error, no data and no version")
            return
        if self.error is not UNSET or self.timedOut is not UNSET:
            raise ValueError("a success has no error")
        if (self.sessionVersion is UNSET) is not (self.command in WITHOUT_VERSION):
            raise ValueError(f"{self.command} with version {self.sessionVersion}")
        wanted = DATA[self.command]
        if wanted is NOTHING:
            if self.data is not UNSET:
                raise ValueError(f"{self.command} has no data")
        else:
            msgspec.convert(self.data, wanted)


class StrictCommandFields(StrictPiStruct, frozen=True, kw_only=True):
    commandId: Text
    commandType: Text
    sessionId: Text | UnsetType = UNSET
    dependsOn: list[Text]
    ifSessionVersion: Count | UnsetType = UNSET
    idempotencyKey: Text | UnsetType = UNSET


class StrictCommandResult(StrictCommandFields, frozen=True, kw_only=True):
    success: bool
    error: Text | UnsetType = UNSET
    sessionVersion: Count | UnsetType = UNSET
    replayed: bool | UnsetType = UNSET

    def __post_init__(self) -> None:
        if self.replayed is False:
            raise ValueError("what is not so is left out")
        if self.success is (self.error is not UNSET):
            raise ValueError("a failure has an error, and a success has none")


class CommandAccepted(StrictPiStruct, frozen=True, kw_only=True, tag_field="type", tag="command_accepted"):
    data: StrictCommandFields


class CommandStarted(StrictPiStruct, frozen=True, kw_only=True, tag_field="type", tag="command_started"):
    data: StrictCommandFields


class CommandFinished(StrictPiStruct, frozen=True, kw_only=True, tag_field="type", tag="command_finished"):
    data: StrictCommandResult


class Ready(StrictPiStruct, frozen=True, kw_only=True):
    serverVersion: Annotated[str, Meta(pattern=r"^\d+\.\d+\.\d+")]
    protocolVersion: Literal["1.0.0"]
    transports: list[Literal["websocket", "stdio"]]


class ServerReady(StrictPiStruct, frozen=True, kw_only=True, tag_field="type", tag="server_ready"):
    data: Ready


class Shutdown(StrictPiStruct, frozen=True, kw_only=True):
    reason: Literal["graceful_shutdown"]
    timeoutMs: Count


class ServerShutdown(StrictPiStruct, frozen=True, kw_only=True, tag_field="type", tag="server_shutdown"):
    data: Shutdown


class SessionCreated(StrictPiStruct, frozen=True, kw_only=True, tag_field="type", tag="session_created"):
    data: MadeSession


class StrictDeletedSession(StrictPiStruct, frozen=True, kw_only=True):
    sessionId: Text


class SessionDeleted(StrictPiStruct, frozen=True, kw_only=True, tag_field="type", tag="session_deleted"):
    data: StrictDeletedSession


class Event(StrictPiStruct, frozen=True, kw_only=True, tag_field="type", tag="event"):
    sessionId: Text
    event: SessionEvent


AnyFrame = (
    Response
    | CommandAccepted
    | CommandStarted
    | CommandFinished
    | ServerReady
    | ServerShutdown
    | SessionCreated
    | SessionDeleted
    | Event
)


def check(frame: Frame) -> None:
    """Raises `AssertionError` for a frame that the documents do not allow."""
    try:
        msgspec.convert(frame, AnyFrame)
    except msgspec.ValidationError as problem:
        raise AssertionError(f"{problem} in {frame}") from None
