"""Push frames out: journal entries to event envelopes, outcomes to responses. Each entry is exactly one event.

The pieces of streamed text are nearly all of the traffic, and their stored form is already push's payload: they are sent as
they were stored, without being decoded. Live and replayed events go through the same function, so they are the same bytes.
"""

from collections.abc import Sequence
from typing import Any, assert_never, cast, get_args

import msgspec
from msgspec import UNSET, Struct, UnsetType

from switchtower.core import codec, events, journal
from switchtower.core.session import Session, Usage
from switchtower.protocols.push import extensions, messages, numbers

_encode = msgspec.json.Encoder().encode

SENT_AS_STORED: dict[str, bytes] = {
    events.TextDelta.kind: b"assistant_token",
    events.ThinkingDelta.kind: b"thinking_token",
}

TOOL_NAMES = {
    "list_dir": "sandbox_list_dir",
    "read_file": "sandbox_read_file",
    "search": "sandbox_search",
    "write_file": "sandbox_write_file",
    "edit_file": "sandbox_edit_file",
    "run": "sandbox_exec",
    "git_diff": "sandbox_diff",
    "git_status": "sandbox_status",
    "git_commit": "sandbox_commit",
}
"""The names that push clients know how to render."""

STATUS_DETAIL_LIMIT = 500
SCREEN_PHASE = "Screen"
"""The phase of a status whose detail paints a terminal's whole screen."""

_TOOL_ERROR_TYPES = frozenset(get_args(messages.ToolErrorType))


def frames(session_id: str, entries: Sequence[journal.Entry], numbering: int = 0) -> list[bytes]:
    """`numbering` is what a client's numbers have in addition to the journal's, see `numbers.py`."""
    as_stored = SENT_AS_STORED
    session = session_id.encode()
    return [
        b'{"v":"push.runtime.v1","kind":"event","sessionId":"%b","runId":"%b","seq":%d,"ts":%d,"type":"%b","payload":%b}'
        % (session, run_id.encode(), numbering + seq, ts_ms, as_stored[kind], data)
        if kind in as_stored and run_id is not None
        else event_frame(session_id, run_id, numbering + seq, ts_ms, codec.decode(kind, data))
        for seq, ts_ms, run_id, kind, data in entries
    ]


def event_frame(session_id: str, run_id: str | None, seq: int, ts_ms: int, event: events.AnyEvent) -> bytes:
    type_, payload = event_payload(session_id, run_id, event)
    return _event(session_id, run_id, seq, ts_ms, type_, payload)


def _event(session_id: str, run_id: str | None, seq: int, ts_ms: int, type_: str, payload: Struct) -> bytes:
    return _encode(
        messages.EventEnvelope(
            sessionId=session_id, runId=_or_unset(run_id), seq=seq, ts=ts_ms, type=type_, payload=_as_object(payload)
        )
    )


def _as_object(payload: Struct) -> dict[str, Any]:
    """A struct is an object on the wire; the envelope's type describes the wire."""
    return cast("dict[str, Any]", payload)


