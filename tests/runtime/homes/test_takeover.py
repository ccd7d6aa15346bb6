"""A node dies, falls silent or is emptied: its sessions go on at another, and nothing of it can write any more."""

import asyncio

import pytest
from tests.runtime.homes.town import RuntimeCluster, RuntimeNode
from tests.runtime.parts import SESSION, SUCCESS, ask_once, decide, finish_at_once, send, work_until_cancelled

from switchtower.core import commands, errors, events
from switchtower.core.ports import cluster, engine
from switchtower.testing.session_driver import OWNER


async def start_waiting_run(runtime_node: RuntimeNode) -> events.Approval:
    outlet = await runtime_node.start_session()
    await runtime_node.send()
    asked: events.ApprovalRequested = await outlet.wait_for_event(events.ApprovalRequested)
    return asked.approval


async def test_a_question_of_a_dead_node_is_decided_at_another_and_the_run_goes_on_there(runtime_cluster: RuntimeCluster) -> None:
    here, there = await runtime_cluster.build(ask_once, ask_once)
    approval = await start_waiting_run(here)
    outlet = await there.attach_subscriber()
    await here.kill()
    await there.poll_cluster()
    assert await there.find_home(SESSION) == there.node_id
    await there.ask(decide(approval.id))
    completed = await outlet.wait_for_event(events.RunCompleted)
    assert completed.outcome is events.Outcome.SUCCESS
    assert len(outlet.list_events(events.ApprovalRequested)) == 1
    assert outlet.entries == await there.list_stored()


async def test_work_of_a_dead_node_is_closed_as_interrupted(runtime_cluster: RuntimeCluster) -> None:
    here, there = await runtime_cluster.build(work_until_cancelled, finish_at_once)
    await here.start_session()
    await here.send()
    outlet = await there.attach_subscriber()
    await here.kill()
    await there.poll_cluster()
    completed = await outlet.wait_for_event(events.RunCompleted)
    assert completed.outcome is events.Outcome.FAILED
    assert "Interrupted" in completed.summary
    assert there.engine.tasks == []


async def test_of_two_that_look_at_once_one_takes_a_session(runtime_cluster: RuntimeCluster) -> None:
    here, there, third = await runtime_cluster.build(ask_once, ask_once, ask_once)
    await start_waiting_run(here)
    await here.kill()
    await asyncio.gather(there.poll_cluster(), third.poll_cluster())
    assert there.residence.takeovers + third.residence.takeovers == 1
    assert len(there.engine.tasks) + len(third.engine.tasks) <= 1


async def test_a_silent_node_that_comes_back_cannot_write_and_asks_the_new_home(runtime_cluster: RuntimeCluster) -> None:
    here, there = await runtime_cluster.build(ask_once, ask_once)
    approval = await start_waiting_run(here)
    here_outlet = await here.attach_subscriber()
    await here.expire()
    await there.poll_cluster()  # it is another's now, and the old home does not know
    await there.ask(commands.ConfigureSession(session_id=SESSION, actor=OWNER, title="theirs"))
    await here.ask(commands.ConfigureSession(session_id=SESSION, actor=OWNER, title="forwarded"))
    assert (await there.runtime.get_session(SESSION)).title == "forwarded"
    assert len(here.runtime.runs) == 0 or here.runtime.owned_lanes() == []
    await here.ask(decide(approval.id))
    completed = await here_outlet.wait_for_event(events.RunCompleted)
    assert completed.outcome is events.Outcome.SUCCESS
    assert here_outlet.entries == await there.list_stored()
    assert len(here_outlet.list_events(events.RunCompleted)) == 1


async def test_a_run_that_was_taken_over_ends_at_its_old_home_without_a_word(runtime_cluster: RuntimeCluster) -> None:
    went_on = asyncio.Event()
    cancelled = asyncio.Event()

    async def work(task: engine.Task, desk: engine.RunContext) -> engine.RunResult:
        try:
            await went_on.wait()
            await desk.emit(events.TextDelta("a zombie's words"))
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise
        return SUCCESS

    here, there = await runtime_cluster.build(work, finish_at_once)
    await here.start_session()
    await here.send()
    await here.expire()
    await there.poll_cluster()
    outlet = await there.attach_subscriber()
    await outlet.wait_for_event(events.RunCompleted)
    went_on.set()
    await cancelled.wait()
    await here.runtime.runs.wait_until_idle(SESSION)
    assert b"zombie" not in b"".join(entry.data for entry in await there.list_stored())
    assert len([entry for entry in await there.list_stored() if entry.kind == events.RunCompleted.kind]) == 1


