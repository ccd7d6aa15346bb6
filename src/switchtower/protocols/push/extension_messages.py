"""Wire types that our daemon understands beyond the push document, in the document's manner. They import nothing of the core.

`hello` announces them to a client: each group is one capability. None of them changes what the document specifies.
"""

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from switchtower.protocols.push import listing_messages
from switchtower.protocols.push.messages import (
    ClientMessageId,
    DialogId,
    Limits,
    NonEmpty,
    PolicyProfile,
    RunId,
    SessionId,
    SessionState,
    TerminalSize,
    ThinkingLevel,
)

CAPABILITIES = [
    "session_info",
    "queue_messages",
    "configure",
    "sandbox_setting",
    "optional_branches",
    "compact",
    "undo",
    "models",
    "templates",
    "presets",
    "always_allow",
    "run_rules",
    "dialogs",
    "terminals",
    "flows",
    "provider_variables",
    *listing_messages.LISTING_CAPABILITIES,
    *listing_messages.NODE_CAPABILITIES,
    *listing_messages.TRUST_CAPABILITIES,
]

InputId = Annotated[str, Meta(min_length=1, max_length=256)]


# Requests


class GetSession(Struct, frozen=True):
    sessionId: SessionId | None = None


class ConfigureSession(Struct, frozen=True):
    sessionId: SessionId | None = None
    provider: NonEmpty | None = None
    model: NonEmpty | None = None
    policy: PolicyProfile | None = None
    thinking: ThinkingLevel | None = None
    title: NonEmpty | None = None


class QueueMessage(Struct, frozen=True):
    """`steer` reaches the model at its next step, `follow_up` after the run. Without a run, either starts one."""

    clientMessageId: ClientMessageId
    text: NonEmpty
    delivery: Literal["steer", "follow_up"]
    sessionId: SessionId | None = None


class CompactSession(Struct, frozen=True):
    sessionId: SessionId | None = None
    instructions: str = ""


class UndoRun(Struct, frozen=True):
    """Takes back what the last run changed in the workspace; `redo` takes back an undo."""

    sessionId: SessionId | None = None
    redo: bool = False
    force: bool = False


class DiffSession(Struct, frozen=True):
    sessionId: SessionId | None = None
    runId: RunId | None = None


class ListModels(Struct, frozen=True):
    provider: NonEmpty | None = None
    """Whose server is asked for its own list."""


class ListTemplates(Struct, frozen=True):
    rootPath: NonEmpty


class ListPresets(Struct, frozen=True):
    rootPath: NonEmpty


class AnswerDialog(Struct, frozen=True):
    """The answer to a `DIALOG_OPENED` warning: `value` to a select, an input or an editor, `confirmed` to a confirm,
    `responses` to an interview, or `dismissed`. One of them, and the first client's counts."""

    dialogId: DialogId
    sessionId: SessionId | None = None
    value: str | None = None
    confirmed: bool | None = None
    responses: dict[str, Any] | None = None
    dismissed: bool = False


class TerminalInput(Struct, frozen=True):
    """Types a text into a session's program, without an Enter of its own. With `inputId` it is typed once, however often it is
    asked for, and journalled; without, it is a person's keys, of which only the number is kept."""

    text: NonEmpty
    sessionId: SessionId | None = None
    inputId: InputId | None = None


class TerminalResize(Struct, frozen=True):
    cols: TerminalSize
    rows: TerminalSize
    sessionId: SessionId | None = None


class GetFlow(Struct, frozen=True):
    """What became of a flow so far, in REP's words."""

    sessionId: SessionId | None = None


class SetProviderVariables(Struct, frozen=True):
    """Keys and addresses of providers as the owner's shell has them, such as `OPENAI_API_KEY`. Taken on the owner's own socket
    alone, kept in memory and never journalled. What one provider had from an earlier request is replaced."""

    variables: Annotated[
        dict[Annotated[str, Meta(min_length=1, max_length=64)], Annotated[str, Meta(min_length=1, max_length=16_384)]],
        Meta(max_length=64),
    ]

    def __repr__(self) -> str:
        return f"SetProviderVariables({', '.join(self.variables)})"


