"""Errands over the end of a daemon: none stays open, and no question about one is left that nobody waits for."""

from tests.runtime.parts import SESSION, MakeRuntime, work_until_cancelled

from switchtower.core import commands, events
from switchtower.core.session import REMOTE_CALL
from switchtower.testing.session_driver import OWNER


async def test_an_errand_that_the_daemon_s_end_cut_short_is_closed_by_the_next(make_runtime: MakeRuntime) -> None:
    before = await make_runtime(work_until_cancelled)
    outlet = await before.start_session()
    run_id = await before.send()
    await before.ask(
        commands.StartRemoteCall(session_id=SESSION, actor=OWNER, errand_id="req_1", tool="rpc.bash", args={"cmd": "make"})
    )
    await before.ask(
        commands.RequestApproval(
            session_id=SESSION,
            run_id=run_id,
            call_id="req_1",
            kind=REMOTE_CALL,
            title="Run make",
            summary="Run make",
            details={},
            fingerprint="f",
            expires_at_ms=2**50,
            approval_id="appr_1",
        )
    )
    await outlet.wait_for_event(events.ApprovalRequested)
    await before.crash()

    after = await make_runtime(work_until_cancelled, before.journal.inner)
    outlet = await after.attach_subscriber()
    finished = await outlet.wait_for_event(events.RemoteCallFinished)
    assert (finished.errand_id, finished.tool, finished.ok) == ("req_1", "rpc.bash", False)
    assert finished.error
    withdrawn = await outlet.wait_for_event(events.ApprovalWithdrawn)
    assert withdrawn.approval_id == "appr_1"
    completed = await outlet.wait_for_event(events.RunCompleted)
    assert completed.outcome is events.Outcome.FAILED, "the run did not wait for the errand's question, so it was at work"
    assert after.engine.tasks == []
