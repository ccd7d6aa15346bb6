"""Every rule: what a command means for a session. Pure: `(session, command) → events and an outcome`, or a refusal raised.

Time and ids come in as arguments. Nothing here waits, so each rule can be tested without an event loop.
"""

from collections.abc import Sequence
from typing import Any, assert_never

from msgspec import Struct

from switchtower.core import commands, errors, events, ids, states
from switchtower.core.session import Run, Session

SUMMARY_TEXT_LIMIT = 4_000


class Decision(Struct, frozen=True):
    """What is to be journalled, for which run, and what the asker is told once it is."""

    events: Sequence[events.AnyEvent]
    run_id: str | None = None
    outcome: dict[str, Any] = {}


def decide(session: Session, command: commands.AnyCommand, *, now_ms: int, mint: ids.Mint) -> Decision:
    if isinstance(command, commands.StartSession):
        return _start(session, command)
    if session.seq == 0:
        raise errors.SessionNotFound(session.id)
    if command.expected_version is not None and command.expected_version != session.version:
        raise errors.VersionMismatch(f"expected {command.expected_version}, got {session.version}")
    match command:
        case commands.ResumeSession():
            return Decision([_summary(session, command.actor)])
        case commands.SendMessage():
            return _send(session, command, mint)
        case commands.DecideApproval():
            return _decide_approval(session, command, now_ms)
        case commands.CancelRun():
            return _cancel(session, command)
        case commands.RequestApproval():
            return _request_approval(session, command, mint)
        case commands.ExpireApproval():
            return _expire(session, command)
        case commands.FinishRun():
            return _finish(session, command)
        case commands.InterruptRun():
            return _interrupt(session, command)
        case _:
            assert_never(command)


def _start(session: Session, command: commands.StartSession) -> Decision:
    if session.seq:
        raise errors.InvalidCommand(f"session {session.id} already exists")
    started = events.SessionStarted(
        engine=command.engine,
        mode=command.mode,
        provider=command.provider,
        model=command.model,
        sandbox=command.sandbox,
        workspace=command.workspace,
        by=command.actor,
        attach_token_sha256=command.attach_token_sha256,
        metadata=command.metadata,
    )
    return Decision([started])


def _summary(session: Session, actor: events.Actor) -> events.SessionResumed:
    return events.SessionResumed(
        by=actor,
        state=session.state,
        provider=session.provider,
        sandbox=session.sandbox,
        active_run_id=session.run.id if session.run else None,
        last_assistant_text=session.last_assistant_text[-SUMMARY_TEXT_LIMIT:],
        pending_approval=session.pending_approval,
    )


def _send(session: Session, command: commands.SendMessage, mint: ids.Mint) -> Decision:
    # push, Concurrency Rules: one active run per session
    if session.run is not None:
        raise errors.RunInProgress(session.run.id)
    run_id = mint("run")
    started = events.RunStarted(
        text=command.text,
        by=command.actor,
        message_id=command.idempotency_key,
        headless=session.mode == "headless",
        acceptance=command.acceptance,
    )
    return Decision([started], run_id, {"run_id": run_id})


def _decide_approval(session: Session, command: commands.DecideApproval, now_ms: int) -> Decision:
    run = session.run
    approval = run.pending.get(command.approval_id) if run else None
    if approval is None or run is None:
        # push, Concurrency Rules: the first valid decision wins, later ones learn that it is over
        if command.approval_id in session.closed_approvals:
            raise errors.ApprovalClosed(command.approval_id)
        raise errors.ApprovalNotFound(command.approval_id)
    if command.run_id is not None and command.run_id != run.id:
        raise errors.ApprovalNotFound(f"{command.approval_id} does not belong to {command.run_id}")
    if now_ms >= approval.expires_at_ms:
        # The timer's own event records the expiry; a decision that comes first must not slip in before it.
        raise errors.ApprovalClosed(command.approval_id)
    verdict = command.verdict
    if run.headless and verdict is events.Verdict.DENY_CONTINUE:
        verdict = events.Verdict.DENY_STOP  # nobody is there to go on with
    decided = events.ApprovalDecided(approval_id=approval.id, verdict=verdict, by=command.actor, comment=command.comment)
    return Decision([decided], run.id)


