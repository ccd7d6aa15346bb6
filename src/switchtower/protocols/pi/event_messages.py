"""The wire types of a session as pi clients see it: messages, events, sessions, models. They import nothing of the core and do no
I/O.

Field names are the protocol's. Fields that existing clients do not know are additive, as section 14 allows, and marked as such.
"""

from typing import Any, Literal

from msgspec import UNSET, Raw, Struct, UnsetType

StopReason = Literal["stop", "length", "toolUse", "error", "aborted"]


# Content


class Text(Struct, frozen=True, tag_field="type", tag="text"):
    text: str


class Thinking(Struct, frozen=True, tag_field="type", tag="thinking"):
    thinking: str


class ToolCall(Struct, frozen=True, tag_field="type", tag="toolCall"):
    id: str
    name: str
    arguments: dict[str, Any]


class Image(Struct, frozen=True, tag_field="type", tag="image"):
    data: str
    mimeType: str


# Messages


class Cost(Struct, frozen=True):
    """In US dollars. Of a call we know only the total."""

    input: float = 0.0
    output: float = 0.0
    cacheRead: float = 0.0
    cacheWrite: float = 0.0
    total: float = 0.0


class Usage(Struct, frozen=True):
    """`input` is what was neither read from a cache nor written to one."""

    input: int = 0
    output: int = 0
    cacheRead: int = 0
    cacheWrite: int = 0
    totalTokens: int = 0
    cost: Cost = Cost()


class User(Struct, frozen=True, tag_field="role", tag="user"):
    content: tuple[Text | Image, ...]
    timestamp: int


class Assistant(Struct, frozen=True, tag_field="role", tag="assistant", kw_only=True):
    content: tuple[Text | Thinking | ToolCall, ...]
    api: str
    provider: str
    model: str
    usage: Usage = Usage()
    stopReason: StopReason = "stop"
    errorMessage: str | UnsetType = UNSET
    timestamp: int
    truncated: bool | UnsetType = UNSET
    """Ours: blocks of `content` show only their end. Never in a finished message."""


class ToolResult(Struct, frozen=True, tag_field="role", tag="toolResult"):
    toolCallId: str
    toolName: str
    content: tuple[Text | Image, ...]
    isError: bool
    timestamp: int


class BashExecution(Struct, frozen=True, tag_field="role", tag="bashExecution", kw_only=True):
    """A person's own command. `exitCode` is left out when there is none."""

    command: str
    output: str
    exitCode: int | UnsetType = UNSET
    cancelled: bool
    truncated: bool
    timestamp: int
    excludeFromContext: bool | UnsetType = UNSET


class CompactionSummary(Struct, frozen=True, tag_field="role", tag="compactionSummary"):
    summary: str
    tokensBefore: int
    timestamp: int


Message = User | Assistant | ToolResult | BashExecution | CompactionSummary


# Sessions and models


class ModelCost(Struct, frozen=True):
    """US dollars for a million tokens."""

    input: float = 0.0
    output: float = 0.0
    cacheRead: float = 0.0
    cacheWrite: float = 0.0


class Model(Struct, frozen=True, kw_only=True):
    id: str
    name: str
    api: str
    provider: str
    baseUrl: str
    reasoning: bool
    input: tuple[str, ...]
    cost: ModelCost
    contextWindow: int
    maxTokens: int


class SessionInfo(Struct, frozen=True, kw_only=True):
    sessionId: str
    sessionName: str | UnsetType = UNSET
    sessionFile: str | UnsetType = UNSET
    model: Model | UnsetType = UNSET
    thinkingLevel: str
    isStreaming: bool
    messageCount: int
    createdAt: str
    sandbox: str | UnsetType = UNSET
    """Ours, and so is what follows."""
    childOf: str | UnsetType = UNSET


class StoredSessionInfo(Struct, frozen=True, kw_only=True):
    """Of a session that need not be at hand, so it has no model and no state."""

    sessionId: str
    sessionName: str | UnsetType = UNSET
    sessionFile: str
    sessionPath: str
    """The same path, under the name that `load_session` takes it by."""
    cwd: str
    createdAt: str
    fileExists: bool
    messageCount: int | UnsetType = UNSET


class Tokens(Struct, frozen=True):
    input: int
    output: int
    cacheRead: int
    cacheWrite: int
    total: int


class SessionStats(Struct, frozen=True, kw_only=True):
    sessionFile: str | UnsetType = UNSET
    sessionId: str
    userMessages: int
    assistantMessages: int
    toolCalls: int
    toolResults: int
    totalMessages: int
    tokens: Tokens
    cost: float


class ContextUsage(Struct, frozen=True):
    """`tokens` is null until a model has counted."""

    tokens: int | None
    contextWindow: int
    percent: float | None


class ForkPoint(Struct, frozen=True):
    entryId: str
    text: str


