"""What is asked at one node of a session whose home is another."""

import asyncio
from typing import Any

import msgspec
import pytest
from tests.runtime.homes.town import LIMITS, Town
from tests.runtime.parts import SESSION, Outlet, ask_once, cancel, decide, finish_at_once, send, work_until_cancelled

from switchtower.core import commands, errors, events, tower
from switchtower.core.session import Session
from switchtower.testing.sessions import OWNER, start_session


async def test_a_session_has_its_home_where_it_was_started_and_is_followed_everywhere(town: Town) -> None:
    here, there = await town.build(finish_at_once, finish_at_once)
    watching_here = await here.with_session()
    watching_there = await there.attached()
    await here.send()
    await watching_there.next_of(events.RunCompleted)
    await watching_here.next_of(events.RunCompleted)
    assert watching_there.entries == watching_here.entries == await here.stored()
    assert await there.home_of(SESSION) == here.node_id
    assert there.engine.tasks == []


async def test_a_command_is_decided_at_home_and_answered_as_if_local(town: Town) -> None:
    here, there = await town.build(finish_at_once, finish_at_once)
    outlet = await here.with_session()
    run_id = await there.send()
    completed = await outlet.next_of(events.RunCompleted)
    assert completed.outcome is events.Outcome.SUCCESS
    assert [task.run_id for task in here.engine.tasks] == [run_id]
    assert there.engine.tasks == []


async def test_an_asker_hears_the_answer_before_what_came_of_it(town: Town) -> None:
    here, there = await town.build(finish_at_once, finish_at_once)
    await here.with_session()
    heard: list[str] = []

    class Noting(Outlet):
        def deliver(self, batch: tower.Batch) -> None:
            heard.extend(entry.kind for entry in batch.entries)
            super().deliver(batch)

    outlet = await there.attached(outlet=Noting())
    await outlet.next_of(events.SessionStarted)
    heard.clear()
    there.runtime.submit(send(), lambda outcome: heard.append("answer"))
    await outlet.next_of(events.RunCompleted)
    assert heard[0] == "answer"
    assert events.RunStarted.kind in heard


async def test_the_same_identity_has_one_outcome_whichever_node_is_asked(town: Town) -> None:
    here, there, third = await town.build(finish_at_once, finish_at_once, finish_at_once)
    outlet = await here.with_session()
    asked = send(idempotency_key="once")
    outcomes = await asyncio.gather(*(house.ask(asked) for house in (there, here, third, there)))
    await outlet.next_of(events.RunCompleted)
    assert len({outcome["run_id"] for outcome in outcomes}) == 1
    assert len(outlet.seen(events.RunStarted)) == 1


async def test_one_decision_wins_whoever_is_asked(town: Town) -> None:
    houses = await town.build(ask_once, ask_once, ask_once)
    outlet = await houses[0].with_session()
    await houses[0].send()
    asked = await outlet.next_of(events.ApprovalRequested)

    async def decided(number: int) -> bool:
        verdict = events.Verdict.APPROVE if number % 2 else events.Verdict.DENY_STOP
        try:
            await houses[number % 3].ask(decide(asked.approval.id, verdict))
        except errors.ApprovalClosed:
            return False
        return True

    won = await asyncio.gather(*(decided(number) for number in range(30)))
    assert sum(won) == 1
    assert len(outlet.seen(events.ApprovalDecided)) == 1


async def test_a_refusal_comes_back_as_what_it_is(town: Town) -> None:
    here, there = await town.build(work_until_cancelled, finish_at_once)
    await here.with_session()
    await here.send()
    with pytest.raises(errors.RunInProgress):
        await there.send()
    with pytest.raises(errors.VersionMismatch):
        await there.ask(commands.ConfigureSession(session_id=SESSION, actor=OWNER, title="x", expected_version=99))
    await there.ask(cancel())


async def test_what_was_committed_at_home_is_read_at_once_elsewhere(town: Town) -> None:
    here, there = await town.build(finish_at_once, finish_at_once)
    await here.with_session()
    town.journal.muted = True
    await there.ask(commands.ConfigureSession(session_id=SESSION, actor=OWNER, title="named"))
    assert (await there.runtime.session(SESSION)).title == "named"


async def test_a_session_that_nobody_has_is_taken_up_by_who_is_asked(town: Town) -> None:
    here, there = await town.build(finish_at_once, finish_at_once)
    await here.with_session()
    await here.leave()
    assert await there.home_of(SESSION) is None
    run_id = await there.send()
    assert await there.home_of(SESSION) == there.node_id
    await there.engine.until(lambda: len(there.engine.tasks) == 1)
    assert [task.run_id for task in there.engine.tasks] == [run_id]


