"""Encodes push frames: journal entries become event envelopes, outcomes become responses. Each entry is exactly one event.

Pieces of streamed text are nearly all of the traffic, and their stored form is already push's payload: they are sent as they were
stored, without being decoded. Live and replayed events go through the same function, so they are the same bytes.
"""

from collections.abc import Sequence
from typing import Any, assert_never, cast, get_args

import msgspec
from msgspec import UNSET, Struct, UnsetType

from switchtower.core import codec, events
from switchtower.core.ports import journal
from switchtower.core.session import Session, UsageTotals
from switchtower.protocols.push import extension_messages, inbound, messages

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
"""The tool names that push clients can render."""

STATUS_DETAIL_LIMIT = 500
SCREEN_PHASE = "Screen"
"""The phase of a status whose detail repaints a terminal's whole screen."""

_TOOL_ERROR_TYPES = frozenset(get_args(messages.ToolErrorType))


def encode_batch(session_id: str, entries: Sequence[journal.Entry], seq_offset: int = 0) -> list[bytes]:
    """`seq_offset` is added to the journal's numbers to get this client's; see `inbound.py`."""
    as_stored = SENT_AS_STORED
    session = session_id.encode()
    return [
        b'{"v":"push.runtime.v1","kind":"event","sessionId":"%b","runId":"%b","seq":%d,"ts":%d,"type":"%b","payload":%b}'
        % (session, run_id.encode(), seq_offset + seq, ts_ms, as_stored[kind], data)
        if kind in as_stored and run_id is not None
        else encode_event(session_id, run_id, seq_offset + seq, ts_ms, codec.decode(kind, data))
        for seq, ts_ms, run_id, kind, data in entries
    ]


def encode_event(session_id: str, run_id: str | None, seq: int, ts_ms: int, event: events.AnyEvent) -> bytes:
    type_, payload = make_event_payload(session_id, run_id, event)
    return _encode_envelope(session_id, run_id, seq, ts_ms, type_, payload)


def _encode_envelope(session_id: str, run_id: str | None, seq: int, ts_ms: int, type_: str, payload: Struct) -> bytes:
    return _encode(
        messages.EventEnvelope(
            sessionId=session_id, runId=_unset_if_none(run_id), seq=seq, ts=ts_ms, type=type_, payload=_cast_to_object(payload)
        )
    )


def _cast_to_object(payload: Struct) -> dict[str, Any]:
    """A struct is an object on the wire; the envelope's type describes the wire."""
    return cast("dict[str, Any]", payload)


