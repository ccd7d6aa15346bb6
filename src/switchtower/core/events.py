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
    counts: bool = False
    """Its protocol counts the session's versions by its own rules, with `VersionAdvanced`."""


SYSTEM = Actor(name="switchtower", via="daemon")


class Workspace(Struct, frozen=True, omit_defaults=True):
    """The folder that a session works in."""

    root: str
    branch: str | None = None
    default_branch: str | None = None
    remote_url: str | None = None
    origin: str | None = None
    """The repository that the folder is a worktree of, when it was made for the session."""


class Budget(Struct, frozen=True, omit_defaults=True):
    """How much one run may take. None is no limit."""

    max_turns: int | None = None
    max_tokens: int | None = None
    max_cost: float | None = None
    """In US dollars."""
    max_minutes: float | None = None


class Program(Struct, frozen=True, omit_defaults=True):
    """What runs in a terminal session."""

    argv: tuple[str, ...]
    command: str
    """The same as people write it."""
    tool: str
    """Which it is, of those whose prompts we know: `codex`, `claude` …; another name is as good."""
    cols: int = 120
    rows: int = 40


class Flow(Struct, frozen=True, omit_defaults=True):
    """What a session runs when it is a flow."""

    name: str
    document: dict[str, Any]
    """The Flow IR."""
    inputs: dict[str, Any]
    runtime: str = "python"
    """The engine that does its steps, by name."""
    argv: tuple[str, ...] = ()
    """How that is started; none is the runtime that comes with us."""
    allow_shell: bool = False
    timeout_s: float | None = None
    lasting: bool = False
    """It has steps that only a tower can do, so it waits for people and agents, and goes on after a restart."""


class Preset(Struct, frozen=True, omit_defaults=True):
    """What a session took from a preset when it began: what comes of the file later changes nothing for it."""

    name: str
    origin: str
    """`user` or `workspace`. What a workspace brings along is not trusted."""
    file: str
    system: str | None = None
    servers: dict[str, dict[str, Any]] = {}
    """MCP servers as the file spells them, variables unfilled. One that spells out a secret is refused before it gets here."""


class Rule(Struct, frozen=True, omit_defaults=True):
    """What a policy says about some calls. A part that is None matches anything; `effect` is allow, ask or deny."""

    effect: str
    tool: str | None = None
    path: str | None = None
    command: str | None = None


class Image(Struct, frozen=True):
    """A picture in a message; `data` is base64."""

    media_type: str
    data: str


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
    rule: Rule | None = None
    """What "always for this session" would allow from now on; None where each time must be asked."""


class Dialog(Struct, frozen=True, omit_defaults=True):
    """Something that an extension wants to know from a person. `method` says in which form: `select`, `confirm`, `input`,
    `editor` or `interview`."""

    id: str
    method: str
    title: str
    expires_at_ms: int
    message: str = ""
    options: tuple[str, ...] = ()
    """Of a `select`."""
    placeholder: str | None = None
    """Of an `input`."""
    prefill: str | None = None
    """Of an `editor`."""
    questions: tuple[dict[str, Any], ...] = ()
    """Of an `interview`: each with an `id`, a `type` and a `question`."""


class Verdict(StrEnum):
    APPROVE = "approve"
    DENY_CONTINUE = "deny_continue"
    DENY_STOP = "deny_stop"


class Purpose(StrEnum):
    """What a run is for. Only work has a user's message; the others are journalled like work."""

    WORK = "work"
    COMPACT = "compact"
    UNDO = "undo"
    REDO = "redo"
    PROGRAM = "program"
    """A program in a terminal, from its start to its exit."""
    FLOW = "flow"
    """A flow, from its first step to its last."""


class Delivery(StrEnum):
    """When a message that is sent to a running session reaches the model."""

    STEER = "steer"
    FOLLOW_UP = "follow_up"


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
    DELETED = "deleted"
    """Nobody is told of this one: who looks for it does not find it."""


class Relayed(Struct, frozen=True, omit_defaults=True):
    """What happened on another host, as that host told it."""

    seq: int
    """The host's own number for it."""
    at_ms: int
    """When it happened there."""
    extra: dict[str, Any] = {}
    """What the host said beyond what the event can hold; passed on as it came."""


