"""Sessions whose id a pi client chose: pi's clients find them by it, and every other protocol by the core's id."""

import asyncio
import json
import signal
import sys
from pathlib import Path

import pytest
from tests.conformance.pi.conftest import Join, StartPi
from tests.conformance.pi.stage import PiDaemon

from switchtower import config
from switchtower.client.client import DaemonClient

ONE_DOOR = pytest.mark.parametrize("pi_transport", ["websocket"])


async def run_tower(daemon: PiDaemon, *arguments: str) -> tuple[int | None, str]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", "switchtower", *arguments),
        env={**daemon.environment, "CI": "true"},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await process.communicate()
    return process.returncode, output.decode()


@ONE_DOOR
@pytest.mark.requirement("pi:session:other-protocols")
async def test_a_session_that_pi_named_is_listed_approved_continued_and_deleted_by_others(
    dedicated_pi: StartPi, connect_pi: Join, workspace: Path
) -> None:
    daemon = dedicated_pi(policy="ask")
    pi = await connect_pi(daemon)
    await pi.execute("create_session", sessionId="s1", cwd=str(workspace))
    await pi.execute("switch_session", sessionId="s1")
    prompt = await pi.begin("prompt", sessionId="s1", message="run: touch made")
    asked = await pi.next_event("extension_ui_request")
    async with await DaemonClient.connect(config.Settings(home=daemon.home), start=False) as push:
        (listed,) = await push.list_sessions()
        session_id = listed.sessionId
        assert session_id.startswith("sess_")
        (waiting,) = await push.list_approvals()
        assert (waiting.sessionId, waiting.approval.approvalId) == (session_id, asked["requestId"])
        await push.decide_approval(session_id, waiting.runId, waiting.approval.approvalId, "approve")
        assert (await pi.wait_for_response(prompt))["success"]
        await push.send_message(session_id, "say: from push")
        ended = await pi.wait_for(lambda frame: frame["type"] == "event" and frame["event"]["type"] == "agent_end")
        assert ended["sessionId"] == "s1"
    code, output = await run_tower(daemon, "sessions", "--json")
    assert (code, session_id in output) == (0, True), output
    code, output = await run_tower(daemon, "show", session_id)
    assert (code, "run: touch made" in output) == (0, True), output
    code, output = await run_tower(daemon, "delete", "--yes", session_id)
    assert code == 0, output
    gone = await pi.wait_for(lambda frame: frame["type"] == "session_deleted")
    assert gone["data"] == {"sessionId": "s1"}
    assert await pi.expect_refusal("get_state", sessionId="s1") == "Session s1 not found"


@ONE_DOOR
@pytest.mark.requirement("pi:session:name-kept")
async def test_pi_sees_the_id_that_it_chose_everywhere_also_after_a_kill(
    dedicated_pi: StartPi, connect_pi: Join, workspace: Path
) -> None:
    daemon = dedicated_pi()
    pi = await connect_pi(daemon)
    await pi.execute("create_session", id="made", sessionId="s1", cwd=str(workspace))
    await pi.execute("switch_session", sessionId="s1")
    await pi.execute("prompt", id="asked", sessionId="s1", message="say: hello")
    await pi.next_event("agent_end")
    stats = await pi.execute("get_session_stats", sessionId="s1")
    assert stats["sessionId"] == "s1"
    assert stats["sessionFile"] == (await pi.execute("get_state", sessionId="s1"))["sessionFile"]
    assert {frame["sessionId"] for frame in pi.frames if frame["type"] == "event"} == {"s1"}
    daemon.stop(signal.SIGKILL)
    daemon.start()
    again = await connect_pi(daemon)
    assert [info["sessionId"] for info in (await again.execute("list_sessions"))["sessions"]] == ["s1"]
    assert [info["sessionId"] for info in (await again.execute("list_stored_sessions"))["sessions"]] == ["s1"]
    replayed = await again.request("create_session", id="made", sessionId="s1", cwd=str(workspace))
    assert (replayed["replayed"], replayed["data"]["sessionId"]) == (True, "s1")
    await again.execute("switch_session", sessionId="s1")
    await again.execute("prompt", sessionId="s1", message="say: again")
    assert (await again.next_event("agent_end"))["messages"]
    assert "sess_" not in json.dumps([frame for frame in again.frames if "sessionFile" not in json.dumps(frame)])
