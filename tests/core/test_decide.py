"""The rules, one by one: what each command means for a session in each situation."""

import pytest

from switchtower.core import commands, errors, events
from switchtower.core.events import Outcome, SessionState, Verdict
from switchtower.testing.session_driver import OWNER, SESSION_ID, SessionDriver, start_session


def test_a_started_session_is_idle_at_seq_1_and_version_0() -> None:
    table = SessionDriver()
    assert (table.session.state, table.session.seq, table.session.version) == (SessionState.IDLE, 1, 0)


def test_a_session_cannot_be_started_twice() -> None:
    table = SessionDriver()
    with pytest.raises(errors.InvalidCommand):
        table.execute(start_session(SESSION_ID))


def test_a_message_starts_a_run_and_a_second_one_is_refused_while_it_is_active() -> None:
    table = SessionDriver()
    run_id = table.send()
    assert table.session.state is SessionState.RUNNING
    with pytest.raises(errors.RunInProgress, match=run_id):
        table.send()


@pytest.mark.parametrize(
    ("outcome", "state", "hint"),
    [
        (Outcome.SUCCESS, SessionState.COMPLETED, 0),
        (Outcome.FAILED, SessionState.FAILED, 1),
        (Outcome.CANCELLED, SessionState.CANCELLED, 2),
        (Outcome.DENIED, SessionState.CANCELLED, 3),
    ],
)
def test_a_run_ends_in_the_state_and_exit_code_of_its_outcome_and_the_next_can_start(
    outcome: Outcome, state: SessionState, hint: int
) -> None:
    table = SessionDriver()
    table.finish(table.send(), outcome)
    completed = table.log[-1]
    assert isinstance(completed, events.RunCompleted)
    assert (table.session.state, completed.exit_code_hint) == (state, hint)
    table.send()
    assert table.session.state is SessionState.RUNNING


def test_failed_acceptance_turns_a_success_into_a_failure_with_its_own_exit_code() -> None:
    table = SessionDriver()
    results = (
        events.CriterionResult("build", passed=True, exit_code=0, output=""),
        events.CriterionResult("test", passed=False, exit_code=2, output="1 failed"),
    )
    table.finish(table.send(), acceptance=results)
    completed = table.log[-1]
    assert isinstance(completed, events.RunCompleted)
    assert (completed.outcome, completed.exit_code_hint, completed.acceptance) == (Outcome.FAILED, 4, results)


def test_the_first_decision_wins_and_later_ones_learn_that_it_is_over() -> None:
    table = SessionDriver()
    approval_id = table.request_approval(table.send())
    assert table.session.state is SessionState.AWAITING_APPROVAL
    table.decide_approval(approval_id)
    assert table.session.state is SessionState.RUNNING
    with pytest.raises(errors.ApprovalClosed):
        table.decide_approval(approval_id, Verdict.DENY_STOP)
    decided = [event for event in table.log if isinstance(event, events.ApprovalDecided)]
    assert [(event.verdict, event.by) for event in decided] == [(Verdict.APPROVE, OWNER)]


def test_an_approval_that_never_was_is_not_found() -> None:
    table = SessionDriver()
    table.request_approval(table.send())
    with pytest.raises(errors.ApprovalNotFound):
        table.decide_approval("appr_nobody_asked")


def test_a_decision_for_another_run_is_not_found() -> None:
    table = SessionDriver()
    approval_id = table.request_approval(table.send())
    with pytest.raises(errors.ApprovalNotFound):
        table.decide_approval(approval_id, run_id="run_other")
    assert table.session.state is SessionState.AWAITING_APPROVAL


def test_a_decision_past_the_expiry_is_too_late_even_before_the_timer_has_spoken() -> None:
    table = SessionDriver()
    approval_id = table.request_approval(table.send(), expires_at_ms=5_000)
    table.now_ms = 5_000
    with pytest.raises(errors.ApprovalClosed):
        table.decide_approval(approval_id)


def test_an_expiry_is_recorded_as_an_expiry_and_by_nobody() -> None:
    table = SessionDriver()
    approval_id = table.request_approval(table.send())
    table.execute(commands.ExpireApproval(session_id=SESSION_ID, approval_id=approval_id))
    assert table.log[-1] == events.ApprovalExpired(approval_id=approval_id)
    assert not any(isinstance(event, events.ApprovalDecided) for event in table.log)
    with pytest.raises(errors.ApprovalClosed):
        table.decide_approval(approval_id)


def test_an_expiry_after_the_decision_changes_nothing() -> None:
    table = SessionDriver()
    approval_id = table.request_approval(table.send())
    table.decide_approval(approval_id)
    told = len(table.log)
    table.execute(commands.ExpireApproval(session_id=SESSION_ID, approval_id=approval_id))
    assert len(table.log) == told


