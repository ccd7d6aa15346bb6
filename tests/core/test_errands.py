"""Errands, as the rules see them: tools used in a workspace from afar, each begun and ended once."""

from typing import Any

import pytest

from switchtower.core import commands, errors, events
from switchtower.core.decide import decide
from switchtower.core.fold import fold_entries
from switchtower.core.session import REMOTE_CALL, Session
from switchtower.testing.session_driver import OWNER, SESSION_ID, SessionDriver


def start(errand_id: str = "req_1", tool: str = "rpc.fs.read") -> commands.StartRemoteCall:
    return commands.StartRemoteCall(session_id=SESSION_ID, actor=OWNER, errand_id=errand_id, tool=tool, args={"path": "a"})


def finish(errand_id: str = "req_1", **fields: Any) -> commands.FinishRemoteCall:
    given = {"ok": True, "duration_ms": 3, "result": {"content": "x"}, **fields}
    return commands.FinishRemoteCall(session_id=SESSION_ID, actor=OWNER, errand_id=errand_id, **given)


def ask_about(table: SessionDriver, run_id: str, approval_id: str = "req_1") -> None:
    table.execute(
        commands.RequestApproval(
            session_id=SESSION_ID,
            run_id=run_id,
            call_id=approval_id,
            kind=REMOTE_CALL,
            title="Run make",
            summary="Run make",
            details={"tool": "rpc.bash"},
            fingerprint="f",
            expires_at_ms=10_000,
            approval_id=approval_id,
        )
    )


@pytest.mark.parametrize("beside_a_run", [True, False], ids=["run", "no run"])
def test_an_errand_is_journalled_from_its_call_to_its_result(beside_a_run: bool) -> None:
    table = SessionDriver()
    run_id = table.send() if beside_a_run else None

    table.execute(start())
    assert table.session.errands == {"req_1": "rpc.fs.read"}
    table.execute(finish())

    assert table.log[-2:] == [
        events.RemoteCallStarted(errand_id="req_1", tool="rpc.fs.read", args={"path": "a"}, by=OWNER),
        events.RemoteCallFinished(
            errand_id="req_1", tool="rpc.fs.read", by=OWNER, ok=True, duration_ms=3, result={"content": "x"}
        ),
    ]
    assert [entry.run_id for entry in table.entries[-2:]] == [run_id, run_id]
    assert table.session.errands == {}


def test_an_errand_that_failed_says_why() -> None:
    table = SessionDriver()
    table.execute(start())
    table.execute(finish(ok=False, result=None, error="denied"))
    finished = table.log[-1]
    assert isinstance(finished, events.RemoteCallFinished)
    assert (finished.ok, finished.error, finished.result) == (False, "denied", None)


def test_an_id_is_taken_while_its_errand_is_under_way() -> None:
    table = SessionDriver()
    table.execute(start())
    with pytest.raises(errors.IdentityConflict):
        table.execute(start(tool="rpc.git.status"))
    table.execute(finish())
    table.execute(start(tool="rpc.git.status"))
    assert table.session.errands == {"req_1": "rpc.git.status"}


def test_an_id_that_a_question_had_is_not_taken_again() -> None:
    """Otherwise the old decision would seem to be about the new call."""
    table = SessionDriver()
    run_id = table.send()
    table.execute(start())
    ask_about(table, run_id)
    table.decide_approval("req_1")
    table.execute(finish())
    with pytest.raises(errors.IdentityConflict):
        table.execute(start())


def test_an_errand_that_a_restart_has_closed_ends_only_once() -> None:
    table = SessionDriver()
    table.execute(start())
    after = Session(id=SESSION_ID)
    fold_entries(after, table.entries)
    table.session = after

    table.execute(finish(ok=False, result=None, error="the daemon ended before it was done"))
    before = len(table.log)
    table.execute(finish())

    assert len(table.log) == before
    table.execute(finish("req_none"))
    assert len(table.log) == before


def test_no_errand_in_a_session_that_does_not_exist() -> None:
    with pytest.raises(errors.SessionNotFound):
        decide(Session(id=SESSION_ID), start(), now_ms=1, mint=str)


def test_a_run_does_not_wait_for_the_question_about_an_errand() -> None:
    table = SessionDriver()
    run_id = table.send()
    table.execute(start())
    ask_about(table, run_id)
    assert table.session.run is not None
    assert not table.session.run.is_awaiting_decision

    table.request_approval(run_id)
    assert table.session.run.is_awaiting_decision


def test_the_question_about_an_errand_ends_with_the_run() -> None:
    table = SessionDriver()
    run_id = table.send()
    table.execute(start())
    ask_about(table, run_id)

    table.finish(run_id)

    withdrawn = [event for event in table.log if isinstance(event, events.ApprovalWithdrawn)]
    assert [event.approval_id for event in withdrawn] == ["req_1"]
    assert table.session.errands == {"req_1": "rpc.fs.read"}, "whoever does it finishes it"
