"""A session as its events made it. Only `fold` changes one; every fact that a rule needs is here. The trees of its workspace
are names of git objects only, without files.
"""

from msgspec import Struct, field

from switchtower.core import events


class WorkspaceChange(Struct, frozen=True):
    """One run's changes, as the trees before and after it. Without an `after` the run ended in a crash."""

    run_id: str
    before: str
    after: str | None = None


class Timeline(Struct, frozen=True):
    """The runs that can be undone, the last one last, and those that were undone, the last undone last."""

    done: tuple[WorkspaceChange, ...] = ()
    undone: tuple[WorkspaceChange, ...] = ()


REMOTE_CALL = "errand"
"""The kind of approvals for remote calls: the run during which they are requested does not wait for them."""


class UsageTotals(Struct):
    """The sum of model usage. `cost` is in US dollars and counts only the calls whose price is known."""

    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    cost: float = 0.0
    unpriced_calls: int = 0

    @property
    def tokens(self) -> int:
        return self.input_tokens + self.output_tokens

    def add(self, reported: events.UsageReported) -> None:
        self.calls += 1
        self.input_tokens += reported.input_tokens
        self.output_tokens += reported.output_tokens
        self.cache_read_tokens += reported.cache_read_tokens
        self.cache_write_tokens += reported.cache_write_tokens
        self.cost += reported.cost or 0.0
        self.unpriced_calls += reported.cost is None


class MessageCounts(Struct):
    """The number of messages and tool calls in the current conversation."""

    user: int = 0
    assistant: int = 0
    tool_calls: int = 0
    tool_results: int = 0
    shells: int = 0
    """Users' own commands, and entries between the messages that are not messages of the user or the model."""

    @property
    def messages(self) -> int:
        return self.user + self.assistant + self.tool_results + self.shells


class Run(Struct):
    """The active run."""

    id: str
    started_at_ms: int
    headless: bool
    acceptance: tuple[events.Criterion, ...] = ()
    rules: tuple[events.Rule, ...] = ()
    """Policy rules for this run alone."""
    pending: dict[str, events.Approval] = {}
    open_calls: dict[str, str] = {}
    """Tool calls without a result yet: call id to tool."""
    cancel_requested: bool = False
    purpose: events.Purpose = events.Purpose.WORK
    instructions: str = ""
    force: bool = False
    usage: UsageTotals = field(default_factory=UsageTotals)
    checkpoint: str | None = None
    """The tree that was stored before the run's first change."""
    started_at_seq: int = 0
    dialogs: dict[str, events.Dialog] = {}
    """Dialogs that extensions have opened and no user has answered."""
    failure: str = ""
    """The last error that it reported."""
    cut_short: bool = False
    """Its last message was truncated."""

    @property
    def is_awaiting_decision(self) -> bool:
        """Returns whether the run itself waits for a decision, rather than a remote call beside it."""
        return any(approval.kind != REMOTE_CALL for approval in self.pending.values())


class LastRun(Struct, frozen=True):
    """The result of the last run, for clients that connect after its end."""

    id: str
    outcome: events.Outcome
    summary: str
    failure: str = ""
    accepted: dict[str, bool] = {}
    """Its criteria, and whether each was met."""


class TerminalPrompt(Struct, frozen=True):
    """The input that a program waits for."""

    reason: str
    prompt: str
    approval_id: str | None = None


class Terminal(Struct):
    """The terminal of a session that is a program."""

    program: events.Program
    cols: int
    rows: int
    hides_typing: bool = False
    waiting: TerminalPrompt | None = None
    screen_seq: int = 0
    """The seq at which its whole screen was last stored."""
    exit_code: int | None = None
    pid: int | None = None


class FlowRun(Struct):
    """The state of a session that is a flow. Its document is only in the journal, at the session's start."""

    name: str
    lasting: bool
    exit_code: int | None = None


