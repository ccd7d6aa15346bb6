"""A run's status in its row, from its first word to its last, and when its host dies."""

from typing import Any
from uuid import uuid4

import pytest
from tests.conformance.relay.conftest import Dial, OpenApp
from tests.conformance.relay.peers import CheckedHost, CheckedHttp
from tests.conftest import StartDaemon

PENDING = ("pending_request_id", "pending_reason", "pending_prompt", "pending_op_tool", "pending_op_args_summary")


def get_pending(row: dict[str, Any]) -> dict[str, Any]:
    return {name.removeprefix("pending_"): row[name] for name in PENDING if name in row}


@pytest.mark.requirement("relay:status:running", "relay:status:awaiting-input", "relay:status:exited")
async def test_a_run_runs_waits_for_input_and_exits(hub_http: CheckedHttp, host: CheckedHost) -> None:
    run_id = await host.begin()
    row = hub_http.get(f"/sessions/{run_id}")
    assert (row["status"], get_pending(row), "ended_at" in row, "exit_code" in row) == ("running", {}, False, False)
    await host.send_message("run.awaiting_input", run_id, 2, {"reason": "prompt", "prompt": "your name:"})
    await host.wait_for_ack(run_id, 2)
    row = hub_http.get(f"/sessions/{run_id}")
    assert (row["status"], get_pending(row)) == ("awaiting_input", {"reason": "prompt", "prompt": "your name:"})
    told = {"actor": "web", "input_id": "i", "text_redacted": "ada\n", "text_sha256": "0" * 64}
    await host.send_message("run.input", run_id, 3, told)
    await host.wait_for_ack(run_id, 3)
    row = hub_http.get(f"/sessions/{run_id}")
    assert (row["status"], get_pending(row)) == ("running", {})
    await host.send_message("run.exited", run_id, 4, {"exit_code": 7})
    await host.wait_for_ack(run_id, 4)
    row = hub_http.get(f"/sessions/{run_id}")
    assert (row["status"], row["exit_code"], get_pending(row)) == ("exited", 7, {})
    assert row["ended_at"] >= row["started_at"]


@pytest.mark.requirement("relay:status:awaiting-approval", "relay:rows:pending")
@pytest.mark.parametrize("request_id", [str(uuid4()), "l8f2k3"], ids=["uuid", "base36"])
async def test_a_request_makes_it_await_approval_and_an_input_takes_that_back(
    hub_http: CheckedHttp, host: CheckedHost, request_id: str
) -> None:
    run_id = await host.begin()
    question = {
        "request_id": request_id,
        "reason": "permission",
        "prompt": "Write a file?",
        "op_tool": "rpc.fs.write",
        "op_args": {"path": "a"},
        "op_args_summary": "a, 3 bytes",
        "approve_text": "y\n",
        "deny_text": "n\n",
    }
    await host.send_message("run.permission_requested", run_id, 2, question)
    await host.send_message(
        "run.awaiting_input", run_id, 3, {"reason": "permission", "prompt": "Write?", "request_id": request_id}
    )
    await host.wait_for_ack(run_id, 3)
    row = hub_http.get(f"/sessions/{run_id}")
    assert row["status"] == "awaiting_approval"
    assert get_pending(row) == {
        "request_id": request_id,
        "reason": "permission",
        "prompt": "Write a file?",
        "op_tool": "rpc.fs.write",
        "op_args_summary": "a, 3 bytes",
    }
    # The public host tells of no decision, only of the input that it was.
    told = {"actor": "web", "input_id": request_id, "text_redacted": "y\n", "text_sha256": "0" * 64}
    await host.send_message("run.input", run_id, 4, told)
    await host.wait_for_ack(run_id, 4)
    row = hub_http.get(f"/sessions/{run_id}")
    assert (row["status"], get_pending(row)) == ("running", {})


@pytest.mark.requirement("relay:status:by-request-id")
async def test_awaiting_input_with_a_request_id_alone_means_awaiting_approval(hub_http: CheckedHttp, host: CheckedHost) -> None:
    run_id = await host.begin()
    await host.send_message("run.awaiting_input", run_id, 2, {"reason": "permission", "prompt": "ok?", "request_id": "only-here"})
    await host.wait_for_ack(run_id, 2)
    row = hub_http.get(f"/sessions/{run_id}")
    assert (row["status"], row["pending_request_id"], row["pending_prompt"]) == ("awaiting_approval", "only-here", "ok?")


@pytest.mark.requirement("relay:status:lost", "relay:faults:dead-hosts")
async def test_the_runs_of_a_host_that_died_are_lost_and_come_back_with_it(
    start_daemon: StartDaemon, open_app: OpenApp, connect_host: Dial
) -> None:
    daemon = start_daemon(lost_after=0.2)
    web, app = CheckedHttp(daemon.http, daemon.token), await open_app(daemon)
    host = await connect_host(daemon)
    run_id, done = await host.begin(), await host.begin()
    await host.send_message("run.exited", done, 2, {"exit_code": 0})
    await host.wait_for_ack(done, 2)
    await host.leave()
    await app.wait_for_frame("run.lost", run_id)
    assert web.get(f"/sessions/{run_id}")["status"] == "lost"
    assert web.get(f"/sessions/{done}")["status"] == "exited"
    again = await connect_host(daemon, host.host_id)
    await app.wait_for_frame("run.found", run_id)
    assert web.get(f"/sessions/{run_id}")["status"] == "running"
    await again.send_message("run.exited", run_id, 2, {"exit_code": 0})
    await again.wait_for_ack(run_id, 2)
    assert web.get(f"/sessions/{run_id}")["status"] == "exited"
