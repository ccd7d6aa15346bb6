"""The moments that matter most, one by one: what becomes of a session when its node dies, sleeps, or is told to go."""

from pathlib import Path

import pytest
from tests.crash import story
from tests.crash.tower_process import PushRequestRefused, RawPushClient, decode
from tests.nodes import upgrade
from tests.nodes.conftest import StartFleet, make_database
from tests.nodes.fleet import NodeProcess, ProcessCluster

from switchtower.testing.postgres_server import PostgresServer

LEASE = 2
"""Short, because its end is waited for; and not so short that a busy machine loses it by itself."""
LONG = 120
"""A lease that does not end within a test: who gets a session before that was given it."""


class SeenEvents(dict[int, bytes]):
    """What one client is told of one session, by seq. Nothing comes twice or out of turn."""

    def __call__(self, line: bytes, frame: object) -> None:
        seq: int = frame.seq  # type: ignore[attr-defined]
        assert seq == max(self, default=0) + 1, f"{seq} comes after {max(self, default=0)}"
        self[seq] = line

    @property
    def runs(self) -> list[story.LoggedRun]:
        return list(story.read([decode(line) for line in self.values()]).values())


async def _watch(process_cluster: ProcessCluster, node: NodeProcess, session_id: str) -> tuple[RawPushClient, SeenEvents]:
    seen = SeenEvents()
    client = await process_cluster.connect(node, on_event=seen)
    await client.attach(session_id)
    return client, seen


async def test_what_happens_on_one_node_is_seen_and_steered_on_another_as_if_it_were_there(start_cluster: StartFleet) -> None:
    fleet = await start_cluster(node_lease=LONG)
    first, second, third = fleet.nodes
    starter, session_id = await fleet.start_session_on(first)
    watcher, seen = await _watch(fleet, second, session_id)
    run_id = await watcher.send(session_id, "write notes.txt: from afar", "msg_1")
    asked = await watcher.wait_for_event("approval_required")
    decider = await fleet.connect(third)
    with pytest.raises(PushRequestRefused) as refused:
        await decider.send(session_id, "count 3", "msg_2")
    assert refused.value.code == "RUN_IN_PROGRESS"
    assert await decider.send(session_id, "write notes.txt: from afar", "msg_1") == run_id, "one identity, one outcome"
    await decider.decide(session_id, run_id, asked.content["approvalId"])
    assert (await watcher.wait_for_event("run_complete")).content["outcome"] == "success"
    assert (fleet.workspace / "notes.txt").read_text() == "from afar"
    assert await fleet.find_home(session_id) is first, "who asks from afar does not move it"
    await starter.wait_for_event("run_complete")
    assert [frame.seq for frame in starter.events] == sorted(seen)


async def test_a_question_outlives_its_node_and_is_decided_on_another(start_cluster: StartFleet) -> None:
    fleet = await start_cluster(node_lease=LEASE)
    first, second, third = fleet.nodes
    starter, session_id = await fleet.start_session_on(first)
    run_id = await starter.send(session_id, "write notes.txt: once\nrun: echo twice >> notes.txt")
    asked = await starter.wait_for_event("approval_required")
    watcher, seen = await _watch(fleet, second, session_id)

    first.kill()
    decider = await fleet.connect(third)
    await decider.decide(session_id, run_id, asked.content["approvalId"])
    await watcher.wait_until(lambda: sum(frame.type == "approval_required" for frame in watcher.events) == 2)
    assert (fleet.workspace / "notes.txt").read_text() == "once"
    again = await watcher.wait_for_event("approval_required", after_seq=asked.seq)
    await watcher.decide(session_id, run_id, again.content["approvalId"])
    assert (await watcher.wait_for_event("run_complete")).content["outcome"] == "success"
    assert (fleet.workspace / "notes.txt").read_text() == "oncetwice\n"
    (run,) = seen.runs
    assert list(run.closed.values()) == ["approve", "approve"]
    assert (await fleet.find_home(session_id)) in (second, third)