# Events


class AgentStart(Struct, frozen=True, tag_field="type", tag="agent_start"):
    pass


class TurnStart(Struct, frozen=True, tag_field="type", tag="turn_start"):
    pass


class MessageStart(Struct, frozen=True, tag_field="type", tag="message_start"):
    message: Message | Raw


class MessageEnd(Struct, frozen=True, tag_field="type", tag="message_end"):
    message: Message | Raw


class TurnEnd(Struct, frozen=True, tag_field="type", tag="turn_end"):
    message: Raw
    toolResults: list[Raw]


class AgentEnd(Struct, frozen=True, tag_field="type", tag="agent_end"):
    messages: list[Raw]


class ToolContent(Struct, frozen=True):
    content: tuple[Text, ...]
    truncated: bool | UnsetType = UNSET
    """Ours: only the end of what the tool has put out so far."""


class ToolExecutionStart(Struct, frozen=True, tag_field="type", tag="tool_execution_start"):
    toolCallId: str
    toolName: str
    args: dict[str, Any]


class ToolExecutionUpdate(Struct, frozen=True, tag_field="type", tag="tool_execution_update"):
    toolCallId: str
    toolName: str
    args: Raw
    """Empty when they are long: `tool_execution_start` had them."""
    partialResult: ToolContent
    delta: str
    """Ours: what is new, whole."""


class ToolExecutionEnd(Struct, frozen=True, tag_field="type", tag="tool_execution_end"):
    toolCallId: str
    toolName: str
    result: ToolContent
    isError: bool


class CompactionResult(Struct, frozen=True):
    summary: str
    firstKeptEntryId: str
    tokensBefore: int


class AutoCompactionStart(Struct, frozen=True, tag_field="type", tag="auto_compaction_start"):
    reason: str


class AutoCompactionEnd(Struct, frozen=True, tag_field="type", tag="auto_compaction_end"):
    result: CompactionResult | None
    aborted: bool
    willRetry: bool
    errorMessage: str | UnsetType = UNSET


class CompactionStart(Struct, frozen=True, tag_field="type", tag="compaction_start"):
    """A client asked for it. Newer releases of pi have this event; `reason` is then `manual`."""

    reason: str


class CompactionEnd(Struct, frozen=True, tag_field="type", tag="compaction_end"):
    reason: str
    result: CompactionResult | UnsetType
    aborted: bool
    willRetry: bool
    errorMessage: str | UnsetType = UNSET


class AutoRetryStart(Struct, frozen=True, tag_field="type", tag="auto_retry_start"):
    attempt: int
    maxAttempts: int
    delayMs: int
    errorMessage: str


class AutoRetryEnd(Struct, frozen=True, tag_field="type", tag="auto_retry_end"):
    success: bool
    attempt: int
    finalError: str | UnsetType = UNSET


class ExtensionUiRequest(Struct, frozen=True, tag_field="type", tag="extension_ui_request", kw_only=True):
    requestId: str
    method: str
    title: str | UnsetType = UNSET
    message: str | UnsetType = UNSET
    options: tuple[str, ...] | UnsetType = UNSET
    placeholder: str | UnsetType = UNSET
    prefill: str | UnsetType = UNSET
    questions: tuple[dict[str, Any], ...] | UnsetType = UNSET
    timeout: int | UnsetType = UNSET
    """Milliseconds until nobody's answer counts."""
    approval: bool | UnsetType = UNSET
    """Ours: a yes lets something happen."""
    always: str | UnsetType = UNSET
    """Ours: the rule that "always for this session" would make."""


class ExtensionUiClosed(Struct, frozen=True, tag_field="type", tag="extension_ui_closed"):
    """Ours: there is nothing left to answer, so it can be taken off the screen."""

    requestId: str
    reason: str


class BashStart(Struct, frozen=True, tag_field="type", tag="bash_start"):
    """Ours."""

    command: str


class BashEnd(Struct, frozen=True, tag_field="type", tag="bash_end"):
    """Ours."""

    exitCode: int | None
    output: str
    cancelled: bool


class SessionInfoChanged(Struct, frozen=True, tag_field="type", tag="session_info_changed", kw_only=True):
    """Ours: only what has changed is there."""

    sessionName: str | UnsetType = UNSET
    provider: str | UnsetType = UNSET
    model: str | UnsetType = UNSET
    thinkingLevel: str | UnsetType = UNSET
    policy: str | UnsetType = UNSET
    autoCompaction: bool | UnsetType = UNSET
    autoRetry: bool | UnsetType = UNSET


class Notice(Struct, frozen=True, tag_field="type", tag="notice"):
    """Ours: something that a person should be told. `level` is info, warning or error."""

    level: str
    code: str
    message: str
    detail: str | UnsetType = UNSET
