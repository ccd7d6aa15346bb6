"""Watching a session: each event once and in order, whatever happens to the connection."""

import asyncio
from contextlib import aclosing
from typing import Any

import pytest
from tests.client.conftest import ScriptedConnection, ScriptedPushServer

from switchtower.client import errors
from switchtower.client.frames import PushEvent
from switchtower.client.subscription import SessionSubscription
from switchtower.protocols.push import messages

SNAPSHOT = {
    "state": "idle",
    "activeRunId": None,
    "lastAssistantText": "hi",
    "pendingApproval": None,
    "meta": {"provider": "demo", "sandboxProvider": "local"},
}
GAP = {"code": "EVENT_GAP", "message": "Replay gap detected; snapshot sent."}


async def take(session: SessionSubscription, count: int) -> list[PushEvent]:
    taken: list[PushEvent] = []
    async with asyncio.timeout(60), aclosing(session.stream_events()) as events:
        async for event in events:
            taken.append(event)
            if len(taken) == count:
                break
    return taken


async def test_after_a_lost_connection_it_attaches_with_the_last_seen_seq_and_drops_repeats(
    daemon: ScriptedPushServer, event: Any
) -> None:
    cursors: list[int] = []
    lost = 0

    async def first(wire: ScriptedConnection) -> None:
        cursors.append((await wire.answer_attach(from_seq=1, to_seq=3))["lastSeenSeq"])
        await wire.send(event(1), event(2), event(3))

    async def second(wire: ScriptedConnection) -> None:
        cursors.append((await wire.answer_attach(from_seq=4, to_seq=5))["lastSeenSeq"])
        await wire.send(event(2), event(3), event(4), event(4), event(5))
        await wire.wait_closed()

    def count_lost() -> None:
        nonlocal lost
        lost += 1

    await daemon.serve(first, second)
    session = SessionSubscription(daemon.settings, "sess_A", on_lost=count_lost)

    assert [event.seq for event in await take(session, 5)] == [1, 2, 3, 4, 5]
    assert cursors == [0, 3]
    assert lost == 1
    assert session.last_seen_seq == 5


async def test_it_waits_for_a_daemon_that_comes_back(daemon: ScriptedPushServer, event: Any) -> None:
    async def before(wire: ScriptedConnection) -> None:
        await wire.answer_attach(from_seq=1, to_seq=1)
        await wire.send(event(1))
        await daemon.stop()

    async def after(wire: ScriptedConnection) -> None:
        await wire.answer_attach(from_seq=2, to_seq=2)
        await wire.send(event(2))
        await wire.wait_closed()

    await daemon.serve(before)
    session = SessionSubscription(
        daemon.settings, "sess_A", on_lost=lambda: restarting.append(asyncio.ensure_future(daemon.serve(after)))
    )
    restarting: list[asyncio.Future[None]] = []

    assert [event.seq for event in await take(session, 2)] == [1, 2]


async def test_it_gives_up_when_the_daemon_stays_away(daemon: ScriptedPushServer, event: Any) -> None:
    async def only(wire: ScriptedConnection) -> None:
        await wire.answer_attach(from_seq=1, to_seq=1)
        await wire.send(event(1))
        await daemon.stop()

    await daemon.serve(only)

    with pytest.raises(errors.DaemonUnreachable, match="no daemon answers at"):
        await take(SessionSubscription(daemon.settings, "sess_A", reconnect_timeout=0.05), 2)


async def test_a_refused_attach_is_told_at_once(daemon: ScriptedPushServer) -> None:
    async def refuse(wire: ScriptedConnection) -> None:
        await wire.send_greeting()
        await wire.refuse(await wire.request(), "SESSION_NOT_FOUND")

    await daemon.serve(refuse)

    with pytest.raises(errors.RequestFailed, match="SESSION_NOT_FOUND"):
        await take(SessionSubscription(daemon.settings, "sess_A"), 1)


async def test_a_refusal_that_may_be_tried_again_is(daemon: ScriptedPushServer, event: Any) -> None:
    async def stopping(wire: ScriptedConnection) -> None:
        await wire.send_greeting()
        await wire.refuse(await wire.request(), "INTERNAL_ERROR", retryable=True)

    async def ready(wire: ScriptedConnection) -> None:
        await wire.answer_attach(from_seq=1, to_seq=1)
        await wire.send(event(1))
        await wire.wait_closed()

    await daemon.serve(stopping, ready)

    assert [event.seq for event in await take(SessionSubscription(daemon.settings, "sess_A"), 1)] == [1]


@pytest.mark.parametrize(("last_seen", "head"), [(100, 140), (500, 140), (0, 1)])
async def test_a_gap_arrives_as_warning_and_snapshot_and_the_snapshot_is_the_new_baseline(
    daemon: ScriptedPushServer, event: Any, last_seen: int, head: int
) -> None:
    async def pruned(wire: ScriptedConnection) -> None:
        await wire.answer_attach(from_seq=head + 1, to_seq=head, gap=True)
        await wire.send(event(max(1, head - 1), "warning", GAP), event(head, "session_snapshot", SNAPSHOT), event(head + 1))
        await wire.wait_closed()

    await daemon.serve(pruned)
    session = SessionSubscription(daemon.settings, "sess_A", last_seen_seq=last_seen)

    assert [event.type for event in await take(session, 3)] == ["warning", "session_snapshot", "assistant_token"]
    assert session.last_seen_seq == head + 1


async def test_events_of_other_sessions_and_unknown_types_are_passed_over(daemon: ScriptedPushServer, event: Any) -> None:
    async def mixed(wire: ScriptedConnection) -> None:
        await wire.answer_attach(from_seq=1, to_seq=3)
        await wire.send(event(9, sessionId="sess_B"), event(1), event(2, "horoscope", {}), event(3))
        await wire.wait_closed()

    await daemon.serve(mixed)

    assert [event.seq for event in await take(SessionSubscription(daemon.settings, "sess_A"), 2)] == [1, 3]


async def test_a_snapshot_is_asked_for_at_the_head(daemon: ScriptedPushServer, event: Any) -> None:
    asked: list[dict[str, Any]] = []

    async def head(wire: ScriptedConnection) -> None:
        await wire.answer_attach(from_seq=1, to_seq=41)
        await wire.wait_closed()

    async def resume(wire: ScriptedConnection) -> None:
        asked.append(await wire.answer_attach(from_seq=42, to_seq=41))
        await wire.send(event(42, "session_snapshot", SNAPSHOT))
        await wire.wait_closed()

    await daemon.serve(head, resume)
    session = SessionSubscription(daemon.settings, "sess_A", attach_token="att_A")

    async with asyncio.timeout(60):
        snapshot = await session.fetch_snapshot()

    assert asked == [{"lastSeenSeq": 41, "sessionId": "sess_A", "attachToken": "att_A"}]
    assert isinstance(snapshot, messages.SessionSnapshot)
    assert snapshot.lastAssistantText == "hi"
