"""The rules: what each command does to a session. They are pure: `(session, command) → events and an outcome`, or a refusal
raised.

Time and ids are arguments. Nothing here waits, so each rule can be tested without an event loop.
"""

import hashlib
from typing import assert_never

import msgspec

from switchtower.core import commands, errors, events, flows, ids, redact, states
from switchtower.core.fold import hash_text
from switchtower.core.rules import Decision, admission, mirrors, user_actions
from switchtower.core.session import Run, Session

MOST_QUEUED = 100
LONGEST_QUESTION = 256 * 1024
"""A size in bytes of JSON. Every protocol shows an approval whole, and this fits the frames of all of them."""


def decide(session: Session, command: commands.AnyCommand, *, now_ms: int, mint: ids.Mint) -> Decision:
    if isinstance(command, commands.StartSession):
        return _start(session, command, mint)
    if isinstance(command, commands.MirrorRun):
        return mirrors.decide_mirror(session, command)
    if session.seq == 0 or session.is_deleted:
        raise errors.SessionNotFound(session.id)
    admission.check_command(session, command)
    mirrors.refuse_host_commands(session, command)
    if command.expected_version is not None and command.expected_version != session.version:
        raise errors.VersionMismatch(f"expected {command.expected_version}, got {session.version}")
    match command:
        case commands.LoadSession():
            return Decision([] if session.loaded else [events.SessionLoaded(by=command.actor)])
        case commands.UnloadSession():
            return Decision([events.SessionUnloaded(by=command.actor)])
        case commands.DeleteSession():
            return _delete(session, command)
        case commands.RecordOutcome():
            return _record(session, command)
        case commands.ReplaceConversation():
            return _replace_conversation(session, command)
        case commands.ConfigureSession():
            return _configure(command)
        case commands.RunShell() | commands.CancelShell() | commands.FinishShell():
            return user_actions.decide_shell(session, command)
        case commands.OpenDialog() | commands.AnswerDialog() | commands.ExpireDialog():
            return user_actions.decide_dialog(session, command, now_ms=now_ms, mint=mint)
        case commands.TypeInput() | commands.TypeKeys() | commands.ResizeTerminal():
            return user_actions.decide_terminal(session, command)
        case commands.StartRemoteCall() | commands.FinishRemoteCall():
            return user_actions.decide_remote_call(session, command)
        case commands.MarkHost():
            return mirrors.decide_host_mark(session, command)
        case commands.StopStep():
            return _stop_step(session, command)
        case commands.SendMessage():
            return _send(session, command, mint)
        case commands.QueueMessage():
            return _queue(session, command, mint)
        case commands.CompactContext():
            return _start_task(session, command, events.Purpose.COMPACT, mint, text=command.instructions, run_id=command.run_id)
        case commands.RestoreWorkspace():
            return _restore(session, command, mint)
        case commands.DecideApproval():
            return _decide_approval(session, command, now_ms)
        case commands.CancelRun():
            return _cancel(session, command)
        case commands.RequestApproval():
            return _request_approval(session, command, mint)
        case commands.ExpireApproval():
            return _expire(session, command)
        case commands.WithdrawApproval():
            return _withdraw(session, command)
        case commands.FinishRun():
            return _finish(session, command, mint)
        case commands.InterruptRun():
            return _interrupt(session, command, mint)
        case _:
            assert_never(command)


def _start(session: Session, command: commands.StartSession, mint: ids.Mint) -> Decision:
    if session.seq:
        raise errors.InvalidCommand(f"session {session.id} already exists")
    assert command.sandbox is not None, "the workshop has settled the sandbox"
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
        policy=command.policy or "ask",
        thinking=command.thinking,
        budget=command.budget or events.Budget(),
        parent=command.parent,
        parent_run=command.parent_run,
        preset=command.resolved_preset,
        program=command.program,
        flow=command.flow,
        alias=command.alias,
    )
    named = [events.SessionConfigured(by=command.actor, title=command.title)] if command.title else []
    loaded = [events.SessionLoaded(by=command.actor)] if command.loaded else []
    begun = user_actions.start_program(command, mint) or flows.start_flow(command, mint)
    outcome = begun.outcome if begun else {}
    return Decision(
        [started, *_policy_warning(started.policy), *command.warnings, *command.conversation, *named, *loaded],
        None,
        outcome,
        following=begun,
    )


def _delete(session: Session, command: commands.DeleteSession) -> Decision:
    if session.run is not None and session.host is None:
        raise errors.RunInProgress(session.run.id)
    if session.shells or session.errands:
        raise errors.InvalidCommand("somebody uses it at this moment", hint="wait for what runs there, or stop it")
    exit_code = session.terminal.exit_code if session.terminal is not None else None
    return Decision([events.SessionDeleted(by=command.actor, exit_code=exit_code)])


