"""What an extension asks is answered once, in its form, or not at all."""

from typing import Any

import pytest

from switchtower.core import commands, errors, events
from switchtower.testing.session_driver import OWNER, SESSION_ID, SessionDriver


def open_dialog(table: SessionDriver, method: str = "select", **fields: Any) -> str:
    dialog = events.Dialog("", method, "Which?", expires_at_ms=10_000, **fields)
    run_id = table.send()
    return str(table.execute(commands.OpenDialog(session_id=SESSION_ID, run_id=run_id, dialog=dialog))["dialog_id"])


def answer(table: SessionDriver, dialog_id: str, response: dict[str, object] | None) -> None:
    table.execute(commands.AnswerDialog(session_id=SESSION_ID, actor=OWNER, dialog_id=dialog_id, response=response))


def test_the_first_answer_wins() -> None:
    table = SessionDriver()
    dialog_id = open_dialog(table, options=("a", "b"))

    answer(table, dialog_id, {"value": "b"})

    assert table.log[-1] == events.DialogAnswered(dialog_id, {"value": "b"}, OWNER)
    with pytest.raises(errors.DialogNotFound):
        answer(table, dialog_id, {"value": "a"})


@pytest.mark.parametrize(
    ("method", "wrong"),
    [
        ("select", {"value": "c"}),
        ("select", {"value": 1}),
        ("select", {}),
        ("confirm", {"confirmed": "yes"}),
        ("input", {"confirmed": True}),
        ("editor", {"value": None}),
        ("interview", {"responses": "x"}),
    ],
)
def test_an_answer_of_the_wrong_form_leaves_the_question_open(method: str, wrong: dict[str, object]) -> None:
    table = SessionDriver()
    dialog_id = open_dialog(table, method, options=("a", "b"))

    with pytest.raises(errors.InvalidCommand):
        answer(table, dialog_id, wrong)

    assert table.session.run is not None
    assert dialog_id in table.session.run.dialogs


def test_only_what_was_asked_for_is_kept_of_an_answer() -> None:
    table = SessionDriver()
    dialog_id = open_dialog(table, "confirm")

    answer(table, dialog_id, {"confirmed": False, "more": "x"})

    assert table.log[-1] == events.DialogAnswered(dialog_id, {"confirmed": False}, OWNER)


def test_a_dismissed_dialog_is_closed() -> None:
    table = SessionDriver()
    dialog_id = open_dialog(table, "input")

    answer(table, dialog_id, None)

    assert table.log[-1] == events.DialogClosed(dialog_id, "dismissed")


def test_a_dialog_expires_and_is_not_answered_afterwards() -> None:
    table = SessionDriver()
    dialog_id = open_dialog(table, "input")
    table.now_ms = 10_000
    with pytest.raises(errors.DialogNotFound):
        answer(table, dialog_id, {"value": "late"})

    table.execute(commands.ExpireDialog(session_id=SESSION_ID, dialog_id=dialog_id))

    assert table.log[-1] == events.DialogClosed(dialog_id, "expired")
    before = len(table.log)
    table.execute(commands.ExpireDialog(session_id=SESSION_ID, dialog_id=dialog_id))
    assert len(table.log) == before


def test_a_run_closes_its_dialogs_when_it_ends() -> None:
    table = SessionDriver()
    dialog_id = open_dialog(table, "input")
    assert table.session.run is not None
    run_id = table.session.run.id

    table.execute(commands.FinishRun(session_id=SESSION_ID, run_id=run_id, outcome=events.Outcome.SUCCESS, summary="done"))

    assert events.DialogClosed(dialog_id, "the run ended: success") in table.log


def test_only_the_active_run_asks() -> None:
    table = SessionDriver()
    dialog = events.Dialog("", "input", "Which?", expires_at_ms=10_000)

    with pytest.raises(errors.NoActiveRun):
        table.execute(commands.OpenDialog(session_id=SESSION_ID, run_id="run_x", dialog=dialog))
