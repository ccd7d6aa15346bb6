"""A journal that cannot store something: who asked may try again, nothing was told, and the session goes on."""

import asyncio

import pytest
from tests.runtime.parts import (
    SESSION,
    MakeRuntime,
    RecordingSubscriber,
    ask_once,
    cancel,
    decide,
    finish_at_once,
    send,
    work_until_cancelled,
)

from switchtower.core import errors, events
from switchtower.core.ports import engine, session_service
from switchtower.runtime.lane_items import RuntimeLimits
from switchtower.testing.session_driver import start_session

FULL = "the disk is full"


async def test_a_failed_append_is_answered_retryably_and_publishes_nothing(make_runtime: MakeRuntime) -> None:
    house = await make_runtime()
    outlet = await house.start_session()
    house.journal.failing = [errors.JournalUnavailable(FULL)]
    with pytest.raises(errors.JournalUnavailable) as refused:
        await house.send(idempotency_key="msg_1")
    assert refused.value.retryable
    assert outlet.kinds == ["session.started"]
    assert house.engine.tasks == []

    await house.send(idempotency_key="msg_1")
    await outlet.wait_for_event(events.RunCompleted)
    assert outlet.seqs == list(range(1, len(outlet.seqs) + 1))
    assert outlet.kinds.count("run.started") == 1


async def test_who_followed_the_session_before_the_failure_follows_it_afterwards(make_runtime: MakeRuntime) -> None:
    house = await make_runtime()
    outlet = await house.start_session()
    for _ in range(3):
        house.journal.failing = [errors.JournalUnavailable(FULL)]
        with pytest.raises(errors.JournalUnavailable):
            await house.send()
    await house.send()
    await outlet.wait_for_event(events.RunCompleted)
    assert outlet.entries == await house.list_stored()


async def test_a_run_goes_on_when_only_a_client_s_request_was_lost(make_runtime: MakeRuntime) -> None:
    house = await make_runtime(ask_once)
    outlet = await house.start_session()
    await house.send()
    approval = (await outlet.wait_for_event(events.ApprovalRequested)).approval
    house.journal.failing = [errors.JournalUnavailable(FULL)]
    with pytest.raises(errors.JournalUnavailable):
        await house.ask(decide(approval.id))
    await house.ask(decide(approval.id))
    completed = await outlet.wait_for_event(events.RunCompleted)
    assert completed.outcome is events.Outcome.SUCCESS
    assert len(outlet.list_events(events.ApprovalDecided)) == 1


async def test_a_run_whose_words_were_lost_ends_as_failed(make_runtime: MakeRuntime) -> None:
    speak = asyncio.Event()
    cancelled = asyncio.Event()

    async def work(task: engine.Task, desk: engine.RunContext) -> engine.RunResult:
        await speak.wait()
        await desk.emit(events.TextDelta("lost"))
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise
        raise AssertionError

    house = await make_runtime(work)
    outlet = await house.start_session()
    await house.send()
    house.journal.failing = [errors.JournalUnavailable(FULL)]
    speak.set()
    completed = await outlet.wait_for_event(events.RunCompleted)
    assert completed.outcome is events.Outcome.FAILED
    assert cancelled.is_set()
    assert [error.code for error in outlet.list_events(events.ErrorRaised)] == ["RUN_INTERRUPTED"]
    assert outlet.list_events(events.TextDelta) == []
    assert outlet.entries == await house.list_stored()


async def test_a_run_whose_last_words_were_lost_with_its_end_is_not_called_a_success(make_runtime: MakeRuntime) -> None:

    async def work(task: engine.Task, desk: engine.RunContext) -> engine.RunResult:
        house.journal.gate.clear()
        appends = len(house.journal.appends)
        await desk.emit(events.PhaseChanged("first words"))
        await house.journal.wait_until(lambda: len(house.journal.appends) > appends)
        await desk.emit(events.PhaseChanged("last words"))
        return engine.RunResult(events.Outcome.SUCCESS, "done")

    house = await make_runtime(work, limits=RuntimeLimits(journal_retry=0.001))
    outlet = await house.start_session()
    await house.send()
    await house.engine.wait_until(lambda: bool(house.engine.tasks))
    lane = house.runtime._lanes[SESSION]
    async with asyncio.timeout(60):
        while len(lane._waiting) < 2:  # the last words, and the end
            await asyncio.sleep(0)
    house.journal.failing = [None, errors.JournalUnavailable(FULL)]
    house.journal.gate.set()
    completed = await outlet.wait_for_event(events.RunCompleted)
    assert completed.outcome is events.Outcome.FAILED
    assert [phase.phase for phase in outlet.list_events(events.PhaseChanged)] == ["first words"]


async def test_a_tool_does_not_act_when_its_announcement_was_lost(make_runtime: MakeRuntime) -> None:
    announce = asyncio.Event()
    acted = False

    async def work(task: engine.Task, desk: engine.RunContext) -> engine.RunResult:
        nonlocal acted
        await announce.wait()
        await desk.emit(events.ToolCalled(call_id="call_1", tool="run", args={}))
        await asyncio.sleep(0)  # the announcement and the flush are in different turns of the lane
        await desk.flush()
        acted = True
        return engine.RunResult(events.Outcome.SUCCESS, "done")

    house = await make_runtime(work)
    outlet = await house.start_session()
    await house.send()
    house.journal.failing = [errors.JournalUnavailable(FULL)]
    announce.set()
    completed = await outlet.wait_for_event(events.RunCompleted)
    assert completed.outcome is events.Outcome.FAILED
    assert not acted