def _record(session: Session, command: commands.RecordOutcome) -> Decision:
    advanced = [events.VersionAdvanced(by=command.actor, command=command.name)] if command.advances else []
    return Decision(advanced, None, {"version": session.version + len(advanced)})


def _replace_conversation(session: Session, command: commands.ReplaceConversation) -> Decision:
    if session.run is not None:
        raise errors.RunInProgress(session.run.id)
    return Decision([events.ConversationCleared(by=command.actor, origin=command.origin), *command.conversation])


def _stop_step(session: Session, command: commands.StopStep) -> Decision:
    if session.run is None:
        return Decision([])  # the step has ended by itself
    return Decision([events.StepStopped(step=command.step, by=command.actor)], session.run.id)


def _policy_warning(policy: str | None) -> list[events.WarningRaised]:
    """A later reader of the journal must see that no approval was requested, and since when."""
    if policy != "yolo":
        return []
    return [events.WarningRaised("POLICY_YOLO", "From here on nothing is asked: the session's policy is `yolo`")]


def _configure(command: commands.ConfigureSession) -> Decision:
    configured = events.SessionConfigured(
        by=command.actor,
        provider=command.provider,
        model=command.model,
        policy=command.policy,
        thinking=command.thinking,
        title=command.title,
        auto_compact=command.auto_compact,
        auto_retry=command.auto_retry,
    )
    return Decision([configured, *_policy_warning(command.policy)])


def _send(session: Session, command: commands.SendMessage, mint: ids.Mint) -> Decision:
    if command.client_message_id is not None and command.client_message_id in session.recent_messages:
        # minicodex, Idempotency: within a run a known id is ignored. After it, another text under that id would be lost.
        known = session.recent_texts.get(command.client_message_id)
        if session.run is None and known is not None and known != hash_text(command.text):
            raise errors.IdentityConflict(command.client_message_id, hint="send another text with a new id")
        return Decision([], None, {"duplicate": True})
    flows.refuse_message(session)
    if session.terminal is not None:
        return _type(session, command, command.idempotency_key or command.client_message_id or mint("msg"))
    # push, Concurrency Rules: one active run per session
    if session.run is not None:
        raise errors.RunInProgress(session.run.id)
    run_id = command.run_id or mint("run")
    started = events.RunStarted(
        text=command.text,
        by=command.actor,
        message_id=command.idempotency_key or command.client_message_id,
        headless=session.mode == "headless",
        acceptance=command.acceptance,
        images=command.images,
        rules=command.rules,
    )
    return Decision([started], run_id, {"run_id": run_id})


def _type(session: Session, command: commands.SendMessage | commands.QueueMessage, input_id: str) -> Decision:
    """A message to a program is typed, followed by the Enter key."""
    text = command.text + user_actions.ENTER
    typed = user_actions.type_text(session, command.actor, input_id, text, hashlib.sha256(text.encode()).hexdigest())
    return Decision(typed.events, typed.run_id, {**typed.outcome, "message_id": input_id}, ephemeral_input=typed.ephemeral_input)


def _queue(session: Session, command: commands.QueueMessage, mint: ids.Mint) -> Decision:
    message_id = command.idempotency_key or mint("msg")
    flows.refuse_message(session)
    if session.terminal is not None:
        return _type(session, command, message_id)
    queued = events.MessageQueued(
        message_id=message_id, text=command.text, delivery=command.delivery, by=command.actor, images=command.images
    )
    if session.run is not None:
        if len(session.queue) >= MOST_QUEUED:
            raise errors.Overloaded(f"{len(session.queue)} messages wait for the run to take them up")
        return Decision([queued], session.run.id, {"message_id": message_id})
    started = _start_queued(queued, session, mint)
    return Decision(started.events, started.run_id, {"message_id": message_id, "run_id": started.run_id})


def _start_queued(queued: events.MessageQueued, session: Session, mint: ids.Mint) -> Decision:
    started = events.RunStarted(
        text=queued.text,
        by=queued.by,
        message_id=queued.message_id,
        headless=session.mode == "headless",
        images=queued.images,
    )
    return Decision([started], mint("run"))


def _restore(session: Session, command: commands.RestoreWorkspace, mint: ids.Mint) -> Decision:
    if not (session.undone if command.redo else session.done):
        what = "no undo can be taken back" if command.redo else "no run of this session has changed files that could be restored"
        raise errors.NothingToRestore(what)
    purpose = events.Purpose.REDO if command.redo else events.Purpose.UNDO
    return _start_task(session, command, purpose, mint, force=command.force)