def test_a_session_awaits_until_the_last_of_several_questions_is_answered() -> None:
    table = SessionDriver()
    run_id = table.send()
    first, second = table.request_approval(run_id, call_id="call_1"), table.request_approval(run_id, call_id="call_2")
    table.decide_approval(first)
    assert table.session.state is SessionState.AWAITING_APPROVAL
    table.decide_approval(second)
    assert table.session.state is SessionState.RUNNING


def test_asking_the_same_question_again_finds_the_one_that_is_pending() -> None:
    table = SessionDriver()
    run_id = table.send()
    approval_id = table.request_approval(run_id, fingerprint="same")
    told = len(table.log)
    assert table.request_approval(run_id, fingerprint="same") == approval_id
    assert len(table.log) == told


def test_asking_about_something_else_for_the_same_call_withdraws_the_old_question() -> None:
    table = SessionDriver()
    run_id = table.send()
    old = table.request_approval(run_id, fingerprint="one thing")
    new = table.request_approval(run_id, fingerprint="another")
    with pytest.raises(errors.ApprovalClosed):
        table.decide_approval(old)
    table.decide_approval(new)


def test_headless_a_denial_always_stops() -> None:
    table = SessionDriver(mode="headless")
    table.decide_approval(table.request_approval(table.send()), Verdict.DENY_CONTINUE)
    decided = table.log[-1]
    assert isinstance(decided, events.ApprovalDecided)
    assert decided.verdict is Verdict.DENY_STOP


def test_a_cancelled_run_closes_its_questions_and_calls_before_it_ends() -> None:
    table = SessionDriver()
    run_id = table.send()
    table.emit(run_id, events.ToolCalled(call_id="call_1", tool="run", args={"command": "sleep 9"}))
    approval_id = table.request_approval(run_id)
    table.execute(commands.CancelRun(session_id=SESSION_ID, actor=OWNER))
    table.finish(run_id, Outcome.CANCELLED)
    withdrawn, finished, completed = table.log[-3:]
    assert isinstance(withdrawn, events.ApprovalWithdrawn)
    assert withdrawn.approval_id == approval_id
    assert isinstance(finished, events.ToolFinished)
    assert (finished.call_id, finished.is_error) == ("call_1", True)
    assert isinstance(completed, events.RunCompleted)
    assert completed.outcome is Outcome.CANCELLED


def test_a_success_that_comes_after_an_accepted_cancel_is_a_cancellation() -> None:
    table = SessionDriver()
    run_id = table.send()
    table.execute(commands.CancelRun(session_id=SESSION_ID, actor=OWNER))
    table.finish(run_id, Outcome.SUCCESS)
    completed = table.log[-1]
    assert isinstance(completed, events.RunCompleted)
    assert (completed.outcome, completed.exit_code_hint) == (Outcome.CANCELLED, 2)


def test_cancelling_twice_is_accepted_and_recorded_once() -> None:
    table = SessionDriver()
    run_id = table.send()
    for _ in range(2):
        table.execute(commands.CancelRun(session_id=SESSION_ID, actor=OWNER, run_id=run_id))
    assert sum(isinstance(event, events.RunCancelRequested) for event in table.log) == 1


@pytest.mark.parametrize("run_id", [None, "run_other"])
def test_cancelling_what_is_not_active_is_refused(run_id: str | None) -> None:
    table = SessionDriver()
    if run_id:
        table.send()
    with pytest.raises(errors.NoActiveRun):
        table.execute(commands.CancelRun(session_id=SESSION_ID, actor=OWNER, run_id=run_id))


def test_an_interrupted_run_fails_with_an_error_that_says_why() -> None:
    table = SessionDriver()
    run_id = table.send()
    table.execute(commands.InterruptRun(session_id=SESSION_ID, run_id=run_id, reason="the daemon ended"))
    error, completed = table.log[-2:]
    assert isinstance(error, events.ErrorRaised)
    assert error.code == "RUN_INTERRUPTED"
    assert isinstance(completed, events.RunCompleted)
    assert (completed.outcome, completed.summary) == (Outcome.FAILED, "Interrupted: the daemon ended")


@pytest.mark.parametrize("how", ["interrupted", "failed"])
def test_what_was_said_of_a_message_that_is_broken_off_stays_in_the_conversation(how: str) -> None:
    table = SessionDriver()
    run_id = table.send()
    table.emit(run_id, events.TextDelta("half a "))
    table.emit(run_id, events.TextDelta("word"))
    if how == "interrupted":
        table.execute(commands.InterruptRun(session_id=SESSION_ID, run_id=run_id, reason="the daemon ended"))
    else:
        failed = commands.FinishRun(session_id=SESSION_ID, run_id=run_id, outcome=Outcome.FAILED, summary="no")
        table.execute(failed)
    [said] = [event for event in table.log if isinstance(event, events.MessageCompleted)]
    assert (said.text, said.cut_short) == ("half a word", True)
    assert table.session.counts.assistant == 1