async def test_a_node_that_cannot_renew_gives_its_sessions_up_by_its_own_clock(runtime_cluster: RuntimeCluster) -> None:
    here, there = await runtime_cluster.build(work_until_cancelled, finish_at_once)
    await here.start_session()
    await here.send()
    lapsed: list[bool] = []
    here.residence.lapsed = lambda: lapsed.append(True)
    here.residence._on_lease_expired()
    await here.runtime.runs.wait_until_idle(SESSION)
    assert lapsed == [True]
    assert here.runtime.owned_lanes() == []
    assert not here.homes.takes_up
    assert await here.homes.claim("sess_other") == cluster.OwnedBy(there.node_id)  # let another take it up
    await there.leave()
    await here.poll_cluster()
    with pytest.raises(errors.OwnerUnreachable):
        await here.homes.claim("sess_other")
    assert [entry.kind for entry in await there.list_stored()].count(events.RunCompleted.kind) == 0


async def test_what_nobody_took_meanwhile_is_taken_up_again(runtime_cluster: RuntimeCluster) -> None:
    here, _ = await runtime_cluster.build(ask_once, ask_once)
    approval = await start_waiting_run(here)
    outlet = await here.attach_subscriber()
    here.residence._lapse()
    await here.runtime.runs.wait_until_idle(SESSION)
    here.homes.takes_up = True
    await here.residence._check_owned_sessions()
    await here.ask(decide(approval.id))
    assert (await outlet.wait_for_event(events.RunCompleted)).outcome is events.Outcome.SUCCESS
    assert await here.find_home(SESSION) == here.node_id


async def test_a_machine_that_starts_again_goes_on_with_what_it_had(runtime_cluster: RuntimeCluster) -> None:
    here, there = await runtime_cluster.build(ask_once, ask_once)
    approval = await start_waiting_run(here)
    await here.kill()
    await here.leases.join(here.node_id, "", 60_000)  # its lease has not run out yet
    inherited = await there.leases.inherit(here.node_id, there.node_id)
    assert inherited >= 1
    await there.residence._check_owned_sessions()
    outlet = await there.attach_subscriber()
    await there.ask(decide(approval.id))
    assert (await outlet.wait_for_event(events.RunCompleted)).outcome is events.Outcome.SUCCESS


async def test_a_node_that_stops_hands_its_questions_on_at_once(runtime_cluster: RuntimeCluster) -> None:
    here, there = await runtime_cluster.build(ask_once, ask_once)
    approval = await start_waiting_run(here)
    outlet = await there.attach_subscriber()
    await here.leave()

    async def taken() -> bool:
        return await there.find_home(SESSION) == there.node_id

    await there.wait_until(taken)  # it was told, nobody waited for a lease
    await there.ask(decide(approval.id))
    assert (await outlet.wait_for_event(events.RunCompleted)).outcome is events.Outcome.SUCCESS


async def test_draining_hands_over_what_waits_and_interrupts_what_works(runtime_cluster: RuntimeCluster) -> None:
    works = {"sess_waits": ask_once, "sess_works": work_until_cancelled, "sess_idle": finish_at_once}

    async def work(task: engine.Task, desk: engine.RunContext) -> engine.RunResult:
        return await works[task.session_id](task, desk)

    here, there = await runtime_cluster.build(work, work)
    outlets = {session_id: await here.start_session(session_id) for session_id in works}
    for session_id in works:
        await here.send(session_id=session_id)
    asked = await outlets["sess_waits"].wait_for_event(events.ApprovalRequested)
    await outlets["sess_idle"].wait_for_event(events.RunCompleted)
    let_go: list[bool] = []

    async def goodbye() -> None:
        let_go.append(True)

    here.residence.drain_clients = goodbye
    drained = await here.residence.drain(0.0)
    assert drained.interrupted == 1
    assert drained.sessions >= 3
    assert let_go == [True]
    assert await here.residence.drain(5.0) == drained
    completed = await outlets["sess_works"].wait_for_event(events.RunCompleted)
    assert "Interrupted" in completed.summary

    async def taken() -> bool:
        return await there.find_home("sess_waits") == there.node_id

    await there.wait_until(taken)
    await here.ask(decide(asked.approval.id, session_id="sess_waits"))  # who is still there is served
    assert (await outlets["sess_waits"].wait_for_event(events.RunCompleted)).outcome is events.Outcome.SUCCESS
    await here.ask(send(session_id="sess_idle"))
    assert await here.find_home("sess_idle") == there.node_id


