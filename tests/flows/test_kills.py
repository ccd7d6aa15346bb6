"""A flow that lasts, on a daemon that is killed or stopped at any moment: no step that may not be tried again is done twice."""

import asyncio
import random
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from tests.conformance.daemons import ManagedDaemon
from tests.flows.flowing import count_runs, list_steps, make_chain, make_counting_step, make_node, report, start

from switchtower.testing.push_client import PushClient, RequestRefused

MOST_KILLS = 5
FLOW = make_chain(
    make_node("ask", "approval"),
    make_counting_step("first", retries=9),
    make_node("do", "agent.run", prompt="run: echo ran >> agent.txt\nsay: done", provider="demo", policy="ask", retries=9),
    make_node("again", "approval"),
    make_counting_step("once"),
    make_node("tell", "dsl.emit", said="$step.do.outcome"),
)


async def decide_until_the_end(daemon: ManagedDaemon, session_id: str) -> None:
    """Approves whatever is asked, in the flow and in its agents, until the flow has ended."""
    async with await PushClient.connect_socket(daemon.socket) as client:
        await client.attach(session_id)
        decided: set[str] = set()
        while True:
            event = await client.next_event()
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
        except RequestRefused:
            await client.ping()  # it is about to begin


@pytest.mark.parametrize("seed", range(4))
async def test_nothing_is_done_twice_whenever_the_daemon_ends(dedicated_daemon: Any, workspace: Path, seed: int) -> None:
    dice = random.Random(seed)
    daemon: ManagedDaemon = dedicated_daemon()
    async with await PushClient.connect_socket(daemon.socket) as client:
        session_id = await start(client, workspace, FLOW)
    for _ in range(MOST_KILLS):
        deciding = asyncio.create_task(decide_until_the_end(daemon, session_id))
        ended, _ = await asyncio.wait([deciding], timeout=dice.choice([dice.uniform(0, 0.2), dice.uniform(0.1, 0.6)]))
        if ended:
            break
        await asyncio.to_thread(daemon.stop, dice.choice([signal.SIGKILL, signal.SIGKILL, signal.SIGTERM]))
        await asyncio.gather(deciding, return_exceptions=True)
        await asyncio.to_thread(daemon.start)
    async with asyncio.timeout(60):
        await decide_until_the_end(daemon, session_id)
    async with await PushClient.connect_socket(daemon.socket) as client:
        told = await report(client, session_id)

    assert count_runs(workspace, "once") <= 1
    each = Counter(list_steps(told))
    assert set(each.values()) == {1}, "a try begins once and ends once"
    begun = {(step, attempt) for step, state, attempt in each if state == "started"}
    assert begun == {(step, attempt) for step, state, attempt in each if state != "started"}
    if told["status"] == "completed":
        assert (told["exitCode"], told["summary"]["outputs"]) == (0, {"said": "success"})
        assert count_runs(workspace, "once") == 1
        assert count_runs(workspace, "first") >= 1
        assert count_runs(workspace, "agent") >= 1
    else:
        # Only the step that may not be tried again can have ended it.
        data = told["summary"]["error"]["data"]
        assert (data["cause"], data["step_id"]) == ("Interrupted", "once"), told
