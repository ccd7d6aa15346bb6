"""Our two ends together: the orchestrator drives the runtime that comes with us."""

import asyncio
import copy
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.contract_proc.driving import IR, drive, drive_order, make_order
from tests.tools.running.watching import is_alive

from switchtower.protocols.rep import errors

OURS = [sys.executable, "-m", "switchtower.flows.rep_runtime"]


def make_flow(*nodes: dict[str, Any], edges: list[dict[str, Any]]) -> dict[str, Any]:
    ir = copy.deepcopy(IR)
    ir["graph"] = {"nodes": list(nodes), "edges": edges}
    return ir


@pytest.mark.requirement("rep:together:a-run")
async def test_a_flow_with_control_nodes_completes_with_its_outputs() -> None:
    ir = make_flow(
        {"id": "say", "type": "log", "with": {"message": "hello"}},
        {"id": "tell", "type": "dsl.emit", "with": {"answer": "42"}},
        {"id": "end", "type": "finish", "with": {}},
        edges=[{"from": "say", "to": "tell", "on": "success"}, {"from": "tell", "to": "end", "on": "success"}],
    )

    ended = await drive("good", argv=OURS, ir=ir, required=["log", "dsl.emit", "finish"])

    assert (ended.status, ended.exit_code, ended.summary["outputs"]) == ("completed", errors.RepExitCode.OK, {"answer": "42"})
    assert [event["step_id"] for event in ended.events if event.get("state") == "succeeded"] == ["say", "tell", "end"]


@pytest.mark.requirement("rep:start:version")
async def test_an_unsupported_version_is_refused_with_1001() -> None:
    ended = await drive("good", argv=OURS, ir=IR | {"version": "2.0.0"})

    assert ended.error is not None
    assert (ended.error["code"], ended.exit_code) == (1001, errors.RepExitCode.VALIDATION)


@pytest.mark.requirement("rep:cancel:ends", "rep:settled:cancelled")
async def test_a_run_is_cancelled_while_a_step_works() -> None:
    cancel = asyncio.Event()
    ir = make_flow({"id": "nap", "type": "sleep", "with": {"seconds": "3600"}}, edges=[])

    def when_it_naps(event: dict[str, Any]) -> None:
        if event.get("state") == "started":
            cancel.set()

    ended = await drive_order(make_order("good", argv=OURS, ir=ir, required=["sleep"]), cancel=cancel, on_event=when_it_naps)

    assert ended.error is not None
    assert (ended.status, ended.error["data"]["cause"]) == ("failed", "Cancelled")
    assert "did not stop" not in ended.error["message"]


async def test_what_a_step_started_is_gone_when_our_runtime_is_killed(tmp_path: Path) -> None:
    left = tmp_path / "left"
    command = f"setsid sleep 3600 & echo $! > {shlex.quote(str(left))}; sleep 3600 & kill -9 $PPID; wait"
    ir = make_flow({"id": "work", "type": "shell", "with": {"command": command}}, edges=[])

    ended = await drive("good", argv=OURS, ir=ir, required=["shell"], allow_shell=True, timeout_s=1e6)

    assert ended.error is not None
    assert (ended.error["code"], ended.error["message"]) == (3001, "the runtime ended with exit code 137")
    assert not is_alive(int(left.read_text()))
