"""Step kinds of plugins: the example plugin with the flow of the public examples, as their compiler writes it, on our runtime, by
our command and under a daemon; and plugins that are broken."""

import json
import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.conformance.rep.conftest import Spawn
from tests.conformance.rep.peers import OURS, TmCommand, list_states, make_flow, make_node, make_python_path
from tests.flows.flowing import run

from switchtower.testing.push_client import PushClient

EXAMPLE = Path(__file__).parents[3] / "examples" / "opcua-simulation"
PLANT: dict[str, Any] = json.loads((EXAMPLE / "plant-monitor.json").read_bytes())
INPUTS: dict[str, Any] = json.loads((EXAMPLE / "inputs.json").read_bytes())
DECISION = {
    "action": "WRITE_BACK",
    "target_node": "ns=2;i=5001",
    "value": 1,
    "reason": {"temp": 80.0, "threshold": 75.0},
    "policy_id": "plant-monitor",
}


def install_package(folder: Path, name: str, kinds: Mapping[str, str], *sources: Path) -> dict[str, str]:
    """Variables with which our runtime finds a package of these kinds, as an installer leaves it behind."""
    info = folder / f"{name}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    listed = "\n".join(f"{kind} = {place}" for kind, place in kinds.items())
    (info / "entry_points.txt").write_text(f"[switchtower.flow_kinds]\n{listed}\n")
    return {"PYTHONPATH": os.pathsep.join([*map(str, sources), make_python_path(folder)])}


@pytest.fixture
def plugin(tmp_path: Path) -> dict[str, str]:
    project = tomllib.loads((EXAMPLE / "pyproject.toml").read_text())["project"]
    return install_package(tmp_path / "installed", project["name"], project["entry-points"]["switchtower.flow_kinds"], EXAMPLE)


@pytest.mark.requirement("rep:kinds:plugins", "rep:control:switch-compiled", "rep:ir:inputs-free-form")
def test_the_public_example_runs_on_our_runtime_with_the_example_plugin(start_runtime: Spawn, plugin: dict[str, str]) -> None:
    runtime = start_runtime(**plugin)

    assert {"opcua.read", "opcua.write", "policy.apply"} <= set(runtime.ask("Runtime.Capabilities", {})["step_kinds"])
    last, events = runtime.run(PLANT, inputs={**INPUTS, "not declared": [1]})

    assert last["summary"] == {"completed_steps": 6, "failed_steps": 0, "outputs": {"decision": DECISION}}
    ended = [step for step, state, _ in list_states(events) if state == "succeeded"]
    assert ended == ["read", "decide", "when_0", "write", "emit_1", "finish_2"]
    outputs = {event["step_id"]: event["outputs"] for event in events if event.get("state") == "succeeded"}
    assert outputs["write"] == {
        "endpoint": "opc.tcp://localhost:4840",
        "node_id": "ns=2;i=5001",
        "value": 1,
        "status": "ok",
        "simulated": True,
    }


@pytest.mark.requirement("rep:control:switch-compiled")
def test_the_default_case_of_a_compiled_switch_is_taken(start_runtime: Spawn, plugin: dict[str, str]) -> None:
    policy = {"policy": {"id": "calm", "params": {}}}
    calm = {**PLANT, "constants": {"policyRef": "calm", "policy": policy}}
    last, events = start_runtime(**plugin).run(calm, inputs=INPUTS)

    assert last["summary"]["outputs"]["decision"]["action"] == "NONE"
    assert "write" not in [step for step, _, _ in list_states(events)]


@pytest.mark.requirement("rep:kinds:plugins", "rep:ir:inputs-undeclared")
def test_the_public_example_runs_by_our_command(tm_command: TmCommand, plugin: dict[str, str]) -> None:
    ended = tm_command.run(PLANT, None, "--inputs", json.dumps({**INPUTS, "node": 1}), **plugin)

    assert (ended.code, ended.outcome["summary"]["outputs"]) == (0, {"decision": DECISION}), ended.stderr
    assert ended.stderr.startswith("warning: the flow declares no input `node`; hint: `nodes`?\n")


