"""Retention and its gap: a cursor that can no longer be served gets a warning and a snapshot, under numbers of their own.

Each gap moves its client to the next numbering (ADR 0003): a thousand million is added to every number from there on.
"""

import asyncio
from pathlib import Path

import pytest
from tests.conftest import Connect, ManagedDaemon, StartDaemon

from switchtower.testing.push_client import PushClient, ReceivedEvent

KEPT = 20
NEXT = 1_000_000_000
"""What the first gap adds to a client's numbers."""


@pytest.fixture
async def low_retention_client(start_daemon: StartDaemon, connect: Connect, transport: str) -> PushClient:
    """A client of a daemon that keeps few deltas."""
    return await connect(start_daemon(retention_entries=KEPT), transport)


async def wait_for_retention(client: PushClient, session_id: str) -> int:
    """Waits until no run is active and all that may go is gone; the session's head then. What arrives meanwhile is dropped."""
    async with asyncio.timeout(60):
        while True:
            now = await client.attach(session_id, 2**53 - 1)
            head: int = now["replay"]["toSeq"]
            if now["state"] == "completed" and (await client.attach(session_id, head - KEPT - 1))["replay"]["gap"]:
                break
            await asyncio.sleep(0.01)
    await client.ping()
    client.events.clear()
    return head


async def make_pruned_session(client: PushClient, workspace: Path) -> tuple[str, int]:
    """A session of which early deltas are gone, and its head."""
    session_id = (await client.start_session(workspace)).session_id
    await client.run(session_id, "count 50")
    await client.run(session_id, "count 50")
    return session_id, await wait_for_retention(client, session_id)


async def wait_for_gap(client: PushClient) -> tuple[ReceivedEvent, ReceivedEvent]:
    warning, snapshot = await client.next_event(), await client.next_event()
    assert (warning.type, snapshot.type) == ("warning", "session_snapshot")
    return warning, snapshot


@pytest.mark.requirement(
    "push:attach:gap-sends-snapshot", "push:replay:gap-warning", "push:replay:retention", "push:event:warning"
)
async def test_a_cursor_in_the_gap_gets_warning_then_snapshot_then_what_follows(
    low_retention_client: PushClient, workspace: Path
) -> None:
    session_id, head = await make_pruned_session(low_retention_client, workspace)
    attached = await low_retention_client.attach(session_id, 3)
    assert attached == {
        "sessionId": session_id,
        "state": "completed",
        "replay": {"fromSeq": head + 1, "toSeq": head, "completed": True, "gap": True},
    }
    warning, snapshot = await wait_for_gap(low_retention_client)
    assert warning.payload["code"] == "EVENT_GAP"
    assert "lastSeenSeq=3" in warning.payload["detail"]
    assert snapshot.payload == {
        "state": "completed",
        "activeRunId": None,
        "lastAssistantText": " ".join(str(number) for number in range(1, 51)),
        "pendingApproval": None,
        "meta": {"provider": "demo", "sandboxProvider": "local"},
    }
    following = await low_retention_client.run(session_id, "say: onward")
    numbers = [warning.seq, snapshot.seq, *(event.seq for event in following)]
    assert numbers == list(range(warning.seq, warning.seq + len(numbers))), "a client that dedupes by seq keeps them all"
    assert (warning.seq > NEXT, warning.seq % NEXT) == (True, head - 1)


@pytest.mark.requirement("push:attach:gap-sends-snapshot", "push:replay:retention")
async def test_every_cursor_is_either_served_whole_or_told_of_the_gap(low_retention_client: PushClient, workspace: Path) -> None:
    session_id, head = await make_pruned_session(low_retention_client, workspace)
    told = []
    last_numbering = 0
    for cursor in range(head + 1):
        attached = await low_retention_client.attach(session_id, cursor)
        told.append(attached["replay"]["gap"])
        if told[-1]:
            warning, snapshot = await wait_for_gap(low_retention_client)
            assert (warning.seq % NEXT, snapshot.seq % NEXT) == (head - 1, head)
            assert warning.seq // NEXT == snapshot.seq // NEXT > last_numbering, "this connection has seen all earlier ones"
            last_numbering = snapshot.seq // NEXT
        else:
            assert [(await low_retention_client.next_event()).seq for _ in range(cursor, head)] == list(
                range(cursor + 1, head + 1)
            )
        await low_retention_client.ping()
        assert not low_retention_client.events
    assert told == sorted(told, reverse=True), "first those with a gap, then those without"
    assert told[0]
    assert not told[-1]
    assert head - told.index(False) >= KEPT


