"""What the index keeps of a session, so that lists need not read its events."""

from switchtower.core import commands, events, journal
from switchtower.core.session import card
from switchtower.testing.sessions import OWNER, Table

RESULTS = (events.CriterionResult("tests", True, 0, "ok"), events.CriterionResult("lint", False, 1, "E501"))


def test_a_card_has_what_models_took_so_far() -> None:
    table = Table()
    assert card(table.session).spent is None
    run = table.send()
    table.tell(run, events.UsageReported("demo", "demo-1", 100, 20, cost=0.5, context_window=8_000))
    table.tell(run, events.UsageReported("demo", "demo-1", 300, 40, cost=0.25, context_window=8_000))
    assert card(table.session).spent == journal.Spent(400, 60, 0.75, 340, 8_000)


def test_a_cost_that_nobody_knows_is_none() -> None:
    table = Table()
    table.tell(table.send(), events.UsageReported("demo", "demo-1", 100, 20))
    spent = card(table.session).spent
    assert spent is not None
    assert spent.cost is None


def test_a_card_has_the_criteria_of_the_last_run_until_the_next_begins() -> None:
    table = Table()
    table.finish(table.send(), acceptance=RESULTS)
    assert card(table.session).accepted == {"tests": True, "lint": False}
    table.send("again")
    assert card(table.session).accepted == {}


def test_a_deleted_session_is_not_at_hand_any_more() -> None:
    table = Table()
    table.do(commands.LoadSession(session_id=table.session.id))
    assert card(table.session).loaded is True
    table.do(commands.DeleteSession(session_id=table.session.id))
    assert (card(table.session).loaded, card(table.session).state) == (False, events.SessionState.DELETED)


def test_a_session_can_be_deleted_while_its_host_waits_for_a_decision() -> None:
    """It goes on there; only our picture of it is gone."""
    table = Table()
    table.ask(table.send())
    table.tell(None, events.SessionDeleted(by=OWNER))
    assert table.session.is_deleted