def event_payload(session_id: str, run_id: str | None, event: events.AnyEvent) -> tuple[str, Struct]:
    match event:
        case events.SessionStarted():
            return "session_started", messages.SessionStarted(
                session_id, events.SessionState.IDLE.value, _mode(event.mode), event.provider, _sandbox(event.sandbox)
            )
        case events.SessionResumed():
            return "session_snapshot", messages.SessionSnapshot(
                state=wire_state(event.state),
                activeRunId=event.active_run_id,
                lastAssistantText=event.last_assistant_text,
                pendingApproval=approval_required(event.pending_approval) if event.pending_approval else None,
                meta=messages.SnapshotMeta(event.provider, _sandbox(event.sandbox)),
            )
        case events.SessionConfigured():
            return "warning", messages.Warn("SESSION_CONFIGURED", "The session was configured", _configuration(event))
        # What belongs to no run is told as a warning: the document's `status` is a run's.
        case events.SessionLoaded():
            return "warning", messages.Warn("SESSION_LOADED", "The session was loaded")
        case events.SessionUnloaded():
            return "warning", messages.Warn("SESSION_UNLOADED", "The session was unloaded; nothing of it is gone")
        case events.SessionDeleted():
            return "warning", messages.Warn("SESSION_DELETED", f"{event.by.label} deleted the session")
        case events.VersionAdvanced():
            return "warning", messages.Warn("SESSION_CHANGED", "A command has changed the session", event.command)
        case events.ConversationCleared():
            return "warning", messages.Warn("CONVERSATION_CLEARED", "A new conversation begins", _or_unset(event.origin))
        case events.MessageImported():
            return "warning", messages.Warn("MESSAGE_IMPORTED", f"Said elsewhere ({event.role})", _cut(event.text))
        case events.ShellStarted():
            return "warning", messages.Warn("COMMAND_STARTED", f"{event.by.label} runs a command", _cut(event.command))
        case events.ShellCancelRequested():
            return "warning", messages.Warn("COMMAND_CANCELLING", f"{event.by.label} cancels a command", event.shell_id)
        case events.ShellFinished():
            how = "was cancelled" if event.cancelled else f"ended with exit code {event.exit_code}"
            return "warning", messages.Warn("COMMAND_ENDED", f"The command {how}", _cut(event.text))
        case events.TerminalTyped():
            return "status", _status(f"Typed by {_who(event)}", event.text)
        case events.TerminalKeys():
            return "status", _status(f"Keys typed by {_who(event)}", str(event.count))
        case events.TerminalResized():
            return "status", _status("Terminal resized", f"{event.cols}x{event.rows}")
        case events.TerminalEchoed():
            return "status", _status("Typing is shown" if event.on else "Typing is hidden", None)
        case events.PromptShown():
            return "status", _status(f"Awaiting input: {event.reason}", event.prompt)
        case events.PromptGone():
            return "status", _status("No longer awaiting input", None)
        case events.ScreenTaken():
            return "status", messages.Status("tool", SCREEN_PHASE, event.text)  # told whole: half a screen paints nothing
        case events.ErrandStarted():
            return "warning", messages.Warn("ERRAND_STARTED", f"{event.by.label} uses {event.tool}", _cut(_json(event.args)))
        case events.ErrandFinished():
            how = "succeeded" if event.ok else f"failed: {event.error}"
            return "warning", messages.Warn("ERRAND_FINISHED", f"{event.tool} {how}", event.errand_id)
        case events.HostLost():
            return "warning", messages.Warn("HOST_LOST", "The session's host has not been heard of", event.host)
        case events.HostReturned():
            return "warning", messages.Warn("HOST_RETURNED", "The session's host is back", event.host)
        case events.HostSaid():
            return "warning", messages.Warn("HOST_SAID", f"The session's host said `{event.type}`", _cut(_json(event.data)))
        case events.StepStopped():
            return "status", _status(f"Stopped: {event.step}", None)
        case events.DialogOpened():
            return "warning", messages.Warn("DIALOG_OPENED", event.dialog.title, _dialog(event.dialog))
        case events.DialogAnswered():
            return "status", _status("Dialog answered", event.dialog_id)
        case events.DialogClosed():
            return "status", _status(f"Dialog closed: {event.reason}", event.dialog_id)
        case events.RunStarted():
            # What people wrote is told whole: nobody else tells it again.
            return "status", messages.Status("orchestrator", _RUN_PHASES[event.purpose], event.text)
        case events.MessageQueued():
            return "status", messages.Status("orchestrator", "Message queued", event.text)
        case events.MessageDelivered():
            return "status", messages.Status("orchestrator", "Message delivered", event.text)
        case events.MessageWithdrawn():
            return "warning", messages.Warn("MESSAGE_WITHDRAWN", f"Not delivered: {event.reason}", event.message_id)
        case events.PromptExpanded():
            return "status", _status("Prompt expanded", ", ".join(event.sources))
        case events.PhaseChanged():
            return "status", _status(event.phase, event.detail)
        case events.RunCancelRequested():
            return "status", _status("Cancelling run", event.reason)
        case events.ThinkingDelta():
            return "thinking_token", messages.Token(event.text)
        case events.TextDelta():
            return "assistant_token", messages.Token(event.text)
        case events.MessageCompleted():
            return "assistant_done", messages.AssistantDone(event.message_id)
        case events.ToolCalled():
            return "tool_call", messages.ToolCall(_tool_source(event.tool), _tool_name(event.tool), event.args)
        case events.ToolProgressed():
            return "status", messages.Status("tool", "Tool output", event.text)
        case events.ToolFinished():
            return "tool_result", messages.ToolResult(
                source=_tool_source(event.tool),
                toolName=_tool_name(event.tool),
                durationMs=event.duration_ms,
                isError=event.is_error,
                text=event.text,
                structuredError=_structured_error(event.error) if event.error else None,
            )
        case events.UsageReported():
            return "status", messages.Status("model", "Usage", _usage(event))
        case events.RetryScheduled():
            return "warning", messages.Warn("MODEL_RETRY", event.notice, _cut(event.reason))
        case events.RetryEnded():
            return "status", _status("Retry succeeded" if event.success else "Retries failed", event.reason)
        case events.CompactionStarted():
            return "status", _status("Compacting the context", event.reason)
        case events.ContextCompacted():
            return "status", _status("Context compacted", f"{event.tokens_before} tokens became about {event.tokens_after}")
        case events.CompactionFailed():
            return "warning", messages.Warn("COMPACTION_FAILED", f"The context was not compacted: {event.reason}")
        case events.CheckpointTaken():
            return "status", _status(f"Checkpoint {event.when} the run's changes", event.tree)
        case events.WorkspaceRestored():
            return "status", messages.Status("orchestrator", "Workspace restored", _restored(event))  # a list is told whole
        case events.ApprovalRequested():
            return "approval_required", approval_required(event.approval)
        case events.ApprovalDecided():
            decision: messages.ApprovalDecision = "approve" if event.verdict is events.Verdict.APPROVE else "deny"
            return "approval_received", messages.ApprovalReceived(event.approval_id, decision, _via(event))
        case events.ApprovalExpired():
            return "warning", messages.Warn("APPROVAL_EXPIRED", "Nobody decided in time", event.approval_id)
        case events.ApprovalWithdrawn():
            return "warning", messages.Warn("APPROVAL_WITHDRAWN", f"No longer to be decided: {event.reason}", event.approval_id)
        case events.WarningRaised():
            return "warning", messages.Warn(event.code, event.message, _or_unset(event.detail))
        case events.ErrorRaised():
            return "error", messages.Failure(event.code, event.message, event.retryable, _or_unset(event.detail))
        case events.RunCompleted():
            assert run_id is not None, "a run has an id"
            return "run_complete", _run_complete(run_id, event)
        case _:
            assert_never(event)


