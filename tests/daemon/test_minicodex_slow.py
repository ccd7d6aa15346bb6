"""Clients that do not read for a while: told that they are behind, then everything, then that they have caught up. Retention."""

import asyncio
import socket

import pytest
from tests.daemon.minicodex_stage import connect_and_greet, connect_minicodex, read_until
from tests.daemon.pi_stage import PiHarness

from switchtower.testing.minicodex_client import MiniCodexClient

MANY = 60_000
"""Tokens: more bytes than sockets hold."""
KEPT = 200
GROWTH_MB = 8.0


def hold_little(client: MiniCodexClient) -> None:
    """The kernel keeps little for who does not read."""
    client.wire.writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 262_144)


def list_backpressure(client: MiniCodexClient) -> list[str]:
    """What it was told of its own pace."""
    return [str(frame["state"]) for frame in client.frames if frame["type"] == "backpressure"]


@pytest.mark.requirement("minicodex:flow:backpressure")
async def test_a_slow_reader_is_told_to_drain_then_everything_then_ok_and_costs_no_memory(pi_harness: PiHarness) -> None:
    await pi_harness.open(output_limit_bytes=65_536)
    watcher = await connect_and_greet(pi_harness)
    await watcher.run(f"count {MANY}")  # what such a run costs by itself is paid here
    slow = await connect_and_greet(pi_harness, session_id=watcher.session_id)
    hold_little(slow)
    before_mb = pi_harness.measure_resident_mb()
    await watcher.run(f"count {MANY}")
    # All of it is committed and the other one has it; this one has read nothing.
    grown_mb = pi_harness.measure_resident_mb() - before_mb
    assert slow.frames[-1]["type"] == "snapshot"
    await read_until(slow, watcher.ledger.last_event_id)
    await slow.execute("ping")
    assert list_backpressure(slow) == ["drain", "ok"]
    assert slow.ledger.build_snapshot() == watcher.ledger.build_snapshot()
    assert list_backpressure(watcher) in ([], ["drain", "ok"] * (len(list_backpressure(watcher)) // 2))
    assert grown_mb < GROWTH_MB
    await watcher.run("say: and live again")
    await read_until(slow, watcher.ledger.last_event_id)
    assert await slow.request_snapshot() == slow.ledger.build_snapshot() == watcher.ledger.build_snapshot()


async def test_a_snapshot_for_one_who_is_behind_stands_between_what_it_was_told_and_what_comes(pi_harness: PiHarness) -> None:
    await pi_harness.open(output_limit_bytes=65_536)
    watcher = await connect_and_greet(pi_harness)
    slow = await connect_and_greet(pi_harness, session_id=watcher.session_id)
    hold_little(slow)
    await watcher.run(f"count {MANY}")
    await watcher.request_snapshot()  # the daemon is at the end with everybody else
    # Asked for while the rest is being paged to it: each is made from many pages, and more is told meanwhile.
    asked = found = 0
    while slow.ledger.last_event_id < watcher.ledger.last_event_id or found < asked:
        frame = await slow.receive()
        if frame["type"] == "snapshot":
            found += 1
            assert frame["event_id"] == slow.ledger.last_event_id
        elif len(slow.frames) % 5_000 == 0:
            asked += 1
            await slow.begin("get_snapshot", include_transcript_window=False)
    assert asked > 5
    assert slow.ledger.assistant_text == watcher.ledger.assistant_text


async def reconnect_after_pruning(pi_harness: PiHarness, session_id: str, event_id: int) -> MiniCodexClient:
    """A client that has come back to an event which retention has removed by now."""
    async with asyncio.timeout(60):
        while True:
            client = await connect_minicodex(pi_harness, session_id=session_id)
            client.ledger.session_state = {"run_counter": 0}
            client.ledger.last_event_id = event_id
            assert (await client.resume())["type"] == "welcome"
            if (await client.receive()).get("code") == "REPLAY_GAP":
                return client
            client.wire.abort()
            await asyncio.sleep(0.01)


async def test_what_retention_has_removed_is_a_gap_and_a_snapshot_goes_on_from_there(pi_harness: PiHarness) -> None:
    await pi_harness.open(retention_entries=KEPT)
    watcher = await connect_and_greet(pi_harness)
    await watcher.run("count 500")
    await watcher.run("count 500")
    early = watcher.ledger.event_ids[10]
    late = await reconnect_after_pruning(pi_harness, watcher.session_id, early)
    gap = late.frames[-1]
    assert gap["details"]["last_seen_event_id"] == early
    earliest = gap["details"]["earliest_event_id"]
    assert early < earliest <= watcher.ledger.last_event_id
    late.ledger.begin(await late.request_snapshot())
    assert late.ledger.assistant_text == watcher.ledger.assistant_text
    assert late.ledger.session_state == watcher.ledger.session_state
    await watcher.run("say: onward")
    await read_until(late, watcher.ledger.last_event_id)
    assert late.ledger.assistant_text == watcher.ledger.assistant_text


async def test_every_place_is_served_exactly_or_told_of_the_gap(pi_harness: PiHarness) -> None:
    await pi_harness.open(retention_entries=KEPT)
    watcher = await connect_and_greet(pi_harness)
    await watcher.run("count 500")
    await watcher.run("read missing.txt\ncount 500")
    (await reconnect_after_pruning(pi_harness, watcher.session_id, watcher.ledger.event_ids[10])).wire.abort()
    told = watcher.ledger.event_ids
    served: list[bool] = []
    # From the newest to the oldest: what was removed stays removed.
    for place in range(len(told) - 2, 0, -13):
        client = await connect_minicodex(pi_harness, session_id=watcher.session_id)
        client.ledger.session_state = {"run_counter": 0}
        client.ledger.last_event_id = told[place]
        await client.resume()
        served.append((await client.receive()).get("code") != "REPLAY_GAP")
        if served[-1]:
            await read_until(client, told[-1])
            assert client.ledger.event_ids == told[place + 1 :]
        client.wire.abort()
    assert served == sorted(served, reverse=True)
    assert served.count(True) >= KEPT // 2 // 13
    assert served.count(False) > 0


@pytest.mark.requirement("minicodex:flow:backpressure", "minicodex:resume:gap")
async def test_one_who_is_slower_than_the_retention_is_told_of_the_gap_and_goes_on_after_a_snapshot(
    pi_harness: PiHarness,
) -> None:
    await pi_harness.open(output_limit_bytes=65_536, retention_entries=KEPT)
    watcher = await connect_and_greet(pi_harness)
    slow = await connect_and_greet(pi_harness, session_id=watcher.session_id)
    hold_little(slow)
    await watcher.run(f"count {MANY}")
    await reconnect_after_pruning(pi_harness, watcher.session_id, watcher.ledger.event_ids[-KEPT * 2])
    gap = await slow.next(lambda frame: frame["type"] == "error")
    assert gap["code"] == "REPLAY_GAP"
    assert gap["details"]["last_seen_event_id"] >= slow.ledger.last_event_id
    slow.ledger.begin(await slow.request_snapshot())
    assert slow.ledger.assistant_text == watcher.ledger.assistant_text
    await watcher.run("say: onward")
    await read_until(slow, watcher.ledger.last_event_id)
    assert slow.ledger.assistant_text == watcher.ledger.assistant_text
    assert list_backpressure(slow) == ["drain", "ok"]