def _start_task(
    session: Session,
    command: commands.Command,
    purpose: events.Purpose,
    mint: ids.Mint,
    *,
    text: str = "",
    force: bool = False,
    run_id: str | None = None,
) -> Decision:
    if session.run is not None:
        raise errors.RunInProgress(session.run.id)
    if session.terminal is not None:
        raise errors.InvalidCommand("a program in a terminal has no conversation and no checkpoints")
    flows.refuse_message(session)
    run_id = run_id or mint("run")
    started = events.RunStarted(text=text, by=command.actor, purpose=purpose, force=force)
    return Decision([started], run_id, {"run_id": run_id})


def _decide_approval(session: Session, command: commands.DecideApproval, now_ms: int) -> Decision:
    run = session.run
    approval = run.pending.get(command.approval_id) if run else None
    if approval is None or run is None:
        # push, Concurrency Rules: the first valid decision wins; later ones are refused as closed
        if command.approval_id in session.closed_approvals:
            raise errors.ApprovalClosed(command.approval_id)
        raise errors.ApprovalNotFound(command.approval_id)
    if command.run_id is not None and command.run_id != run.id:
        raise errors.ApprovalNotFound(f"{command.approval_id} does not belong to {command.run_id}")
    if now_ms >= approval.expires_at_ms:
        # The timer's own event records the expiry; a decision must not be accepted before that.
        raise errors.ApprovalClosed(command.approval_id)
    verdict = command.verdict
    if verdict is events.Verdict.APPROVE and "approve" not in approval.options:
        why = approval.details.get(events.CANNOT_APPROVE)
        raise errors.NotApprovable(
            str(why) if why else None, hint=f"decide at the terminal: `tower attach {session.id}`; or deny it here"
        )
    if session.terminal is not None:
        # A program continues from its own prompt: denying one action does not end it.
        if verdict is events.Verdict.DENY_STOP and command.stop_is_implied:
            verdict = events.Verdict.DENY_CONTINUE
    elif run.headless and verdict is events.Verdict.DENY_CONTINUE:
        verdict = events.Verdict.DENY_STOP  # a headless run has no user to continue with
    rule = approval.rule if command.always and verdict is events.Verdict.APPROVE else None
    if command.always and rule is None and verdict is events.Verdict.APPROVE:
        raise errors.InvalidCommand("this is asked each time anew", hint="approve it once")
    decided = events.ApprovalDecided(
        approval_id=approval.id, verdict=verdict, by=command.actor, comment=command.comment, rule=rule
    )
    return Decision([decided], run.id)


def _cancel(session: Session, command: commands.CancelRun) -> Decision:
    run = _get_active_run(session, command.run_id)
    if run.cancel_requested and not command.force:
        return Decision([], run.id)
    return Decision([events.RunCancelRequested(by=command.actor, reason=command.reason, force=command.force)], run.id)


def _request_approval(session: Session, command: commands.RequestApproval, mint: ids.Mint) -> Decision:
    run = _get_active_run(session, command.run_id)
    for approval in run.pending.values():
        if approval.call_id == command.call_id and approval.fingerprint == command.fingerprint:
            return Decision([], run.id, {"approval_id": approval.id})  # requested before a restart; still the same approval
    superseded = [
        events.ApprovalWithdrawn(approval_id=approval.id, reason="what would run is no longer known exactly; asked again")
        for approval in run.pending.values()
        if approval.call_id == command.call_id
    ]
    if command.approval_id is not None and (
        command.approval_id in run.pending or command.approval_id in session.closed_approvals
    ):
        raise errors.IdentityConflict(command.approval_id)
    _check_showable(command)
    approval = events.Approval(
        id=command.approval_id or mint("appr"),
        call_id=command.call_id,
        kind=command.kind,
        title=command.title,
        summary=command.summary,
        details=command.details,
        expires_at_ms=command.expires_at_ms,
        fingerprint=command.fingerprint,
        rule=command.rule,
        options=command.options,
    )
    return Decision([*superseded, events.ApprovalRequested(approval=approval)], run.id, {"approval_id": approval.id})