def _cancel(session: Session, command: commands.CancelRun) -> Decision:
    run = _active(session, command.run_id)
    if run.cancel_requested:
        return Decision([], run.id)
    return Decision([events.RunCancelRequested(by=command.actor, reason=command.reason)], run.id)


def _request_approval(session: Session, command: commands.RequestApproval, mint: ids.Mint) -> Decision:
    run = _active(session, command.run_id)
    for approval in run.pending.values():
        if approval.call_id == command.call_id and approval.fingerprint == command.fingerprint:
            return Decision([], run.id, {"approval_id": approval.id})  # asked before a restart; still the same question
    superseded = [
        events.ApprovalWithdrawn(approval_id=approval.id, reason="what would run is no longer known exactly; asked again")
        for approval in run.pending.values()
        if approval.call_id == command.call_id
    ]
    approval = events.Approval(
        id=mint("appr"),
        call_id=command.call_id,
        kind=command.kind,
        title=command.title,
        summary=command.summary,
        details=command.details,
        expires_at_ms=command.expires_at_ms,
        fingerprint=command.fingerprint,
    )
    return Decision([*superseded, events.ApprovalRequested(approval=approval)], run.id, {"approval_id": approval.id})


def _expire(session: Session, command: commands.ExpireApproval) -> Decision:
    run = session.run
    if run is None or command.approval_id not in run.pending:
        return Decision([])  # decided in the meantime: the decision came first and stands
    return Decision([events.ApprovalExpired(approval_id=command.approval_id)], run.id)


def _finish(session: Session, command: commands.FinishRun) -> Decision:
    run = _active(session, command.run_id)
    outcome, summary = command.outcome, command.summary
    if run.cancel_requested:
        # The cancel was accepted first; work that ended in the same instant does not undo that.
        outcome, summary = events.Outcome.CANCELLED, "The run was cancelled"
    hint = states.EXIT_CODE_HINT[outcome]
    if outcome is events.Outcome.SUCCESS and not all(result.passed for result in command.acceptance):
        outcome, hint = events.Outcome.FAILED, states.ACCEPTANCE_FAILED_HINT
        summary = f"Acceptance criteria failed. {summary}".rstrip()
    completed = events.RunCompleted(outcome=outcome, summary=summary, exit_code_hint=hint, acceptance=command.acceptance)
    return Decision([*_close_loose_ends(run, f"the run ended: {outcome}"), completed], run.id)


def _interrupt(session: Session, command: commands.InterruptRun) -> Decision:
    run = _active(session, command.run_id)
    outcome = events.Outcome.CANCELLED if run.cancel_requested else events.Outcome.FAILED
    return Decision(
        [
            *_close_loose_ends(run, command.reason),
            events.ErrorRaised(code="RUN_INTERRUPTED", message=command.reason, retryable=True),
            events.RunCompleted(
                outcome=outcome, summary=f"Interrupted: {command.reason}", exit_code_hint=states.EXIT_CODE_HINT[outcome]
            ),
        ],
        run.id,
    )


def _close_loose_ends(run: Run, reason: str) -> list[events.AnyEvent]:
    """Whatever was open gets its end before the run's own: no question without an answer, no call without a result."""
    ends: list[events.AnyEvent] = [
        events.ApprovalWithdrawn(approval_id=approval_id, reason=reason) for approval_id in run.pending
    ]
    ends += [
        events.ToolFinished(
            call_id=call_id,
            tool=tool,
            duration_ms=0,
            text=f"Not finished: {reason}",
            is_error=True,
            error=events.ToolError(type="UNKNOWN", message=f"not finished: {reason}"),
        )
        for call_id, tool in run.open_calls.items()
    ]
    return ends


def _active(session: Session, run_id: str | None) -> Run:
    if session.run is None or (run_id is not None and run_id != session.run.id):
        raise errors.NoActiveRun(run_id)
    return session.run
