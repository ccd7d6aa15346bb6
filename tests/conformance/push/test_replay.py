"""Replay and reconnection: what was missed, exactly and in the same bytes; observers; readers that are slow."""

import asyncio
import contextlib
import signal
from pathlib import Path

import pytest
from tests.conformance.daemons import ManagedDaemon
from tests.conftest import Connect, StartDaemon

from switchtower.testing.push_client import PushClient, ReceivedEvent

EVERY_KIND = "think: first\ncount 3\nlist .\nwrite a.txt: x\nrun: false\nsay: done"


async def run_eventful_session(client: PushClient, workspace: Path) -> list[ReceivedEvent]:
    """A session with every kind of event that a run can have, from its first."""
    session_id = (await client.start_session(workspace)).session_id
    events = [await client.next_event()]
    await client.send(session_id, EVERY_KIND)
    while not events or events[-1].type != "run_complete":
        events.append(await client.next_event())
        if events[-1].type == "approval_required":
            await client.decide(events[-1])
    return events


@pytest.mark.requirement("push:event:seq-monotonic")
async def test_seq_counts_from_one_without_holes_or_repeats(client_per_transport: PushClient, workspace: Path) -> None:
    events = await run_eventful_session(client_per_transport, workspace)
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    assert [event.ts for event in events] == sorted(event.ts for event in events)


@pytest.mark.requirement("push:attach:replays-missed", "push:replay:same-as-live", "push:attach:nothing-to-replay")
async def test_attach_at_every_cursor_gives_exactly_the_missing_events(
    client_per_transport: PushClient, workspace: Path, push_daemon: ManagedDaemon, connect: Connect
) -> None:
    live = await run_eventful_session(client_per_transport, workspace)
    session_id, head = live[0].session_id, len(live)
    late = await connect(push_daemon)
    for cursor in range(head + 1):
        attached = await late.attach(session_id, cursor)
        assert attached == {
            "sessionId": session_id,
            "state": "completed",
            "replay": {"fromSeq": cursor + 1, "toSeq": head, "completed": True, "gap": False},
        }
        replayed = [await late.next_event() for _ in range(head - cursor)]
        assert [event.raw for event in replayed] == [event.raw for event in live[cursor:]]
        await late.ping()
        assert not late.events


@pytest.mark.requirement("push:transport:websocket-same-envelopes", "push:replay:same-as-live")
async def test_both_transports_carry_the_same_bytes(push_daemon: ManagedDaemon, connect: Connect, workspace: Path) -> None:
    over_socket, over_websocket = await connect(push_daemon, "socket"), await connect(push_daemon, "websocket")
    events = await run_eventful_session(over_socket, workspace)
    await over_websocket.attach(events[0].session_id)
    replayed = [await over_websocket.next_event() for _ in events]
    assert [event.raw for event in replayed] == [event.raw for event in events]


@pytest.mark.requirement("push:concurrency:observers")
async def test_all_observers_see_the_same_bytes_in_the_same_order(
    push_daemon: ManagedDaemon, connect: Connect, workspace: Path
) -> None:
    clients = [await connect(push_daemon, ("socket", "websocket")[number % 2]) for number in range(8)]
    owner = clients[0]
    session_id = (await owner.start_session(workspace)).session_id
    for early in clients[1:4]:
        await early.attach(session_id, 0)
    await owner.send(session_id, "count 3000")
    seen = {owner: [await owner.next_event() for _ in range(100)]}
    for joining in clients[4:]:
        await joining.attach(session_id, 0)
        seen[joining] = [await joining.next_event()]
    for client in clients:
        seen[client] = seen.get(client, []) + await client.read_until("run_complete")
    expected = [event.raw for event in seen[owner]]
    assert len(expected) > 3000
    for client in clients[1:]:
        assert [event.raw for event in seen[client]] == expected