def make_event_payload(session_id: str, run_id: str | None, event: events.AnyEvent) -> tuple[str, Struct]:
    match event:
        case events.SessionStarted():
            return "session_started", messages.SessionStarted(
                session_id,
                events.SessionState.IDLE.value,
                _convert_mode(event.mode),
                event.provider,
                _convert_sandbox(event.sandbox),
            )
        case events.SessionResumed():
            return "session_snapshot", messages.SessionSnapshot(
                state=convert_state(event.state),
                activeRunId=event.active_run_id,
                lastAssistantText=event.last_assistant_text,
                pendingApproval=make_approval_required(event.pending_approval) if event.pending_approval else None,
                meta=messages.SnapshotMeta(event.provider, _convert_sandbox(event.sandbox)),
            )
        case events.SessionConfigured():
            return "warning", messages.Warn("SESSION_CONFIGURED", "The session was configured", _describe_configuration(event))
        # An event that belongs to no run is sent as a warning: the document's `status` belongs to a run.
        case events.SessionLoaded():
            return "warning", messages.Warn("SESSION_LOADED", "The session was loaded")
        case events.SessionUnloaded():
            return "warning", messages.Warn("SESSION_UNLOADED", "The session was unloaded; nothing of it is gone")
        case events.SessionDeleted():
            return "warning", messages.Warn("SESSION_DELETED", f"{event.by.label} deleted the session")
        case events.VersionAdvanced():
            return "warning", messages.Warn("SESSION_CHANGED", "A command has changed the session", event.command)
        case events.ConversationCleared():
            return "warning", messages.Warn("CONVERSATION_CLEARED", "A new conversation begins", _unset_if_none(event.origin))
        case events.MessageImported():
            return "warning", messages.Warn("MESSAGE_IMPORTED", f"Said elsewhere ({event.role})", _shorten(event.text))
        case events.ShellStarted():
            return "warning", messages.Warn("COMMAND_STARTED", f"{event.by.label} runs a command", _shorten(event.command))
        case events.ShellCancelRequested():
            return "warning", messages.Warn("COMMAND_CANCELLING", f"{event.by.label} cancels a command", event.shell_id)
        case events.ShellFinished():
            how = "was cancelled" if event.cancelled else f"ended with exit code {event.exit_code}"
            return "warning", messages.Warn("COMMAND_ENDED", f"The command {how}", _shorten(event.text))
        case events.TerminalTyped():
            return "status", _make_status(f"Typed by {_format_author(event)}", event.text)
        case events.TerminalKeysTyped():
            return "status", _make_status(f"Keys typed by {_format_author(event)}", str(event.count))
        case events.TerminalResized():
            return "status", _make_status("Terminal resized", f"{event.cols}x{event.rows}")
        case events.TerminalEchoChanged():
            return "status", _make_status("Typing is shown" if event.on else "Typing is hidden", None)
        case events.PromptShown():
            return "status", _make_status(f"Awaiting input: {event.reason}", event.prompt)
        case events.PromptCleared():
            return "status", _make_status("No longer awaiting input", None)
        case events.ScreenCaptured():
            return "status", messages.Status("tool", SCREEN_PHASE, event.text)  # not shortened: half a screen paints nothing
        case events.RemoteCallStarted():
            return "warning", messages.Warn(
                "ERRAND_STARTED", f"{event.by.label} uses {event.tool}", _shorten(_encode_json(event.args))
            )
        case events.RemoteCallFinished():
            how = "succeeded" if event.ok else f"failed: {event.error}"
            return "warning", messages.Warn("ERRAND_FINISHED", f"{event.tool} {how}", event.errand_id)
        case events.HostLost():
            return "warning", messages.Warn("HOST_LOST", "The session's host has not been heard of", event.host)
        case events.HostReturned():
            return "warning", messages.Warn("HOST_RETURNED", "The session's host is back", event.host)
        case events.HostEventReceived():
            return "warning", messages.Warn(
                "HOST_SAID", f"The session's host said `{event.type}`", _shorten(_encode_json(event.data))
            )
        case events.StepStopped():
            return "status", _make_status(f"Stopped: {event.step}", None)
        case events.DialogOpened():
            return "warning", messages.Warn("DIALOG_OPENED", event.dialog.title, _describe_dialog(event.dialog))
        case events.DialogAnswered():
            return "status", _make_status("Dialog answered", event.dialog_id)
        case events.DialogClosed():
            return "status", _make_status(f"Dialog closed: {event.reason}", event.dialog_id)
        case events.RunStarted():
            # A user's message is sent in full: no other event repeats it.
            return "status", messages.Status("orchestrator", _RUN_PHASES[event.purpose], event.text)
        case events.MessageQueued():
            return "status", messages.Status("orchestrator", "Message queued", event.text)
        case events.MessageDelivered():
            return "status", messages.Status("orchestrator", "Message delivered", event.text)
        case events.MessageWithdrawn():
            return "warning", messages.Warn("MESSAGE_WITHDRAWN", f"Not delivered: {event.reason}", event.message_id)
        case events.PromptExpanded():
            return "status", _make_status("Prompt expanded", ", ".join(event.sources))
        case events.PhaseChanged():
            return "status", _make_status(event.phase, event.detail)
        case events.RunCancelRequested():
            return "status", _make_status("Cancelling run", event.reason)
        case events.ThinkingDelta():
            return "thinking_token", messages.Token(event.text)
        case events.TextDelta():
            return "assistant_token", messages.Token(event.text)
        case events.MessageCompleted():
            return "assistant_done", messages.AssistantDone(event.message_id)
        case events.ToolCalled():
            return "tool_call", messages.ToolCall(_convert_tool_source(event.tool), _convert_tool_name(event.tool), event.args)
        case events.ToolProgressed():
            return "status", messages.Status("tool", "Tool output", event.text)
        case events.ToolFinished():
            return "tool_result", messages.ToolResult(
                source=_convert_tool_source(event.tool),
                toolName=_convert_tool_name(event.tool),
                durationMs=event.duration_ms,
                isError=event.is_error,
                text=event.text,
                structuredError=_convert_tool_error(event.error) if event.error else None,
            )
        case events.UsageReported():
            return "status", messages.Status("model", "Usage", _describe_usage(event))
        case events.RetryScheduled():
            return "warning", messages.Warn("MODEL_RETRY", event.notice, _shorten(event.reason))
        case events.RetryEnded():
            return "status", _make_status("Retry succeeded" if event.success else "Retries failed", event.reason)
        case events.CompactionStarted():
            return "status", _make_status("Compacting the context", event.reason)
        case events.ContextCompacted():
            return "status", _make_status("Context compacted", f"{event.tokens_before} tokens became about {event.tokens_after}")
        case events.CompactionFailed():
            return "warning", messages.Warn("COMPACTION_FAILED", f"The context was not compacted: {event.reason}")
        case events.CheckpointTaken():
            return "status", _make_status(f"Checkpoint {event.when} the run's changes", event.tree)
        case events.WorkspaceRestored():
            return "status", messages.Status(
                "orchestrator", "Workspace restored", _describe_restore(event)
            )  # a list is sent in full
        case events.ApprovalRequested():
            return "approval_required", make_approval_required(event.approval)
        case events.ApprovalDecided():
            decision: messages.ApprovalDecision = "approve" if event.verdict is events.Verdict.APPROVE else "deny"
            return "approval_received", messages.ApprovalReceived(event.approval_id, decision, _get_channel(event))
        case events.ApprovalExpired():
            return "warning", messages.Warn("APPROVAL_EXPIRED", "Nobody decided in time", event.approval_id)
        case events.ApprovalWithdrawn():
            return "warning", messages.Warn("APPROVAL_WITHDRAWN", f"No longer to be decided: {event.reason}", event.approval_id)
        case events.WarningRaised():
            return "warning", messages.Warn(event.code, event.message, _unset_if_none(event.detail))
        case events.ErrorRaised():
            return "error", messages.Failure(event.code, event.message, event.retryable, _unset_if_none(event.detail))
        case events.RunCompleted():
            assert run_id is not None, "a run has an id"
            return "run_complete", _make_run_complete(run_id, event)
        case _:
            assert_never(event)


