"""What is asked at one node of a session whose home is another."""

import asyncio
from typing import Any

import msgspec
import pytest
from tests.runtime.homes.town import LIMITS, RuntimeCluster
from tests.runtime.parts import SESSION, RecordingSubscriber, ask_once, cancel, decide, finish_at_once, send, work_until_cancelled

from switchtower.core import commands, errors, events
from switchtower.core.ports import session_service
from switchtower.core.session import Session
from switchtower.testing.session_driver import OWNER, start_session


async def test_a_session_has_its_home_where_it_was_started_and_is_followed_everywhere(runtime_cluster: RuntimeCluster) -> None:
    here, there = await runtime_cluster.build(finish_at_once, finish_at_once)
    watching_here = await here.start_session()
    watching_there = await there.attach_subscriber()
    await here.send()
    await watching_there.wait_for_event(events.RunCompleted)
    await watching_here.wait_for_event(events.RunCompleted)
    assert watching_there.entries == watching_here.entries == await here.list_stored()
    assert await there.find_home(SESSION) == here.node_id
    assert there.engine.tasks == []


async def test_a_command_is_decided_at_home_and_answered_as_if_local(runtime_cluster: RuntimeCluster) -> None:
    here, there = await runtime_cluster.build(finish_at_once, finish_at_once)
    outlet = await here.start_session()
    run_id = await there.send()
    completed = await outlet.wait_for_event(events.RunCompleted)
    assert completed.outcome is events.Outcome.SUCCESS
    assert [task.run_id for task in here.engine.tasks] == [run_id]
    assert there.engine.tasks == []


async def test_an_asker_hears_the_answer_before_what_came_of_it(runtime_cluster: RuntimeCluster) -> None:
    here, there = await runtime_cluster.build(finish_at_once, finish_at_once)
    await here.start_session()
    heard: list[str] = []

    class Noting(RecordingSubscriber):
        def deliver(self, batch: session_service.Batch) -> None:
            heard.extend(entry.kind for entry in batch.entries)
            super().deliver(batch)

    outlet = await there.attach_subscriber(outlet=Noting())
    await outlet.wait_for_event(events.SessionStarted)
    heard.clear()
    there.runtime.submit(send(), lambda outcome: heard.append("answer"))
    await outlet.wait_for_event(events.RunCompleted)
    assert heard[0] == "answer"
    assert events.RunStarted.kind in heard


async def test_the_same_identity_has_one_outcome_whichever_node_is_asked(runtime_cluster: RuntimeCluster) -> None:
    here, there, third = await runtime_cluster.build(finish_at_once, finish_at_once, finish_at_once)
    outlet = await here.start_session()
    asked = send(idempotency_key="once")
    outcomes = await asyncio.gather(*(house.ask(asked) for house in (there, here, third, there)))
    await outlet.wait_for_event(events.RunCompleted)
    assert len({outcome["run_id"] for outcome in outcomes}) == 1
    assert len(outlet.list_events(events.RunStarted)) == 1


async def test_one_decision_wins_whoever_is_asked(runtime_cluster: RuntimeCluster) -> None:
    houses = await runtime_cluster.build(ask_once, ask_once, ask_once)
    outlet = await houses[0].start_session()
    await houses[0].send()
    asked = await outlet.wait_for_event(events.ApprovalRequested)

    async def decided(number: int) -> bool:
        verdict = events.Verdict.APPROVE if number % 2 else events.Verdict.DENY_STOP
        try:
            await houses[number % 3].ask(decide(asked.approval.id, verdict))
        except errors.ApprovalClosed:
            return False
        return True

    won = await asyncio.gather(*(decided(number) for number in range(30)))
    assert sum(won) == 1
    assert len(outlet.list_events(events.ApprovalDecided)) == 1


async def test_a_refusal_comes_back_as_what_it_is(runtime_cluster: RuntimeCluster) -> None:
    here, there = await runtime_cluster.build(work_until_cancelled, finish_at_once)
    await here.start_session()
    await here.send()
    with pytest.raises(errors.RunInProgress):
        await there.send()
    with pytest.raises(errors.VersionMismatch):
        await there.ask(commands.ConfigureSession(session_id=SESSION, actor=OWNER, title="x", expected_version=99))
    await there.ask(cancel())


async def test_what_was_committed_at_home_is_read_at_once_elsewhere(runtime_cluster: RuntimeCluster) -> None:
    here, there = await runtime_cluster.build(finish_at_once, finish_at_once)
    await here.start_session()
    runtime_cluster.journal.muted = True
    await there.ask(commands.ConfigureSession(session_id=SESSION, actor=OWNER, title="named"))
    assert (await there.runtime.get_session(SESSION)).title == "named"


async def test_a_session_that_nobody_has_is_taken_up_by_who_is_asked(runtime_cluster: RuntimeCluster) -> None:
    here, there = await runtime_cluster.build(finish_at_once, finish_at_once)
    await here.start_session()
    await here.leave()
    assert await there.find_home(SESSION) is None
    run_id = await there.send()
    assert await there.find_home(SESSION) == there.node_id
    await there.engine.wait_until(lambda: len(there.engine.tasks) == 1)
    assert [task.run_id for task in there.engine.tasks] == [run_id]


