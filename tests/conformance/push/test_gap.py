"""Retention and its gap: a cursor that can no longer be served gets a warning and a snapshot, under numbers of their own."""

import asyncio
from pathlib import Path

import pytest
from tests.conftest import Connect, StartDaemon

from switchtower.testing.push_client import Event, PushClient

KEPT = 20


@pytest.fixture
async def forgetful(start_daemon: StartDaemon, connect: Connect, transport: str) -> PushClient:
    """A client of a daemon that keeps few deltas."""
    return await connect(start_daemon(retention_entries=KEPT), transport)


async def retention_reached(client: PushClient, session_id: str) -> int:
    """Waits until no run is active and all that may go is gone; the session's head then. What arrives meanwhile is dropped."""
    async with asyncio.timeout(20):
        while True:
            now = await client.attach(session_id, 2**53 - 1)
            head: int = now["replay"]["toSeq"]
            if now["state"] == "completed" and (await client.attach(session_id, head - KEPT - 1))["replay"]["gap"]:
                break
            await asyncio.sleep(0.01)
    await client.ping()
    client.events.clear()
    return head


async def pruned(client: PushClient, workspace: Path) -> tuple[str, int]:
    """A session of which early deltas are gone, and its head."""
    session_id = (await client.start_session(workspace)).session_id
    await client.run(session_id, "count 50")
    await client.run(session_id, "count 50")
    return session_id, await retention_reached(client, session_id)


async def gap_answer(client: PushClient) -> tuple[Event, Event]:
    warning, snapshot = await client.event(), await client.event()
    assert (warning.type, snapshot.type) == ("warning", "session_snapshot")
    return warning, snapshot


@pytest.mark.requirement(
    "push:attach:gap-sends-snapshot", "push:replay:gap-warning", "push:replay:retention", "push:event:warning"
)
async def test_a_cursor_in_the_gap_gets_warning_then_snapshot_then_what_follows(forgetful: PushClient, workspace: Path) -> None:
    session_id, head = await pruned(forgetful, workspace)
    attached = await forgetful.attach(session_id, 3)
    assert attached == {
        "sessionId": session_id,
        "state": "completed",
        "replay": {"fromSeq": head + 1, "toSeq": head, "completed": True, "gap": True},
    }
    warning, snapshot = await gap_answer(forgetful)
    assert warning.payload["code"] == "EVENT_GAP"
    assert "lastSeenSeq=3" in warning.payload["detail"]
    assert snapshot.payload == {
        "state": "completed",
        "activeRunId": None,
        "lastAssistantText": " ".join(str(number) for number in range(1, 51)),
        "pendingApproval": None,
        "meta": {"provider": "demo", "sandboxProvider": "local"},
    }
    following = await forgetful.run(session_id, "say: onward")
    numbers = [warning.seq, snapshot.seq, *(event.seq for event in following)]
    assert numbers == sorted(set(numbers)), "a client that dedupes by seq keeps them all"
    assert warning.seq > 3
    assert following[0].seq == snapshot.seq + 1 == head + 1


@pytest.mark.requirement("push:attach:gap-sends-snapshot", "push:replay:retention")
async def test_every_cursor_is_either_served_whole_or_told_of_the_gap(forgetful: PushClient, workspace: Path) -> None:
    session_id, head = await pruned(forgetful, workspace)
    told = []
    for cursor in range(head + 1):
        attached = await forgetful.attach(session_id, cursor)
        told.append(attached["replay"]["gap"])
        if told[-1]:
            warning, snapshot = await gap_answer(forgetful)
            assert cursor < warning.seq < snapshot.seq == head
        else:
            assert [(await forgetful.event()).seq for _ in range(cursor, head)] == list(range(cursor + 1, head + 1))
        await forgetful.ping()
        assert not forgetful.events
    assert told == sorted(told, reverse=True), "first those with a gap, then those without"
    assert told[0]
    assert not told[-1]
    assert head - told.index(False) >= KEPT


@pytest.mark.requirement("push:replay:retention")
async def test_decisions_messages_and_results_are_never_pruned(forgetful: PushClient, workspace: Path) -> None:
    session_id, _ = await pruned(forgetful, workspace)
    await forgetful.send(session_id, "run: echo still here")
    asked = (await forgetful.until("approval_required"))[-1]
    snapshot_while_asking = await forgetful.attach(session_id, 1)
    assert (snapshot_while_asking["state"], snapshot_while_asking["replay"]["gap"]) == ("awaiting_approval", True)
    _, snapshot = await gap_answer(forgetful)
    assert snapshot.payload["pendingApproval"] == asked.payload
    assert snapshot.payload["activeRunId"] == asked.run_id
    await forgetful.decide(asked)
    events = await forgetful.until("run_complete")
    assert "still here" in next(event.payload["text"] for event in events if event.type == "tool_result")


@pytest.mark.requirement("push:attach:gap-sends-snapshot")
async def test_a_cursor_beyond_the_head_is_a_gap_too(either: PushClient, workspace: Path) -> None:
    session_id = (await either.start_session(workspace)).session_id
    head = (await either.run(session_id, "say: hello"))[-1].seq
    attached = await either.attach(session_id, head + 5)
    assert attached["replay"] == {"fromSeq": head + 1, "toSeq": head, "completed": True, "gap": True}
    warning, snapshot = await gap_answer(either)
    assert (warning.seq, snapshot.seq) == (head - 1, head)
    assert (await either.run(session_id, "say: more"))[0].seq == head + 1


@pytest.mark.requirement("push:attach:gap-sends-snapshot", "push:event:seq-monotonic")
async def test_a_cursor_beyond_a_fresh_sessions_head_gets_two_numbers_as_well(either: PushClient, workspace: Path) -> None:
    session_id = (await either.start_session(workspace)).session_id
    await either.event()
    assert (await either.attach(session_id, 2**53 - 1))["replay"]["gap"]
    warning, snapshot = await gap_answer(either)
    assert (warning.seq, snapshot.seq) == (1, 2)
    assert snapshot.payload["state"] == "idle"
    assert (await either.run(session_id, "say: more"))[0].seq == 3


@pytest.mark.requirement("push:replay:slow-reader", "push:replay:gap-warning")
async def test_a_reader_too_slow_for_the_retention_is_told_of_the_gap(
    forgetful: PushClient, workspace: Path, start_daemon: StartDaemon, connect: Connect, transport: str
) -> None:
    slow = await connect(start_daemon(retention_entries=KEPT), transport)
    session_id = (await forgetful.start_session(workspace)).session_id
    await slow.attach(session_id, 1)
    await forgetful.send(session_id, "count 40000")
    await retention_reached(forgetful, session_id)

    events = await slow.until("session_snapshot")
    *whole, warning, snapshot = events
    assert [event.seq for event in whole] == list(range(2, len(whole) + 2)), "nothing is missing before the gap is told"
    assert (warning.type, warning.payload["code"]) == ("warning", "EVENT_GAP")
    assert whole[-1].seq < warning.seq < snapshot.seq
    assert (await slow.run(session_id, "say: live again"))[0].seq == snapshot.seq + 1
