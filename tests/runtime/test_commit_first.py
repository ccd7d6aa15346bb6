"""On disk before on the wire: no answer, no event and no effect before the commit that they speak of."""

import asyncio

import pytest
from tests.runtime.parts import (
    SESSION,
    MakeRuntime,
    RecordingSubscriber,
    ask_once,
    cancel,
    decide,
    make_question,
    send,
    work_until_cancelled,
)

from switchtower.core import commands, errors, events
from switchtower.core.ports import engine, session_service
from switchtower.runtime.lane_items import RuntimeLimits
from switchtower.testing.session_driver import OWNER, start_session


async def _run_loop_turns() -> None:
    """Whatever could have happened without the commit has had its chance."""
    for _ in range(50):
        await asyncio.sleep(0)


async def test_nothing_is_answered_published_or_started_while_the_commit_runs(make_runtime: MakeRuntime) -> None:
    house = await make_runtime(work_until_cancelled)
    outlet = await house.start_session()
    told = len(outlet.entries)
    house.journal.gate.clear()

    answer = house.start_submit(send())
    await house.journal.wait_until(lambda: len(house.journal.appends) == 2)
    await _run_loop_turns()
    assert not answer.done()
    assert len(outlet.entries) == told
    assert house.engine.tasks == []

    house.journal.gate.set()
    async with asyncio.timeout(60):
        run_id = (await answer)["run_id"]
    await outlet.wait_for_event(events.RunStarted)
    await house.engine.wait_until(lambda: bool(house.engine.tasks))
    assert house.engine.tasks[0].run_id == run_id


async def test_what_an_engine_says_is_published_only_once_it_is_stored(make_runtime: MakeRuntime) -> None:
    flushed = asyncio.Event()

    async def speak(task: engine.Task, desk: engine.RunContext) -> engine.RunResult:
        await desk.emit(events.TextDelta("hello"))
        await desk.flush()
        flushed.set()
        return engine.RunResult(events.Outcome.SUCCESS, "done")

    house = await make_runtime(speak)
    outlet = await house.start_session()
    await house.send()
    house.journal.gate.clear()
    appends = len(house.journal.appends)
    await house.journal.wait_until(lambda: len(house.journal.appends) > appends)
    await _run_loop_turns()
    assert not flushed.is_set()
    assert events.TextDelta.kind not in outlet.kinds

    house.journal.gate.set()
    await outlet.wait_for_event(events.RunCompleted)
    assert flushed.is_set()
    assert outlet.list_events(events.TextDelta) == [events.TextDelta("hello")]


async def test_an_approved_action_begins_only_after_the_decision_is_stored(make_runtime: MakeRuntime) -> None:
    acted = asyncio.Event()

    async def act(task: engine.Task, desk: engine.RunContext) -> engine.RunResult:
        assert (await desk.request_approval(make_question())).verdict is events.Verdict.APPROVE
        acted.set()
        return engine.RunResult(events.Outcome.SUCCESS, "done")

    house = await make_runtime(act)
    outlet = await house.start_session()
    await house.send()
    approval = (await outlet.wait_for_event(events.ApprovalRequested)).approval
    house.journal.gate.clear()
    appends = len(house.journal.appends)
    answer = house.start_submit(decide(approval.id))
    await house.journal.wait_until(lambda: len(house.journal.appends) > appends)
    await _run_loop_turns()
    assert not acted.is_set()
    assert not answer.done()

    house.journal.gate.set()
    async with asyncio.timeout(60):
        await answer
        await acted.wait()


async def test_the_asker_hears_the_answer_before_the_events_of_it(make_runtime: MakeRuntime) -> None:
    house = await make_runtime(work_until_cancelled)
    heard: list[str] = []

    class Listening(RecordingSubscriber):
        def deliver(self, batch: session_service.Batch) -> None:
            heard.extend(entry.kind for entry in batch.entries)
            super().deliver(batch)

    await house.ask(start_session(SESSION))
    outlet = await house.attach_subscriber(after_seq=1, outlet=Listening())
    house.runtime.submit(send(), lambda outcome: heard.append("the answer"))
    await outlet.wait_for_event(events.RunStarted)
    assert heard == ["the answer", "run.started"]


async def test_a_refusal_that_rests_on_an_uncommitted_event_waits_for_that_event(make_runtime: MakeRuntime) -> None:
    house = await make_runtime(work_until_cancelled)
    await house.start_session()
    house.journal.gate.clear()
    first, second = house.start_submit(send("one")), house.start_submit(send("two"))
    await house.journal.wait_until(lambda: len(house.journal.appends) == 2)
    await _run_loop_turns()
    assert not second.done()

    house.journal.failing = [errors.JournalUnavailable("the disk is full")]
    house.journal.gate.set()
    async with asyncio.timeout(60):
        for answer in (first, second):
            # Not RunInProgress: the run that the second would have collided with never was.
            with pytest.raises(errors.JournalUnavailable):
                await answer


async def test_requests_beyond_the_limit_are_refused_and_can_be_tried_again(make_runtime: MakeRuntime) -> None:
    house = await make_runtime(ask_once, limits=RuntimeLimits(waiting_commands=10))
    await house.start_session()
    house.journal.gate.clear()
    in_commit = house.start_submit(send())
    await house.journal.wait_until(lambda: len(house.journal.appends) == 2)
    waiting = [house.start_submit(cancel()) for _ in range(10)]
    with pytest.raises(errors.Overloaded) as refused:
        await house.start_submit(cancel())
    assert refused.value.retryable
    with pytest.raises(errors.Overloaded):
        await house.attach_subscriber()

    house.journal.gate.set()
    async with asyncio.timeout(60):
        await asyncio.gather(in_commit, *waiting)


async def test_an_engine_that_is_faster_than_the_disk_is_held_back(make_runtime: MakeRuntime) -> None:
    limit = 20
    emitted = 0

    async def babble(task: engine.Task, desk: engine.RunContext) -> engine.RunResult:
        nonlocal emitted
        for number in range(500):
            await desk.emit(events.TextDelta(f"{number} "))
            emitted += 1
        return engine.RunResult(events.Outcome.SUCCESS, "done")

    house = await make_runtime(babble, limits=RuntimeLimits(uncommitted_events=limit))
    outlet = await house.start_session()
    await house.send()
    house.journal.gate.clear()
    await house.journal.wait_until(lambda: emitted > 0)
    held_at = -1
    while held_at != emitted:
        held_at = emitted
        await _run_loop_turns()
    # What is being committed, what waits behind it, and the one that found it full.
    assert held_at <= 2 * limit + 1

    house.journal.gate.set()
    await outlet.wait_for_event(events.RunCompleted)
    assert "".join(delta.text for delta in outlet.list_events(events.TextDelta)) == "".join(f"{number} " for number in range(500))


async def test_who_looks_at_a_session_is_not_shown_what_is_not_stored_yet(make_runtime: MakeRuntime) -> None:
    house = await make_runtime()
    await house.start_session()
    seen = await house.runtime.get_session(SESSION)
    house.journal.gate.clear()

    asking = house.start_submit(commands.ConfigureSession(session_id=SESSION, actor=OWNER, title="not yet"))
    await house.journal.wait_until(lambda: len(house.journal.appends) == 2)
    assert seen.title == ""

    house.journal.gate.set()
    await asking
    assert (await house.runtime.get_session(SESSION)).title == "not yet"
    assert seen.title == ""