async def test_reading_takes_nothing_up(runtime_cluster: RuntimeCluster) -> None:
    here, there = await runtime_cluster.build(finish_at_once, finish_at_once)
    await here.start_session()
    await here.leave()
    assert (await there.runtime.get_session(SESSION)).seq == 1
    await there.attach_subscriber()
    assert await there.find_home(SESSION) is None


async def test_a_node_that_only_believes_to_be_asked_rightly_sends_nothing_on(runtime_cluster: RuntimeCluster) -> None:
    here, there = await runtime_cluster.build(finish_at_once, finish_at_once)
    await here.start_session()
    outcome: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    there.runtime.submit(send(), outcome.set_result, is_forwarded=True)
    assert isinstance(await outcome, errors.Fenced)
    assert len(await here.list_stored()) == 1


async def test_a_home_that_cannot_be_reached_is_waited_for(runtime_cluster: RuntimeCluster) -> None:
    here, there = await runtime_cluster.build(finish_at_once, finish_at_once)
    await here.start_session()
    there.mesh.drop_link(here.node_id)
    asking = there.start_submit(send())
    await asyncio.sleep(0)
    assert not asking.done()
    await there.poll_cluster()  # dials again
    assert "run_id" in await asking


async def test_who_waits_too_long_for_a_home_is_told_so(runtime_cluster: RuntimeCluster) -> None:
    short = msgspec.structs.replace(LIMITS, owner_timeout=0.01)
    here, there = await runtime_cluster.build(finish_at_once, finish_at_once, limits=short)
    await here.start_session()
    there.mesh.drop_link(here.node_id)
    with pytest.raises(errors.OwnerUnreachable, match="hint"):
        await there.send()


async def test_what_a_dead_home_may_have_done_is_asked_of_the_next_only_if_it_cannot_happen_twice(
    runtime_cluster: RuntimeCluster,
) -> None:
    here, there = await runtime_cluster.build(finish_at_once, finish_at_once)
    await here.start_session()
    here.journal.confirmation.clear()  # stored, and nobody hears of it
    with_identity = there.start_submit(send(idempotency_key="once"))
    await here.journal.wait_until(lambda: here.journal.stored == 2)
    without = there.start_submit(send("again"))
    while there.homes.forwarded < 2:
        await asyncio.sleep(0)
    here.journal.confirmation.set()
    await here.kill()
    with pytest.raises(errors.OutcomeUnknown, match="look at the session"):
        await without
    outcome = await with_identity
    assert outcome["replayed"] is True
    assert len([entry for entry in await there.list_stored() if entry.kind == events.RunStarted.kind]) == 1


async def test_who_watches_everything_hears_of_sessions_at_other_nodes_and_who_watches_at_home_does_not(
    runtime_cluster: RuntimeCluster,
) -> None:
    here, there = await runtime_cluster.build(finish_at_once, finish_at_once)
    far: list[str] = []
    near: list[str] = []

    def saw_far(session: Session, event: events.AnyEvent) -> None:
        far.append(event.kind)

    unwatch = there.runtime.watch(saw_far)
    there.runtime.watch(lambda session, event: near.append(event.kind), owned_only=True)
    batches: list[int] = []
    there.runtime.watch_batches(lambda session, batch: batches.extend(entry.seq for entry in batch.entries))
    outlet = await here.start_session()
    await here.send()
    await outlet.wait_for_event(events.RunCompleted)
    stored = await here.list_stored()

    async def told() -> bool:
        return len(batches) == len(stored)

    await there.wait_until(told)
    assert batches == [entry.seq for entry in stored]
    assert far == [entry.kind for entry in stored]
    assert near == []
    unwatch()


async def test_notices_that_were_lost_are_made_up_for(runtime_cluster: RuntimeCluster) -> None:
    here, there = await runtime_cluster.build(finish_at_once, finish_at_once)
    await here.start_session()
    outlet = await there.attach_subscriber()
    await outlet.wait_for_event(events.SessionStarted)
    runtime_cluster.journal.muted = True
    await here.send()
    here_outlet = await here.attach_subscriber()
    await here_outlet.wait_for_event(events.RunCompleted)
    assert there.runtime.followed_heads() == {SESSION: 1}
    there.runtime.apply_remote_heads({SESSION: (1, len(await here.list_stored()))})
    await outlet.wait_for_event(events.RunCompleted)
    assert outlet.entries == await here.list_stored()


async def test_a_flood_is_refused_where_it_comes_in(runtime_cluster: RuntimeCluster) -> None:
    few = msgspec.structs.replace(LIMITS, waiting_commands=10)
    here, there = await runtime_cluster.build(finish_at_once, finish_at_once, limits=few)
    await here.start_session()
    here.journal.gate.clear()
    outcomes: list[object] = []
    for _ in range(50):
        there.runtime.submit(commands.ConfigureSession(session_id=SESSION, actor=OWNER, title="x"), outcomes.append)
        await asyncio.sleep(0)
    assert any(isinstance(outcome, errors.Overloaded) for outcome in outcomes)
    here.journal.gate.set()
    while len(outcomes) < 50:
        await asyncio.sleep(0)


async def test_two_nodes_that_start_the_same_session_start_it_once(runtime_cluster: RuntimeCluster) -> None:
    here, there = await runtime_cluster.build(finish_at_once, finish_at_once)
    await asyncio.gather(here.ask(start_session(SESSION)), there.ask(start_session(SESSION)), return_exceptions=True)
    stored = await here.list_stored()
    assert [entry.kind for entry in stored].count(events.SessionStarted.kind) == 1
