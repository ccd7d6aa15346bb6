"""The rules, one by one: what each command means for a session in each situation."""

import pytest

from switchtower.core import commands, errors, events
from switchtower.core.events import Outcome, SessionState, Verdict
from switchtower.testing.sessions import OWNER, SESSION_ID, Table, start_session


def test_a_started_session_is_idle_at_seq_1_and_version_0() -> None:
    table = Table()
    assert (table.session.state, table.session.seq, table.session.version) == (SessionState.IDLE, 1, 0)


def test_a_session_cannot_be_started_twice() -> None:
    table = Table()
    with pytest.raises(errors.InvalidCommand):
        table.do(start_session(SESSION_ID))


def test_a_message_starts_a_run_and_a_second_one_is_refused_while_it_is_active() -> None:
    table = Table()
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
    table = Table()
    table.finish(table.send(), outcome)
    completed = table.log[-1]
    assert isinstance(completed, events.RunCompleted)
    assert (table.session.state, completed.exit_code_hint) == (state, hint)
    table.send()
    assert table.session.state is SessionState.RUNNING


def test_failed_acceptance_turns_a_success_into_a_failure_with_its_own_exit_code() -> None:
    table = Table()
    results = (
        events.CriterionResult("build", passed=True, exit_code=0, output=""),
        events.CriterionResult("test", passed=False, exit_code=2, output="1 failed"),
    )
    table.finish(table.send(), acceptance=results)
    completed = table.log[-1]
    assert isinstance(completed, events.RunCompleted)
    assert (completed.outcome, completed.exit_code_hint, completed.acceptance) == (Outcome.FAILED, 4, results)


def test_the_first_decision_wins_and_later_ones_learn_that_it_is_over() -> None:
    table = Table()
    approval_id = table.ask(table.send())
    assert table.session.state is SessionState.AWAITING_APPROVAL
    table.settle(approval_id)
    assert table.session.state is SessionState.RUNNING
    with pytest.raises(errors.ApprovalClosed):
        table.settle(approval_id, Verdict.DENY_STOP)
    decided = [event for event in table.log if isinstance(event, events.ApprovalDecided)]
    assert [(event.verdict, event.by) for event in decided] == [(Verdict.APPROVE, OWNER)]


def test_an_approval_that_never_was_is_not_found() -> None:
    table = Table()
    table.ask(table.send())
    with pytest.raises(errors.ApprovalNotFound):
        table.settle("appr_nobody_asked")


def test_a_decision_for_another_run_is_not_found() -> None:
    table = Table()
    approval_id = table.ask(table.send())
    with pytest.raises(errors.ApprovalNotFound):
        table.settle(approval_id, run_id="run_other")
    assert table.session.state is SessionState.AWAITING_APPROVAL


def test_a_decision_past_the_expiry_is_too_late_even_before_the_timer_has_spoken() -> None:
    table = Table()
    approval_id = table.ask(table.send(), expires_at_ms=5_000)
    table.now_ms = 5_000
    with pytest.raises(errors.ApprovalClosed):
        table.settle(approval_id)


def test_an_expiry_is_recorded_as_an_expiry_and_by_nobody() -> None:
    table = Table()
    approval_id = table.ask(table.send())
    table.do(commands.ExpireApproval(session_id=SESSION_ID, approval_id=approval_id))
    assert table.log[-1] == events.ApprovalExpired(approval_id=approval_id)
    assert not any(isinstance(event, events.ApprovalDecided) for event in table.log)
    with pytest.raises(errors.ApprovalClosed):
        table.settle(approval_id)


def test_an_expiry_after_the_decision_changes_nothing() -> None:
    table = Table()
    approval_id = table.ask(table.send())
    table.settle(approval_id)
    told = len(table.log)
    table.do(commands.ExpireApproval(session_id=SESSION_ID, approval_id=approval_id))
    assert len(table.log) == told


def test_a_session_awaits_until_the_last_of_several_questions_is_answered() -> None:
    table = Table()
    run_id = table.send()
    first, second = table.ask(run_id, call_id="call_1"), table.ask(run_id, call_id="call_2")
    table.settle(first)
    assert table.session.state is SessionState.AWAITING_APPROVAL
    table.settle(second)
    assert table.session.state is SessionState.RUNNING


