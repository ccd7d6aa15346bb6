"""People's own commands, as the rules see them."""

import pytest

from switchtower.core import commands, errors, events
from switchtower.core.fold import make_card
from switchtower.core.rules import user_actions
from switchtower.testing.session_driver import OWNER, SESSION_ID, SessionDriver


def run(table: SessionDriver, shell_id: str = "sh_1", command: str = "make test") -> None:
    table.execute(commands.RunShell(session_id=SESSION_ID, actor=OWNER, shell_id=shell_id, command=command))


def test_a_command_runs_beside_a_run_and_the_card_counts_it() -> None:
    table = SessionDriver()
    table.send()

    run(table)

    assert table.session.shells == {"sh_1": "make test"}
    assert make_card(table.session).shells == 1


def test_a_command_ends_once() -> None:
    table = SessionDriver()
    run(table)
    finish = commands.FinishShell(session_id=SESSION_ID, shell_id="sh_1", exit_code=0, text="ok")

    table.execute(finish)
    before = len(table.log)
    table.execute(finish)

    assert table.log[-1] == events.ShellFinished("sh_1", 0, "ok")
    assert len(table.log) == before


def test_a_cancel_names_one_or_means_all_and_forgets_what_has_ended() -> None:
    table = SessionDriver()
    run(table, "sh_1")
    run(table, "sh_2")

    table.execute(commands.CancelShell(session_id=SESSION_ID, actor=OWNER, shell_id="sh_2"))
    assert table.log[-1] == events.ShellCancelRequested("sh_2", OWNER)

    table.execute(commands.CancelShell(session_id=SESSION_ID, actor=OWNER))
    assert table.log[-2:] == [events.ShellCancelRequested("sh_1", OWNER), events.ShellCancelRequested("sh_2", OWNER)]

    before = len(table.log)
    table.execute(commands.CancelShell(session_id=SESSION_ID, actor=OWNER, shell_id="sh_9"))
    assert len(table.log) == before


def test_there_is_an_end_to_how_many_run_at_once() -> None:
    table = SessionDriver()
    for number in range(user_actions.MOST_AT_ONCE):
        run(table, f"sh_{number}")

    with pytest.raises(errors.Overloaded):
        run(table, "sh_more")
