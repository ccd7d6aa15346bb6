"""The commands of the pi protocol, exactly as specified. They import nothing of the core and do no I/O.

Field names are the document's. Fields that it does not name are ignored (pi-server 14), and a `null` where a field may be left
out counts as left out. `inbound` checks what would cost too much here (the form of ids).
"""

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

PROTOCOL_VERSION = "1.0.0"
ID_LIMIT = 256
DEPENDENCY_LIMIT = 32

Token = Annotated[str, Meta(min_length=1, max_length=ID_LIMIT)]
Version = Annotated[int, Meta(ge=0, le=2**53 - 1)]
"""The upper bound is the largest integer that a JSON number holds exactly."""
Text = Annotated[str, Meta(max_length=200_000)]
Name = Annotated[str, Meta(min_length=1, max_length=256)]
Path = Annotated[str, Meta(min_length=1, max_length=4_096)]
BashLine = Annotated[str, Meta(min_length=1, max_length=20_000)]
PresetName = Annotated[str, Meta(min_length=1, max_length=256)]
ProgramCommand = (
    Annotated[str, Meta(min_length=1, max_length=65_536)] | Annotated[list[str], Meta(min_length=1, max_length=1_000)]
)

StreamingBehavior = Literal["steer", "followUp"]
Direction = Literal["forward", "backward"]
ThinkingLevel = Literal["off", "none", "minimal", "low", "medium", "high", "xhigh"]
LEVELS = ("off", "minimal", "low", "medium", "high", "xhigh")
"""The levels in cycling order. `none` is a synonym of `off`."""


class Envelope(Struct, frozen=True, kw_only=True):
    """pi-server 4: what every command may carry."""

    id: Token | None = None
    dependsOn: Annotated[list[Token], Meta(max_length=DEPENDENCY_LIMIT)] | None = None
    ifSessionVersion: Version | None = None
    idempotencyKey: Token | None = None


class ServerCommand(Envelope, frozen=True, kw_only=True):
    """Needs no session, but goes through a session's lane when it names one."""

    sessionId: str | None = None


class SessionCommand(Envelope, frozen=True, kw_only=True):
    sessionId: str


class Image(Struct, frozen=True, kw_only=True):
    type: Literal["image"]
    data: Annotated[str, Meta(min_length=1)]
    mimeType: Name


# Server commands: pi-server 17.1


class ListSessions(ServerCommand, frozen=True, kw_only=True):
    pass


class CreateSession(ServerCommand, frozen=True, kw_only=True):
    cwd: Path | None = None
    preset: PresetName | None = None
    """Ours: what the session begins with."""
    engine: Literal["agent", "pty"] = "agent"
    """Ours: `pty` is a program in a terminal, which `command` names."""
    command: ProgramCommand | None = None


class DeleteSession(SessionCommand, frozen=True, kw_only=True):
    pass


class SwitchSession(SessionCommand, frozen=True, kw_only=True):
    pass


class GetMetrics(ServerCommand, frozen=True, kw_only=True):
    pass


class HealthCheck(ServerCommand, frozen=True, kw_only=True):
    pass


class ListStoredSessions(ServerCommand, frozen=True, kw_only=True):
    pass


class LoadSession(ServerCommand, frozen=True, kw_only=True):
    sessionPath: Path


# Session commands: pi-server 17.2


class Plain(SessionCommand, frozen=True, kw_only=True):
    """A session command that says nothing but its type."""


class Prompt(SessionCommand, frozen=True, kw_only=True):
    message: Text
    images: list[Image] | None = None
    streamingBehavior: StreamingBehavior | None = None


class Steer(SessionCommand, frozen=True, kw_only=True):
    message: Text
    images: list[Image] | None = None


class FollowUp(SessionCommand, frozen=True, kw_only=True):
    message: Text
    images: list[Image] | None = None


class SetModel(SessionCommand, frozen=True, kw_only=True):
    provider: Name
    modelId: Name


