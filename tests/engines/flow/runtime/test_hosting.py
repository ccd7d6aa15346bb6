"""One run on a thread of its own, asked about from another one. And what is refused before there is a run."""

import json
import time
from pathlib import Path
from typing import Any

import pytest
from tests.engines.flow.runtime.stage import make_document, make_node

from switchtower.engines.flow.runtime import failures, host


def start_host(described: dict[str, Any], tmp_path: Path, **inputs: Any) -> host.FlowRunHost:
    return host.FlowRunHost(described, inputs, run_id="r", workspace=str(tmp_path))


def poll_to_end(of: host.FlowRunHost) -> list[dict[str, Any]]:
    told = [json.loads(of.poll())]
    deadline = time.monotonic() + 20
    while told[-1]["status"] in ("pending", "running"):
        assert time.monotonic() < deadline
        time.sleep(0.001)
        told.append(json.loads(of.poll()))
    return told


@pytest.mark.requirement("rep:poll:drained")
def test_polls_together_have_every_event_once(tmp_path: Path) -> None:
    names = [f"n{number}" for number in range(50)]
    told = poll_to_end(hosted := start_host(make_document([make_node(name, "log", message=name) for name in names]), tmp_path))

    seen = [event["message"] for part in told for event in part["events"] if event["type"] == "log"]
    assert seen == names
    assert told[-1]["status"] == "completed"
    assert json.loads(hosted.poll()) == told[-1] | {"events": []}
    assert hosted.close()


def test_a_run_can_be_cancelled_at_any_moment_and_more_than_once(tmp_path: Path) -> None:
    for _ in range(10):
        hosted = start_host(make_document([make_node("z", "sleep", seconds=1000)]), tmp_path)
        hosted.cancel()
        hosted.cancel()
        assert poll_to_end(hosted)[-1]["summary"]["error"]["data"]["cause"] == "Cancelled"
        assert hosted.close()
        hosted.cancel()


def test_closing_ends_what_runs(tmp_path: Path) -> None:
    hosted = start_host(make_document([make_node("z", "sleep", seconds=1000)]), tmp_path)
    assert hosted.close()
    assert json.loads(hosted.poll())["status"] == "failed"


def test_another_version_is_1001_whatever_the_rest_looks_like(tmp_path: Path) -> None:
    for version in ("2.0.0", None, 1, ["1.0.0"], "x" * 1000):
        with pytest.raises(failures.FlowRejected, match="Unsupported IR version") as refused:
            start_host({"version": version, "graph": 7}, tmp_path)
        assert refused.value.code == 1001
        assert refused.value.details["expected"] == "1.0.0"
        assert len(str(refused.value.details)) < 200


def test_what_is_no_flow_is_1003_with_all_its_problems(tmp_path: Path) -> None:
    described = make_document([make_node("a", "log"), make_node("a", "log")])
    described["graph"]["edges"] = [{"from": "a", "to": "nowhere", "on": "success"}]
    with pytest.raises(failures.FlowRejected, match="and 1 more") as refused:
        start_host(described, tmp_path)
    assert refused.value.code == 1003
    assert refused.value.step_id == "a"
    assert [problem["path"] for problem in refused.value.details["problems"]] == ["$.graph.nodes[1].id", "$.graph.edges[0].to"]


def test_inputs_that_the_flow_cannot_use_are_1003_and_more_than_it_wants_is_fine(tmp_path: Path) -> None:
    described = make_document([make_node("a", "log", message="$input.n")], n="number")
    for wrong in ({}, {"n": "many"}):
        with pytest.raises(failures.FlowRejected, match="Invalid inputs") as refused:
            start_host(described, tmp_path, **wrong)
        assert refused.value.code == 1003
    assert poll_to_end(start_host(described, tmp_path, n=1, more="x"))[-1]["status"] == "completed"
