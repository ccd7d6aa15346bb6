"""The connection's own signs: heartbeats."""

from pathlib import Path

import pytest
from tests.conformance.minicodex.conftest import Enter
from tests.conftest import StartDaemon


@pytest.mark.requirement("minicodex:flow:heartbeat")
async def test_a_greeted_client_hears_a_heartbeat_again_and_again(
    connect_minicodex: Enter, start_daemon: StartDaemon, workspace: Path
) -> None:
    daemon = start_daemon(minicodex_heartbeat=0.05)
    mini, silent = await connect_minicodex(daemon, cwd=workspace), await connect_minicodex(daemon, cwd=workspace)
    await mini.send_hello()
    for _ in range(3):
        assert await mini.wait_for_heartbeat() == {"type": "heartbeat", "interval_ms": 50}
    await mini.run("say: between")
    assert (await mini.wait_for_heartbeat())["type"] == "heartbeat"
    assert await mini.request_snapshot() == mini.ledger.build_snapshot()
    await silent.send_hello()
    # Who was not greeted yet hears nothing.
    assert silent.heartbeats == []


@pytest.mark.requirement("minicodex:flow:heartbeat")
async def test_without_an_interval_there_are_no_heartbeats(
    connect_minicodex: Enter, start_daemon: StartDaemon, workspace: Path
) -> None:
    mini = await connect_minicodex(start_daemon(minicodex_heartbeat=0), cwd=workspace)
    await mini.send_hello()
    await mini.run("count 200")
    assert mini.heartbeats == []