def convert_state(state: events.SessionState) -> messages.SessionState:
    """A deleted session is not found, so no client is sent that state."""
    assert state is not events.SessionState.DELETED, "who is deleted is not told of"
    return cast(messages.SessionState, state.value)


def make_approval_required(approval: events.Approval) -> messages.ApprovalRequired:
    return messages.ApprovalRequired(
        approvalId=approval.id,
        kind=approval.kind,
        title=approval.title,
        summary=approval.summary,
        details=approval.details,
        options=cast("list[messages.ApprovalDecision]", list(approval.options)),
        expiresAt=approval.expires_at_ms,
    )


def encode_gap(session: Session, last_seen_seq: int, earliest_seq: int, ts_ms: int, seq_offset: int) -> list[bytes]:
    """The frames for a client whose cursor cannot be served: a warning, and a snapshot of the session.

    Neither is journalled, so they take the last two numbers of the events that this client is not sent, in a numbering that this
    client has not seen: neither number is a duplicate, and the next event has the number after the snapshot's.
    """
    cursor = inbound.get_journal_seq(last_seen_seq)
    if cursor > session.seq:
        detail = f"Requested lastSeenSeq={last_seen_seq} but the last seq is {session.seq}"
    else:
        detail = f"Requested lastSeenSeq={last_seen_seq} but earliest retained seq is {earliest_seq}"
    warning = messages.Warn("EVENT_GAP", "Replay gap detected; snapshot sent.", detail)
    return [
        _encode_envelope(session.id, None, seq_offset + session.seq - 1, ts_ms, "warning", warning),
        encode_snapshot(session, ts_ms, seq_offset),
    ]


