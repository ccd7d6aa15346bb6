"""The connection's own signs: heartbeats."""

from pathlib import Path

import pytest
from tests.conformance.minicodex.conftest import Enter
from tests.conftest import StartDaemon


@pytest.mark.requirement("minicodex:flow:heartbeat")
async def test_a_greeted_client_hears_a_heartbeat_again_and_again(
    enter: Enter, start_daemon: StartDaemon, workspace: Path
) -> None:
    daemon = start_daemon(minicodex_heartbeat=0.05)
    mini, silent = await enter(daemon, cwd=workspace), await enter(daemon, cwd=workspace)
    await mini.hello()
    for _ in range(3):
        assert await mini.heartbeat() == {"type": "heartbeat", "interval_ms": 50}
    await mini.run("say: between")
    assert (await mini.heartbeat())["type"] == "heartbeat"
    assert await mini.snapshot() == mini.ledger.as_snapshot()
    await silent.hello()
    # Who was not greeted yet hears nothing.
    assert silent.heartbeats == []


@pytest.mark.requirement("minicodex:flow:heartbeat")
async def test_without_an_interval_there_are_no_heartbeats(enter: Enter, start_daemon: StartDaemon, workspace: Path) -> None:
    mini = await enter(start_daemon(minicodex_heartbeat=0), cwd=workspace)
    await mini.hello()
    await mini.run("count 200")
    assert mini.heartbeats == []
