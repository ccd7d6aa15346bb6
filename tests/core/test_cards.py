"""What the index keeps of a session, so that lists need not read its events."""

from switchtower.core import commands, events
from switchtower.core.fold import make_card
from switchtower.core.ports import journal
from switchtower.testing.session_driver import OWNER, SessionDriver

RESULTS = (events.CriterionResult("tests", True, 0, "ok"), events.CriterionResult("lint", False, 1, "E501"))


def test_a_card_has_what_models_took_so_far() -> None:
    table = SessionDriver()
    assert make_card(table.session).spent is None
    run = table.send()
    table.emit(run, events.UsageReported("demo", "demo-1", 100, 20, cost=0.5, context_window=8_000))
    table.emit(run, events.UsageReported("demo", "demo-1", 300, 40, cost=0.25, context_window=8_000))
    assert make_card(table.session).spent == journal.UsageSummary(400, 60, 0.75, 340, 8_000)


def test_a_cost_that_nobody_knows_is_none() -> None:
    table = SessionDriver()
    table.emit(table.send(), events.UsageReported("demo", "demo-1", 100, 20))
    spent = make_card(table.session).spent
    assert spent is not None
    assert spent.cost is None


def test_a_card_has_the_criteria_of_the_last_run_until_the_next_begins() -> None:
    table = SessionDriver()
    table.finish(table.send(), acceptance=RESULTS)
    assert make_card(table.session).accepted == {"tests": True, "lint": False}
    table.send("again")
    assert make_card(table.session).accepted == {}


def test_a_deleted_session_is_not_at_hand_any_more() -> None:
    table = SessionDriver()
    table.execute(commands.LoadSession(session_id=table.session.id))
    assert make_card(table.session).loaded is True
    table.execute(commands.DeleteSession(session_id=table.session.id))
    assert (make_card(table.session).loaded, make_card(table.session).state) == (False, events.SessionState.DELETED)


def test_a_session_can_be_deleted_while_its_host_waits_for_a_decision() -> None:
    """It goes on there; only our picture of it is gone."""
    table = SessionDriver()
    table.request_approval(table.send())
    table.emit(None, events.SessionDeleted(by=OWNER))
    assert table.session.is_deleted