class Session(Struct):
    id: str
    seq: int = 0
    version: int = 0
    state: events.SessionState = events.SessionState.IDLE
    engine: str = ""
    mode: str = ""
    provider: str = ""
    model: str | None = None
    sandbox: str = ""
    workspace: events.Workspace = field(default_factory=lambda: events.Workspace(root=""))
    attach_token_sha256: str = ""
    title: str = ""
    created_at_ms: int = 0
    updated_at_ms: int = 0
    run: Run | None = None
    runs_started: int = 0
    closed_approvals: list[str] = []
    """The latest approvals that were decided, expired or withdrawn, oldest first."""
    text_parts: list[str] = []
    message_open: bool = False
    """True while `text_parts` belongs to a message that is still being streamed."""
    policy: str = "ask"
    thinking: str | None = None
    budget: events.Budget = field(default_factory=events.Budget)
    rules: list[events.Rule] = []
    """The rules that decisions have made for the rest of the session."""
    queue: dict[str, events.MessageQueued] = {}
    """Messages that wait to be sent to the model, in the order of their arrival."""
    usage: UsageTotals = field(default_factory=UsageTotals)
    context_tokens: int = 0
    """The input and output tokens of the last model call: how full its context is."""
    context_window: int | None = None
    done: list[WorkspaceChange] = []
    """Runs that changed the workspace and can be undone, the last one last."""
    undone: list[WorkspaceChange] = []
    """Runs that were undone and can be redone, the last undone last."""
    loaded: bool | None = None
    counts: MessageCounts = field(default_factory=MessageCounts)
    clearings: int = 0
    """The number of times that its conversation was cleared."""
    conversation_from: int = 0
    """The seq at which it was last cleared."""
    shells: dict[str, str] = {}
    """Users' own commands that are running: id to command."""
    auto_compact: bool = True
    auto_retry: bool = True
    parent: str | None = None
    parent_run: str | None = None
    """The run that started it, when a process of a run did: its own runs end with that one."""
    preset: events.Preset | None = None
    last_run: "LastRun | None" = None
    flow: "FlowRun | None" = None
    recent_messages: list[str] = []
    """The ids of the messages that the active run, or the last one, was sent."""
    recent_texts: dict[str, str] = {}
    """The hash of the message's text, by such an id."""
    terminal: Terminal | None = None
    errands: dict[str, str] = {}
    """The remote calls that are active in its workspace: id to tool."""
    ended_at_ms: int | None = None
    """The end of its last run; None while a run is active."""
    host: str | None = None
    """The host that it lives on, when that is not this one."""
    host_lost: bool = False
    relayed_seq: int = 0
    """The last of its host's numbers that we have."""
    alias: str | None = None
    """The id that its first client chose for it; see `events.SessionStarted`."""
    usage_before: UsageTotals = field(default_factory=UsageTotals)
    """The part of `usage` that belongs to earlier conversations."""
    imported_usage: UsageTotals = field(default_factory=UsageTotals)
    """The usage of the imported messages that the conversation started with."""

    @property
    def last_assistant_text(self) -> str:
        if len(self.text_parts) > 1:
            self.text_parts = ["".join(self.text_parts)]
        return self.text_parts[0] if self.text_parts else ""

    @property
    def is_deleted(self) -> bool:
        return self.state is events.SessionState.DELETED

    @property
    def can_resume_after_restart(self) -> bool:
        """Returns whether the active run can be continued after a restart. A program's terminal ends with the daemon that
        holds it, and a child with the process that started it; an agent continues only from an open approval, because the
        effect of anything else that it was doing is unknown.
        """
        run = self.run
        if run is None or run.cancel_requested or self.terminal is not None or self.parent_run is not None:
            return False
        return self.flow.lasting if self.flow is not None else run.is_awaiting_decision

    @property
    def parent_session(self) -> str | None:
        """The session whose run has started this one."""
        return self.parent if self.parent_run is not None else None

    @property
    def pending_approval(self) -> events.Approval | None:
        """The oldest approval that waits for a decision."""
        return next(iter(self.run.pending.values()), None) if self.run else None
