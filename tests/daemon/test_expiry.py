"""An approval that nobody decides in time expires, whether or not a daemon is running then. It is nobody's denial."""

import asyncio
import time
from pathlib import Path

import pytest
from tests.crash.tower_process import PushRequestRefused, RawPushClient
from tests.daemon.conftest import Connect, StartDaemon


def _wait_for_question(client: RawPushClient) -> list[str]:
    types = [frame.type for frame in client.events]
    return types[types.index("approval_required") + 1 :]


async def _check_expired(client: RawPushClient, session_id: str, asked: dict[str, object], workspace: Path) -> None:
    ended = await client.wait_for_event("run_complete", session_id=session_id)
    assert ended.content["outcome"] == "failed"
    assert ended.content["headless"]["exitCodeHint"] == 1
    assert _wait_for_question(client) == ["warning", "tool_result", "run_complete"]
    warning = await client.wait_for_event("warning")
    assert (warning.content["code"], warning.content["detail"]) == ("APPROVAL_EXPIRED", asked["approvalId"])
    assert not (workspace / "notes.txt").exists()
    with pytest.raises(PushRequestRefused) as refused:
        await client.decide(session_id, str(ended.runId), str(asked["approvalId"]))
    assert refused.value.code == "APPROVAL_EXPIRED"


async def test_an_undecided_approval_expires(start_daemon_process: StartDaemon, connect: Connect, workspace: Path) -> None:
    client = await connect(await start_daemon_process(approval_timeout=0.3))
    session_id = await client.start_session(workspace)
    await client.send(session_id, "write notes.txt: hello")
    asked = (await client.wait_for_event("approval_required")).content
    await _check_expired(client, session_id, asked, workspace)
    assert time.time() * 1_000 >= asked["expiresAt"]


@pytest.mark.parametrize("how", ["stopped", "killed"])
async def test_an_approval_that_runs_out_while_no_daemon_runs_expires_at_the_next_start(
    start_daemon_process: StartDaemon, connect: Connect, workspace: Path, how: str
) -> None:
    daemon = await start_daemon_process(approval_timeout=1.5)
    client = await connect(daemon)
    session_id = await client.start_session(workspace)
    await client.send(session_id, "write notes.txt: hello")
    asked = (await client.wait_for_event("approval_required")).content
    if how == "stopped":
        await daemon.stop()
    else:
        daemon.end()
    await asyncio.sleep(max(0.0, asked["expiresAt"] / 1_000 - time.time()))

    # The timeout of the new daemon is for new questions: this one keeps its own.
    again = await connect(await start_daemon_process(approval_timeout=3_600))
    await again.attach(session_id)
    await _check_expired(again, session_id, asked, workspace)