def wire_state(state: events.SessionState) -> messages.SessionState:
    """A deleted session is not found, so nobody is told of that state."""
    assert state is not events.SessionState.DELETED, "who is deleted is not told of"
    return cast(messages.SessionState, state.value)


def approval_required(approval: events.Approval) -> messages.ApprovalRequired:
    return messages.ApprovalRequired(
        approvalId=approval.id,
        kind=approval.kind,
        title=approval.title,
        summary=approval.summary,
        details=approval.details,
        options=cast("list[messages.ApprovalDecision]", list(approval.options)),
        expiresAt=approval.expires_at_ms,
    )


def gap_frames(session: Session, last_seen_seq: int, earliest_seq: int, ts_ms: int, numbering: int) -> list[bytes]:
    """What a client is sent when its cursor cannot be served: a warning, and where the session stands.

    Neither is journalled, so they have the last two numbers of what this client is not sent, in a numbering that this client
    has not seen: no number of theirs is a duplicate, and what comes next has the snapshot's successor.
    """
    cursor = numbers.journal_seq(last_seen_seq)
    if cursor > session.seq:
        detail = f"Requested lastSeenSeq={last_seen_seq} but the last seq is {session.seq}"
    else:
        detail = f"Requested lastSeenSeq={last_seen_seq} but earliest retained seq is {earliest_seq}"
    warning = messages.Warn("EVENT_GAP", "Replay gap detected; snapshot sent.", detail)
    return [
        _event(session.id, None, numbering + session.seq - 1, ts_ms, "warning", warning),
        snapshot_frame(session, ts_ms, numbering),
    ]