def _check_showable(command: commands.RequestApproval) -> None:
    """An approval that cannot be shown whole is refused: approving it would mean nothing."""
    try:
        asked = msgspec.json.encode((command.title, command.summary, command.details))
    except (ValueError, TypeError, UnicodeError, RecursionError):
        raise errors.Unshowable("it holds characters or values that cannot be written down") from None
    if len(asked) > LONGEST_QUESTION:
        raise errors.Unshowable(
            f"it has {len(asked):,} bytes, and a question has at most {LONGEST_QUESTION:,}", hint="do it in smaller parts"
        )
    if _is_deeper(command.details, redact.DEEPEST):
        raise errors.Unshowable(f"its values are nested more than {redact.DEEPEST} deep")


def _is_deeper(value: object, most: int) -> bool:
    if not isinstance(value, dict | list | tuple):
        return False
    return most == 0 or any(_is_deeper(held, most - 1) for held in (value.values() if isinstance(value, dict) else value))


def _expire(session: Session, command: commands.ExpireApproval) -> Decision:
    run = session.run
    if run is None or command.approval_id not in run.pending:
        return Decision([])  # decided in the meantime: the decision came first and remains valid
    return Decision([events.ApprovalExpired(approval_id=command.approval_id)], run.id)


def _withdraw(session: Session, command: commands.WithdrawApproval) -> Decision:
    run = session.run
    if run is None or command.approval_id not in run.pending:
        return Decision([])  # decided in the meantime
    return Decision([events.ApprovalWithdrawn(approval_id=command.approval_id, reason=command.reason)], run.id)


def _finish(session: Session, command: commands.FinishRun, mint: ids.Mint) -> Decision:
    run = _get_active_run(session, command.run_id)
    outcome, summary = command.outcome, command.summary
    if run.cancel_requested:
        # The cancel was accepted first; work that ended in the same instant does not undo that.
        outcome, summary = events.Outcome.CANCELLED, "The run was cancelled"
    hint = states.EXIT_CODE_HINT[outcome]
    if outcome is events.Outcome.SUCCESS and not all(result.passed for result in command.acceptance):
        outcome, hint = events.Outcome.FAILED, states.ACCEPTANCE_FAILED_HINT
        summary = f"Acceptance criteria failed. {summary}".rstrip()
    completed = events.RunCompleted(
        outcome=outcome, summary=summary, exit_code_hint=hint, acceptance=command.acceptance, exit_code=command.exit_code
    )
    ends = [*_close_loose_ends(run, f"the run ended: {outcome}"), completed]
    if outcome is not events.Outcome.SUCCESS:
        return Decision(
            [*_truncate_message(session, mint), *_withdraw_messages(session, f"the run ended: {outcome}"), *ends], run.id
        )
    # The next run starts in the commit that ends this one: there is no moment at which a restart could lose the message.
    following = _start_queued(next(iter(session.queue.values())), session, mint) if session.queue else None
    return Decision(ends, run.id, following=following)


def _interrupt(session: Session, command: commands.InterruptRun, mint: ids.Mint) -> Decision:
    run = _get_active_run(session, command.run_id)
    outcome = events.Outcome.CANCELLED if run.cancel_requested else events.Outcome.FAILED
    return Decision(
        [
            *([] if command.lost is None else [events.HostLost(host=command.lost)]),
            *_truncate_message(session, mint),
            *_withdraw_messages(session, command.reason),
            *_close_loose_ends(run, command.reason),
            events.ErrorRaised(code=events.RUN_INTERRUPTED, message=command.reason, retryable=True),
            events.RunCompleted(
                outcome=outcome, summary=f"Interrupted: {command.reason}", exit_code_hint=states.EXIT_CODE_HINT[outcome]
            ),
        ],
        run.id,
    )


def _truncate_message(session: Session, mint: ids.Mint) -> list[events.AnyEvent]:
    """The part of a message that a model had streamed when its run ended stays in the conversation: users have read it."""
    if not session.message_open or not session.last_assistant_text:
        return []
    return [events.MessageCompleted(mint("asst"), session.last_assistant_text, cut_short=True)]


def _withdraw_messages(session: Session, reason: str) -> list[events.MessageWithdrawn]:
    return [events.MessageWithdrawn(message_id=message_id, reason=reason) for message_id in session.queue]


def _close_loose_ends(run: Run, reason: str) -> list[events.AnyEvent]:
    """Closes everything that is open before the run ends: no approval without an answer, no call without a result."""
    ends: list[events.AnyEvent] = [
        events.ApprovalWithdrawn(approval_id=approval_id, reason=reason) for approval_id in run.pending
    ]
    ends += [events.DialogClosed(dialog_id=dialog_id, reason=reason) for dialog_id in run.dialogs]
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


def _get_active_run(session: Session, run_id: str | None) -> Run:
    if session.run is None or (run_id is not None and run_id != session.run.id):
        raise errors.NoActiveRun(run_id)
    return session.run