def encode_snapshot(session: Session, ts_ms: int, seq_offset: int) -> bytes:
    """A snapshot of the session for one client. It has the number of the last event that it includes."""
    pending = session.pending_approval
    snapshot = messages.SessionSnapshot(
        state=convert_state(session.state),
        activeRunId=session.run.id if session.run else None,
        lastAssistantText=session.last_assistant_text,
        pendingApproval=make_approval_required(pending) if pending else None,
        meta=messages.SnapshotMeta(session.provider, _convert_sandbox(session.sandbox)),
    )
    return _encode_envelope(session.id, None, seq_offset + session.seq, ts_ms, "session_snapshot", snapshot)


def encode_response(request_id: str, type_: str, session_id: str | None, payload: Struct) -> bytes:
    return _encode(
        messages.ResponseEnvelope(
            requestId=request_id,
            type=type_,
            sessionId=_unset_if_none(session_id),
            ok=True,
            payload=_cast_to_object(payload),
            error=None,
        )
    )


def encode_pong(request_id: str, ts_ms: int) -> bytes:
    """Encodes the same bytes as `encode_response` for a ping without a session, from a template: pings arrive by the thousand."""
    return _PONG % (request_id.encode(), ts_ms)


_PONG = (
    b'{"v":"push.runtime.v1","kind":"response","requestId":"%b","type":"ping","ok":true,'
    b'"payload":{"pong":true,"ts":%d},"error":null}'
)


def encode_error_response(request_id: str, type_: str, session_id: str | None, error: messages.ProtocolError) -> bytes:
    return _encode(
        messages.ResponseEnvelope(
            requestId=request_id, type=type_, sessionId=_unset_if_none(session_id), ok=False, payload={}, error=error
        )
    )


def make_listed_session(card: journal.Card) -> messages.ListedSession:
    return messages.ListedSession(
        sessionId=card.session_id,
        state=convert_state(card.state),
        updatedAt=card.updated_at_ms,
        repo=messages.ListedRepo(card.workspace.root, card.workspace.branch or ""),
    )


def make_session_info(session: Session) -> extension_messages.SessionInfo:
    run = session.run
    return extension_messages.SessionInfo(
        sessionId=session.id,
        state=convert_state(session.state),
        title=session.title,
        mode=session.mode,
        engine=session.engine,
        provider=session.provider,
        model=session.model,
        thinking=session.thinking,
        policy=session.policy,
        rules=[extension_messages.Rule(rule.effect, rule.tool, rule.path, rule.command) for rule in session.rules],
        limits=messages.Limits(
            session.budget.max_turns, session.budget.max_tokens, session.budget.max_cost, session.budget.max_minutes
        ),
        sandbox=session.sandbox,
        rootPath=session.workspace.root,
        branch=session.workspace.branch,
        worktreeOf=session.workspace.origin,
        activeRunId=run.id if run else None,
        queue=[
            extension_messages.QueuedMessage(queued.message_id, queued.text, queued.delivery.value)
            for queued in session.queue.values()
        ],
        usage=_make_usage_total(session.usage),
        runUsage=_make_usage_total(run.usage) if run else None,
        contextTokens=session.context_tokens,
        contextWindow=session.context_window,
        undoable=len(session.done),
        redoable=len(session.undone),
        version=session.version,
        lastSeq=session.seq,
        createdAt=session.created_at_ms,
        updatedAt=session.updated_at_ms,
        preset=session.preset.name if session.preset else None,
        terminal=_make_terminal(session),
        childOf=session.parent_session,
    )


