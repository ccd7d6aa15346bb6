"""Folds events into a session. Only `fold` changes one, and it is the same for live events, for recovery and for a load from a
snapshot plus the tail.
"""

import hashlib
from copy import copy
from typing import assert_never

from msgspec.json import Decoder, Encoder

from switchtower.core import codec, events, states
from switchtower.core.ports import journal
from switchtower.core.session import (
    FlowRun,
    LastRun,
    MessageCounts,
    Run,
    Session,
    Terminal,
    TerminalPrompt,
    UsageTotals,
    WorkspaceChange,
)

CLOSED_APPROVALS_KEPT = 1_000
CHANGES_KEPT = 100
RECENT_MESSAGES_KEPT = 200
TITLE_LENGTH = 80
SUMMARY_LENGTH = 80


def fold(session: Session, seq: int, ts_ms: int, run_id: str | None, event: events.AnyEvent) -> None:
    """Makes one event part of the session."""
    assert seq == session.seq + 1, "seq is dense"
    session.seq = seq
    # Deltas are nearly all of the traffic and touch nothing but the text: the short path comes first.
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
                session.text_parts = []  # the message starts again
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
            if session.host is not None:  # a session whose host has reported its end is not lost
                session.host_lost = False
            session.message_open = False
        case _:
            pass  # an event that only informs, such as a warning, changes nothing


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
            counts.shells += 1  # no user wrote it
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
        session.undone.clear()  # a new change starts a new line of history
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
    """Returns the session as the index lists it."""
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
    """Returns an approval in short, for lists."""
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
