"""A session as its events made it. Only `fold` changes one; whatever a rule needs to know is here.

The fold is the same for live events, for recovery and for a load from a snapshot plus the tail.
"""

import hashlib
from copy import copy
from typing import assert_never

from msgspec import Struct, field
from msgspec.json import Decoder, Encoder

from switchtower.core import codec, events, journal, states
from switchtower.core.timeline import WorkspaceChange

CLOSED_APPROVALS_KEPT = 1_000
CHANGES_KEPT = 100
RECENT_MESSAGES_KEPT = 200
TITLE_LENGTH = 80
SUMMARY_LENGTH = 80
REMOTE_CALL = "errand"
"""The kind of questions about errands: the run that they are asked in does not wait for them."""


class UsageTotals(Struct):
    """What models took, added up. `cost` is in US dollars and counts only the calls whose price is known."""

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
    """The messages of the conversation as it stands, and what was called for in it."""

    user: int = 0
    assistant: int = 0
    tool_calls: int = 0
    tool_results: int = 0
    shells: int = 0
    """People's own commands, and what is no message of user or model but stands between them."""

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
    """Of the policy, for this run alone."""
    pending: dict[str, events.Approval] = {}
    open_calls: dict[str, str] = {}
    """Tool calls without a result yet: call id to tool."""
    cancel_requested: bool = False
    purpose: events.Purpose = events.Purpose.WORK
    instructions: str = ""
    force: bool = False
    usage: UsageTotals = field(default_factory=UsageTotals)
    checkpoint: str | None = None
    """The tree that was kept before the run's first change."""
    started_at_seq: int = 0
    dialogs: dict[str, events.Dialog] = {}
    """What extensions have asked and nobody has answered."""
    failure: str = ""
    """The last error it told of."""
    cut_short: bool = False
    """Its last message was broken off."""

    @property
    def is_awaiting_decision(self) -> bool:
        """The run itself, and not somebody's errand beside it."""
        return any(approval.kind != REMOTE_CALL for approval in self.pending.values())


class LastRun(Struct, frozen=True):
    """How the last run ended, for who comes to ask after it has."""

    id: str
    outcome: events.Outcome
    summary: str
    failure: str = ""
    accepted: dict[str, bool] = {}
    """Its criteria, and whether each was met."""


class TerminalPrompt(Struct, frozen=True):
    """What a program waits for."""

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
    """Where its screen was last kept whole."""
    exit_code: int | None = None
    pid: int | None = None


class FlowRun(Struct):
    """What is to be known of a session that is a flow. Its document is in the journal alone, at the session's beginning."""

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
    """The latest ones that were decided, expired or withdrawn, oldest first."""
    text_parts: list[str] = []
    message_open: bool = False
    """Whether `text_parts` belong to a message that is still being streamed."""
    policy: str = "ask"
    thinking: str | None = None
    budget: events.Budget = field(default_factory=events.Budget)
    rules: list[events.Rule] = []
    """What decisions have allowed for the rest of the session."""
    queue: dict[str, events.MessageQueued] = {}
    """Messages that wait to be told to the model, in the order they came."""
    usage: UsageTotals = field(default_factory=UsageTotals)
    context_tokens: int = 0
    """What the last call of a model took in and put out: how full its context is."""
    context_window: int | None = None
    done: list[WorkspaceChange] = []
    """Runs that changed the workspace and can be undone, the last one last."""
    undone: list[WorkspaceChange] = []
    """Runs that were undone and can be made again, the last undone last."""
    loaded: bool | None = None
    counts: MessageCounts = field(default_factory=MessageCounts)
    clearings: int = 0
    """How often its conversation began anew."""
    conversation_from: int = 0
    """The seq at which it last did."""
    shells: dict[str, str] = {}
    """People's own commands that are running: id to command."""
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
    """By such an id, the hash of the message's text."""
    terminal: Terminal | None = None
    errands: dict[str, str] = {}
    """What is used in its workspace from afar at the moment: id to tool."""
    ended_at_ms: int | None = None
    """When its last run ended; None while one is under way."""
    host: str | None = None
    """Where it lives, when that is not here."""
    host_lost: bool = False
    relayed_seq: int = 0
    """The last of its host's numbers that we have."""
    alias: str | None = None
    """The id that its first client chose for it; see `events.SessionStarted`."""
    usage_before: UsageTotals = field(default_factory=UsageTotals)
    """Of `usage`, what belongs to conversations before the present one."""
    imported_usage: UsageTotals = field(default_factory=UsageTotals)
    """What the messages took that the conversation began with, elsewhere."""

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
        """Whether the active run can be continued after a restart. A program's terminal ends with the daemon that holds it, and
        a child with the process that started it;
        an agent goes on only from a question, because nobody knows what became of anything else that it was doing."""
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
        """The oldest question that waits for a decision."""
        return next(iter(self.run.pending.values()), None) if self.run else None


