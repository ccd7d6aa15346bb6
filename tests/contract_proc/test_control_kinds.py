"""Control kinds that a foreign runtime lacks: a plain `finish` can be done without, everything else is refused."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from tests.contract_proc.driving import IR, drive, read_notes

from switchtower.engines.flow import ports

FOREIGN = {"version": "1.0.0", "step_kinds": ["log"], "limits": {}}


def make_flow(*nodes: tuple[str, str], edges: list[dict[str, Any]], **settings: Any) -> dict[str, Any]:
    ir = copy.deepcopy(IR)
    ir["graph"] = {"nodes": [{"id": name, "type": kind, "with": settings.get(name, {})} for name, kind in nodes], "edges": edges}
    return ir


def make_edge(start: str, end: str, on: str = "success", **more: Any) -> dict[str, Any]:
    return {"from": start, "to": end, "on": on, **more}


PLAIN = make_flow(("one", "log"), ("two", "log"), ("end", "finish"), edges=[make_edge("one", "two"), make_edge("two", "end")])


def test_a_finish_that_only_ends_the_flow_is_left_out() -> None:
    before = copy.deepcopy(PLAIN)

    adapted = ports.remove_kinds(PLAIN, {"finish"})

    assert adapted == make_flow(("one", "log"), ("two", "log"), edges=[make_edge("one", "two")])
    assert before == PLAIN


@pytest.mark.parametrize(
    ("ir", "lacking"),
    [
        (PLAIN, {"finish", "switch"}),
        (PLAIN, {"switch"}),
        (PLAIN, {"dsl.emit"}),
        (PLAIN, set()),
        (
            make_flow(("one", "log"), ("end", "finish"), edges=[make_edge("one", "end"), make_edge("one", "end", "failure")]),
            {"finish"},
        ),
        (make_flow(("one", "switch"), ("end", "finish"), edges=[make_edge("one", "end", case="a")]), {"finish"}),
        (make_flow(("end", "finish"), ("one", "log"), edges=[make_edge("end", "one")]), {"finish"}),
        (make_flow(("end", "finish"), edges=[]), {"finish"}),
        (make_flow(("one", "log"), ("end", "finish"), edges=[make_edge("one", "end")], end={"status": "x"}), {"finish"}),
    ],
    ids=range(9),
)
def test_what_would_not_be_the_same_flow_is_not_adapted(ir: dict[str, Any], lacking: set[str]) -> None:
    assert ports.remove_kinds(ir, lacking) is None


@pytest.mark.requirement("rep:control:foreign")
async def test_a_foreign_runtime_without_finish_gets_the_flow_without_it(tmp_path: Path) -> None:
    asked = tmp_path / "asked"
    env = {"CAPABILITIES": json.dumps(FOREIGN), "NOTES": str(asked)}

    await drive("bad_capabilities", ir=PLAIN, required=["log", "finish"], adapt=ports.remove_kinds, env=env)

    start = read_notes(asked)[1]
    assert start["method"] == "Runtime.StartRun"
    assert start["params"]["ir"] == ports.remove_kinds(PLAIN, {"finish"})


@pytest.mark.parametrize("required", [["log", "switch", "finish"], ["log", "dsl.emit"]])
async def test_other_control_kinds_that_a_runtime_lacks_are_refused_by_name(required: list[str]) -> None:
    env = {"CAPABILITIES": json.dumps(FOREIGN)}

    ended = await drive("bad_capabilities", ir=PLAIN, required=required, adapt=ports.remove_kinds, env=env)

    assert ended.exit_code == 3
    assert ended.error is not None
    assert ended.error["code"] == 1002
    assert f"`{required[1]}`" in ended.error["message"]
    assert "which direct the flow and which this flow cannot do without" in ended.error["message"]