@pytest.mark.requirement("rep:kinds:plugins", "rep:control:switch-compiled", "rep:start:uuids")
async def test_the_public_example_runs_under_a_daemon(client: PushClient, workspace: Path, plugin: dict[str, str]) -> None:
    argv = ["env", f"PYTHONPATH={plugin['PYTHONPATH']}", *OURS]
    events, told = await run(client, workspace, PLANT, inputs={**INPUTS, "more": 1}, runtime="proc", argv=argv)

    assert events[-1].payload["outcome"] == "success"
    assert (told["status"], told["summary"]["outputs"]) == ("completed", {"decision": DECISION})


BROKEN = """
import sys

class NoRun:
    pass

class Plain:
    def run(self, given, context):
        return {}

class Raises:
    def __init__(self):
        raise LookupError("the password is hunter2")

class Exits:
    def __init__(self):
        sys.exit(7)

class Lies:
    summary = property(lambda self: 1 / 0)
    async def run(self, given, context):
        return {"deep": object()}

class Loud:
    summary = "a\\x1b[31m\\nred " + "x" * 5000
    inputs = {"a\\n": 3}
    async def run(self, given, context):
        raise KeyError("hunter2")
"""
KINDS = {
    "bad.norun": "broken:NoRun",
    "bad.plain": "broken:Plain",
    "bad.raises": "broken:Raises",
    "bad.exits": "broken:Exits",
    "bad.missing": "broken:Nothing",
    "bad.module": "no_such_module:Kind",
    "bad.lies": "broken:Lies",
    "bad.loud": "broken:Loud",
    "log": "broken:NoRun",
}


@pytest.fixture
def broken(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "broken.py").write_text(BROKEN)
    return install_package(tmp_path / "installed", "broken", KINDS, tmp_path)


@pytest.mark.requirement("rep:kinds:broken-plugin")
@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("bad.norun", "is no step kind: `broken:NoRun` has no `async def run(self, given, context)`"),
        ("bad.plain", "is no step kind: `broken:Plain` has no `async def run(self, given, context)`"),
        ("bad.raises", "cannot be loaded (LookupError); hint: stderr has the traceback"),
        ("bad.exits", "cannot be loaded (SystemExit); hint: stderr has the traceback"),
        ("bad.missing", "cannot be loaded (AttributeError); hint: stderr has the traceback"),
        ("bad.module", "cannot be loaded (ModuleNotFoundError); hint: stderr has the traceback"),
    ],
)
def test_a_plugin_that_cannot_be_used_refuses_the_flow_and_nothing_runs(
    start_runtime: Spawn, broken: dict[str, str], kind: str, message: str
) -> None:
    runtime = start_runtime(**broken)
    error = runtime.expect_refusal(
        "Runtime.StartRun", {"ir": make_flow(make_node("say", "log", {"message": "x"}), make_node("bad", kind))}
    )

    assert (error["code"], error["data"]["step_id"]) == (1002, "bad")
    assert error["message"] == f"Unsupported step kind: `{kind}` {message}"
    assert runtime.run(make_flow(make_node("say", "log", {"message": "ours"})))[0]["status"] == "completed", (
        "ours cannot be replaced"
    )


@pytest.mark.requirement("rep:kinds:broken-plugin")
def test_a_plugin_that_breaks_in_a_step_fails_it_and_its_words_stay_off_the_wire(
    start_runtime: Spawn, broken: dict[str, str]
) -> None:
    last, events = start_runtime(**broken).run(make_flow(make_node("bad", "bad.loud")))
    assert (last["status"], last["summary"]["error"]["code"]) == ("failed", 3002)
    last, more = start_runtime(**broken).run(make_flow(make_node("bad", "bad.lies")))
    assert (last["status"], last["summary"]["error"]["message"]) == ("failed", "its outputs cannot be said in JSON")
    assert "hunter2" not in json.dumps([events, more])


