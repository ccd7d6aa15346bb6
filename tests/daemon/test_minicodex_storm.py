"""Reconnect storms: clients that come back again and again while a run streams, with old cursors, miss and repeat nothing."""

import asyncio
import random

from tests.daemon.minicodex_stage import connect_and_greet, connect_minicodex, read_until
from tests.daemon.pi_stage import PiHarness

from switchtower.testing.minicodex_client import FoldedSession, MiniCodexClient

CLIENTS = 20
RECONNECTS = 200
TOKENS = 1_600


def cut(ledger: FoldedSession, place: int) -> FoldedSession:
    """The client as it was after so many events: it remembers no more than where it was."""
    earlier = FoldedSession()
    earlier.session_state = dict(ledger.session_state)
    earlier.last_event_id = ledger.event_ids[place]
    return earlier


async def test_every_reconnect_with_any_cursor_is_told_exactly_what_is_missing(pi_harness: PiHarness) -> None:
    await pi_harness.open(demo_delay_ms=1)
    watcher = await connect_and_greet(pi_harness)
    session_id = watcher.session_id
    await watcher.execute("send", text=f"count {TOKENS}")
    await watcher.next_of_type("assistant_text")
    chance = random.Random(7)
    heard: list[tuple[int, list[int]]] = []
    """From which event on, and which events then came."""
    during = 0

    async def keeps_coming_back() -> MiniCodexClient:
        nonlocal during
        faithful = await connect_and_greet(pi_harness, session_id=session_id)
        ledger = faithful.ledger
        for _ in range(RECONNECTS // CLIENTS):
            for _ in range(chance.randrange(1, 60)):
                if ledger.session_state.get("active_run_id") is None:
                    break
                await faithful.receive()
            faithful.wire.abort()
            during += ledger.session_state.get("active_run_id") is not None
            # Some come back where they were, others have forgotten a part and say so.
            if ledger.event_ids and chance.random() < 0.5:
                stray = await connect_minicodex(
                    pi_harness, session_id=session_id, ledger=cut(ledger, chance.randrange(len(ledger.event_ids)))
                )
                began = stray.ledger.last_event_id
                assert (await stray.resume())["type"] == "welcome"
                await read_until(stray, ledger.last_event_id)
                heard.append((began, stray.ledger.event_ids))
                stray.wire.abort()
            faithful = await connect_minicodex(pi_harness, session_id=session_id, ledger=ledger)
            assert (await faithful.resume())["type"] == "welcome"
        return faithful

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(keeps_coming_back()) for _ in range(CLIENTS)]
        group.create_task(watcher.wait_for_end())
    snapshot = await watcher.request_snapshot()
    assert snapshot == watcher.ledger.build_snapshot()
    assert watcher.ledger.assistant_text == " ".join(map(str, range(1, TOKENS + 1)))
    for task in tasks:
        client = task.result()
        await read_until(client, watcher.ledger.last_event_id)
        assert client.ledger.build_snapshot() == snapshot
        client.wire.abort()
    place = {event_id: number for number, event_id in enumerate(watcher.ledger.event_ids)}
    for began, event_ids in heard:
        first = place[began] + 1
        assert event_ids == watcher.ledger.event_ids[first : first + len(event_ids)]
    assert during > RECONNECTS // 4
    assert len(heard) > RECONNECTS // 4