class CycleModel(SessionCommand, frozen=True, kw_only=True):
    direction: Direction | None = None


class SetThinkingLevel(SessionCommand, frozen=True, kw_only=True):
    level: ThinkingLevel


class SetSessionName(SessionCommand, frozen=True, kw_only=True):
    name: Name


class Compact(SessionCommand, frozen=True, kw_only=True):
    customInstructions: Text | None = None


class SetAutoCompaction(SessionCommand, frozen=True, kw_only=True):
    enabled: bool


class SetAutoRetry(SessionCommand, frozen=True, kw_only=True):
    enabled: bool


class Bash(SessionCommand, frozen=True, kw_only=True):
    command: BashLine
    excludeFromContext: bool | None = None


class ExportHtml(SessionCommand, frozen=True, kw_only=True):
    outputPath: Path | None = None


class ExportJsonl(SessionCommand, frozen=True, kw_only=True):
    """Ours: the conversation as a session file of pi's."""

    outputPath: Path | None = None


class NewSession(SessionCommand, frozen=True, kw_only=True):
    parentSession: Path | None = None


class SwitchSessionFile(SessionCommand, frozen=True, kw_only=True):
    sessionPath: Path


class Fork(SessionCommand, frozen=True, kw_only=True):
    entryId: Token


# Answers to an extension's questions: pi-server 18.2


class Selected(Struct, frozen=True, tag_field="method", tag="select"):
    value: Text


class Confirmed(Struct, frozen=True, tag_field="method", tag="confirm"):
    confirmed: bool
    always: bool = False
    """Ours: let the rule that an approval came with hold for the rest of the session."""


class Entered(Struct, frozen=True, tag_field="method", tag="input"):
    value: Text


class Edited(Struct, frozen=True, tag_field="method", tag="editor"):
    value: Text


class Interviewed(Struct, frozen=True, tag_field="method", tag="interview"):
    responses: dict[str, Any]


class Cancelled(Struct, frozen=True, tag_field="method", tag="cancelled"):
    pass


UiAnswer = Selected | Confirmed | Entered | Edited | Interviewed | Cancelled


class ExtensionUiResponse(SessionCommand, frozen=True, kw_only=True):
    requestId: Token
    response: UiAnswer


Command = ServerCommand | SessionCommand

COMMANDS: dict[str, type[ServerCommand] | type[SessionCommand]] = {
    "list_sessions": ListSessions,
    "create_session": CreateSession,
    "delete_session": DeleteSession,
    "switch_session": SwitchSession,
    "get_metrics": GetMetrics,
    "health_check": HealthCheck,
    "list_stored_sessions": ListStoredSessions,
    "load_session": LoadSession,
    "get_available_models": Plain,
    "get_commands": Plain,
    "get_skills": Plain,
    "get_tools": Plain,
    "list_session_files": Plain,
    "prompt": Prompt,
    "steer": Steer,
    "follow_up": FollowUp,
    "abort": Plain,
    "get_state": Plain,
    "get_messages": Plain,
    "set_model": SetModel,
    "cycle_model": CycleModel,
    "set_thinking_level": SetThinkingLevel,
    "cycle_thinking_level": Plain,
    "set_session_name": SetSessionName,
    "compact": Compact,
    "abort_compaction": Plain,
    "set_auto_compaction": SetAutoCompaction,
    "set_auto_retry": SetAutoRetry,
    "abort_retry": Plain,
    "bash": Bash,
    "abort_bash": Plain,
    "get_session_stats": Plain,
    "export_html": ExportHtml,
    "export_jsonl": ExportJsonl,
    "new_session": NewSession,
    "switch_session_file": SwitchSessionFile,
    "fork": Fork,
    "get_fork_messages": Plain,
    "get_last_assistant_text": Plain,
    "get_context_usage": Plain,
    "extension_ui_response": ExtensionUiResponse,
}