def snapshot_frame(session: Session, ts_ms: int, numbering: int) -> bytes:
    """Where the session stands, for one client. It has the number of the last event that it includes."""
    pending = session.pending_approval
    snapshot = messages.SessionSnapshot(
        state=wire_state(session.state),
        activeRunId=session.run.id if session.run else None,
        lastAssistantText=session.last_assistant_text,
        pendingApproval=approval_required(pending) if pending else None,
        meta=messages.SnapshotMeta(session.provider, _sandbox(session.sandbox)),
    )
    return _event(session.id, None, numbering + session.seq, ts_ms, "session_snapshot", snapshot)


def answer(request_id: str, type_: str, session_id: str | None, payload: Struct) -> bytes:
    return _encode(
        messages.ResponseEnvelope(
            requestId=request_id, type=type_, sessionId=_or_unset(session_id), ok=True, payload=_as_object(payload), error=None
        )
    )


def pong(request_id: str, ts_ms: int) -> bytes:
    """The same as `answer` for a ping without a session, from a template: pings come by the thousand."""
    return _PONG % (request_id.encode(), ts_ms)


_PONG = (
    b'{"v":"push.runtime.v1","kind":"response","requestId":"%b","type":"ping","ok":true,'
    b'"payload":{"pong":true,"ts":%d},"error":null}'
)


def refusal(request_id: str, type_: str, session_id: str | None, error: messages.ProtocolError) -> bytes:
    return _encode(
        messages.ResponseEnvelope(
            requestId=request_id, type=type_, sessionId=_or_unset(session_id), ok=False, payload={}, error=error
        )
    )


def listed(card: journal.Card) -> messages.ListedSession:
    return messages.ListedSession(
        sessionId=card.session_id,
        state=wire_state(card.state),
        updatedAt=card.updated_at_ms,
        repo=messages.ListedRepo(card.workspace.root, card.workspace.branch or ""),
    )


def session_info(session: Session) -> extensions.SessionInfo:
    run = session.run
    return extensions.SessionInfo(
        sessionId=session.id,
        state=wire_state(session.state),
        title=session.title,
        mode=session.mode,
        engine=session.engine,
        provider=session.provider,
        model=session.model,
        thinking=session.thinking,
        policy=session.policy,
        rules=[extensions.Rule(rule.effect, rule.tool, rule.path, rule.command) for rule in session.rules],
        limits=messages.Limits(
            session.budget.max_turns, session.budget.max_tokens, session.budget.max_cost, session.budget.max_minutes
        ),
        sandbox=session.sandbox,
        rootPath=session.workspace.root,
        branch=session.workspace.branch,
        worktreeOf=session.workspace.origin,
        activeRunId=run.id if run else None,
        queue=[
            extensions.QueuedMessage(queued.message_id, queued.text, queued.delivery.value) for queued in session.queue.values()
        ],
        usage=_usage_total(session.usage),
        runUsage=_usage_total(run.usage) if run else None,
        contextTokens=session.context_tokens,
        contextWindow=session.context_window,
        undoable=len(session.done),
        redoable=len(session.undone),
        version=session.version,
        lastSeq=session.seq,
        createdAt=session.created_at_ms,
        updatedAt=session.updated_at_ms,
        preset=session.preset.name if session.preset else None,
        terminal=_terminal(session),
        childOf=session.child_of,
    )


def _terminal(session: Session) -> extensions.Terminal | None:
    terminal = session.terminal
    if terminal is None:
        return None
    return extensions.Terminal(
        tool=terminal.program.tool,
        command=terminal.program.command,
        cols=terminal.cols,
        rows=terminal.rows,
        screenSeq=terminal.screen_seq,
        waitsFor=terminal.waiting.reason if terminal.waiting else None,
        exitCode=terminal.exit_code,
        host=session.host,
    )


def terminal_listing(card: journal.Card) -> extensions.TerminalListing:
    waits_for = card.waits.reason if card.waits else None
    return extensions.TerminalListing(card.session_id, card.tool, card.title, waits_for, card.exit_code, card.host)


