"""A deleted session is told to who watches, found by nobody afterwards, and gone from the journal: also after a crash."""

import asyncio

import pytest
from tests.runtime.parts import SESSION, MakeRuntime, RuntimeHarness, finish_at_once, work_until_cancelled

from switchtower.core import commands, errors, events
from switchtower.testing.session_driver import OWNER, start_session

DELETE = commands.DeleteSession(session_id=SESSION, actor=OWNER)


async def check_deleted(runtime_harness: RuntimeHarness) -> None:
    async with asyncio.timeout(60):
        while await runtime_harness.journal.load(SESSION) is not None:
            await asyncio.sleep(0)


async def test_who_watches_is_told_and_nobody_finds_it_afterwards(make_runtime: MakeRuntime) -> None:
    house = await make_runtime(finish_at_once)
    outlet = await house.start_session()
    await house.send("hello")
    await outlet.wait_for_event(events.RunCompleted)

    await house.ask(DELETE)
    assert (await outlet.wait_for_event(events.SessionDeleted)).by == OWNER
    with pytest.raises(errors.SessionNotFound):
        await house.send("are you there?")
    with pytest.raises(errors.SessionNotFound):
        await house.runtime.get_session(SESSION)
    await check_deleted(house)
    assert await house.runtime.list_cards(10) == []
    with pytest.raises(errors.SessionNotFound):
        await house.ask(DELETE)


async def test_what_runs_is_not_deleted(make_runtime: MakeRuntime) -> None:
    house = await make_runtime(work_until_cancelled)
    await house.start_session()
    await house.send("hello")
    with pytest.raises(errors.RunInProgress):
        await house.ask(DELETE)
    assert (await house.runtime.get_session(SESSION)).run is not None


async def test_an_id_can_be_used_again_when_its_session_is_gone(make_runtime: MakeRuntime) -> None:
    house = await make_runtime(finish_at_once)
    await house.start_session()
    await house.ask(DELETE)
    await check_deleted(house)
    await house.ask(start_session(SESSION))
    assert (await house.runtime.get_session(SESSION)).seq == 1


async def test_what_an_end_of_the_daemon_left_goes_at_the_next_start(make_runtime: MakeRuntime) -> None:
    house = await make_runtime(finish_at_once)
    await house.start_session()
    house.journal.failing_deletions.append(errors.JournalUnavailable("the disk is away"))
    await house.ask(DELETE)
    with pytest.raises(errors.SessionNotFound):
        await house.runtime.get_session(SESSION)
    assert await house.journal.load(SESSION) is not None

    again = await make_runtime(finish_at_once, house.journal.inner)
    with pytest.raises(errors.SessionNotFound):
        await again.runtime.get_session(SESSION)
    await check_deleted(again)