async def test_a_run_is_closed_when_the_journal_is_back_however_long_that_takes(make_runtime: MakeRuntime) -> None:
    house = await make_runtime(finish_at_once, limits=RuntimeLimits(journal_retry=0.001))
    outlet = await house.start_session()
    sent = house.start_submit(send())
    await house.journal.wait_until(lambda: house.journal.stored == 2)
    house.journal.failing = [errors.JournalUnavailable(FULL) for _ in range(5)]
    async with asyncio.timeout(60):
        await sent
    completed = await outlet.wait_for_event(events.RunCompleted)
    assert house.journal.failing == []
    assert completed.outcome is events.Outcome.SUCCESS
    await house.send()


async def test_a_stop_does_not_wait_for_a_journal_that_is_gone(make_runtime: MakeRuntime) -> None:
    house = await make_runtime(finish_at_once)
    await house.start_session()
    sent = house.start_submit(send())
    await house.journal.wait_until(lambda: house.journal.stored == 2)
    house.journal.failing = [errors.JournalUnavailable(FULL) for _ in range(10_000)]
    async with asyncio.timeout(60):
        await sent
        await house.journal.wait_until(lambda: len(house.journal.failing) < 10_000)
        await house.runtime.stop()


async def test_an_expiry_that_could_not_be_stored_is_tried_again(make_runtime: MakeRuntime) -> None:
    house = await make_runtime(ask_once, approval_timeout_ms=30, limits=RuntimeLimits(journal_retry=0.001))
    outlet = await house.start_session()
    await house.send()
    await outlet.wait_for_event(events.ApprovalRequested)
    house.journal.failing = [errors.JournalUnavailable(FULL) for _ in range(3)]
    completed = await outlet.wait_for_event(events.RunCompleted)
    assert completed.outcome is events.Outcome.FAILED
    assert len(outlet.list_events(events.ApprovalExpired)) == 1


async def test_a_page_that_cannot_be_read_is_read_again(make_runtime: MakeRuntime) -> None:
    house = await make_runtime(limits=RuntimeLimits(journal_retry=0.001))
    outlet = await house.start_session()
    await house.send()
    await outlet.wait_for_event(events.RunCompleted)
    late = RecordingSubscriber()
    attachment = await house.open_attachment(late)
    house.journal.failing_reads = [errors.JournalUnavailable(FULL) for _ in range(3)]
    attachment.subscription.start()
    await late.wait_until(lambda: late.seqs == outlet.seqs)
    assert house.journal.failing_reads == []


async def test_what_was_stored_although_the_journal_said_otherwise_reaches_the_followers(make_runtime: MakeRuntime) -> None:
    """No store should, but a disk can fail between the commit and its confirmation."""
    house = await make_runtime(work_until_cancelled)
    outlet = await house.start_session()
    inner = house.journal.inner
    really_append = inner.append

    async def append_and_fail(append):  # type: ignore[no-untyped-def]
        await really_append(append)
        inner.append = really_append  # type: ignore[method-assign]
        raise errors.JournalUnavailable("no confirmation came")

    inner.append = append_and_fail  # type: ignore[method-assign]
    with pytest.raises(errors.JournalUnavailable):
        await house.send()
    await house.ask(cancel())
    await outlet.wait_until(lambda: "run.cancel_requested" in outlet.kinds)
    assert outlet.entries == (await house.list_stored())[: len(outlet.entries)]


async def test_an_outlet_that_fails_harms_nobody_else(make_runtime: MakeRuntime) -> None:
    class Broken(RecordingSubscriber):
        def deliver(self, batch: session_service.Batch) -> None:
            raise RuntimeError("a bug in this outlet")

    house = await make_runtime()
    await house.ask(start_session(SESSION))
    outlets = [
        await house.attach_subscriber(after_seq=1, outlet=outlet)
        for outlet in (RecordingSubscriber(), Broken(), RecordingSubscriber())
    ]
    await house.send()
    for outlet in (outlets[0], outlets[2]):
        await outlet.wait_for_event(events.RunCompleted)
        assert [1, *outlet.seqs] == list(range(1, len(outlet.seqs) + 2))


async def test_an_answer_that_cannot_be_delivered_harms_nobody_else(make_runtime: MakeRuntime) -> None:
    def broken(outcome: object) -> None:
        raise RuntimeError("a bug in this peer")

    house = await make_runtime()
    outlet = await house.start_session()
    house.runtime.submit(send(), broken)
    house.runtime.attach(SESSION, 0, RecordingSubscriber(), admit=lambda session: None, done=broken)
    refused = house.start_submit(send())
    house.runtime.attach("sess_forged", 0, RecordingSubscriber(), admit=lambda session: None, done=broken)
    async with asyncio.timeout(60):
        with pytest.raises(errors.RunInProgress):
            await refused
    await outlet.wait_for_event(events.RunCompleted)

    house.journal.failing = [errors.JournalUnavailable(FULL)]
    house.runtime.submit(send(), broken)
    lost = house.start_submit(send())
    async with asyncio.timeout(60):
        with pytest.raises(errors.JournalUnavailable):
            await lost
    await house.send()