def fold(session: Session, seq: int, ts_ms: int, run_id: str | None, event: events.AnyEvent) -> None:
    """Makes one event part of the session."""
    assert seq == session.seq + 1, "seq is dense"
    session.seq = seq
    # Deltas are nearly all of the traffic and touch nothing but the text: the short way out comes first.
    if type(event) is events.TextDelta:
        if not session.message_open:
            session.text_parts = []
            session.message_open = True
        session.text_parts.append(event.text)
        session.updated_at_ms = ts_ms
        return
    if event.relayed is not None:
        session.relayed_seq = event.relayed.seq
    session.updated_at_ms = ts_ms
    if type(event) is events.ThinkingDelta or type(event) is events.ToolProgressed:
        return
    _fold_notable(session, ts_ms, run_id, event)
    if isinstance(event, states.ASKED_BY_CLIENTS) and not event.by.counts:
        session.version += 1
    if isinstance(event, events.RunCompleted):
        session.state = states.AFTER_RUN[event.outcome]
    elif isinstance(event, events.SessionDeleted) or not (
        session.state is events.SessionState.AWAITING_APPROVAL and session.run and session.run.pending
    ):
        session.state = states.TRANSITIONS.get((session.state, type(event)), session.state)


def _fold_notable(session: Session, ts_ms: int, run_id: str | None, event: events.AnyEvent) -> None:
    run = session.run
    match event:
        case events.SessionStarted():
            session.engine = event.engine
            session.mode = event.mode
            session.provider = event.provider
            session.model = event.model
            session.sandbox = event.sandbox
            session.workspace = event.workspace
            session.attach_token_sha256 = event.attach_token_sha256
            session.created_at_ms = ts_ms
            session.policy = event.policy
            session.thinking = event.thinking
            session.budget = event.budget
            session.parent = event.parent
            session.parent_run = event.parent_run
            session.preset = event.preset
            session.host = event.host
            session.alias = event.alias
            if event.program is not None:
                session.terminal = Terminal(event.program, event.program.cols, event.program.rows)
            if event.flow is not None:
                session.flow = FlowRun(event.flow.name, event.flow.lasting)
        case events.SessionLoaded():
            session.loaded = True
            session.version = 0
        case events.SessionUnloaded() | events.SessionDeleted():
            session.loaded = False
        case events.VersionAdvanced():
            session.version += 1
        case events.SessionConfigured():
            if event.provider is not None:
                session.provider, session.model = event.provider, event.model
            session.model = event.model or session.model
            session.policy = event.policy or session.policy
            session.thinking = event.thinking or session.thinking
            session.title = event.title or session.title
            session.auto_compact = session.auto_compact if event.auto_compact is None else event.auto_compact
            session.auto_retry = session.auto_retry if event.auto_retry is None else event.auto_retry
        case events.RunStarted():
            assert run is None, "one active run per session"
            assert run_id is not None, "a run has an id"
            session.run = Run(
                id=run_id,
                started_at_ms=ts_ms,
                headless=event.headless,
                acceptance=event.acceptance,
                rules=event.rules,
                purpose=event.purpose,
                force=event.force,
                started_at_seq=session.seq,
            )
            session.runs_started += 1
            session.ended_at_ms = None
            session.recent_messages, session.recent_texts = [], {}
            _remember_message(session, event.message_id, event.text)
            if event.message_id is not None:
                session.queue.pop(event.message_id, None)
            if event.purpose is events.Purpose.WORK:
                session.title = session.title or " ".join(event.text.split())[:TITLE_LENGTH]
                session.counts.user += 1
            elif event.purpose in (events.Purpose.PROGRAM, events.Purpose.FLOW):
                session.title = session.title or " ".join(event.text.split())[:TITLE_LENGTH]
            else:
                session.run.instructions = event.text
        case events.MessageQueued():
            session.queue[event.message_id] = event
            _remember_message(session, event.message_id, event.text)
        case events.MessageDelivered() | events.MessageWithdrawn():
            session.queue.pop(event.message_id, None)
            session.counts.user += isinstance(event, events.MessageDelivered)
        case events.ConversationCleared():
            session.counts = MessageCounts()
            session.usage_before, session.imported_usage = copy(session.usage), UsageTotals()
            session.clearings += 1
            session.conversation_from = session.seq
            session.text_parts = []
            session.context_tokens = 0
        case events.MessageImported():
            _fold_imported(session, event)
        case events.ShellStarted():
            session.shells[event.shell_id] = event.command
        case events.ShellFinished():
            session.counts.shells += session.shells.pop(event.shell_id, None) is not None
        case (
            events.TerminalTyped()
            | events.TerminalKeysTyped()
            | events.TerminalResized()
            | events.TerminalEchoChanged()
            | events.PromptShown()
            | events.PromptCleared()
            | events.ScreenCaptured()
        ):
            if session.terminal is not None:
                _fold_terminal(session.seq, session.terminal, event)
        case events.RemoteCallStarted():
            session.errands[event.errand_id] = event.tool
        case events.RemoteCallFinished():
            session.errands.pop(event.errand_id, None)
        case events.HostLost():
            session.host_lost = True
        case events.HostReturned():
            session.host_lost = False
        case events.DialogOpened() if run:
            run.dialogs[event.dialog.id] = event.dialog
        case events.DialogAnswered() | events.DialogClosed():
            if run:
                run.dialogs.pop(event.dialog_id, None)
        case events.ErrorRaised() if run:
            run.failure = event.message
        case events.MessageCompleted():
            session.counts.assistant += 1
            session.counts.tool_calls += len(event.calls)
            session.text_parts = [event.text] if event.text else session.text_parts
            session.message_open = False
            if run:
                run.cut_short = event.cut_short
        case events.ToolCalled() if run:
            run.open_calls[event.call_id] = event.tool
            if session.terminal is not None and isinstance(pid := event.args.get("pid"), int):
                session.terminal.pid = pid
        case events.ToolFinished():
            session.counts.tool_results += 1
            if run:
                run.open_calls.pop(event.call_id, None)
        case events.ApprovalRequested() if run:
            run.pending[event.approval.id] = event.approval
        case events.RetryScheduled():
            if session.message_open:
                session.text_parts = []  # the message begins again
        case events.UsageReported():
            session.usage.add(event)
            session.context_tokens = event.input_tokens + event.output_tokens
            session.context_window = event.context_window
            if run:
                run.usage.add(event)
        case events.ContextCompacted():
            session.context_tokens = event.tokens_after
        case events.CheckpointTaken() if run:
            _fold_checkpoint(session, run, event)
        case events.WorkspaceRestored():
            _fold_restoration(session, event)
        case events.ApprovalDecided() | events.ApprovalExpired() | events.ApprovalWithdrawn():
            if isinstance(event, events.ApprovalDecided) and event.rule is not None:
                session.rules.append(event.rule)
            if run:
                run.pending.pop(event.approval_id, None)
            session.closed_approvals.append(event.approval_id)
            del session.closed_approvals[:-CLOSED_APPROVALS_KEPT]
        case events.RunCancelRequested() if run:
            run.cancel_requested = True
        case events.RunCompleted():
            if run:
                if run.purpose is events.Purpose.WORK and event.outcome is not events.Outcome.SUCCESS:
                    session.counts.assistant += not run.cut_short  # an empty message, which has the reason
                accepted = {result.id: result.passed for result in event.acceptance}
                session.last_run = LastRun(run.id, event.outcome, event.summary, run.failure, accepted)
            if session.terminal is not None:
                session.terminal.waiting = None
                session.terminal.exit_code = event.exit_code
            if session.flow is not None:
                session.flow.exit_code = event.exit_code
            session.run = None
            session.ended_at_ms = ts_ms
            if session.host is not None:  # what its host has told the end of is not lost
                session.host_lost = False
            session.message_open = False
        case _:
            pass  # what is only told, such as a warning, changes nothing


