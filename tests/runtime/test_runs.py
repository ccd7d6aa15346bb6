"""Runs: an engine starts because of a committed event, ends with an honest outcome, and cannot hold its session hostage."""

import asyncio

import pytest
from tests.runtime.parts import (
    SUCCESS,
    MakeRuntime,
    RuntimeHarness,
    ask_once,
    cancel,
    decide,
    finish_at_once,
    make_question,
    send,
    work_until_cancelled,
)

from switchtower.core import errors, events
from switchtower.core.ports import engine
from switchtower.runtime.lane_items import RuntimeLimits


async def test_a_run_that_is_cancelled_in_the_turn_that_started_it_ends_as_cancelled(make_runtime: MakeRuntime) -> None:
    house = await make_runtime(work_until_cancelled)
    outlet = await house.start_session()
    async with asyncio.timeout(60):
        await asyncio.gather(house.start_submit(send()), house.start_submit(cancel()))
    completed = await outlet.wait_for_event(events.RunCompleted)
    assert completed.outcome is events.Outcome.CANCELLED
    await house.send()


async def test_a_cancelled_run_ends_only_after_its_engine_has_cleaned_up(make_runtime: MakeRuntime) -> None:
    cleaning, clean = asyncio.Event(), asyncio.Event()

    async def work(task: engine.Task, desk: engine.RunContext) -> engine.RunResult:
        try:
            await asyncio.Event().wait()
        finally:
            cleaning.set()
            await clean.wait()
        return SUCCESS

    house = await make_runtime(work)
    outlet = await house.start_session()
    await house.send()
    await house.ask(cancel())
    async with asyncio.timeout(60):
        await cleaning.wait()
    with pytest.raises(errors.RunInProgress):
        await house.send()
    clean.set()
    completed = await outlet.wait_for_event(events.RunCompleted)
    assert completed.outcome is events.Outcome.CANCELLED


async def test_an_engine_that_ignores_its_cancellation_is_left_behind_after_the_grace(make_runtime: MakeRuntime) -> None:
    let_go = asyncio.Event()
    spoke = asyncio.Event()

    async def stubborn(task: engine.Task, desk: engine.RunContext) -> engine.RunResult:
        while not let_go.is_set():
            try:
                await let_go.wait()
            except asyncio.CancelledError:
                continue
        await desk.emit(events.TextDelta("too late"))
        with pytest.raises(errors.NoActiveRun):
            await desk.request_approval(make_question())
        spoke.set()
        return SUCCESS

    house = await make_runtime(stubborn, limits=RuntimeLimits(stop_grace=0.02))
    outlet = await house.start_session()
    await house.send()
    await house.ask(cancel())
    completed = await outlet.wait_for_event(events.RunCompleted)
    assert completed.outcome is events.Outcome.CANCELLED

    house.engine.work = work_until_cancelled
    second_run = await house.send("next")
    let_go.set()
    async with asyncio.timeout(60):
        await spoke.wait()
    await house.ask(cancel())
    await outlet.wait_for_event(events.RunCompleted, count=2)
    # What the first engine said after its run had ended is in neither run.
    assert outlet.list_events(events.TextDelta) == []
    assert [entry.run_id for entry in outlet.entries[-2:]] == [second_run, second_run]


async def test_the_exit_code_of_a_program_is_kept_when_the_rest_of_it_takes_longer_than_the_grace(
    make_runtime: MakeRuntime,
) -> None:
    working, clean = asyncio.Event(), asyncio.Event()

    async def work(task: engine.Task, desk: engine.RunContext) -> engine.RunResult:
        try:
            working.set()
            await asyncio.Event().wait()
        finally:
            desk.report_exit(7)
            await clean.wait()
        return SUCCESS

    house = await make_runtime(work, limits=RuntimeLimits(stop_grace=0.02))
    outlet = await house.start_session()
    await house.send()
    async with asyncio.timeout(60):
        await working.wait()
    await house.ask(cancel())
    completed = await outlet.wait_for_event(events.RunCompleted)
    assert (completed.outcome, completed.exit_code) == (events.Outcome.CANCELLED, 7)
    clean.set()


