"""What waits for a decision, over all sessions."""

from tests.tui import people, told

from switchtower.tui.state.session_rows import ApprovalInbox, InboxItem


def make_approval_event(approval_id: str, seq: int = 1) -> InboxItem:
    type, payload = told.make_approval(approval_id, command="ls")
    return people.make_inbox_item(told.make_event(seq, type, payload))


def test_a_question_comes_and_goes_with_its_events() -> None:
    inbox = ApprovalInbox()
    question, decision = told.make_story(told.make_approval(command="ls"), told.make_decision())
    inbox.on_event(question, session_name="a")
    assert [one.session_name for one in inbox.pending] == ["a"]
    inbox.on_event(decision)
    assert not inbox.pending


def test_the_end_of_a_run_takes_its_questions_away() -> None:
    inbox = ApprovalInbox()
    for event in told.make_story(told.make_approval(command="ls"), told.complete("cancelled")):
        inbox.on_event(event)
    assert len(inbox) == 0


def test_an_expiry_takes_a_question_away() -> None:
    inbox = ApprovalInbox()
    for event in told.make_story(told.make_approval(command="ls"), told.make_warning("APPROVAL_EXPIRED", "nobody", "appr_1")):
        inbox.on_event(event)
    assert len(inbox) == 0


def test_an_old_list_brings_no_decided_question_back() -> None:
    inbox = ApprovalInbox()
    inbox.add(make_approval_event("appr_1"))
    inbox.remove("appr_1")
    inbox.apply_listing([make_approval_event("appr_1")])
    assert not inbox.pending


def test_a_list_that_is_older_than_the_question_does_not_make_it_vanish_for_good() -> None:
    inbox = ApprovalInbox()
    inbox.add(make_approval_event("appr_1"))
    inbox.apply_listing([])
    inbox.apply_listing([make_approval_event("appr_1")])
    assert [one.id for one in inbox.pending] == ["appr_1"]


def test_a_list_of_other_sessions_leaves_a_question_alone() -> None:
    inbox = ApprovalInbox()
    inbox.add(make_approval_event("appr_1"))
    inbox.apply_listing([], sessions={"sess_B"})
    assert len(inbox) == 1
    inbox.apply_listing([], sessions={told.SESSION})
    assert len(inbox) == 0


def test_what_is_put_aside_waits_without_coming_back_by_itself() -> None:
    inbox = ApprovalInbox()
    inbox.add(make_approval_event("appr_1"))
    inbox.add(make_approval_event("appr_2"))
    inbox.defer("appr_1")
    following = inbox.get_next(told.SESSION)
    assert following is not None
    assert following.id == "appr_2"
    inbox.remove("appr_2")
    assert inbox.get_next(told.SESSION) is None
    assert [one.id for one in inbox.pending] == ["appr_1"]


def test_only_the_open_session_has_an_approval_to_show() -> None:
    inbox = ApprovalInbox()
    inbox.add(make_approval_event("appr_1"))
    assert inbox.get_next("sess_B") is None


def test_time_runs_out_and_not_below_nothing() -> None:
    assert make_approval_event("appr_1").seconds_left(told.T0 + 3_590_000) == 10
    assert make_approval_event("appr_1").seconds_left(told.T0 + 9_000_000) == 0


def test_of_the_session_that_is_heard_no_list_takes_a_question_away() -> None:
    inbox = ApprovalInbox()
    inbox.add(make_approval_event("appr_1"))
    inbox.apply_listing([], but=told.SESSION)
    assert len(inbox) == 1
