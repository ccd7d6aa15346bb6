"""Lanes are kept while somebody needs them, let go when nobody does, and read again when somebody asks."""

import asyncio

import pytest
from tests.runtime.parts import MakeRuntime, RecordingSubscriber, ask_once, cancel, decide, send, work_until_cancelled

from switchtower.core import errors, events
from switchtower.runtime.lane_items import RuntimeLimits
from switchtower.testing.session_driver import start_session


async def test_idle_lanes_beyond_the_limit_are_let_go_and_read_again(make_runtime: MakeRuntime) -> None:
    house = await make_runtime(limits=RuntimeLimits(idle_lanes=5))
    for number in range(50):
        await house.ask(start_session(f"sess_{number}"))
    assert len(house.runtime._lanes) <= 6
    assert "sess_0" not in house.runtime._lanes

    outlet = await house.attach_subscriber("sess_0")
    run_id = await house.send("again", "sess_0", idempotency_key="msg_1")
    await outlet.wait_for_event(events.RunCompleted)
    assert outlet.entries == await house.list_stored("sess_0")
    assert await house.send("again", "sess_0", idempotency_key="msg_1") == run_id


async def test_a_lane_with_a_follower_a_run_or_a_question_stays(make_runtime: MakeRuntime) -> None:
    house = await make_runtime(ask_once, limits=RuntimeLimits(idle_lanes=3))
    followed = await house.start_session("sess_followed")
    waiting = await house.start_session("sess_waiting")
    await house.send(session_id="sess_waiting")
    approval = (await waiting.wait_for_event(events.ApprovalRequested)).approval
    kept = {name: house.runtime._lanes[name] for name in ("sess_followed", "sess_waiting")}
    for number in range(50):
        await house.ask(start_session(f"sess_{number}"))
    assert {name: house.runtime._lanes.get(name) for name in kept} == kept
    assert len(house.runtime._lanes) <= 10

    await house.ask(decide(approval.id, session_id="sess_waiting"))
    await waiting.wait_for_event(events.RunCompleted)
    await house.send(session_id="sess_followed")
    await followed.wait_for_event(events.RunStarted)
    await house.ask(cancel("sess_followed"))


async def test_a_lane_is_let_go_once_its_last_follower_has_left(make_runtime: MakeRuntime) -> None:
    house = await make_runtime(limits=RuntimeLimits(idle_lanes=2))
    await house.ask(start_session("sess_followed"))
    attachment = await house.open_attachment(RecordingSubscriber(), "sess_followed")
    attachment.subscription.start()
    attachment.subscription.close()
    attachment.subscription.close()
    for number in range(10):
        await house.ask(start_session(f"sess_{number}"))
    assert "sess_followed" not in house.runtime._lanes


async def test_many_followed_lanes_do_not_keep_the_others_from_being_let_go(make_runtime: MakeRuntime) -> None:
    house = await make_runtime(limits=RuntimeLimits(idle_lanes=10))
    for number in range(20):
        await house.start_session(f"sess_followed_{number}")
    for number in range(1_000):
        await house.ask(start_session(f"sess_{number}"))
    assert len(house.runtime._lanes) < 80


async def test_forged_session_ids_leave_no_lane_behind(make_runtime: MakeRuntime) -> None:
    house = await make_runtime()
    for number in range(20):
        with pytest.raises(errors.SessionNotFound):
            await house.send(session_id=f"sess_forged_{number}")
        with pytest.raises(errors.SessionNotFound):
            await house.attach_subscriber(f"sess_forged_{number}")
        with pytest.raises(errors.SessionNotFound):
            await house.ask(decide("appr_1", session_id=f"sess_forged_{number}"))
    async with asyncio.timeout(60):
        while house.runtime._lanes:
            await asyncio.sleep(0)  # a lane stays for a moment in case its asker goes on
    assert house.runtime._idle == {}
    assert await house.runtime.list_cards(10) == []


async def test_a_lane_with_a_lost_turn_stays_the_only_one_of_its_session(make_runtime: MakeRuntime) -> None:
    house = await make_runtime(work_until_cancelled, limits=RuntimeLimits(idle_lanes=2))
    outlet = await house.start_session("sess_1")
    await house.send(session_id="sess_1")
    lane = house.runtime._lanes["sess_1"]
    house.journal.failing = [errors.JournalUnavailable("full")]
    with pytest.raises(errors.JournalUnavailable):
        await house.ask(cancel("sess_1"))
    for number in range(10):
        await house.ask(start_session(f"sess_other_{number}"))
    assert house.runtime._lanes["sess_1"] is lane
    await house.ask(cancel("sess_1"))
    assert (await outlet.wait_for_event(events.RunCompleted)).outcome is events.Outcome.CANCELLED


async def test_sessions_do_not_wait_for_each_other(make_runtime: MakeRuntime) -> None:
    """One lane's slow decision, here a run, occupies neither its own lane nor another's."""
    house = await make_runtime(work_until_cancelled)
    await house.start_session("sess_1")
    await house.start_session("sess_2")
    async with asyncio.timeout(60):
        await asyncio.gather(house.start_submit(send(session_id="sess_1")), house.start_submit(send(session_id="sess_2")))
        await house.attach_subscriber("sess_1")
        await house.ask(cancel("sess_1"))
        await house.ask(cancel("sess_2"))