def _make_terminal(session: Session) -> extension_messages.Terminal | None:
    terminal = session.terminal
    if terminal is None:
        return None
    return extension_messages.Terminal(
        tool=terminal.program.tool,
        command=terminal.program.command,
        cols=terminal.cols,
        rows=terminal.rows,
        screenSeq=terminal.screen_seq,
        waitsFor=terminal.waiting.reason if terminal.waiting else None,
        exitCode=terminal.exit_code,
        host=session.host,
    )


def make_terminal_listing(card: journal.Card) -> extension_messages.TerminalListing:
    waits_for = card.waits.reason if card.waits else None
    return extension_messages.TerminalListing(card.session_id, card.tool, card.title, waits_for, card.exit_code, card.host)


def _make_usage_total(usage: UsageTotals) -> extension_messages.Usage:
    return extension_messages.Usage(
        calls=usage.calls,
        inputTokens=usage.input_tokens,
        outputTokens=usage.output_tokens,
        cacheReadTokens=usage.cache_read_tokens,
        cacheWriteTokens=usage.cache_write_tokens,
        cost=usage.cost,
        unpricedCalls=usage.unpriced_calls,
    )


def _make_run_complete(run_id: str, event: events.RunCompleted) -> messages.RunComplete:
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


def _describe_configuration(event: events.SessionConfigured) -> str:
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


def _describe_dialog(dialog: events.Dialog) -> str:
    """Describes the dialog and its kinds of answer, for `answer_dialog`."""
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


def _encode_json(value: dict[str, Any]) -> str:
    return _encode(value).decode()


def _describe_usage(event: events.UsageReported) -> str:
    cost = "" if event.cost is None else f", ${event.cost:.6f}"
    estimated = "; estimated" if event.is_estimate else ""
    return f"{event.input_tokens} tokens in, {event.output_tokens} out{cost} ({event.provider} {event.model}{estimated})"


def _describe_restore(event: events.WorkspaceRestored) -> str:
    skipped = f"; left alone: {', '.join(event.skipped)}" if event.skipped else ""
    failed = f"; failed: {', '.join(event.failed)}" if event.failed else ""
    return f"{event.direction} of {event.run_id}: {', '.join(event.files) or 'nothing to change'}{skipped}{failed}"


def _make_status(phase: str, detail: str | None) -> messages.Status:
    return messages.Status("orchestrator", phase, UNSET if detail is None else _shorten(detail))


def _shorten(detail: str) -> str:
    return detail[:STATUS_DETAIL_LIMIT]


def _convert_tool_error(error: events.ToolError) -> messages.StructuredError:
    known: Any = error.type if error.type in _TOOL_ERROR_TYPES else "UNKNOWN"
    return messages.StructuredError(known, error.retryable, error.message, _unset_if_none(error.detail))


def _convert_tool_name(tool: str) -> str:
    return TOOL_NAMES.get(tool, tool)


def _convert_tool_source(tool: str) -> messages.ToolSource:
    return "sandbox" if tool in TOOL_NAMES else "unknown"


def _convert_mode(mode: str) -> messages.Mode:
    """Sessions of other protocols have no modes; a user watches them."""
    return "headless" if mode == "headless" else "interactive"


def _convert_sandbox(sandbox: str) -> messages.SandboxProvider:
    return "modal" if sandbox == "modal" else "local"


def _unset_if_none(value: str | None) -> str | UnsetType:
    return UNSET if value is None else value


def _format_author(event: events.TerminalTyped | events.TerminalKeysTyped) -> str:
    """In entries that an older version mirrored from a host, the host's claim is in the actor's place."""
    if event.relayed is not None and event.by.via != "host":
        return f"the host, which says {event.by.name}"
    return event.by.label


def _get_channel(event: events.ApprovalDecided) -> str:
    return "host" if event.relayed is not None else event.by.via
