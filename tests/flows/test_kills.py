"""A flow that lasts, on a daemon that is killed at any moment: no step without a retry is done twice, and its end is honest."""

import asyncio
import random
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from tests.conformance.daemons import Daemon
from tests.flows.flowing import chain, counting, node, ran, report, start, steps

from switchtower.testing.push_client import PushClient, Refused

MOST_KILLS = 5
FLOW = chain(
    counting("first"),
    node("ask", "approval"),
    counting("second", retries=5),
    node("do", "agent.run", prompt="run: echo ran >> agent.txt\nsay: done", provider="demo", policy="ask", retries=5),
    counting("third"),
    node("tell", "dsl.emit", said="$step.do.outcome"),
)


async def decide_until_the_end(daemon: Daemon, session_id: str) -> None:
    """Approves whatever is asked, in the flow and in its agents, until the flow has ended."""
    async with await PushClient.over_socket(daemon.socket) as client:
        await client.attach(session_id)
        decided: set[str] = set()
        while True:
            event = await client.event()
            if event.type == "run_complete" and event.session_id == session_id:
                return
            if event.type == "tool_call" and "session_id" in event.payload["args"]:
                await _attach(client, event.payload["args"]["session_id"])
            if event.type == "approval_required" and event.payload["approvalId"] not in decided:
                decided.add(event.payload["approvalId"])
                await client.decide(event)  # perhaps before the last crash already


async def _attach(client: PushClient, session_id: str) -> None:
    for _ in range(1_000):
        try:
            await client.attach(session_id)
            return
        except Refused:
            await client.ping()  # it is about to begin


@pytest.mark.parametrize("seed", range(4))
async def test_nothing_is_done_twice_whenever_the_daemon_is_killed(own_daemon: Any, workspace: Path, seed: int) -> None:
    dice = random.Random(seed)
    daemon: Daemon = own_daemon()
    async with await PushClient.over_socket(daemon.socket) as client:
        session_id = await start(client, workspace, FLOW)
    for _ in range(MOST_KILLS):
        deciding = asyncio.create_task(decide_until_the_end(daemon, session_id))
        ended, _ = await asyncio.wait([deciding], timeout=dice.uniform(0.05, 0.9))
        if ended:
            break
        await asyncio.to_thread(daemon.stop, signal.SIGKILL)
        await asyncio.gather(deciding, return_exceptions=True)
        await asyncio.to_thread(daemon.start)
    async with asyncio.timeout(60):
        await decide_until_the_end(daemon, session_id)
    async with await PushClient.over_socket(daemon.socket) as client:
        told = await report(client, session_id)

    assert ran(workspace, "first") <= 1
    assert ran(workspace, "third") <= 1
    each = Counter(steps(told))
    assert set(each.values()) == {1}, "a try begins once and ends once"
    begun = {(step, attempt) for step, state, attempt in each if state == "started"}
    assert begun == {(step, attempt) for step, state, attempt in each if state != "started"}
    if told["status"] == "completed":
        assert (told["exitCode"], told["summary"]["outputs"]) == (0, {"said": "success"})
        assert (ran(workspace, "first"), ran(workspace, "third")) == (1, 1)
        assert ran(workspace, "second") >= 1
        assert ran(workspace, "agent") >= 1
    else:
        # Only a step that may not be tried again can have ended it.
        assert told["summary"]["error"]["data"]["cause"] == "Interrupted", told
        assert told["summary"]["error"]["data"]["step_id"] in ("first", "third")