class ListTerminals(Struct, frozen=True):
    """Of the sessions that were used last, those that are programs."""

    limit: Annotated[int, Meta(ge=1, le=200)] = 20


ExtensionRequest = (
    GetSession
    | ConfigureSession
    | QueueMessage
    | CompactSession
    | UndoRun
    | DiffSession
    | ListModels
    | ListTemplates
    | ListPresets
    | AnswerDialog
    | TerminalInput
    | TerminalResize
    | ListTerminals
    | GetFlow
    | SetProviderVariables
    | listing_messages.ListingRequest
    | listing_messages.NodeRequest
    | listing_messages.TrustRequest
)

REQUESTS: dict[str, type[ExtensionRequest]] = {
    "get_session": GetSession,
    "configure_session": ConfigureSession,
    "queue_message": QueueMessage,
    "compact_session": CompactSession,
    "undo_run": UndoRun,
    "diff_session": DiffSession,
    "list_models": ListModels,
    "list_templates": ListTemplates,
    "list_presets": ListPresets,
    "answer_dialog": AnswerDialog,
    "terminal_input": TerminalInput,
    "terminal_resize": TerminalResize,
    "list_terminals": ListTerminals,
    "get_flow": GetFlow,
    "set_provider_variables": SetProviderVariables,
    **listing_messages.LISTING_REQUESTS,
    **listing_messages.NODE_REQUESTS,
    **listing_messages.TRUST_REQUESTS,
}

NEEDS_SESSION = frozenset(
    {
        "get_session",
        "configure_session",
        "queue_message",
        "compact_session",
        "undo_run",
        "diff_session",
        "answer_dialog",
        "terminal_input",
        "terminal_resize",
        "get_flow",
        *listing_messages.LISTING_NEEDS_SESSION,
    }
)


# Responses


class Usage(Struct, frozen=True, forbid_unknown_fields=True):
    """`cost` is in US dollars and leaves out the calls whose price nobody knows."""

    calls: int
    inputTokens: int
    outputTokens: int
    cacheReadTokens: int
    cacheWriteTokens: int
    cost: float
    unpricedCalls: int


class Rule(Struct, frozen=True, forbid_unknown_fields=True):
    effect: str
    tool: str | None
    path: str | None
    command: str | None


class QueuedMessage(Struct, frozen=True, forbid_unknown_fields=True):
    messageId: str
    text: str
    delivery: Literal["steer", "follow_up"]


class Terminal(Struct, frozen=True, forbid_unknown_fields=True):
    """The program of a session that is one. `exitCode` is there when it has ended and its end was seen."""

    tool: str
    command: str
    cols: int
    rows: int
    screenSeq: int
    """The event that paints the whole screen last, the status `Screen`; 0 when there is none and all output is needed."""
    waitsFor: str | None
    exitCode: int | None
    host: str | None


class SessionInfo(Struct, frozen=True, forbid_unknown_fields=True):
    sessionId: SessionId
    state: SessionState
    title: str
    mode: str
    engine: str
    provider: str
    model: str | None
    thinking: str | None
    policy: str
    rules: list[Rule]
    limits: Limits
    sandbox: str
    rootPath: str
    branch: str | None
    worktreeOf: str | None
    activeRunId: RunId | None
    queue: list[QueuedMessage]
    usage: Usage
    runUsage: Usage | None
    contextTokens: int
    contextWindow: int | None
    undoable: int
    redoable: int
    version: int
    lastSeq: int
    createdAt: int
    updatedAt: int
    preset: str | None = None
    terminal: Terminal | None = None
    childOf: SessionId | None = None
    """The session whose run has started this one, and with which run it ends."""
    home: str | None = None
    """The node that decides for it, by its id in `list_nodes`. None where the daemon is alone, or nobody has it at the moment."""