@pytest.mark.requirement("push:attach:replays-missed")
async def test_attaching_again_on_the_same_connection_moves_the_cursor_and_keeps_one_subscription(
    client: PushClient, workspace: Path
) -> None:
    session_id = (await client.start_session(workspace)).session_id
    events = [await client.next_event(), *await client.run(session_id, "count 5")]
    await client.attach(session_id, 3)
    assert [event.raw for event in await client.read_until("run_complete")] == [event.raw for event in events[3:]]
    again = await client.run(session_id, "count 2")
    assert [event.seq for event in again] == list(range(len(events) + 1, len(events) + len(again) + 1))


@pytest.mark.requirement("push:attach:replays-missed", "push:replay:delivery")
async def test_a_client_that_comes_and_goes_during_a_run_misses_nothing(
    push_daemon: ManagedDaemon, connect: Connect, workspace: Path, transport: str
) -> None:
    owner = await connect(push_daemon)
    session_id = (await owner.start_session(workspace)).session_id
    await owner.send(session_id, "count 4000")
    seen: list[bytes] = []
    last_seen, complete = 0, False
    while not complete:
        visitor = await connect(push_daemon, transport)
        await visitor.attach(session_id, last_seen)
        for _ in range(500):
            event = await visitor.next_event()
            assert event.seq == last_seen + 1
            last_seen = event.seq
            seen.append(event.raw)
            complete = event.type == "run_complete"
            if complete:
                break
        visitor.wire.abort()
    assert seen == [event.raw for event in await owner.read_until("run_complete")]


@pytest.mark.requirement("push:replay:slow-reader", "push:replay:delivery")
async def test_a_reader_that_stops_catches_up_with_nothing_lost_or_repeated(
    push_daemon: ManagedDaemon, connect: Connect, workspace: Path, transport: str
) -> None:
    quick, slow = await connect(push_daemon, "socket"), await connect(push_daemon, transport)
    session_id = (await quick.start_session(workspace)).session_id
    await slow.attach(session_id, 1)
    await quick.send(session_id, "count 20000")
    live = await quick.read_until("run_complete")  # and `slow` has read nothing meanwhile
    assert sum(len(event.raw) for event in live) > 3_000_000, "far more than fits into any buffer on the way"
    caught_up = await slow.read_until("run_complete")
    assert [event.seq for event in caught_up] == list(range(2, live[-1].seq + 1))
    assert [event.raw for event in caught_up] == [event.raw for event in live if event.seq > 1]
    assert (await slow.run(session_id, "say: live again"))[-1].seq > live[-1].seq


@pytest.mark.requirement("push:security:no-leaks")
async def test_events_of_other_sessions_are_not_sent(push_daemon: ManagedDaemon, connect: Connect, workspace: Path) -> None:
    one, other = await connect(push_daemon, "socket"), await connect(push_daemon, "websocket")
    mine = (await one.start_session(workspace)).session_id
    theirs = (await other.start_session(workspace)).session_id
    await asyncio.gather(one.run(mine, "count 300"), other.run(theirs, "count 300"))
    await one.attach(mine, 0)
    await other.attach(theirs, 0)
    assert {event.session_id for event in await one.read_until("run_complete")} == {mine}
    assert {event.session_id for event in await other.read_until("run_complete")} == {theirs}
    bystander = await connect(push_daemon)
    await bystander.send_hello()
    await bystander.request_payload("list_sessions")
    await one.run(mine, "say: to whom it concerns")
    await bystander.ping()
    assert not bystander.events
    await other.ping()
    assert not other.events