async def test_a_run_whose_node_dies_is_closed_honestly_by_another(start_cluster: StartFleet) -> None:
    fleet = await start_cluster(node_lease=LEASE, demo_delay_ms=1)
    first, second, _ = fleet.nodes
    starter, session_id = await fleet.start_session_on(first)
    await starter.send(session_id, "count 100000")
    watcher, seen = await _watch(fleet, second, session_id)
    await watcher.wait_for_event("assistant_token")
    first.kill()
    await watcher.wait_for_event("run_complete")
    (run,) = seen.runs
    assert (run.outcome, run.errors) == ("failed", ["RUN_INTERRUPTED"])
    await watcher.send(session_id, "count 3", "msg_2")
    await watcher.wait_until(lambda: sum(frame.type == "run_complete" for frame in watcher.events) == 2)


async def test_a_program_in_a_terminal_is_lost_with_its_node(start_cluster: StartFleet) -> None:
    fleet = await start_cluster(node_lease=LEASE)
    first, second, _ = fleet.nodes
    starter, session_id = await fleet.start_session_on(first, engine="pty", command=["sleep", "1000"])
    await starter.wait_until(lambda: any(frame.type == "status" for frame in starter.events))
    watcher, _ = await _watch(fleet, second, session_id)
    first.kill()
    ended = await watcher.wait_for_event("run_complete")
    assert ended.content["outcome"] == "failed"
    warnings = [frame.content["code"] for frame in watcher.events if frame.type == "warning"]
    assert "HOST_LOST" in warnings
    (card,) = (await watcher.ask("list_cards", {}))["cards"]
    assert card["hostLost"] is True


async def test_a_node_that_slept_too_long_writes_nothing_more_and_serves_again(start_cluster: StartFleet) -> None:
    fleet = await start_cluster(node_lease=LEASE, demo_delay_ms=1)
    first, second, _ = fleet.nodes
    starter, session_id = await fleet.start_session_on(first)
    await starter.send(session_id, "count 100000")
    watcher, seen = await _watch(fleet, second, session_id)
    sleeper, slept = await _watch(fleet, first, session_id)
    await sleeper.wait_for_event("assistant_token")
    await watcher.wait_for_event("assistant_token")

    first.pause()
    await watcher.wait_for_event("run_complete")
    taken_by = await fleet.find_home(session_id)
    assert taken_by in fleet.list_others(first)
    first.resume()

    async def is_back() -> bool:
        return first.name in await fleet.list_alive()

    await fleet.wait_until(is_back, "the sleeper is back")
    # Whoever comes to it now is served: the session's home is elsewhere, and it asks there.
    client, through_it = await _watch(fleet, first, session_id)
    await client.send(session_id, "write after.txt: awake", "msg_2")
    asked = await client.wait_for_event("approval_required")
    await client.decide(session_id, str(asked.runId), asked.content["approvalId"])
    await client.wait_until(lambda: sum(frame.type == "run_complete" for frame in client.events) == 2)
    await watcher.wait_until(lambda: sum(frame.type == "run_complete" for frame in watcher.events) == 2)
    assert (fleet.workspace / "after.txt").read_text() == "awake"
    assert dict(through_it) == dict(seen)
    interrupted, after = seen.runs
    assert (interrupted.outcome, interrupted.errors) == ("failed", ["RUN_INTERRUPTED"])
    assert (after.outcome, after.errors) == ("success", [])
    # Who was at the sleeper all the time was told what the others were, or was let go.
    if not sleeper.closed.is_set():
        await sleeper.wait_until(lambda: sum(frame.type == "run_complete" for frame in sleeper.events) == 2)
    assert dict(slept).items() <= dict(seen).items()


@pytest.mark.parametrize("how", ["shut", "hold"])
async def test_a_node_without_its_database_loses_what_it_had_and_serves_again_when_it_is_back(
    start_cluster: StartFleet, how: str
) -> None:
    fleet = await start_cluster(node_lease=LEASE)
    first, second, third = fleet.nodes
    starter, session_id = await fleet.start_session_on(first)
    run_id = await starter.send(session_id, "write notes.txt: noted")
    asked = await starter.wait_for_event("approval_required")
    watcher, seen = await _watch(fleet, second, session_id)
    first.gate.shut() if how == "shut" else first.gate.hold()

    decider = await fleet.connect(third)
    await decider.decide(session_id, run_id, asked.content["approvalId"])
    assert (await watcher.wait_for_event("run_complete")).content["outcome"] == "success"
    assert await fleet.find_home(session_id) in (second, third)
    first.gate.restore()
    # Who stayed hears it now: from a node that knows again what the others stored.
    await starter.wait_for_event("run_complete")
    assert [frame.seq for frame in starter.events] == sorted(seen)
    (run,) = seen.runs
    assert list(run.closed.values()) == ["approve"]
    assert (fleet.workspace / "notes.txt").read_text() == "noted"


