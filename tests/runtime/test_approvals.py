"""Approvals over time: the first decision wins, an expiry is an expiry, and a restart changes neither."""

import asyncio

import pytest
from tests.runtime.parts import MakeRuntime, ask_once, decide, make_question

from switchtower.core import errors, events
from switchtower.core.ports import engine


async def test_an_undecided_approval_expires_and_that_is_nobody_s_denial(make_runtime: MakeRuntime) -> None:
    house = await make_runtime(ask_once, approval_timeout_ms=20)
    outlet = await house.start_session()
    await house.send()
    completed = await outlet.wait_for_event(events.RunCompleted)
    assert completed.outcome is events.Outcome.FAILED
    assert len(outlet.list_events(events.ApprovalExpired)) == 1
    assert outlet.list_events(events.ApprovalDecided) == []
    with pytest.raises(errors.ApprovalClosed):
        await house.ask(decide(outlet.list_events(events.ApprovalRequested)[0].approval.id))


async def test_a_decision_leaves_nothing_to_expire(make_runtime: MakeRuntime) -> None:
    house = await make_runtime(ask_once)
    outlet = await house.start_session()
    await house.send()
    approval = (await outlet.wait_for_event(events.ApprovalRequested)).approval
    assert list(house.runtime.runs._timers) == [approval.id]
    await house.ask(decide(approval.id))
    await outlet.wait_for_event(events.RunCompleted)
    assert house.runtime.runs._timers == {}


async def test_an_approval_that_ran_out_while_the_daemon_was_down_expires_at_the_start(make_runtime: MakeRuntime) -> None:
    now_ms = 1_000_000
    before = await make_runtime(ask_once, approval_timeout_ms=60_000, clock=lambda: now_ms)
    outlet = await before.start_session()
    await before.send()
    await outlet.wait_for_event(events.ApprovalRequested)
    await before.runtime.stop()

    after = await make_runtime(ask_once, before.journal, approval_timeout_ms=60_000, clock=lambda: now_ms + 60_001)
    outlet = await after.attach_subscriber()
    completed = await outlet.wait_for_event(events.RunCompleted)
    assert completed.outcome is events.Outcome.FAILED
    assert completed.summary == "expired"
    assert outlet.kinds[-3:] == ["approval.requested", "approval.expired", "run.completed"]


async def test_an_approval_goes_on_with_the_time_it_had_left(make_runtime: MakeRuntime) -> None:
    now_ms = 1_000_000
    before = await make_runtime(ask_once, approval_timeout_ms=60_000, clock=lambda: now_ms)
    outlet = await before.start_session()
    await before.send()
    approval = (await outlet.wait_for_event(events.ApprovalRequested)).approval
    await before.runtime.stop()

    after = await make_runtime(ask_once, before.journal, approval_timeout_ms=60_000, clock=lambda: now_ms + 59_980)
    outlet = await after.attach_subscriber()
    expired = await outlet.wait_for_event(events.ApprovalExpired)
    assert expired.approval_id == approval.id


async def test_a_decision_after_the_expiry_is_refused_even_before_the_timer_has_said_so(make_runtime: MakeRuntime) -> None:
    now_ms = 1_000_000
    house = await make_runtime(ask_once, approval_timeout_ms=3_600_000, clock=lambda: now_ms)
    outlet = await house.start_session()
    await house.send()
    approval = (await outlet.wait_for_event(events.ApprovalRequested)).approval
    now_ms = approval.expires_at_ms
    with pytest.raises(errors.ApprovalClosed):
        await house.ask(decide(approval.id))
    assert outlet.kinds[-1] == "approval.requested"


async def test_a_decision_that_comes_before_the_engine_waits_for_it_is_not_lost(make_runtime: MakeRuntime) -> None:
    """After a restart the question is pending before the engine has asked again."""
    before = await make_runtime(ask_once)
    outlet = await before.start_session()
    await before.send()
    approval = (await outlet.wait_for_event(events.ApprovalRequested)).approval
    await before.runtime.stop()

    decided = asyncio.Event()

    async def slow_to_ask(task: engine.Task, desk: engine.RunContext) -> engine.RunResult:
        await decided.wait()
        return await ask_once(task, desk)

    after = await make_runtime(slow_to_ask, before.journal)
    outlet = await after.attach_subscriber()
    await after.ask(decide(approval.id))
    decided.set()
    completed = await outlet.wait_for_event(events.RunCompleted)
    assert completed.outcome is events.Outcome.SUCCESS
    assert len(outlet.list_events(events.ApprovalRequested)) == 1


async def test_a_question_about_something_else_is_asked_anew_after_a_restart(make_runtime: MakeRuntime) -> None:
    before = await make_runtime(ask_once)
    outlet = await before.start_session()
    await before.send()
    approval = (await outlet.wait_for_event(events.ApprovalRequested)).approval
    await before.runtime.stop()

    async def ask_differently(task: engine.Task, desk: engine.RunContext) -> engine.RunResult:
        await desk.request_approval(make_question(subject="rm -r /"))
        return engine.RunResult(events.Outcome.SUCCESS, "done")

    after = await make_runtime(ask_differently, before.journal)
    outlet = await after.attach_subscriber()
    asked_anew = (await outlet.wait_for_event(events.ApprovalRequested, count=2)).approval
    with pytest.raises(errors.ApprovalClosed):
        await after.ask(decide(approval.id))
    assert outlet.kinds.count("run.completed") == 0
    await after.ask(decide(asked_anew.id))
    await outlet.wait_for_event(events.RunCompleted)


async def test_two_questions_of_one_run_get_each_their_own_answer(make_runtime: MakeRuntime) -> None:
    async def ask_two(task: engine.Task, desk: engine.RunContext) -> engine.RunResult:
        answers = await asyncio.gather(
            desk.request_approval(make_question("call_1", "one")), desk.request_approval(make_question("call_2", "two"))
        )
        return engine.RunResult(events.Outcome.SUCCESS, " ".join(str(answer.verdict) for answer in answers))

    house = await make_runtime(ask_two)
    outlet = await house.start_session()
    await house.send()
    await outlet.wait_for_event(events.ApprovalRequested, count=2)
    one, two = (requested.approval.id for requested in outlet.list_events(events.ApprovalRequested))
    await house.ask(decide(two, events.Verdict.DENY_CONTINUE))
    await house.ask(decide(one, events.Verdict.APPROVE))
    completed = await outlet.wait_for_event(events.RunCompleted)
    assert completed.summary == "approve deny_continue"
