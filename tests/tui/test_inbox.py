"""What waits for a decision, over all sessions."""

from tests.tui import people, told

from switchtower.tui.state.inbox import Inbox, Pending


def asked(approval_id: str, seq: int = 1) -> Pending:
    type, payload = told.approval(approval_id, command="ls")
    return people.pending(told.event(seq, type, payload))


def test_a_question_comes_and_goes_with_its_events() -> None:
    inbox = Inbox()
    question, decision = told.story(told.approval(command="ls"), told.decided())
    inbox.saw(question, session_name="a")
    assert [one.session_name for one in inbox.pending] == ["a"]
    inbox.saw(decision)
    assert not inbox.pending


def test_the_end_of_a_run_takes_its_questions_away() -> None:
    inbox = Inbox()
    for event in told.story(told.approval(command="ls"), told.complete("cancelled")):
        inbox.saw(event)
    assert len(inbox) == 0


def test_an_expiry_takes_a_question_away() -> None:
    inbox = Inbox()
    for event in told.story(told.approval(command="ls"), told.warning("APPROVAL_EXPIRED", "nobody", "appr_1")):
        inbox.saw(event)
    assert len(inbox) == 0


def test_an_old_list_brings_no_decided_question_back() -> None:
    inbox = Inbox()
    inbox.add(asked("appr_1"))
    inbox.is_over("appr_1")
    inbox.listed([asked("appr_1")])
    assert not inbox.pending


def test_a_list_that_is_older_than_the_question_does_not_make_it_vanish_for_good() -> None:
    inbox = Inbox()
    inbox.add(asked("appr_1"))
    inbox.listed([])
    inbox.listed([asked("appr_1")])
    assert [one.id for one in inbox.pending] == ["appr_1"]


def test_a_list_of_other_sessions_leaves_a_question_alone() -> None:
    inbox = Inbox()
    inbox.add(asked("appr_1"))
    inbox.listed([], sessions={"sess_B"})
    assert len(inbox) == 1
    inbox.listed([], sessions={told.SESSION})
    assert len(inbox) == 0


def test_what_is_put_aside_waits_without_coming_back_by_itself() -> None:
    inbox = Inbox()
    inbox.add(asked("appr_1"))
    inbox.add(asked("appr_2"))
    inbox.put_aside("appr_1")
    following = inbox.next_to_show(told.SESSION)
    assert following is not None
    assert following.id == "appr_2"
    inbox.is_over("appr_2")
    assert inbox.next_to_show(told.SESSION) is None
    assert [one.id for one in inbox.pending] == ["appr_1"]


def test_only_the_open_session_has_an_approval_to_show() -> None:
    inbox = Inbox()
    inbox.add(asked("appr_1"))
    assert inbox.next_to_show("sess_B") is None


def test_time_runs_out_and_not_below_nothing() -> None:
    assert asked("appr_1").seconds_left(told.T0 + 3_590_000) == 10
    assert asked("appr_1").seconds_left(told.T0 + 9_000_000) == 0


def test_of_the_session_that_is_heard_no_list_takes_a_question_away() -> None:
    inbox = Inbox()
    inbox.add(asked("appr_1"))
    inbox.listed([], but=told.SESSION)
    assert len(inbox) == 1