def test_a_command_for_an_older_version_is_refused() -> None:
    table = SessionDriver()
    table.finish(table.send())
    assert table.session.version == 1
    table.finish(table.send(expected_version=1))
    with pytest.raises(errors.VersionMismatch, match="expected 1, got 2"):
        table.send(expected_version=1)


def test_nothing_can_be_asked_of_a_session_that_does_not_exist() -> None:
    from switchtower.core.decide import decide
    from switchtower.core.session import Session

    with pytest.raises(errors.SessionNotFound):
        decide(Session(id="sess_x"), commands.CancelRun(session_id="sess_x"), now_ms=0, mint=lambda prefix: prefix)


def test_a_message_for_a_running_session_is_queued_and_gone_once_it_is_delivered() -> None:
    table = SessionDriver()
    run_id = table.send()
    message_id = table.queue("use tabs")["message_id"]
    assert [queued.text for queued in table.session.queue.values()] == ["use tabs"]
    table.emit(run_id, events.MessageDelivered(message_id, "use tabs"))
    assert not table.session.queue
    table.finish(run_id)
    assert table.session.run is None


@pytest.mark.parametrize("delivery", list(events.Delivery))
def test_a_queued_message_that_no_run_took_up_starts_the_next_run_in_the_commit_that_ends_this_one(
    delivery: events.Delivery,
) -> None:
    table = SessionDriver()
    first = table.send()
    table.queue("and then the docs", delivery)
    table.queue("and the changelog", delivery)
    table.finish(first)
    completed, started = table.log[-2:]
    assert isinstance(completed, events.RunCompleted)
    assert isinstance(started, events.RunStarted)
    assert (started.text, started.by) == ("and then the docs", OWNER)
    assert table.session.run is not None
    assert table.session.run.id != first
    assert [queued.text for queued in table.session.queue.values()] == ["and the changelog"]


@pytest.mark.parametrize("outcome", [Outcome.FAILED, Outcome.CANCELLED, Outcome.DENIED])
def test_queued_messages_are_withdrawn_when_the_run_does_not_end_well(outcome: Outcome) -> None:
    table = SessionDriver()
    run_id = table.send()
    message_id = table.queue("and then the docs", events.Delivery.FOLLOW_UP)["message_id"]
    table.finish(run_id, outcome)
    withdrawn = [event for event in table.log if isinstance(event, events.MessageWithdrawn)]
    assert [event.message_id for event in withdrawn] == [message_id]
    assert table.session.run is None
    assert not table.session.queue


def test_an_interrupted_run_withdraws_what_was_queued() -> None:
    table = SessionDriver()
    run_id = table.send()
    table.queue("use tabs")
    table.execute(commands.InterruptRun(session_id=SESSION_ID, run_id=run_id, reason="a crash"))
    assert not table.session.queue
    assert any(isinstance(event, events.MessageWithdrawn) for event in table.log)


def test_a_message_queued_a_moment_too_late_starts_a_run_of_its_own() -> None:
    table = SessionDriver()
    outcome = table.queue("use tabs")
    assert table.session.run is not None
    assert outcome["run_id"] == table.session.run.id
    assert not table.session.queue


def test_a_flood_of_queued_messages_is_refused() -> None:
    table = SessionDriver()
    table.send()
    for number in range(100):
        table.queue(f"message {number}")
    with pytest.raises(errors.Overloaded):
        table.queue("one too many")


def test_always_makes_the_rule_that_the_approval_showed() -> None:
    table = SessionDriver()
    rule = events.Rule("allow", tool="run", command="make test")
    approval_id = table.request_approval(table.send(), rule=rule)
    table.decide_approval(approval_id, always=True)
    assert table.session.rules == [rule]
    decided = table.log[-1]
    assert isinstance(decided, events.ApprovalDecided)
    assert decided.rule == rule


def test_once_makes_no_rule() -> None:
    table = SessionDriver()
    table.decide_approval(table.request_approval(table.send(), rule=events.Rule("allow", tool="run")))
    assert table.session.rules == []


def test_a_denial_makes_no_rule_whatever_it_says() -> None:
    table = SessionDriver()
    table.decide_approval(
        table.request_approval(table.send(), rule=events.Rule("allow", tool="run")), Verdict.DENY_CONTINUE, always=True
    )
    assert table.session.rules == []


def test_what_is_asked_each_time_cannot_be_allowed_for_always() -> None:
    table = SessionDriver()
    approval_id = table.request_approval(table.send())
    with pytest.raises(errors.InvalidCommand):
        table.decide_approval(approval_id, always=True)
    table.decide_approval(approval_id)