def _usage_total(usage: Usage) -> extensions.Usage:
    return extensions.Usage(
        calls=usage.calls,
        inputTokens=usage.input_tokens,
        outputTokens=usage.output_tokens,
        cacheReadTokens=usage.cache_read_tokens,
        cacheWriteTokens=usage.cache_write_tokens,
        cost=usage.cost,
        unpricedCalls=usage.unpriced_calls,
    )


def _run_complete(run_id: str, event: events.RunCompleted) -> messages.RunComplete:
    results = [messages.CriterionResult(result.id, result.passed, result.exit_code, result.output) for result in event.acceptance]
    passed = sum(result.passed for result in results)
    return messages.RunComplete(
        runId=run_id,
        outcome=event.outcome.value,
        summary=event.summary,
        acceptance=messages.Acceptance(len(results), passed, results),
        headless=messages.Headless(event.exit_code_hint),
    )


_RUN_PHASES = {
    events.Purpose.WORK: "Run started",
    events.Purpose.COMPACT: "Compaction started",
    events.Purpose.UNDO: "Undo started",
    events.Purpose.REDO: "Redo started",
    events.Purpose.PROGRAM: "Program started",
    events.Purpose.FLOW: "Flow started",
}


def _configuration(event: events.SessionConfigured) -> str:
    changed = {
        "provider": event.provider,
        "model": event.model,
        "policy": event.policy,
        "thinking": event.thinking,
        "title": event.title,
        "auto_compact": event.auto_compact,
        "auto_retry": event.auto_retry,
    }
    return ", ".join(f"{name}={value}" for name, value in changed.items() if value is not None)


def _dialog(dialog: events.Dialog) -> str:
    """Which it is and how it is to be answered, for `answer_dialog`."""
    told = {
        "dialogId": dialog.id,
        "method": dialog.method,
        "message": dialog.message,
        "options": dialog.options,
        "placeholder": dialog.placeholder,
        "prefill": dialog.prefill,
        "questions": dialog.questions,
        "expiresAt": dialog.expires_at_ms,
    }
    return _encode(told).decode()


def _json(value: dict[str, Any]) -> str:
    return _encode(value).decode()


def _usage(event: events.UsageReported) -> str:
    cost = "" if event.cost is None else f", ${event.cost:.6f}"
    estimated = "; estimated" if event.is_estimate else ""
    return f"{event.input_tokens} tokens in, {event.output_tokens} out{cost} ({event.provider} {event.model}{estimated})"


def _restored(event: events.WorkspaceRestored) -> str:
    skipped = f"; left alone: {', '.join(event.skipped)}" if event.skipped else ""
    failed = f"; failed: {', '.join(event.failed)}" if event.failed else ""
    return f"{event.direction} of {event.run_id}: {', '.join(event.files) or 'nothing to change'}{skipped}{failed}"


def _status(phase: str, detail: str | None) -> messages.Status:
    return messages.Status("orchestrator", phase, UNSET if detail is None else _cut(detail))


def _cut(detail: str) -> str:
    return detail[:STATUS_DETAIL_LIMIT]


def _structured_error(error: events.ToolError) -> messages.StructuredError:
    known: Any = error.type if error.type in _TOOL_ERROR_TYPES else "UNKNOWN"
    return messages.StructuredError(known, error.retryable, error.message, _or_unset(error.detail))


def _tool_name(tool: str) -> str:
    return TOOL_NAMES.get(tool, tool)


def _tool_source(tool: str) -> messages.ToolSource:
    return "sandbox" if tool in TOOL_NAMES else "unknown"


def _mode(mode: str) -> messages.Mode:
    """Sessions of other protocols know no modes; someone is watching them."""
    return "headless" if mode == "headless" else "interactive"


def _sandbox(sandbox: str) -> messages.SandboxProvider:
    return "modal" if sandbox == "modal" else "local"


def _or_unset(value: str | None) -> str | UnsetType:
    return UNSET if value is None else value


def _who(event: events.TerminalTyped | events.TerminalKeys) -> str:
    """Entries that an older version took from a host have the host's claim in the actor's place."""
    if event.relayed is not None and event.by.via != "host":
        return f"the host, which says {event.by.name}"
    return event.by.label


def _via(event: events.ApprovalDecided) -> str:
    return "host" if event.relayed is not None else event.by.via