async def test_an_engine_s_exception_fails_the_run_and_stays_in_the_house(
    make_runtime: MakeRuntime, caplog: pytest.LogCaptureFixture
) -> None:
    async def broken(task: engine.Task, desk: engine.RunContext) -> engine.RunResult:
        await desk.emit(events.TextDelta("so far"))
        raise RuntimeError("a detail of our insides")

    house = await make_runtime(broken)
    outlet = await house.start_session()
    await house.send()
    completed = await outlet.wait_for_event(events.RunCompleted)
    assert completed.outcome is events.Outcome.FAILED
    assert [error.code for error in outlet.list_events(events.ErrorRaised)] == ["INTERNAL_ERROR"]
    assert outlet.list_events(events.TextDelta) == [events.TextDelta("so far")]
    assert not any(b"insides" in entry.data or b"RuntimeError" in entry.data for entry in outlet.entries)
    assert "a detail of our insides" in caplog.text

    house.engine.work = finish_at_once
    await house.send()
    assert (await outlet.wait_for_event(events.RunCompleted, count=2)).outcome is events.Outcome.SUCCESS


async def test_a_session_of_an_unknown_engine_fails_its_runs_and_not_the_daemon(make_runtime: MakeRuntime) -> None:
    house = await make_runtime()
    house.runtime.runs._engines = {}
    outlet = await house.start_session()
    await house.send()
    completed = await outlet.wait_for_event(events.RunCompleted)
    assert completed.outcome is events.Outcome.FAILED


async def test_a_failed_acceptance_check_fails_the_run_with_its_own_hint(make_runtime: MakeRuntime) -> None:
    async def check(criterion: events.Criterion, workspace: events.Workspace, run_id: str) -> events.CriterionResult:
        return events.CriterionResult(criterion.id, passed=criterion.id == "good", exit_code=0, output="")

    house = await make_runtime(check_criterion=check)
    outlet = await house.start_session()
    await house.send(acceptance=(events.Criterion("good", "true"), events.Criterion("bad", "false")))
    completed = await outlet.wait_for_event(events.RunCompleted)
    assert (completed.outcome, completed.exit_code_hint) == (events.Outcome.FAILED, 4)
    assert [result.id for result in completed.acceptance] == ["good", "bad"]


async def test_a_run_can_be_cancelled_while_its_acceptance_is_checked(make_runtime: MakeRuntime) -> None:
    checking = asyncio.Event()

    async def check(criterion: events.Criterion, workspace: events.Workspace, run_id: str) -> events.CriterionResult:
        checking.set()
        await asyncio.Event().wait()
        raise AssertionError

    house = await make_runtime(check_criterion=check)
    outlet = await house.start_session()
    await house.send(acceptance=(events.Criterion("slow", "sleep"),))
    async with asyncio.timeout(60):
        await checking.wait()
    await house.ask(cancel())
    completed = await outlet.wait_for_event(events.RunCompleted)
    assert (completed.outcome, completed.exit_code_hint) == (events.Outcome.CANCELLED, 2)


async def test_a_stop_closes_a_working_run_as_interrupted(make_runtime: MakeRuntime) -> None:
    house = await make_runtime(work_until_cancelled)
    outlet = await house.start_session()
    await house.send()
    async with asyncio.timeout(60):
        await house.runtime.stop()
    completed = await outlet.wait_for_event(events.RunCompleted)
    assert completed.outcome is events.Outcome.FAILED
    assert [error.code for error in outlet.list_events(events.ErrorRaised)] == ["RUN_INTERRUPTED"]
    with pytest.raises(errors.ShuttingDown):
        await house.send()


async def test_a_stop_in_the_turn_that_started_a_run_closes_it(make_runtime: MakeRuntime) -> None:
    house = await make_runtime(work_until_cancelled)
    await house.start_session()
    stopping: list[asyncio.Task[None]] = []
    house.runtime.submit(send(), lambda _: stopping.append(asyncio.create_task(house.runtime.stop())))
    async with asyncio.timeout(60):
        await house.journal.wait_until(lambda: house.journal.stored == 3)
        await stopping[0]
    assert [entry.kind for entry in await house.list_stored()][-1] == "run.completed"