def test_a_configured_session_keeps_what_was_left_open() -> None:
    table = SessionDriver()
    table.execute(commands.ConfigureSession(session_id=SESSION_ID, actor=OWNER, model="big", policy="auto"))
    session = table.session
    assert (session.provider, session.model, session.policy) == ("demo", "big", "auto")
    table.execute(commands.ConfigureSession(session_id=SESSION_ID, actor=OWNER, provider="openai", title="A name"))
    assert (session.provider, session.model, session.policy, session.title) == ("openai", None, "auto", "A name")


def test_whoever_asks_for_nothing_to_be_asked_is_on_record() -> None:
    table = SessionDriver()
    table.execute(commands.ConfigureSession(session_id=SESSION_ID, actor=OWNER, policy="yolo"))
    assert [event.code for event in table.log if isinstance(event, events.WarningRaised)] == ["POLICY_YOLO"]


def test_usage_adds_up_per_run_and_per_session() -> None:
    table = SessionDriver()
    for cost in (0.5, None):
        run_id = table.send()
        table.emit(run_id, events.UsageReported("openai", "gpt", 100, 10, cost=cost, context_window=1_000))
        assert table.session.run is not None
        assert table.session.run.usage.tokens == 110
        table.finish(run_id)
    usage = table.session.usage
    assert (usage.calls, usage.tokens, usage.cost, usage.unpriced_calls) == (2, 220, 0.5, 1)
    assert (table.session.context_tokens, table.session.context_window) == (110, 1_000)


def apply_change(table: SessionDriver, before: str, after: str | None) -> str:
    run_id = table.send()
    table.emit(run_id, events.CheckpointTaken("before", before))
    if after:
        table.emit(run_id, events.CheckpointTaken("after", after))
    table.finish(run_id)
    return run_id


def restore(table: SessionDriver, *, redo: bool = False) -> None:
    run_id = table.execute(commands.RestoreWorkspace(session_id=SESSION_ID, actor=OWNER, redo=redo))["run_id"]
    change = (table.session.undone if redo else table.session.done)[-1]
    direction = "redo" if redo else "undo"
    table.emit(run_id, events.WorkspaceRestored(direction, change.run_id, change.after or "now"))
    table.finish(run_id)


def test_changes_are_undone_last_first_and_made_again_in_order() -> None:
    table = SessionDriver()
    first, second = apply_change(table, "a", "b"), apply_change(table, "b", "c")
    restore(table)
    restore(table)
    assert [change.run_id for change in table.session.undone] == [second, first]
    restore(table, redo=True)
    assert [change.run_id for change in table.session.done] == [first]
    assert [change.run_id for change in table.session.undone] == [second]


def test_a_new_change_ends_the_line_of_what_was_undone() -> None:
    table = SessionDriver()
    apply_change(table, "a", "b")
    restore(table)
    apply_change(table, "a", "d")
    assert not table.session.undone


def test_a_run_that_changed_nothing_in_the_end_leaves_nothing_to_undo() -> None:
    table = SessionDriver()
    apply_change(table, "a", "a")
    with pytest.raises(errors.NothingToRestore):
        restore(table)


def test_the_end_of_a_crashed_run_is_on_record_before_it_is_undone() -> None:
    table = SessionDriver()
    crashed = apply_change(table, "a", None)
    run_id = table.execute(commands.RestoreWorkspace(session_id=SESSION_ID, actor=OWNER))["run_id"]
    table.emit(run_id, events.CheckpointTaken("after", "b", of=crashed))
    assert [(change.run_id, change.after) for change in table.session.done] == [(crashed, "b")]


def test_a_crashed_run_can_be_undone_and_keeps_what_was_found_then_as_its_end() -> None:
    table = SessionDriver()
    apply_change(table, "a", None)
    restore(table)
    assert table.session.undone[-1].after == "now"


def test_chores_wait_for_no_run_but_start_only_without_one() -> None:
    table = SessionDriver()
    apply_change(table, "a", "b")
    table.send()
    for command in (
        commands.CompactContext(session_id=SESSION_ID, actor=OWNER),
        commands.RestoreWorkspace(session_id=SESSION_ID, actor=OWNER),
    ):
        with pytest.raises(errors.RunInProgress):
            table.execute(command)


def test_a_chore_names_no_session_and_its_instructions_are_kept() -> None:
    table = SessionDriver()
    table.execute(commands.CompactContext(session_id=SESSION_ID, actor=OWNER, instructions="keep the paths"))
    assert table.session.run is not None
    assert (table.session.title, table.session.run.instructions) == ("", "keep the paths")
    assert table.session.run.purpose is events.Purpose.COMPACT