def _remember_message(session: Session, message_id: str | None, text: str) -> None:
    if message_id is None:
        return
    session.recent_messages.append(message_id)
    session.recent_texts[message_id] = hash_text(text)
    for forgotten in session.recent_messages[:-RECENT_MESSAGES_KEPT]:
        session.recent_texts.pop(forgotten, None)
    del session.recent_messages[:-RECENT_MESSAGES_KEPT]


def hash_text(text: str) -> str:
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()


def _fold_terminal(
    seq: int,
    terminal: Terminal,
    event: events.TerminalTyped
    | events.TerminalKeysTyped
    | events.TerminalResized
    | events.TerminalEchoChanged
    | events.PromptShown
    | events.PromptCleared
    | events.ScreenCaptured,
) -> None:
    match event:
        case events.TerminalTyped() | events.TerminalKeysTyped() | events.PromptCleared():
            terminal.waiting = None
        case events.TerminalResized():
            terminal.cols, terminal.rows = event.cols, event.rows
        case events.TerminalEchoChanged():
            terminal.hides_typing = not event.on
        case events.PromptShown():
            terminal.waiting = TerminalPrompt(event.reason, event.prompt, event.approval_id)
        case events.ScreenCaptured():
            terminal.screen_seq = seq
        case _:
            assert_never(event)


