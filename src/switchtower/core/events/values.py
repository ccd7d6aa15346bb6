"""What every event is.

What events speak of: people, folders, limits, questions. No event itself."""

from typing import Any, ClassVar

from msgspec import Struct


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


class Claim(Struct, frozen=True):
    """Who it was, and from where, by the word of another machine."""

    name: str
    via: str


class Actor(Struct, frozen=True, omit_defaults=True):
    """Who asked, and from where. `via` is how the request arrived (`cli`, `app`, `web` …): seen by us, not claimed by them."""

    name: str
    via: str
    client: str | None = None
    device: str | None = None
    """The access token's name and the user agent, as far as there are any."""
    address: str | None = None
    """The machine that the request came from."""
    counts: bool = False
    """Its protocol counts the session's versions by its own rules, with `VersionAdvanced`."""
    claims: Claim | None = None
    """Of another host (`via` is `host`) or of a hub (`via` is `hub`): who it says acted there. Never a user of this daemon."""
    run_id: str | None = None
    """The run whose process asked. Such an actor acts only for that run."""

    @property
    def label(self) -> str:
        """For people: a user's name, or the machine and what it says."""
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
    log_json: bool = False
    """Whether the runtime is to log as JSON."""
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


CANNOT_APPROVE = "cannot_approve"
"""The detail of an approval that can only be denied: a sentence that says why."""


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
    """Without `approve` it can only be denied: `details` say why under `CANNOT_APPROVE`."""
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


class ToolRequest(Struct, frozen=True, omit_defaults=True):
    """A tool call as the model asked for it."""

    call_id: str
    tool: str
    args: dict[str, Any]
    problem: str | None = None
    """Why it cannot be run as it came; it is answered with this."""