def test_asking_the_same_question_again_finds_the_one_that_is_pending() -> None:
    table = Table()
    run_id = table.send()
    approval_id = table.ask(run_id, fingerprint="same")
    told = len(table.log)
    assert table.ask(run_id, fingerprint="same") == approval_id
    assert len(table.log) == told


def test_asking_about_something_else_for_the_same_call_withdraws_the_old_question() -> None:
    table = Table()
    run_id = table.send()
    old = table.ask(run_id, fingerprint="one thing")
    new = table.ask(run_id, fingerprint="another")
    with pytest.raises(errors.ApprovalClosed):
        table.settle(old)
    table.settle(new)


def test_headless_a_denial_always_stops() -> None:
    table = Table(mode="headless")
    table.settle(table.ask(table.send()), Verdict.DENY_CONTINUE)
    decided = table.log[-1]
    assert isinstance(decided, events.ApprovalDecided)
    assert decided.verdict is Verdict.DENY_STOP


def test_a_cancelled_run_closes_its_questions_and_calls_before_it_ends() -> None:
    table = Table()
    run_id = table.send()
    table.tell(run_id, events.ToolCalled(call_id="call_1", tool="run", args={"command": "sleep 9"}))
    approval_id = table.ask(run_id)
    table.do(commands.CancelRun(session_id=SESSION_ID, actor=OWNER))
    table.finish(run_id, Outcome.CANCELLED)
    withdrawn, finished, completed = table.log[-3:]
    assert isinstance(withdrawn, events.ApprovalWithdrawn)
    assert withdrawn.approval_id == approval_id
    assert isinstance(finished, events.ToolFinished)
    assert (finished.call_id, finished.is_error) == ("call_1", True)
    assert isinstance(completed, events.RunCompleted)
    assert completed.outcome is Outcome.CANCELLED


def test_a_success_that_comes_after_an_accepted_cancel_is_a_cancellation() -> None:
    table = Table()
    run_id = table.send()
    table.do(commands.CancelRun(session_id=SESSION_ID, actor=OWNER))
    table.finish(run_id, Outcome.SUCCESS)
    completed = table.log[-1]
    assert isinstance(completed, events.RunCompleted)
    assert (completed.outcome, completed.exit_code_hint) == (Outcome.CANCELLED, 2)


def test_cancelling_twice_is_accepted_and_recorded_once() -> None:
    table = Table()
    run_id = table.send()
    for _ in range(2):
        table.do(commands.CancelRun(session_id=SESSION_ID, actor=OWNER, run_id=run_id))
    assert sum(isinstance(event, events.RunCancelRequested) for event in table.log) == 1


@pytest.mark.parametrize("run_id", [None, "run_other"])
def test_cancelling_what_is_not_active_is_refused(run_id: str | None) -> None:
    table = Table()
    if run_id:
        table.send()
    with pytest.raises(errors.NoActiveRun):
        table.do(commands.CancelRun(session_id=SESSION_ID, actor=OWNER, run_id=run_id))


def test_an_interrupted_run_fails_with_an_error_that_says_why() -> None:
    table = Table()
    run_id = table.send()
    table.do(commands.InterruptRun(session_id=SESSION_ID, run_id=run_id, reason="the daemon ended"))
    error, completed = table.log[-2:]
    assert isinstance(error, events.ErrorRaised)
    assert error.code == "RUN_INTERRUPTED"
    assert isinstance(completed, events.RunCompleted)
    assert (completed.outcome, completed.summary) == (Outcome.FAILED, "Interrupted: the daemon ended")


def test_a_command_for_an_older_version_is_refused() -> None:
    table = Table()
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


def test_coming_back_is_told_where_things_stand() -> None:
    table = Table()
    run_id = table.send()
    table.tell(run_id, events.TextDelta("Hello "))
    table.tell(run_id, events.TextDelta("world"))
    table.ask(run_id)
    table.do(commands.ResumeSession(session_id=SESSION_ID, actor=OWNER))
    resumed = table.log[-1]
    assert isinstance(resumed, events.SessionResumed)
    assert (resumed.state, resumed.active_run_id, resumed.last_assistant_text) == (
        SessionState.AWAITING_APPROVAL,
        run_id,
        "Hello world",
    )
    assert resumed.pending_approval == table.session.pending_approval