async def test_a_pending_approval_survives_a_stop_and_is_honoured_after_it(make_runtime: MakeRuntime) -> None:
    before = await make_runtime(ask_once)
    outlet = await before.start_session()
    run_id = await before.send()
    approval = (await outlet.wait_for_event(events.ApprovalRequested)).approval
    async with asyncio.timeout(60):
        await before.runtime.stop()
    assert outlet.kinds[-1] == "approval.requested"

    after = await make_runtime(ask_once, before.journal)
    assert after.killed == [run_id]
    outlet = await after.attach_subscriber()
    await after.ask(decide(approval.id))
    completed = await outlet.wait_for_event(events.RunCompleted)
    assert completed.outcome is events.Outcome.SUCCESS
    assert len(outlet.list_events(events.ApprovalRequested)) == 1
    assert after.engine.tasks[0].pending_approval == approval


async def test_a_run_that_was_working_at_a_crash_is_closed_at_the_next_start(make_runtime: MakeRuntime) -> None:
    before = await make_runtime(work_until_cancelled)
    outlet = await before.start_session()
    run_id = await before.send()
    await before.engine.wait_until(lambda: bool(before.engine.tasks))
    await before.crash()

    after = await make_runtime(finish_at_once, before.journal.inner)
    assert after.killed == [run_id]
    assert after.engine.tasks == []
    outlet = await after.attach_subscriber()
    completed = await outlet.wait_for_event(events.RunCompleted)
    assert completed.outcome is events.Outcome.FAILED
    assert [error.code for error in outlet.list_events(events.ErrorRaised)] == ["RUN_INTERRUPTED"]
    await after.send()


async def test_a_run_that_was_being_cancelled_at_a_crash_is_closed_as_cancelled(make_runtime: MakeRuntime) -> None:
    cleaning = asyncio.Event()

    async def slow_to_stop(task: engine.Task, desk: engine.RunContext) -> engine.RunResult:
        try:
            await desk.request_approval(make_question())
        finally:
            cleaning.set()
            await asyncio.Event().wait()
        return SUCCESS

    before = await make_runtime(slow_to_stop, limits=RuntimeLimits(stop_grace=0.02))
    outlet = await before.start_session()
    await before.send()
    await outlet.wait_for_event(events.ApprovalRequested)
    await before.ask(cancel())
    before.journal.gone = True
    async with asyncio.timeout(60):
        await cleaning.wait()
        await before.crash()

    after = await make_runtime(ask_once, before.journal.inner)
    outlet = await after.attach_subscriber()
    completed = await outlet.wait_for_event(events.RunCompleted)
    assert completed.outcome is events.Outcome.CANCELLED
    assert len(outlet.list_events(events.ApprovalWithdrawn)) == 1
    assert after.engine.tasks == []


async def test_an_unattended_run_can_be_cancelled(make_runtime: MakeRuntime) -> None:
    """Its recovery failed, so no engine works on it; it must not hold its session for ever."""
    before = await make_runtime(work_until_cancelled)
    await before.start_session()
    await before.send()
    await before.crash()

    after = RuntimeHarness(finish_at_once, before.journal.inner)
    after.journal.failing = [errors.JournalUnavailable("full")]
    await after.open()
    outlet = await after.attach_subscriber()
    with pytest.raises(errors.RunInProgress):
        await after.send()
    await after.ask(cancel())
    assert (await outlet.wait_for_event(events.RunCompleted)).outcome is events.Outcome.CANCELLED
    await after.send()
    await after.close()


async def test_a_broken_session_does_not_keep_the_others_from_being_recovered(make_runtime: MakeRuntime) -> None:
    before = await make_runtime(ask_once)
    approvals = {}
    for session_id in ("sess_1", "sess_2", "sess_3"):
        outlet = await before.start_session(session_id)
        await before.send(session_id=session_id)
        approvals[session_id] = (await outlet.wait_for_event(events.ApprovalRequested)).approval.id
    await before.runtime.stop()
    # sess_2 can no longer be read.
    broken = before.journal.inner._sessions["sess_2"]
    broken.entries = [entry._replace(data=b"{") for entry in broken.entries]

    after = await make_runtime(ask_once, before.journal.inner)
    for session_id in ("sess_1", "sess_3"):
        outlet = await after.attach_subscriber(session_id)
        await after.ask(decide(approvals[session_id], session_id=session_id))
        assert (await outlet.wait_for_event(events.RunCompleted)).outcome is events.Outcome.SUCCESS
    with pytest.raises(errors.JournalUnavailable):
        await after.send(session_id="sess_2")