async def test_draining_waits_for_work_to_end(runtime_cluster: RuntimeCluster) -> None:
    may_end = asyncio.Event()

    async def work(task: engine.Task, desk: engine.RunContext) -> engine.RunResult:
        await may_end.wait()
        return SUCCESS

    here, _ = await runtime_cluster.build(work, finish_at_once)
    outlet = await here.start_session()
    await here.send()
    draining = asyncio.ensure_future(here.residence.drain(60.0))
    await asyncio.sleep(0)
    may_end.set()
    assert (await draining).interrupted == 0
    assert (await outlet.wait_for_event(events.RunCompleted)).outcome is events.Outcome.SUCCESS
    assert here.residence.is_draining


async def test_a_deleted_session_is_gone_everywhere(runtime_cluster: RuntimeCluster) -> None:
    here, there = await runtime_cluster.build(finish_at_once, finish_at_once)
    await here.start_session()
    outlet = await there.attach_subscriber()
    await there.ask(commands.DeleteSession(session_id=SESSION, actor=OWNER))
    await outlet.wait_for_event(events.SessionDeleted)
    with pytest.raises(errors.SessionNotFound):
        await there.runtime.get_session(SESSION)

    async def gone() -> bool:
        return await there.list_stored() == []

    await there.wait_until(gone)


async def test_whoever_is_asked_first_about_a_dead_nodes_session_takes_up_what_was_under_way(
    runtime_cluster: RuntimeCluster,
) -> None:
    here, there = await runtime_cluster.build(ask_once, ask_once)
    approval = await start_waiting_run(here)
    outlet = await there.attach_subscriber()
    await here.kill()
    await there.ask(decide(approval.id))  # before anybody has looked around
    assert (await outlet.wait_for_event(events.RunCompleted)).outcome is events.Outcome.SUCCESS
    assert len(there.engine.tasks) == 1


async def test_what_is_stored_while_its_home_is_left_is_taken_up_all_the_same(runtime_cluster: RuntimeCluster) -> None:
    here, _ = await runtime_cluster.build(finish_at_once, finish_at_once)
    outlet = await here.start_session()
    here.journal.confirmation.clear()  # it can be read already, but its writer does not know yet
    asking = here.start_submit(send())
    await here.journal.wait_until(lambda: here.journal.stored == 2)
    here.residence._lapse()
    here.homes.takes_up = here.homes.keeps = True  # renewed, late, and nobody has taken anything
    here.journal.confirmation.set()
    assert "run_id" in await asking
    completed = await outlet.wait_for_event(events.RunCompleted)
    assert "Interrupted" in completed.summary


async def test_a_made_up_id_leaves_no_home_behind(runtime_cluster: RuntimeCluster) -> None:
    here, there = await runtime_cluster.build(finish_at_once, finish_at_once)
    for house in (here, there):
        with pytest.raises(errors.SessionNotFound):
            await house.send(session_id="sess_forged")
    assert await here.find_home("sess_forged") is None
    assert await there.leases.list_owned(there.node_id, limit=10) == []
    assert "sess_forged" not in here.runtime._lanes


async def test_what_could_not_be_read_when_it_was_taken_over_is_taken_up_when_it_can(runtime_cluster: RuntimeCluster) -> None:
    here, there = await runtime_cluster.build(ask_once, ask_once)
    approval = await start_waiting_run(here)
    await here.kill()
    there.journal.failing_reads = [errors.JournalUnavailable("away for a moment")]
    await there.poll_cluster()
    await there.engine.wait_until(lambda: len(there.engine.tasks) == 1)  # nobody had to ask for it
    outlet = await there.attach_subscriber()
    await there.ask(decide(approval.id))
    assert (await outlet.wait_for_event(events.RunCompleted)).outcome is events.Outcome.SUCCESS


async def test_what_a_node_gave_away_it_does_not_take_back_with_its_next_renewal(runtime_cluster: RuntimeCluster) -> None:
    here, _ = await runtime_cluster.build(ask_once, ask_once)
    await start_waiting_run(here)
    await here.residence.drain(0.0)
    here.residence._record_renewal(asyncio.get_running_loop().time())
    assert not here.homes.takes_up
    assert not here.homes.keeps
    assert here.runtime.owned_lanes() == []
