"""A hundred clients on real connections decide on one approval at the same moment: exactly one of them wins."""

import asyncio
from pathlib import Path

from tests.daemon.conftest import Connect, StartDaemon

CLIENTS = 100


async def test_exactly_one_of_a_hundred_connections_decides(
    start_daemon_process: StartDaemon, connect: Connect, workspace: Path
) -> None:
    daemon = await start_daemon_process()
    watcher = await connect(daemon)
    clients = [await connect(daemon) for _ in range(CLIENTS)]
    for round_ in range(3):
        session_id = await watcher.start_session(workspace)
        run_id = await watcher.send(session_id, f"run: echo once >> effect_{round_}.txt")
        asked = (await watcher.wait_for_event("approval_required", session_id=session_id)).content
        payload = {"runId": run_id, "approvalId": asked["approvalId"], "decision": "approve"}
        answers = await asyncio.gather(*(client.start_request("submit_approval", payload, session_id) for client in clients))
        assert sum(answer.ok for answer in answers) == 1
        codes = [answer.error["code"] for answer in answers if answer.error is not None]
        assert codes == ["APPROVAL_EXPIRED"] * (CLIENTS - 1)
        ended = await watcher.wait_for_event("run_complete", session_id=session_id)
        assert ended.content["outcome"] == "success"
        types = [frame.type for frame in watcher.events if frame.sessionId == session_id]
        assert types.count("approval_received") == 1
        assert (workspace / f"effect_{round_}.txt").read_text() == "once\n"