async def test_reading_takes_nothing_up(town: Town) -> None:
    here, there = await town.build(finish_at_once, finish_at_once)
    await here.with_session()
    await here.leave()
    assert (await there.runtime.session(SESSION)).seq == 1
    await there.attached()
    assert await there.home_of(SESSION) is None


async def test_a_node_that_only_believes_to_be_asked_rightly_sends_nothing_on(town: Town) -> None:
    here, there = await town.build(finish_at_once, finish_at_once)
    await here.with_session()
    outcome: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    there.runtime.submit(send(), outcome.set_result, hop=True)
    assert isinstance(await outcome, errors.Fenced)
    assert len(await here.stored()) == 1


async def test_a_home_that_cannot_be_reached_is_waited_for(town: Town) -> None:
    here, there = await town.build(finish_at_once, finish_at_once)
    await here.with_session()
    there.mesh.cut(here.node_id)
    asking = there.asking(send())
    await asyncio.sleep(0)
    assert not asking.done()
    await there.look_around()  # dials again
    assert "run_id" in await asking


async def test_who_waits_too_long_for_a_home_is_told_so(town: Town) -> None:
    short = msgspec.structs.replace(LIMITS, home_patience=0.01)
    here, there = await town.build(finish_at_once, finish_at_once, limits=short)
    await here.with_session()
    there.mesh.cut(here.node_id)
    with pytest.raises(errors.HomeUnreachable, match="hint"):
        await there.send()


async def test_what_a_dead_home_may_have_done_is_asked_of_the_next_only_if_it_cannot_happen_twice(town: Town) -> None:
    here, there = await town.build(finish_at_once, finish_at_once)
    await here.with_session()
    here.journal.confirmation.clear()  # stored, and nobody hears of it
    with_identity = there.asking(send(idempotency_key="once"))
    await here.journal.until(lambda: here.journal.stored == 2)
    without = there.asking(send("again"))
    while there.homes.forwarded < 2:
        await asyncio.sleep(0)
    here.journal.confirmation.set()
    await here.die()
    with pytest.raises(errors.OutcomeUnknown, match="look at the session"):
        await without
    outcome = await with_identity
    assert outcome["replayed"] is True
    assert len([entry for entry in await there.stored() if entry.kind == events.RunStarted.kind]) == 1


async def test_who_watches_everything_hears_of_sessions_at_other_nodes_and_who_watches_at_home_does_not(town: Town) -> None:
    here, there = await town.build(finish_at_once, finish_at_once)
    far: list[str] = []
    near: list[str] = []

    def saw_far(session: Session, event: events.AnyEvent) -> None:
        far.append(event.kind)

    unwatch = there.runtime.watch(saw_far)
    there.runtime.watch(lambda session, event: near.append(event.kind), at_home=True)
    batches: list[int] = []
    there.runtime.watch_batches(lambda session, batch: batches.extend(entry.seq for entry in batch.entries))
    outlet = await here.with_session()
    await here.send()
    await outlet.next_of(events.RunCompleted)
    stored = await here.stored()

    async def told() -> bool:
        return len(batches) == len(stored)

    await there.soon(told)
    assert batches == [entry.seq for entry in stored]
    assert far == [entry.kind for entry in stored]
    assert near == []
    unwatch()


async def test_notices_that_were_lost_are_made_up_for(town: Town) -> None:
    here, there = await town.build(finish_at_once, finish_at_once)
    await here.with_session()
    outlet = await there.attached()
    await outlet.next_of(events.SessionStarted)
    town.journal.muted = True
    await here.send()
    here_outlet = await here.attached()
    await here_outlet.next_of(events.RunCompleted)
    assert there.runtime.followed() == {SESSION: 1}
    there.runtime.heard({SESSION: (1, len(await here.stored()))})
    await outlet.next_of(events.RunCompleted)
    assert outlet.entries == await here.stored()


async def test_a_flood_is_refused_where_it_comes_in(town: Town) -> None:
    few = msgspec.structs.replace(LIMITS, waiting_commands=10)
    here, there = await town.build(finish_at_once, finish_at_once, limits=few)
    await here.with_session()
    here.journal.gate.clear()
    outcomes: list[object] = []
    for _ in range(50):
        there.runtime.submit(commands.ConfigureSession(session_id=SESSION, actor=OWNER, title="x"), outcomes.append)
        await asyncio.sleep(0)
    assert any(isinstance(outcome, errors.Overloaded) for outcome in outcomes)
    here.journal.gate.set()
    while len(outcomes) < 50:
        await asyncio.sleep(0)


async def test_two_nodes_that_start_the_same_session_start_it_once(town: Town) -> None:
    here, there = await town.build(finish_at_once, finish_at_once)
    await asyncio.gather(here.ask(start_session(SESSION)), there.ask(start_session(SESSION)), return_exceptions=True)
    stored = await here.stored()
    assert [entry.kind for entry in stored].count(events.SessionStarted.kind) == 1