class Event(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The base of all events."""

    kind: ClassVar[str]
    relayed: Relayed | None = None
    """Only in a session that lives on another host."""
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
    policy: str = "ask"
    thinking: str | None = None
    budget: Budget = Budget()
    parent: str | None = None
    """The session whose conversation it began with."""
    preset: Preset | None = None
    program: Program | None = None
    """What runs in its terminal, when it is one."""
    host: str | None = None
    """The host that it lives on, when that is not this daemon."""
    flow: Flow | None = None
    """What it runs, when it is a flow."""


class SessionLoaded(Event, frozen=True):
    """Somebody wants the session at hand. Its version counts from 0 again."""

    kind: ClassVar[str] = "session.loaded"
    by: Actor


class SessionUnloaded(Event, frozen=True):
    """Nobody needs it at hand any more. Everything stays in the journal."""

    kind: ClassVar[str] = "session.unloaded"
    by: Actor


class SessionDeleted(Event, frozen=True):
    """The last that is told of a session: from here on nobody finds it, and what the journal has of it goes."""

    kind: ClassVar[str] = "session.deleted"
    by: Actor


class VersionAdvanced(Event, frozen=True):
    """A command has changed the session, by the rules of a protocol that counts for itself."""

    kind: ClassVar[str] = "session.version"
    by: Actor
    command: str


class SessionConfigured(Event, frozen=True):
    """Somebody changed how the session works from its next run on. None leaves a thing as it was."""

    kind: ClassVar[str] = "session.configured"
    by: Actor
    provider: str | None = None
    model: str | None = None
    policy: str | None = None
    thinking: str | None = None
    title: str | None = None
    auto_compact: bool | None = None
    auto_retry: bool | None = None


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
    purpose: Purpose = Purpose.WORK
    force: bool = False
    """An undo or redo that also takes files back which somebody has changed since."""
    images: tuple[Image, ...] = ()


class MessageQueued(Event, frozen=True):
    """A message for a run that is under way, or for after it."""

    kind: ClassVar[str] = "message.queued"
    message_id: str
    text: str
    delivery: Delivery
    by: Actor
    images: tuple[Image, ...] = ()


class MessageDelivered(Event, frozen=True):
    """A queued message has become part of the conversation, at this point of it."""

    kind: ClassVar[str] = "message.delivered"
    message_id: str
    text: str
    images: tuple[Image, ...] = ()


class MessageWithdrawn(Event, frozen=True):
    """A queued message will not be delivered: the run it waited for did not end well."""

    kind: ClassVar[str] = "message.withdrawn"
    message_id: str
    reason: str


class PromptExpanded(Event, frozen=True):
    """What the user's last message became before the model read it: a template filled in, files brought in."""

    kind: ClassVar[str] = "prompt.expanded"
    text: str
    sources: tuple[str, ...] = ()
    """The files it came from."""


class ConversationCleared(Event, frozen=True):
    """From here on the model is told nothing of what was said before. The journal keeps it."""

    kind: ClassVar[str] = "conversation.cleared"
    by: Actor
    origin: str | None = None
    """What the conversation goes on with instead, if anything."""


class MessageImported(Event, frozen=True):
    """A message that was said elsewhere: in the session this one was forked from, or in another program's file."""

    kind: ClassVar[str] = "message.imported"
    role: str
    """`user`, `assistant` or `tool`."""
    text: str
    at_ms: int
    """When it was said."""
    thinking: str = ""
    calls: tuple["ToolRequest", ...] = ()
    call_id: str | None = None
    tool: str | None = None
    is_error: bool = False
    images: tuple[Image, ...] = ()


class ShellStarted(Event, frozen=True):
    """A person runs a command of their own in the workspace."""

    kind: ClassVar[str] = "shell.started"
    shell_id: str
    command: str
    by: Actor
    told: bool = True
    """Whether the model is told of it with the next message."""


class ShellCancelRequested(Event, frozen=True):
    kind: ClassVar[str] = "shell.cancel_requested"
    shell_id: str
    by: Actor


class ShellFinished(Event, frozen=True):
    kind: ClassVar[str] = "shell.finished"
    shell_id: str
    exit_code: int | None
    """None when it did not get so far."""
    text: str
    cancelled: bool = False


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


class ToolRequest(Struct, frozen=True, omit_defaults=True):
    """A tool call as the model asked for it."""

    call_id: str
    tool: str
    args: dict[str, Any]
    problem: str | None = None
    """Why it cannot be run as it came; it is answered with this."""


class MessageCompleted(Event, frozen=True):
    """One whole assistant message: the deltas before it, again in one piece, with the calls it asks for."""

    kind: ClassVar[str] = "message.completed"
    message_id: str
    text: str
    thinking: str = ""
    calls: tuple[ToolRequest, ...] = ()
    carry: dict[str, Any] | None = None
    """What the provider wants handed back with this message, such as a signature; nobody else can read it."""
    cut_short: bool = False
    """The run was stopped in the middle of it; it is as long as it got."""


class ToolCalled(Event, frozen=True):
    kind: ClassVar[str] = "tool.called"
    call_id: str
    tool: str
    args: dict[str, Any]


class ToolProgressed(Event, frozen=True):
    """A piece of what a tool put out while it worked; its result comes in one piece at the end."""

    kind: ClassVar[str] = "tool.progressed"
    prunable: ClassVar[bool] = True
    call_id: str
    text: str


class ToolFinished(Event, frozen=True):
    kind: ClassVar[str] = "tool.finished"
    call_id: str
    tool: str
    duration_ms: int
    text: str
    is_error: bool = False
    error: ToolError | None = None
    result: dict[str, Any] | None = None
    """The CallToolResult of an MCP tool, as its server sent it."""
    outputs: dict[str, Any] | None = None
    """What a step of a flow gave, for the steps after it."""


class UsageReported(Event, frozen=True):
    """What one call of a model took. `cost` is in US dollars, None when no price is known."""

    kind: ClassVar[str] = "model.usage"
    provider: str
    model: str
    input_tokens: int = 0
    """All that went in, cached or not."""
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    cost: float | None = None
    context_window: int | None = None


class RetryScheduled(Event, frozen=True):
    """A model call failed in a way that may pass. What it had streamed is void: the message begins again."""

    kind: ClassVar[str] = "model.retry"
    attempt: int
    max_attempts: int
    delay_ms: int
    reason: str


class RetryEnded(Event, frozen=True):
    kind: ClassVar[str] = "model.retry_ended"
    attempt: int
    success: bool
    reason: str | None = None


class CompactionStarted(Event, frozen=True):
    """`reason` is `threshold`, `overflow` or `requested`."""

    kind: ClassVar[str] = "context.compaction_started"
    reason: str


class ContextCompacted(Event, frozen=True):
    """From here on the model is told the summary in place of all but the last `kept` messages of user and assistant."""

    kind: ClassVar[str] = "context.compacted"
    reason: str
    summary: str
    kept: int
    tokens_before: int
    tokens_after: int


class CompactionFailed(Event, frozen=True):
    kind: ClassVar[str] = "context.compaction_failed"
    reason: str
    aborted: bool = False


class CheckpointTaken(Event, frozen=True):
    """The workspace's files as they were `before` the run's first change or `after` its last. `tree` names the git object."""

    kind: ClassVar[str] = "workspace.checkpoint"
    when: str
    tree: str
    of: str | None = None
    """The run that it belongs to, when that is not the one that took it: a crashed run's end is kept when it is undone."""


class WorkspaceRestored(Event, frozen=True):
    """A run's changes were taken back, or made again: `direction` is `undo` or `redo`."""

    kind: ClassVar[str] = "workspace.restored"
    direction: str
    run_id: str
    after: str
    """The tree that counted as the run's end."""
    files: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()
    """Files left alone because somebody has changed them since."""
    failed: tuple[str, ...] = ()
    """Files that could not be written."""


class TerminalTyped(Event, frozen=True):
    """Somebody sent the program a text. `text` is what can be shown of it; `sha256` is of all of it."""

    kind: ClassVar[str] = "terminal.typed"
    input_id: str
    text: str
    sha256: str
    by: Actor


class TerminalKeys(Event, frozen=True):
    """Somebody typed at the terminal, key by key: what it was is not kept, only how much."""

    kind: ClassVar[str] = "terminal.keys"
    count: int
    by: Actor


class TerminalResized(Event, frozen=True):
    kind: ClassVar[str] = "terminal.resized"
    cols: int
    rows: int
    by: Actor


class TerminalEchoed(Event, frozen=True):
    """Whether the terminal shows what is typed. Where it does not, somebody is asked for a password."""

    kind: ClassVar[str] = "terminal.echoed"
    on: bool


class PromptShown(Event, frozen=True):
    """The program waits for somebody. `reason` is `permission`, `choice`, `prompt` or `unknown`."""

    kind: ClassVar[str] = "terminal.prompt"
    reason: str
    prompt: str = ""
    approval_id: str | None = None
    """The question that was made of it, when it is one of yes or no."""


class PromptGone(Event, frozen=True):
    """The program waits no longer."""

    kind: ClassVar[str] = "terminal.prompt_gone"


class ScreenTaken(Event, frozen=True):
    """The whole screen as a text that paints it. With what was put out since, it is all that a late joiner needs."""

    kind: ClassVar[str] = "terminal.screen"
    prunable: ClassVar[bool] = True
    text: str
    cols: int
    rows: int


class ErrandStarted(Event, frozen=True):
    """Somebody uses a tool in the workspace from afar: reads a file, looks at a diff."""

    kind: ClassVar[str] = "errand.started"
    errand_id: str
    tool: str
    args: dict[str, Any]
    by: Actor


class ErrandFinished(Event, frozen=True):
    """`result` is bounded: what was asked for has gone to who asked."""

    kind: ClassVar[str] = "errand.finished"
    errand_id: str
    tool: str
    by: Actor
    ok: bool
    duration_ms: int
    result: dict[str, Any] | None = None
    error: str | None = None


class HostLost(Event, frozen=True):
    """The host that the session lives on has been silent for too long: nobody knows what becomes of it."""

    kind: ClassVar[str] = "host.lost"
    host: str


class HostReturned(Event, frozen=True):
    kind: ClassVar[str] = "host.returned"
    host: str


class HostSaid(Event, frozen=True):
    """Something of another host for which we have no word. Passed on as it came; without a type only its number counts."""

    kind: ClassVar[str] = "host.said"
    type: str
    data: dict[str, Any]


class StepStopped(Event, frozen=True):
    """Somebody had enough of one step of a run, which goes on without it: `retry` or `compaction`."""

    kind: ClassVar[str] = "run.step_stopped"
    step: str
    by: Actor


class DialogOpened(Event, frozen=True):
    kind: ClassVar[str] = "dialog.opened"
    dialog: Dialog


class DialogAnswered(Event, frozen=True):
    """`response` has `value`, `confirmed` or `responses`, as the method wants it."""

    kind: ClassVar[str] = "dialog.answered"
    dialog_id: str
    response: dict[str, Any]
    by: Actor


class DialogClosed(Event, frozen=True):
    """Nobody will answer it: it was dismissed, it expired, or whoever asked has ended."""

    kind: ClassVar[str] = "dialog.closed"
    dialog_id: str
    reason: str


class ApprovalRequested(Event, frozen=True):
    kind: ClassVar[str] = "approval.requested"
    approval: Approval


class ApprovalDecided(Event, frozen=True):
    kind: ClassVar[str] = "approval.decided"
    approval_id: str
    verdict: Verdict
    by: Actor
    comment: str | None = None
    rule: Rule | None = None
    """Made by this decision, for the rest of the session."""


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
    force: bool = False
    """Without the politeness of asking a program to end by itself."""


class RunCompleted(Event, frozen=True):
    kind: ClassVar[str] = "run.completed"
    outcome: Outcome
    summary: str
    exit_code_hint: int
    acceptance: tuple[CriterionResult, ...] = ()
    exit_code: int | None = None
    """The program's own, when the run was one; a flow's by REP."""


AnyEvent = (
    SessionStarted
    | SessionLoaded
    | SessionUnloaded
    | SessionDeleted
    | VersionAdvanced
    | SessionResumed
    | SessionConfigured
    | RunStarted
    | MessageQueued
    | MessageDelivered
    | MessageWithdrawn
    | PromptExpanded
    | ConversationCleared
    | MessageImported
    | ShellStarted
    | ShellCancelRequested
    | ShellFinished
    | PhaseChanged
    | ThinkingDelta
    | TextDelta
    | MessageCompleted
    | ToolCalled
    | ToolProgressed
    | ToolFinished
    | UsageReported
    | RetryScheduled
    | RetryEnded
    | CompactionStarted
    | ContextCompacted
    | CompactionFailed
    | CheckpointTaken
    | WorkspaceRestored
    | TerminalTyped
    | TerminalKeys
    | TerminalResized
    | TerminalEchoed
    | PromptShown
    | PromptGone
    | ScreenTaken
    | ErrandStarted
    | ErrandFinished
    | HostLost
    | HostReturned
    | HostSaid
    | StepStopped
    | DialogOpened
    | DialogAnswered
    | DialogClosed
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