async def test_a_node_whose_database_goes_away_as_soon_as_it_serves_goes_on(start_cluster: StartFleet) -> None:
    fleet = await start_cluster(node_lease=LEASE)
    (first, *_) = fleet.nodes
    assert await first.stop() == 0
    await first.start()
    first.gate.shut()

    async def is_silent() -> bool:
        return first.name not in await fleet.list_alive()

    async def is_back() -> bool:
        return not await is_silent()

    await fleet.wait_until(is_silent, "the node is missed")
    first.gate.restore()
    await fleet.wait_until(is_back, "the node is back")
    client = await fleet.connect(first)
    await client.send(await client.start_session(fleet.workspace), "count 3")
    assert (await client.wait_for_event("run_complete")).content["outcome"] == "success"
    assert first.bugs == []


async def test_what_waits_outlives_the_restart_of_the_database_and_who_listens_stays_connected(
    dedicated_server: PostgresServer, folder: Path
) -> None:
    fleet = ProcessCluster(dedicated_server, await make_database(dedicated_server), folder, node_lease=LONG)
    try:
        await fleet.start()
        first, second, third = fleet.nodes
        starter, session_id = await fleet.start_session_on(first)
        run_id = await starter.send(session_id, "write notes.txt: noted")
        asked = await starter.wait_for_event("approval_required")
        watcher, seen = await _watch(fleet, second, session_id)
        decider = await fleet.connect(third)
        dedicated_server.kill()
        dedicated_server.start()
        await decider.decide(session_id, run_id, asked.content["approvalId"])
        assert (await watcher.wait_for_event("run_complete")).content["outcome"] == "success"
        await starter.wait_for_event("run_complete")
        assert [frame.seq for frame in starter.events] == sorted(seen)
        assert await fleet.find_home(session_id) is first, "a lease that lasts longer is not lost by this"
    finally:
        await fleet.close()


async def test_a_node_that_is_stopped_hands_over_what_waits(start_cluster: StartFleet) -> None:
    fleet = await start_cluster(node_lease=LONG)
    first, second, third = fleet.nodes
    waiting = []
    for number in range(5):
        client, session_id = await fleet.start_session_on(first)
        run_id = await client.send(session_id, f"write {number}.txt: {number}")
        waiting.append((session_id, run_id, (await client.wait_for_event("approval_required")).content["approvalId"]))
    assert await first.stop() == 0
    decider = await fleet.connect(second)
    watchers = [await _watch(fleet, third, session_id) for session_id, _, _ in waiting]
    for (session_id, run_id, approval_id), (watcher, _) in zip(waiting, watchers, strict=True):
        await decider.decide(session_id, run_id, approval_id)
        assert (await watcher.wait_for_event("run_complete")).content["outcome"] == "success"
    assert [path.read_text() for path in _read_written(fleet.workspace)] == ["0", "1", "2", "3", "4"]
    assert set(await fleet.list_alive()) == {second.name, third.name}


def _read_written(workspace: Path) -> list[Path]:
    return sorted(workspace.glob("*.txt"))


async def test_a_node_that_is_drained_hands_everything_over_and_takes_nothing_up(start_cluster: StartFleet) -> None:
    fleet = await start_cluster(node_lease=LONG)
    first, second, third = fleet.nodes
    client, session_id = await fleet.start_session_on(first)
    run_id = await client.send(session_id, "write kept.txt: kept")
    asked = await client.wait_for_event("approval_required")
    drained = await upgrade.drain(fleet, first)
    assert drained["interrupted"] == 0
    decider = await fleet.connect(second)
    watcher, _ = await _watch(fleet, third, session_id)
    await decider.decide(session_id, run_id, asked.content["approvalId"])
    assert (await watcher.wait_for_event("run_complete")).content["outcome"] == "success"
    assert (await fleet.list_alive())[first.name].draining
    assert (await fleet.list_alive())[first.name].sessions == 0
    assert await first.stop() == 0