class Queued(Struct, frozen=True, forbid_unknown_fields=True):
    """`runId` is there when there was no run to wait for, so that one was started."""

    accepted: bool
    messageId: str
    runId: RunId | None


class ChoreStarted(Struct, frozen=True, forbid_unknown_fields=True):
    """Its end is the run's `run_complete`."""

    runId: RunId
    accepted: bool


class Diff(Struct, frozen=True, forbid_unknown_fields=True):
    diff: str


class Configured(Struct, frozen=True, forbid_unknown_fields=True):
    accepted: bool


class ModelListing(Struct, frozen=True, forbid_unknown_fields=True):
    """Prices are in US dollars per million tokens."""

    name: str
    provider: str
    model: str | None
    usable: bool
    reason: str
    isDefault: bool
    contextWindow: int | None
    priceIn: float | None
    priceOut: float | None
    keySource: str | None = None
    """Where its key comes from, for people."""


class ProviderVariablesSet(Struct, frozen=True, forbid_unknown_fields=True):
    names: list[str]


class Models(Struct, frozen=True, forbid_unknown_fields=True):
    models: list[ModelListing]
    serverModels: list[str] | UnsetType | None = UNSET
    """Of the provider that was asked for; null when its server has no list."""


class Typed(Struct, frozen=True, forbid_unknown_fields=True):
    """The program gets it next; whether it reads it is the program's affair."""

    accepted: bool


class TerminalListing(Struct, frozen=True, forbid_unknown_fields=True):
    sessionId: SessionId
    tool: str
    title: str
    """What somebody called it; otherwise the command."""
    waitsFor: str | None
    exitCode: int | None
    host: str | None


class FlowReport(Struct, frozen=True, forbid_unknown_fields=True):
    """`status` is `running`, `completed` or `failed`; the rest is as `tm runtime run` prints it."""

    flow: str
    status: str
    summary: dict[str, Any]
    events: list[dict[str, Any]]
    eventsLeftOut: int
    exitCode: int | None


class Terminals(Struct, frozen=True, forbid_unknown_fields=True):
    terminals: list[TerminalListing]


class DialogAnswered(Struct, frozen=True, forbid_unknown_fields=True):
    accepted: bool


class Template(Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    kind: Literal["skill", "prompt", "extension"]
    description: str
    path: str
    """A file; of an extension, the `module:attribute` that it was loaded from."""
    origin: Literal["workspace", "user", "plugin"]


class Templates(Struct, frozen=True, forbid_unknown_fields=True):
    templates: list[Template]


class Preset(Struct, frozen=True, forbid_unknown_fields=True):
    """What it leaves open is null. `reason` says why it is not usable."""

    name: str
    origin: Literal["workspace", "user"]
    path: str
    description: str
    provider: str | None
    model: str | None
    policy: str | None
    thinking: str | None
    servers: list[str]
    usable: bool
    reason: str


class Presets(Struct, frozen=True, forbid_unknown_fields=True):
    presets: list[Preset]


ANSWERS: dict[str, type[Struct]] = {
    "get_session": SessionInfo,
    "configure_session": Configured,
    "queue_message": Queued,
    "compact_session": ChoreStarted,
    "undo_run": ChoreStarted,
    "diff_session": Diff,
    "list_models": Models,
    "list_templates": Templates,
    "list_presets": Presets,
    "answer_dialog": DialogAnswered,
    "terminal_input": Typed,
    "terminal_resize": Typed,
    "list_terminals": Terminals,
    "get_flow": FlowReport,
    "set_provider_variables": ProviderVariablesSet,
    **listing_messages.LISTING_ANSWERS,
    **listing_messages.NODE_ANSWERS,
    **listing_messages.TRUST_ANSWERS,
}