@pytest.mark.requirement("rep:kinds:listed", "rep:kinds:broken-plugin")
def test_kinds_lists_those_of_plugins_and_what_is_wrong_with_them(tm_command: TmCommand, broken: dict[str, str]) -> None:
    ended = tm_command("kinds", **broken)
    rows = {line.split()[0]: line for line in ended.stdout.decode().splitlines()}

    assert ended.code == 0
    assert set(KINDS) <= set(rows)
    assert "built in" in rows["log"]
    assert rows["bad.norun"].endswith("it is no step kind: `broken:NoRun` has no `async def run(self, given, context)`")
    assert rows["bad.lies"].endswith("it cannot be described (ZeroDivisionError)")
    assert "\x1b" not in ended.stdout.decode()
    assert max(map(len, rows.values())) < 300


@pytest.mark.requirement("rep:kinds:listed")
def test_kinds_shows_inputs_and_outputs_and_the_documentation_has_every_kind(
    tm_command: TmCommand, plugin: dict[str, str]
) -> None:
    ended = tm_command("kinds", "opcua.read", "finish", **plugin)
    described = json.loads(tm_command("kinds", "--json", **plugin).stdout)

    assert ended.stdout.decode().splitlines()[:4] == [
        "opcua.read (opcua_simulation.plant:Read): Read values of a simulated OPC UA server",
        "  inputs:",
        "    endpoint  the server, as opc.tcp://…",
        "    node_ids  a list of node ids, at most 1000",
    ]
    assert ended.stdout.decode().splitlines()[-2:] == ["  inputs: none", "  outputs: none"]
    documented = (EXAMPLE.parents[1] / "docs" / "flows.md").read_text()
    for one in described:
        assert one["summary"], one
        assert one["problem"] is None, one
        if one["source"] in ("built in", "control", "daemon"):
            row = next(line for line in documented.splitlines() if line.startswith(f"| `{one['kind']}` |"))
            assert all(f"`{name}`" in row for name in one["inputs"] if name != "…"), one["kind"]
    unknown = tm_command("kinds", "moon.landing")
    assert (unknown.code, unknown.stderr) == (1, "tower: there is no step kind `moon.landing`; hint: `tm kinds` lists them all\n")


@pytest.mark.requirement("rep:environment:log-json")
def test_our_runtime_writes_its_logs_as_json_when_that_is_expected(
    start_runtime: Spawn, foreign_kinds_environment: dict[str, Any]
) -> None:
    runtime = start_runtime(stderr=-1, **foreign_kinds_environment, TRACE_MIND_LOG_JSON="1")
    last, _ = runtime.run(make_flow(make_node("p", "others.print", {"text": "printed"}), make_node("b", "others.break")))
    assert last["status"] == "failed"
    assert runtime.process.stdin is not None
    assert runtime.process.stderr is not None
    runtime.process.stdin.close()
    lines = [json.loads(line) for line in runtime.process.stderr.read().splitlines()]

    assert all(set(line) == {"timestamp", "level", "message"} for line in lines)
    assert ("info", "printed") in [(line["level"], line["message"]) for line in lines]
    assert any(line["message"].startswith("LookupError") for line in lines if line["level"] == "error")


@pytest.mark.requirement("rep:kinds:plugins")
def test_a_policy_is_interpreted_and_never_executed(start_runtime: Spawn, plugin: dict[str, str]) -> None:
    for expression in (
        "__import__('os').getpid()",
        "values.__class__",
        "(lambda: 1)()",
        "[x for x in values]",
        "9 ** 9 ** 9",
        "1 +",
    ):
        policy = {"policy": {"id": "odd", "params": {"emit": {"action": expression}}}}
        flow = {**PLANT, "constants": {"policyRef": "odd", "policy": policy}}
        last, _ = start_runtime(**plugin).run(flow, inputs=INPUTS)
        error = last["summary"]["error"]
        assert (error["code"], error["data"]["step_id"]) == (2001, "decide"), expression