@pytest.mark.requirement("push:resume:attach-with-summary", "push:event:session_snapshot")
async def test_resume_replays_and_then_summarises_for_its_caller_alone(
    client_per_transport: PushClient, workspace: Path, push_daemon: ManagedDaemon, connect: Connect
) -> None:
    session_id = (await client_per_transport.start_session(workspace)).session_id
    run_id = await client_per_transport.send(session_id, "say: before the question\nrun: true")
    asked = (await client_per_transport.read_until("approval_required"))[-1]
    late = await connect(push_daemon)
    payload = {"sessionId": session_id, "lastSeenSeq": 1}
    resumed = await late.request_payload("resume_session", payload, session_id=session_id)
    assert resumed == {
        "sessionId": session_id,
        "state": "awaiting_approval",
        "replay": {"fromSeq": 2, "toSeq": asked.seq, "completed": True, "gap": False},
    }
    *replayed, snapshot = await late.read_until("session_snapshot")
    assert [event.seq for event in replayed] == list(range(2, asked.seq + 1))
    spoken = "".join(event.payload["text"] for event in replayed if event.type == "assistant_token")
    assert snapshot.seq == asked.seq, "the last event that it includes"
    assert snapshot.payload == {
        "state": "awaiting_approval",
        "activeRunId": run_id,
        "lastAssistantText": spoken,
        "pendingApproval": asked.payload,
        "meta": {"provider": "demo", "sandboxProvider": "local"},
    }
    assert (await late.attach(session_id, asked.seq))["replay"]["toSeq"] == asked.seq, "nothing was written"
    await client_per_transport.decide(asked)
    following = await client_per_transport.read_until("run_complete")
    assert following[0].seq == asked.seq + 1, "no other observer sees the snapshot"
    assert [event.raw for event in await late.read_until("run_complete")] == [event.raw for event in following]


@pytest.mark.requirement("push:resume:attach-with-summary")
async def test_resuming_a_session_that_is_done_summarises_its_last_words(client: PushClient, workspace: Path) -> None:
    session_id = (await client.start_session(workspace)).session_id
    head = (await client.run(session_id, "say: my last words"))[-1].seq
    resumed = await client.request_payload("resume_session", {"lastSeenSeq": head}, session_id=session_id)
    assert resumed["replay"] == {"fromSeq": head + 1, "toSeq": head, "completed": True, "gap": False}
    snapshot = await client.next_event()
    assert snapshot.seq == head
    assert snapshot.payload == {
        "state": "completed",
        "activeRunId": None,
        "lastAssistantText": "my last words",
        "pendingApproval": None,
        "meta": {"provider": "demo", "sandboxProvider": "local"},
    }


@pytest.mark.requirement("push:replay:same-as-live", "push:headless:exit-1-failed", "push:event:error")
async def test_after_a_crash_what_was_seen_is_replayed_and_the_run_is_closed_as_failed(
    dedicated_daemon: StartDaemon, connect: Connect, workspace: Path
) -> None:
    daemon = dedicated_daemon()
    client = await connect(daemon)
    session_id = (await client.start_session(workspace)).session_id
    run_id = await client.send(session_id, "count 1000000")
    seen = [await client.next_event() for _ in range(2_000)]
    daemon.stop(signal.SIGKILL)
    with contextlib.suppress(EOFError, ConnectionError):
        while True:
            seen.append(await client.next_event())
    daemon.start()

    client = await connect(daemon)
    assert (await client.attach(session_id, 0))["state"] == "failed"
    replayed = await client.read_until("run_complete")
    assert [event.raw for event in replayed[: len(seen)]] == [event.raw for event in seen]
    assert [event.seq for event in replayed] == list(range(1, len(replayed) + 1))
    error, complete = replayed[-2:]
    assert error.type == "error"
    assert (error.payload["code"], error.payload["retryable"]) == ("RUN_INTERRUPTED", True)
    assert (complete.run_id, complete.payload["outcome"], complete.payload["headless"]) == (run_id, "failed", {"exitCodeHint": 1})


@pytest.mark.requirement("push:resume:attach-with-summary")
async def test_a_long_replay_that_new_events_join_has_its_summary_at_the_head_of_that_time(
    push_daemon: ManagedDaemon, connect: Connect, workspace: Path
) -> None:
    client, late = await connect(push_daemon), await connect(push_daemon)
    session_id = (await client.start_session(workspace)).session_id
    await client.run(session_id, "count 5000")
    await late.send_frames(late.make_frame("resume_session", {"lastSeenSeq": 0}, session_id=session_id))
    await client.run(session_id, "say: joined")
    head = (await late.wait_for_response()).payload["replay"]["toSeq"]
    events = await late.read_until("session_snapshot")
    assert [event.seq for event in events] == [*range(1, head + 1), head]
    joined = await late.read_until("run_complete") if head < events[-1].seq + 1 else []
    assert [event.seq for event in joined] == list(range(head + 1, head + 1 + len(joined)))
