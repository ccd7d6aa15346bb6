"""A runtime that says what it should not: its session is one that can be read like any other, now and by the next daemon."""

import json
import sys
from pathlib import Path
from typing import Any

from tests.contract_proc.driving import IR
from tests.flows.flowing import report, start, wait_for_end

from switchtower.testing.push_client import PushClient

BABBLES = [sys.executable, str(Path(__file__).parent / "runtimes" / "babbles.py")]


async def test_a_session_of_nonsense_can_be_read_after_a_restart_too(
    dedicated_daemon: Any, connect: Any, workspace: Path
) -> None:
    daemon = dedicated_daemon()
    client: PushClient = await connect(daemon)
    session_id = await start(client, workspace, IR, runtime="proc", argv=BABBLES)
    events = await wait_for_end(client, session_id)
    told = await report(client, session_id)
    daemon.stop()
    daemon.start()
    again: PushClient = await connect(daemon)
    await again.attach(session_id)
    seen = [event for event in await wait_for_end(again, session_id) if event.seq >= events[0].seq]

    assert events[-1].payload["outcome"] in ("success", "failed")
    assert [event.raw for event in seen] == [event.raw for event in events]
    assert await report(again, session_id) == told
    assert "swordfish" not in json.dumps(told)
    calls = [event.payload["args"]["step"] for event in events if event.type == "tool_call" and "step" in event.payload["args"]]
    assert set(calls) == {"one"}
    assert len(calls) + 1 == len([event for event in events if event.type == "tool_result"]), (
        "each call has its end, the flow too"
    )
    assert told["status"] == ("completed" if told["exitCode"] == 0 else "failed")