def _fold_imported(session: Session, event: events.MessageImported) -> None:
    counts = session.counts
    if event.usage is not None:
        session.imported_usage.add(event.usage)
    match event.role:
        case "user" if event.origin is not None:
            counts.shells += 1  # no user has said it
        case "user":
            counts.user += 1
            session.title = session.title or " ".join(event.text.split())[:TITLE_LENGTH]
        case "assistant":
            counts.assistant += 1
            counts.tool_calls += len(event.calls)
            session.text_parts = [event.text] if event.text else session.text_parts
        case _:
            counts.tool_results += 1


def _fold_checkpoint(session: Session, run: Run, event: events.CheckpointTaken) -> None:
    if event.when == "before":
        run.checkpoint = event.tree
        session.done.append(WorkspaceChange(run.id, before=event.tree))
        session.undone.clear()  # a new change begins a new line of history
        del session.done[:-CHANGES_KEPT]
    elif session.done and session.done[-1].run_id == (event.of or run.id):
        change = session.done.pop()
        if change.before != event.tree:  # a run that changed nothing in the end leaves nothing to undo
            session.done.append(WorkspaceChange(change.run_id, change.before, event.tree))


def _fold_restoration(session: Session, event: events.WorkspaceRestored) -> None:
    source, target = (session.undone, session.done) if event.direction == "redo" else (session.done, session.undone)
    if source and source[-1].run_id == event.run_id:
        change = source.pop()
        target.append(WorkspaceChange(change.run_id, change.before, event.after))


def fold_entries(session: Session, entries: list[journal.Entry]) -> None:
    for entry in entries:
        fold(session, entry.seq, entry.ts_ms, entry.run_id, codec.decode(entry.kind, entry.data))


def make_card(session: Session) -> journal.Card:
    """The session as the index lists it."""
    pending = session.pending_approval
    terminal = session.terminal
    waiting = terminal.waiting if terminal else None
    return journal.Card(
        session_id=session.id,
        state=session.state,
        created_at_ms=session.created_at_ms,
        updated_at_ms=session.updated_at_ms,
        workspace=session.workspace,
        provider=session.provider,
        model=session.model,
        engine=session.engine,
        active_run_id=session.run.id if session.run else None,
        pending_approval_id=pending.id if pending else None,
        title=session.title,
        loaded=session.loaded,
        shells=len(session.shells),
        messages=session.counts.messages,
        mode=session.mode,
        tool=terminal.program.tool if terminal else "",
        ended_at_ms=session.ended_at_ms,
        exit_code=_find_exit_code(session),
        pid=terminal.pid if terminal and session.run else None,
        waits=journal.WaitingPrompt(waiting.reason, waiting.prompt) if waiting else None,
        question=summarize_approval(pending) if pending else None,
        host=session.host,
        host_lost=session.host_lost,
        policy=session.policy,
        sandbox=session.sandbox,
        child_of=session.parent_session,
        preset=session.preset.name if session.preset else None,
        alias=session.alias,
        spent=_summarize_usage(session),
        accepted=session.last_run.accepted if session.last_run and session.run is None else {},
    )


def _summarize_usage(session: Session) -> journal.UsageSummary | None:
    usage = session.usage
    if not usage.calls:
        return None
    cost = usage.cost if usage.calls > usage.unpriced_calls else None
    return journal.UsageSummary(usage.input_tokens, usage.output_tokens, cost, session.context_tokens, session.context_window)


def _find_exit_code(session: Session) -> int | None:
    if session.terminal is not None:
        return session.terminal.exit_code
    return session.flow.exit_code if session.flow is not None else None


def summarize_approval(approval: events.Approval) -> journal.ApprovalSummary:
    """An approval in short, for lists."""
    tool = approval.details.get("tool")
    return journal.ApprovalSummary(
        title=approval.title, tool=tool if isinstance(tool, str) else approval.kind, summary=approval.summary[:SUMMARY_LENGTH]
    )


_encoder = Encoder()
_decoder = Decoder(Session)


def encode_snapshot(session: Session) -> bytes:
    _ = session.last_assistant_text  # joins the parts, so that they are stored as one
    return _encoder.encode(session)


def decode_snapshot(snapshot: bytes) -> Session:
    return _decoder.decode(snapshot)
