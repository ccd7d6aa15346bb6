"""A foreign runtime without control kinds runs flows that have them: we direct, and it does the steps."""

import asyncio
import copy
from pathlib import Path
from typing import Any

import pytest
from tests.contract_proc.driving import IR, drive_order, is_cancelled, make_order, wait_until_asked

from switchtower.engines.flow import delegation
from switchtower.protocols.rep import client, driver, errors


def make_flow(first: str) -> dict[str, Any]:
    """One step, then a switch on what it said, then one of two steps, outputs, and the end; a failure has a step of its own."""
    ir = copy.deepcopy(IR)

    def edge(start: str, end: str, on: str = "success", **more: Any) -> dict[str, Any]:
        return {"from": start, "to": end, "on": on, **more}

    ir["graph"] = {
        "nodes": [
            {"id": "one", "type": "log", "with": {"do": first}},
            {
                "id": "which",
                "type": "switch",
                "with": {"key_from": "$.vars.one.said", "cases": {"left": "l", "_DEFAULT": "r"}},
            },
            {"id": "l", "type": "log", "with": {"do": "went left"}},
            {"id": "r", "type": "log", "with": {"do": "$step.one.said"}},
            {"id": "tell_l", "type": "dsl.emit", "with": {"answer": "$step.l.said"}},
            {"id": "tell_r", "type": "dsl.emit", "with": {"answer": "$step.r.said"}},
            {"id": "rescue", "type": "log", "with": {"do": "rescued"}},
        ],
        "edges": [
            edge("one", "which"),
            edge("which", "l", case="left"),
            edge("which", "r", case="_DEFAULT"),
            edge("l", "tell_l"),
            edge("r", "tell_r"),
            edge("one", "rescue", "failure"),
        ],
    }
    return ir


def run_directed(wanted: driver.RuntimeRunOrder) -> delegation.StepDelegator:
    return delegation.StepDelegator(wanted.ir, wanted.inputs, run_id=wanted.run_id, workspace=wanted.cwd)


async def drive(first: str, **settings: Any) -> client.FlowRunOutcome:
    wanted = make_order("foreign", ir=make_flow(first), required=["dsl.emit", "log", "switch"], **settings)
    return await drive_order(wanted, drive_control=run_directed(wanted))


@pytest.mark.requirement("rep:control:foreign")
@pytest.mark.parametrize(
    ("first", "steps", "answer"),
    [("left", ["one", "which", "l", "tell_l"], "went left"), ("up", ["one", "which", "r", "tell_r"], "up")],
)
async def test_a_switch_chooses_what_the_foreign_runtime_does_next(first: str, steps: list[str], answer: str) -> None:
    ended = await drive(first)

    assert (ended.status, ended.exit_code) == ("completed", errors.RepExitCode.OK)
    assert ended.summary == {"completed_steps": 4, "failed_steps": 0, "outputs": {"answer": answer}}
    assert [event["step_id"] for event in ended.events if event.get("state") == "succeeded"] == steps
    assert f"saying {first}" in [event["message"] for event in ended.events if event["type"] == "log"]


async def test_a_failure_edge_takes_over_from_a_step_that_failed() -> None:
    ended = await drive("fail")

    assert (ended.status, ended.summary["completed_steps"], ended.summary["failed_steps"]) == ("completed", 1, 1)


async def test_a_runtime_that_dies_in_a_step_ends_the_run_although_there_is_a_failure_edge() -> None:
    ended = await drive("crash")

    assert (ended.status, ended.exit_code) == ("failed", errors.RepExitCode.RUNTIME_INTERNAL)
    assert ended.error is not None
    assert (ended.error["code"], ended.error["data"]["details"]["exit_code"]) == (3001, 9)


@pytest.mark.requirement("rep:timeouts:engine")
async def test_a_step_that_takes_for_ever_meets_the_engine_timeout() -> None:
    ended = await drive("wait", timeout_s=1, cancel_grace_s=0.1)

    assert ended.error is not None
    assert (ended.error["data"]["cause"], ended.exit_code) == ("Timeout", errors.RepExitCode.RUNTIME_INTERNAL)


@pytest.mark.requirement("rep:settled:cancelled")
async def test_a_run_that_we_direct_can_be_cancelled() -> None:
    cancel = asyncio.Event()
    wanted = make_order("foreign", ir=make_flow("wait"), required=["dsl.emit", "log", "switch"], cancel_grace_s=0.5)

    def when_it_runs(event: dict[str, Any]) -> None:
        if event.get("state") == "started":
            cancel.set()

    ended = await drive_order(wanted, drive_control=run_directed(wanted), cancel=cancel, on_event=when_it_runs)

    assert ended.error is not None
    assert (ended.status, ended.error["data"]["cause"]) == ("failed", "Cancelled")


async def test_whoever_cancels_twice_does_not_wait_for_the_steps_that_are_under_way(tmp_path: Path) -> None:
    asked, cancel = tmp_path / "asked", asyncio.Event()
    patient = {"cancel_grace_s": 1e6, "timeout_s": 1e6, "env": {"NOTES": str(asked)}}
    wanted = make_order("foreign", ir=make_flow("wait"), required=["dsl.emit", "log", "switch"], **patient)
    driving = asyncio.create_task(drive_order(wanted, drive_control=run_directed(wanted), cancel=cancel))
    await wait_until_asked(asked, "Runtime.Poll")
    cancel.set()
    await wait_until_asked(asked, "Runtime.Cancel")

    driving.cancel()

    assert await is_cancelled(driving)