@pytest.mark.requirement("push:replay:retention")
async def test_decisions_messages_and_results_are_never_pruned(low_retention_client: PushClient, workspace: Path) -> None:
    session_id, _ = await make_pruned_session(low_retention_client, workspace)
    await low_retention_client.send(session_id, "run: echo still here")
    asked = (await low_retention_client.read_until("approval_required"))[-1]
    snapshot_while_asking = await low_retention_client.attach(session_id, 1)
    assert (snapshot_while_asking["state"], snapshot_while_asking["replay"]["gap"]) == ("awaiting_approval", True)
    _, snapshot = await wait_for_gap(low_retention_client)
    assert snapshot.payload["pendingApproval"] == asked.payload
    assert snapshot.payload["activeRunId"] == asked.run_id
    await low_retention_client.decide(asked)
    events = await low_retention_client.read_until("run_complete")
    assert "still here" in next(event.payload["text"] for event in events if event.type == "tool_result")


@pytest.mark.requirement("push:attach:gap-sends-snapshot")
async def test_a_cursor_beyond_the_head_is_a_gap_too(client_per_transport: PushClient, workspace: Path) -> None:
    session_id = (await client_per_transport.start_session(workspace)).session_id
    head = (await client_per_transport.run(session_id, "say: hello"))[-1].seq
    attached = await client_per_transport.attach(session_id, head + 5)
    assert attached["replay"] == {"fromSeq": head + 1, "toSeq": head, "completed": True, "gap": True}
    warning, snapshot = await wait_for_gap(client_per_transport)
    assert (warning.seq, snapshot.seq) == (NEXT + head - 1, NEXT + head)
    assert (await client_per_transport.run(session_id, "say: more"))[0].seq == NEXT + head + 1


@pytest.mark.requirement("push:attach:gap-sends-snapshot", "push:event:seq-monotonic")
async def test_a_cursor_beyond_a_fresh_sessions_head_gets_two_numbers_as_well(
    client_per_transport: PushClient, workspace: Path
) -> None:
    session_id = (await client_per_transport.start_session(workspace)).session_id
    await client_per_transport.next_event()
    assert (await client_per_transport.attach(session_id, 2**53 - 1))["replay"]["gap"]
    warning, snapshot = await wait_for_gap(client_per_transport)
    assert (warning.seq, snapshot.seq) == (NEXT, NEXT + 1)
    assert snapshot.payload["state"] == "idle"
    assert (await client_per_transport.run(session_id, "say: more"))[0].seq == NEXT + 2


@pytest.mark.requirement("push:replay:slow-reader", "push:replay:gap-warning")
async def test_a_reader_too_slow_for_the_retention_is_told_of_the_gap(
    low_retention_client: PushClient, workspace: Path, start_daemon: StartDaemon, connect: Connect, transport: str
) -> None:
    slow = await connect(start_daemon(retention_entries=KEPT), transport)
    session_id = (await low_retention_client.start_session(workspace)).session_id
    await slow.attach(session_id, 1)
    await low_retention_client.send(session_id, "count 40000")
    await wait_for_retention(low_retention_client, session_id)

    events = await slow.read_until("session_snapshot")
    *whole, warning, snapshot = events
    assert [event.seq for event in whole] == list(range(2, len(whole) + 2)), "nothing is missing before the gap is told"
    assert (warning.type, warning.payload["code"]) == ("warning", "EVENT_GAP")
    assert NEXT < warning.seq < snapshot.seq
    assert (await slow.run(session_id, "say: live again"))[0].seq == snapshot.seq + 1


