"""A run's status in its row, from its first word to its last, and when its host dies."""

from typing import Any
from uuid import uuid4

import pytest
from tests.conformance.relay.conftest import Dial, OpenApp
from tests.conformance.relay.peers import Host, Web
from tests.conftest import StartDaemon

PENDING = ("pending_request_id", "pending_reason", "pending_prompt", "pending_op_tool", "pending_op_args_summary")


def pending(row: dict[str, Any]) -> dict[str, Any]:
    return {name.removeprefix("pending_"): row[name] for name in PENDING if name in row}


@pytest.mark.requirement("relay:status:running", "relay:status:awaiting-input", "relay:status:exited")
async def test_a_run_runs_waits_for_input_and_exits(web: Web, host: Host) -> None:
    run_id = await host.begin()
    row = web.get(f"/sessions/{run_id}")
    assert (row["status"], pending(row), "ended_at" in row, "exit_code" in row) == ("running", {}, False, False)
    await host.tell("run.awaiting_input", run_id, 2, {"reason": "prompt", "prompt": "your name:"})
    await host.acknowledged(run_id, 2)
    row = web.get(f"/sessions/{run_id}")
    assert (row["status"], pending(row)) == ("awaiting_input", {"reason": "prompt", "prompt": "your name:"})
    told = {"actor": "web", "input_id": "i", "text_redacted": "ada\n", "text_sha256": "0" * 64}
    await host.tell("run.input", run_id, 3, told)
    await host.acknowledged(run_id, 3)
    row = web.get(f"/sessions/{run_id}")
    assert (row["status"], pending(row)) == ("running", {})
    await host.tell("run.exited", run_id, 4, {"exit_code": 7})
    await host.acknowledged(run_id, 4)
    row = web.get(f"/sessions/{run_id}")
    assert (row["status"], row["exit_code"], pending(row)) == ("exited", 7, {})
    assert row["ended_at"] >= row["started_at"]


@pytest.mark.requirement("relay:status:awaiting-approval", "relay:rows:pending")
@pytest.mark.parametrize("request_id", [str(uuid4()), "l8f2k3"], ids=["uuid", "base36"])
async def test_a_request_makes_it_await_approval_and_an_input_takes_that_back(web: Web, host: Host, request_id: str) -> None:
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
    await host.tell("run.permission_requested", run_id, 2, question)
    await host.tell("run.awaiting_input", run_id, 3, {"reason": "permission", "prompt": "Write?", "request_id": request_id})
    await host.acknowledged(run_id, 3)
    row = web.get(f"/sessions/{run_id}")
    assert row["status"] == "awaiting_approval"
    assert pending(row) == {
        "request_id": request_id,
        "reason": "permission",
        "prompt": "Write a file?",
        "op_tool": "rpc.fs.write",
        "op_args_summary": "a, 3 bytes",
    }
    # The public host tells of no decision, only of the input that it was.
    told = {"actor": "web", "input_id": request_id, "text_redacted": "y\n", "text_sha256": "0" * 64}
    await host.tell("run.input", run_id, 4, told)
    await host.acknowledged(run_id, 4)
    row = web.get(f"/sessions/{run_id}")
    assert (row["status"], pending(row)) == ("running", {})


@pytest.mark.requirement("relay:status:by-request-id")
async def test_awaiting_input_with_a_request_id_alone_means_awaiting_approval(web: Web, host: Host) -> None:
    run_id = await host.begin()
    await host.tell("run.awaiting_input", run_id, 2, {"reason": "permission", "prompt": "ok?", "request_id": "only-here"})
    await host.acknowledged(run_id, 2)
    row = web.get(f"/sessions/{run_id}")
    assert (row["status"], row["pending_request_id"], row["pending_prompt"]) == ("awaiting_approval", "only-here", "ok?")


@pytest.mark.requirement("relay:status:lost", "relay:faults:dead-hosts")
async def test_the_runs_of_a_host_that_died_are_lost_and_come_back_with_it(
    start_daemon: StartDaemon, open_app: OpenApp, dial: Dial
) -> None:
    daemon = start_daemon(lost_after=0.2)
    web, app = Web(daemon.http, daemon.token), await open_app(daemon)
    host = await dial(daemon)
    run_id, done = await host.begin(), await host.begin()
    await host.tell("run.exited", done, 2, {"exit_code": 0})
    await host.acknowledged(done, 2)
    await host.leave()
    await app.told("run.lost", run_id)
    assert web.get(f"/sessions/{run_id}")["status"] == "lost"
    assert web.get(f"/sessions/{done}")["status"] == "exited"
    again = await dial(daemon, host.host_id)
    await app.told("run.found", run_id)
    assert web.get(f"/sessions/{run_id}")["status"] == "running"
    await again.tell("run.exited", run_id, 2, {"exit_code": 0})
    await again.acknowledged(run_id, 2)
    assert web.get(f"/sessions/{run_id}")["status"] == "exited"
