"""The base of all events, and the values that they contain: actors, workspaces, limits, approvals.

The enumerations that events use."""

from enum import StrEnum
from typing import Any, ClassVar

from msgspec import Struct


class Verdict(StrEnum):
    APPROVE = "approve"
    DENY_CONTINUE = "deny_continue"
    DENY_STOP = "deny_stop"


class Purpose(StrEnum):
    """The purpose of a run. Only work has a user's message; the others are journalled like work."""

    WORK = "work"
    COMPACT = "compact"
    UNDO = "undo"
    REDO = "redo"
    PROGRAM = "program"
    """A program in a terminal, from its start to its exit."""
    FLOW = "flow"
    """A flow, from its first step to its last."""


class Delivery(StrEnum):
    """The time at which a message that is sent to a running session reaches the model."""

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
    """No client sees this state: a deleted session is not found."""


class Relayed(Struct, frozen=True, omit_defaults=True):
    """The origin of an event that another host reported."""

    seq: int
    """The host's own number for the event."""
    at_ms: int
    """The time of the event on that host."""
    extra: dict[str, Any] = {}
    """Fields of the host's report that the event has no place for; they are forwarded unchanged."""


class Event(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The base of all events."""

    kind: ClassVar[str]
    relayed: Relayed | None = None
    """Only events of a session that lives on another host have it."""
    prunable: ClassVar[bool] = False
    """Retention may remove the event: only when a later event contains the same, as with the deltas of a finished message."""


class Claim(Struct, frozen=True):
    """An actor and its origin as another machine claims them, unverified."""

    name: str
    via: str


class Actor(Struct, frozen=True, omit_defaults=True):
    """The actor of a command, and its origin. `via` is how the request arrived (`cli`, `app`, `web` …): observed by us, not
    claimed by the client.
    """

    name: str
    via: str
    client: str | None = None
    device: str | None = None
    """The access token's name and the user agent, as far as known."""
    address: str | None = None
    """The machine that the request came from."""
    counts: bool = False
    """The actor's protocol counts the session's versions by its own rules, with `VersionAdvanced`."""
    claims: Claim | None = None
    """The actor that another host (`via` is `host`) or a hub (`via` is `hub`) names for the action there. It is never a user
    of this daemon.
    """
    run_id: str | None = None
    """The run whose process sent the command. Such an actor acts only for that run."""

    @property
    def label(self) -> str:
        """A text for users: a user's name, or the machine and the actor that it claims."""
        if self.via not in ("host", "hub"):
            return self.name
        return f"{self.via} {self.name}" + (f" says {self.claims.name} ({self.claims.via})" if self.claims else "")


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
    """The limits of one run. None is no limit."""

    max_turns: int | None = None
    max_tokens: int | None = None
    max_cost: float | None = None
    """An amount in US dollars."""
    max_minutes: float | None = None


class Program(Struct, frozen=True, omit_defaults=True):
    """The program that runs in a terminal session."""

    argv: tuple[str, ...]
    command: str
    """The same as users write it."""
    tool: str
    """The name of the program, such as `codex` or `claude`, whose prompts we know; any other name is allowed."""
    cols: int = 120
    rows: int = 40


class Flow(Struct, frozen=True, omit_defaults=True):
    """The flow that a session runs."""

    name: str
    document: dict[str, Any]
    """The Flow IR."""
    inputs: dict[str, Any]
    runtime: str = "python"
    """The name of the engine that runs its steps."""
    argv: tuple[str, ...] = ()
    """The command that starts the engine; empty means the built-in runtime."""
    allow_shell: bool = False
    timeout_s: float | None = None
    log_json: bool = False
    """True when the runtime logs as JSON."""
    lasting: bool = False
    """The flow has steps that only the daemon can run, so it waits for people and agents, and continues after a restart."""


class Preset(Struct, frozen=True, omit_defaults=True):
    """The settings that a session took from a preset at its start: later changes of the file do not affect it."""

    name: str
    origin: str
    """`user` or `workspace`. A preset of a workspace is not trusted."""
    file: str
    system: str | None = None
    servers: dict[str, dict[str, Any]] = {}
    """MCP servers as the file has them, with variables not expanded. One that contains a secret is refused before it gets
    here.
    """


class Rule(Struct, frozen=True, omit_defaults=True):
    """A policy's rule for some calls. A part that is None matches anything; `effect` is allow, ask or deny."""

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
    """The reason why a tool failed, in a form that a program can act on. Types are push's taxonomy."""

    type: str
    message: str
    retryable: bool = False
    detail: str | None = None


CANNOT_APPROVE = "cannot_approve"
"""The detail of an approval that can only be denied: a sentence with the reason."""


class Approval(Struct, frozen=True, omit_defaults=True):
    """A question that must be answered before an action happens. `fingerprint` binds it to exactly what will run."""

    id: str
    call_id: str
    kind: str
    title: str
    summary: str
    details: dict[str, Any]
    expires_at_ms: int
    fingerprint: str
    options: tuple[str, ...] = ("approve", "deny")
    """Without `approve` it can only be denied: `details` has the reason under `CANNOT_APPROVE`."""
    rule: Rule | None = None
    """The rule that "always for this session" adds; None when each call must be approved."""


class Dialog(Struct, frozen=True, omit_defaults=True):
    """A question of an extension to the user. `method` is its form: `select`, `confirm`, `input`, `editor` or `interview`."""

    id: str
    method: str
    title: str
    expires_at_ms: int
    message: str = ""
    options: tuple[str, ...] = ()
    """The choices of a `select`."""
    placeholder: str | None = None
    """The placeholder of an `input`."""
    prefill: str | None = None
    """The initial text of an `editor`."""
    questions: tuple[dict[str, Any], ...] = ()
    """The questions of an `interview`: each with an `id`, a `type` and a `question`."""


class ToolRequest(Struct, frozen=True, omit_defaults=True):
    """A tool call as the model requested it."""

    call_id: str
    tool: str
    args: dict[str, Any]
    problem: str | None = None
    """The reason why the call cannot be run as it is; the model gets this as its result."""