class GapAwareReader:
    """A client as the document wants it: it takes each (sessionId, seq) once, and nothing that is not after its cursor."""

    def __init__(self, client: PushClient, session_id: str) -> None:
        self.client = client
        self.session_id = session_id
        self.last_seen = 0
        self._seen: set[int] = set()
        self.types: list[str] = []

    async def attach(self, last_seen_seq: int | None = None) -> None:
        await self.client.attach(self.session_id, self.last_seen if last_seen_seq is None else last_seen_seq)

    async def take_until(self, type_: str) -> None:
        """All that arrives up to the first event of this type."""
        for event in await self.client.read_until(type_):
            if event.seq > self.last_seen and event.seq not in self._seen:
                self._seen.add(event.seq)
                self.last_seen = event.seq
                self.types.append(event.type)


@pytest.mark.requirement("push:replay:gap-is-no-duplicate", "push:event:clients-dedupe")
@pytest.mark.parametrize("same_connection", [True, False])
async def test_a_client_that_saw_everything_and_asks_from_the_beginning_takes_the_gap_for_news(
    start_daemon: StartDaemon, connect: Connect, workspace: Path, same_connection: bool
) -> None:
    daemon = start_daemon(retention_entries=KEPT)
    client = await connect(daemon)
    session_id, head = await make_pruned_session(client, workspace)
    careful = GapAwareReader(client if same_connection else await connect(daemon), session_id)
    careful.last_seen = head
    careful._seen = set(range(1, head + 1))
    await careful.attach(3)
    await careful.take_until("session_snapshot")
    assert careful.types == ["warning", "session_snapshot"]
    await client.send(session_id, "say: onward")
    await careful.take_until("run_complete")
    assert careful.types[-1] == "run_complete"


@pytest.mark.requirement("push:replay:gap-is-no-duplicate", "push:replay:seq-greater-than-last-seen")
async def test_a_client_ahead_of_the_daemon_is_sent_everything_that_follows_also_when_it_comes_again(
    push_daemon: ManagedDaemon, connect: Connect, workspace: Path
) -> None:
    client = await connect(push_daemon)
    session_id = (await client.start_session(workspace)).session_id
    head = (await client.run(session_id, "say: hello"))[-1].seq
    careful = GapAwareReader(await connect(push_daemon), session_id)
    careful.last_seen = head + 1
    await careful.attach()
    await careful.take_until("session_snapshot")
    assert careful.types == ["warning", "session_snapshot"]
    following = await client.run(session_id, "say: onward")
    await careful.take_until("run_complete")
    assert careful.types[2:] == [event.type for event in following]
    assert careful.last_seen == NEXT + following[-1].seq

    careful.client = await connect(push_daemon)
    missed = await client.run(session_id, "say: meanwhile")
    attached = await careful.client.attach(session_id, careful.last_seen)
    assert attached["replay"] == {
        "fromSeq": careful.last_seen + 1,
        "toSeq": NEXT + missed[-1].seq,
        "completed": True,
        "gap": False,
    }
    await careful.take_until("run_complete")
    assert careful.types[2 + len(following) :] == [event.type for event in missed], "each once, and no second gap"


@pytest.mark.requirement("push:replay:gap-is-no-duplicate")
async def test_a_message_on_another_connection_is_answered_in_the_numbers_of_the_first(
    push_daemon: ManagedDaemon, connect: Connect, workspace: Path
) -> None:
    client, other = await connect(push_daemon), await connect(push_daemon)
    session_id = (await client.start_session(workspace)).session_id
    await client.next_event()
    await client.attach(session_id, 99)
    await wait_for_gap(client)
    sent = await other.run(session_id, "say: hello")
    received = await client.read_until("run_complete")
    assert [event.raw for event in sent] == [event.raw for event in received]
