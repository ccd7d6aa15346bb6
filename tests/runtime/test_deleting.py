"""A deleted session is told to who watches, found by nobody afterwards, and gone from the journal: also after a crash."""

import asyncio

import pytest
from tests.runtime.parts import SESSION, House, MakeHouse, finish_at_once, work_until_cancelled

from switchtower.core import commands, errors, events
from switchtower.testing.sessions import OWNER, start_session

DELETE = commands.DeleteSession(session_id=SESSION, actor=OWNER)


async def gone(house: House) -> None:
    async with asyncio.timeout(60):
        while await house.journal.load(SESSION) is not None:
            await asyncio.sleep(0)


async def test_who_watches_is_told_and_nobody_finds_it_afterwards(make_house: MakeHouse) -> None:
    house = await make_house(finish_at_once)
    outlet = await house.with_session()
    await house.send("hello")
    await outlet.next_of(events.RunCompleted)

    await house.ask(DELETE)
    assert (await outlet.next_of(events.SessionDeleted)).by == OWNER
    with pytest.raises(errors.SessionNotFound):
        await house.send("are you there?")
    with pytest.raises(errors.SessionNotFound):
        await house.runtime.session(SESSION)
    await gone(house)
    assert await house.runtime.cards(10) == []
    with pytest.raises(errors.SessionNotFound):
        await house.ask(DELETE)


async def test_what_runs_is_not_deleted(make_house: MakeHouse) -> None:
    house = await make_house(work_until_cancelled)
    await house.with_session()
    await house.send("hello")
    with pytest.raises(errors.RunInProgress):
        await house.ask(DELETE)
    assert (await house.runtime.session(SESSION)).run is not None


async def test_an_id_can_be_used_again_when_its_session_is_gone(make_house: MakeHouse) -> None:
    house = await make_house(finish_at_once)
    await house.with_session()
    await house.ask(DELETE)
    await gone(house)
    await house.ask(start_session(SESSION))
    assert (await house.runtime.session(SESSION)).seq == 1


async def test_what_an_end_of_the_daemon_left_goes_at_the_next_start(make_house: MakeHouse) -> None:
    house = await make_house(finish_at_once)
    await house.with_session()
    house.journal.failing_deletions.append(errors.JournalUnavailable("the disk is away"))
    await house.ask(DELETE)
    with pytest.raises(errors.SessionNotFound):
        await house.runtime.session(SESSION)
    assert await house.journal.load(SESSION) is not None

    again = await make_house(finish_at_once, house.journal.inner)
    with pytest.raises(errors.SessionNotFound):
        await again.runtime.session(SESSION)
    await gone(again)
