"""The headless client speaks the same protocol: its exit code and its JSON come from `run_complete`."""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.conformance.daemons import ManagedDaemon
from tests.conftest import Connect
from tests.warm import processes


async def run_headless(daemon: ManagedDaemon, workspace: Path, *arguments: str) -> tuple[int, dict[str, Any]]:
    """`tower run --headless --json`: its exit code and the object that it prints."""
    ended = await asyncio.to_thread(
        processes.run,
        [sys.executable, "-m", "switchtower", "run", "--headless", "--json", "--cwd", str(workspace), *arguments],
        env=daemon.environment,
        capture_output=True,
        timeout=60,
    )
    return ended.returncode, json.loads(ended.stdout)


@pytest.mark.requirement("push:headless:process-exit-code", "push:headless:json", "push:headless:no-prompt")
@pytest.mark.parametrize(
    ("arguments", "outcome", "exit_code"),
    [
        (["say: fine"], "success", 0),
        (["run: true"], "denied", 3),
        (["run: true", "--approve", "always"], "success", 0),
        (["say: fine", "--accept", "no=false"], "failed", 4),
    ],
    ids=["success", "nobody is asked", "explicitly allowed", "acceptance"],
)
async def test_the_exit_code_is_the_hint_and_the_json_is_the_completion(
    push_daemon: ManagedDaemon, connect: Connect, workspace: Path, arguments: list[str], outcome: str, exit_code: int
) -> None:
    code, printed = await run_headless(push_daemon, workspace, *arguments)
    assert (code, printed["outcome"]) == (exit_code, outcome)
    assert printed["headless"] == {"exitCodeHint": exit_code}

    observer = await connect(push_daemon)
    await observer.attach(printed["sessionId"])
    started, *_, complete = await observer.read_until("run_complete")
    assert started.payload["mode"] == "headless"
    assert {**complete.payload, "sessionId": printed["sessionId"]} == printed


@pytest.mark.requirement("push:headless:same-events", "push:headless:exit-0-success")
@pytest.mark.parametrize("mode", ["interactive", "headless"])
async def test_both_modes_emit_the_same_kinds_of_events(
    push_daemon: ManagedDaemon, connect: Connect, workspace: Path, mode: str
) -> None:
    client = await connect(push_daemon)
    session_id = (await client.start_session(workspace, mode=mode)).session_id
    await client.send(session_id, "run: true")
    events = await client.read_until("approval_required")
    await client.decide(events[-1])
    events += await client.read_until("run_complete")
    kinds = [event.type for event in events if event.type not in ("assistant_token", "thinking_token", "status")]
    assert kinds == [
        "session_started",
        "assistant_done",
        "tool_call",
        "approval_required",
        "approval_received",
        "tool_result",
        "assistant_done",
        "run_complete",
    ]
