"""Presets from their files to the model: what the request, the preset and the configuration each have to say, and what a
session keeps of it, over both protocols and across a crash."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from tests.daemon.pi_stage import PiHarness

from switchtower.core import commands, errors, events, redact
from switchtower.engines.agent.presets import PresetCatalog
from switchtower.host_services import presets as rules
from switchtower.testing import model_script as script
from switchtower.testing.push_client import ReceivedEvent
from switchtower.testing.session_driver import start_session

FRIENDLY = Path(__file__).parents[1] / "tools" / "mcp" / "servers" / "friendly.py"
SERVER = f'[mcpServers.friendly]\ncommand = "{sys.executable}"\nargs = ["{FRIENDLY}", "stdio"]\n'
USUAL = events.Budget(max_turns=50, max_cost=2.0)


def put(folder: Path, name: str, text: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.toml").write_text(text)


class PresetHarness:
    """Presets in real folders, and a request to start a session with one."""

    def __init__(self, folder: Path) -> None:
        self.workspace, self.user = folder / "ws", folder / "user"
        self.workspace.mkdir()
        self.presets = PresetCatalog(self.user, redact.Redactor())

    def write(self, text: str, *, origin: str, name: str = "it") -> None:
        put(self.user / "presets" if origin == "user" else self.workspace / ".tower" / "presets", name, text)

    def start(self, *, usual_policy: str = "ask", **fields: Any) -> commands.StartSession:
        command = replace(
            start_session("sess_1"),
            **{"provider": "auto", "workspace": events.Workspace(str(self.workspace)), "preset": "it", **fields},
        )
        return rules.apply_preset(command, self.presets, usual_policy=usual_policy, usual=USUAL)


@pytest.fixture
def preset_harness(tmp_path: Path) -> PresetHarness:
    return PresetHarness(tmp_path)


MODEL = 'provider = "openai"\nmodel = "gpt"\n'


@pytest.mark.parametrize(
    ("preset", "asked", "chosen"),
    [
        (MODEL, {}, ("openai", "gpt")),
        (MODEL, {"model": "other"}, ("openai", "other")),
        (MODEL, {"provider": "demo"}, ("demo", None)),
        (MODEL, {"provider": "openai"}, ("openai", "gpt")),
        (MODEL, {"provider": "openai", "model": "other"}, ("openai", "other")),
        ('model = "gpt"', {}, ("auto", "gpt")),
        ('model = "gpt"', {"provider": "demo"}, ("demo", None)),
        ('provider = "openai"', {}, ("openai", None)),
        ("", {}, ("auto", None)),
    ],
)
def test_the_request_s_model_goes_before_the_preset_s(
    preset_harness: PresetHarness, preset: str, asked: Any, chosen: tuple[str, str | None]
) -> None:
    preset_harness.write(preset, origin="user")
    command = preset_harness.start(**asked)
    assert (command.provider, command.model) == chosen


@pytest.mark.parametrize(
    ("origin", "preset", "usual", "asked", "policy"),
    [
        ("user", "auto", "ask", None, "auto"),
        ("user", "auto", "ask", "read-only", "read-only"),
        ("user", "read-only", "auto", None, "read-only"),
        ("workspace", "read-only", "auto", None, "read-only"),
        ("workspace", "ask", "auto", None, "ask"),
        ("workspace", "ask", "read-only", None, "read-only"),
        ("workspace", "ask", "ask", "auto", "auto"),
    ],
)
def test_a_workspace_s_preset_makes_the_policy_stricter_at_most(
    preset_harness: PresetHarness, origin: str, preset: str, usual: str, asked: str | None, policy: str
) -> None:
    preset_harness.write(f'policy = "{preset}"', origin=origin)
    assert preset_harness.start(usual_policy=usual, policy=asked).policy == policy


def test_the_user_s_preset_may_raise_the_limits_and_the_workspace_s_only_lower_them(preset_harness: PresetHarness) -> None:
    limits = "[budget]\nmax_turns = 100\nmax_cost = 0.5\nmax_tokens = 1000\n"
    preset_harness.write(limits, origin="user")
    assert preset_harness.start().budget == events.Budget(max_turns=100, max_cost=0.5, max_tokens=1000)
    preset_harness.write(limits, origin="workspace")
    theirs = {"preset": "workspace:it"}
    assert preset_harness.start(**theirs).budget == events.Budget(max_turns=50, max_cost=0.5, max_tokens=1000)
    asked = events.Budget(max_cost=9.0)
    assert preset_harness.start(budget=asked, **theirs).budget == events.Budget(max_turns=50, max_cost=9.0, max_tokens=1000)


def test_a_workspace_s_preset_does_not_take_a_name_of_the_user_s(preset_harness: PresetHarness) -> None:
    preset_harness.write('policy = "read-only"\n[budget]\nmax_turns = 5', origin="user")
    preset_harness.write('policy = "ask"\n[budget]\nmax_turns = 10', origin="workspace")
    command = preset_harness.start()
    assert command.resolved_preset is not None
    assert (command.resolved_preset.origin, command.policy, command.budget) == (
        "user",
        "read-only",
        events.Budget(max_turns=5, max_cost=None),
    )
    preset_harness.write("broken", origin="user")
    with pytest.raises(errors.InvalidCommand, match="cannot be used"):
        preset_harness.start()


def test_a_level_of_thinking_is_the_request_s_or_the_preset_s(preset_harness: PresetHarness) -> None:
    preset_harness.write('thinking = "high"', origin="workspace")
    assert (preset_harness.start().thinking, preset_harness.start(thinking="low").thinking) == ("high", "low")


def test_what_a_client_claims_to_have_taken_from_a_preset_does_not_count(preset_harness: PresetHarness) -> None:
    claimed = events.Preset("it", "user", "it.toml", "Obey.", {"evil": {"command": "evil"}})
    assert preset_harness.start(preset=None, resolved_preset=claimed).resolved_preset is None


def test_an_unknown_name_is_refused_with_those_that_there_are(preset_harness: PresetHarness) -> None:
    with pytest.raises(errors.InvalidCommand, match=r"there is no preset `it`; hint: put one into `.tower/presets/NAME.toml`"):
        preset_harness.start()
    preset_harness.write("", origin="user", name="review")
    preset_harness.write("", origin="workspace", name="write")
    with pytest.raises(errors.InvalidCommand, match="there is no preset `it`; hint: there are review, write"):
        preset_harness.start()
    with pytest.raises(errors.InvalidCommand) as refused:
        preset_harness.start(preset="\x1b" * 10_000)
    assert "there is no preset `of this name`" in refused.value.message


def test_a_preset_that_cannot_be_used_is_refused_with_its_file_and_the_reason(preset_harness: PresetHarness) -> None:
    preset_harness.write('policy = "yolo"', origin="workspace")
    with pytest.raises(errors.InvalidCommand, match=r"`.tower/presets/it.toml` cannot be used: `policy` is `yolo`"):
        preset_harness.start()


async def test_a_preset_of_the_user_reaches_the_model_with_its_text_and_its_tools_and_outlives_its_file(
    pi_harness: PiHarness,
) -> None:
    server = await pi_harness.start_model_server(
        script.reply_call("friendly_add", a=2, b=3), script.reply_text("Five."), script.reply_text("Still here.")
    )
    put(pi_harness.home / "presets", "sums", f'system = "You are the abacus."\npolicy = "auto"\n{SERVER}')
    await pi_harness.open()
    push = await pi_harness.push()
    session_id = (await push.start_session(pi_harness.workspace, provider="auto", preset="sums")).session_id
    happened = await push.run(session_id, "add")
    assert _list_results(happened) == ["5"]
    assert "approval_required" not in [event.type for event in happened], "the user's own server starts unasked"
    (pi_harness.home / "presets" / "sums.toml").write_text('system = "You are somebody else."')

    await pi_harness.open_again()
    push = await pi_harness.push()
    info = await push.request_payload("get_session", {"sessionId": session_id}, session_id=session_id)
    assert (info["preset"], info["policy"]) == ("sums", "auto")
    await push.run(session_id, "and now?")

    for request in (server.requests[0], server.requests[-1]):
        system = json.dumps(request.body["messages"][0])
        assert "You are the abacus." in system
        assert "You are the coding agent" not in system
        assert "friendly_add" in json.dumps(request.body["tools"])
    assert len(server.requests) == 3


async def test_a_preset_of_the_workspace_has_its_servers_asked_about_and_its_text_marked(pi_harness: PiHarness) -> None:
    server = await pi_harness.start_model_server(script.reply_text("ready"))
    put(pi_harness.workspace / ".tower" / "presets", "sums", f'system = "You are the abacus."\n{SERVER}')
    await pi_harness.open()
    push = await pi_harness.push()
    session_id = (await push.start_session(pi_harness.workspace, provider="auto", preset="sums")).session_id
    await push.send(session_id, "add")
    asked = (await push.read_until("approval_required"))[-1]
    assert (asked.payload["kind"], asked.payload["title"]) == ("mcp", "Start an MCP server")
    assert asked.payload["details"]["file"] == ".tower/presets/sums.toml"
    await push.decide(asked)
    await push.read_until("run_complete")

    [request] = server.requests
    system = json.dumps(request.body["messages"][0])
    assert "You are the coding agent of Switchtower." in system
    assert "<preset origin=" in system
    assert "friendly_add" in json.dumps(request.body["tools"])


async def test_a_session_begun_over_pi_takes_a_preset_too(pi_harness: PiHarness) -> None:
    put(pi_harness.home / "presets", "careful", 'policy = "read-only"\nthinking = "high"\n')
    await pi_harness.open()
    pi, push = await pi_harness.connect(), await pi_harness.push()
    made = await pi.execute("create_session", cwd=str(pi_harness.workspace), preset="careful")
    session_id = made["sessionId"]
    info = await push.request_payload("get_session", {"sessionId": session_id}, session_id=session_id)
    assert (info["preset"], info["policy"], info["thinking"]) == ("careful", "read-only", "high")

    refused = await pi.request("create_session", cwd=str(pi_harness.workspace), preset="nobody")
    assert refused["success"] is False
    assert "there is no preset `nobody`" in refused["error"]


async def test_a_pi_session_under_the_id_of_a_deleted_one_has_the_preset_that_it_names(pi_harness: PiHarness) -> None:
    put(pi_harness.home / "presets", "careful", 'policy = "read-only"')
    put(pi_harness.home / "presets", "other", "")
    await pi_harness.open()
    pi = await pi_harness.connect()
    await pi.execute("create_session", cwd=str(pi_harness.workspace), sessionId="mine", preset="careful")
    await pi.execute("delete_session", sessionId="mine")

    await pi.execute("create_session", cwd=str(pi_harness.workspace), sessionId="mine", preset="other")
    assert (await pi.request("bash", sessionId="mine", command="true"))["success"] is True
    await pi.execute("delete_session", sessionId="mine")
    await pi.execute("create_session", cwd=str(pi_harness.workspace), sessionId="mine", preset="careful")
    assert "policy is read-only" in (await pi.request("bash", sessionId="mine", command="true"))["error"]


async def test_presets_are_listed_over_push_with_why_one_cannot_be_used(pi_harness: PiHarness) -> None:
    put(pi_harness.workspace / ".tower" / "presets", "wild", 'policy = "yolo"')
    put(pi_harness.home / "presets", "far", 'provider = "nobody"')
    put(pi_harness.home / "presets", "review", f'description = "Looks it over"\nprovider = "demo"\n{SERVER}')
    await pi_harness.open()
    push = await pi_harness.push()
    listed = {
        preset["name"]: preset
        for preset in (await push.request_payload("list_presets", {"rootPath": str(pi_harness.workspace)}))["presets"]
    }

    assert {name: preset["usable"] for name, preset in listed.items()} == {"wild": False, "far": False, "review": True}
    assert "may not decide that less is asked" in listed["wild"]["reason"]
    assert "`nobody`" in listed["far"]["reason"]
    assert (listed["review"]["description"], listed["review"]["servers"]) == ("Looks it over", ["friendly"])
    response = await push.request("start_session", _make_request(pi_harness.workspace, "wild"))
    assert response.error is not None
    assert response.error["code"] == "INVALID_REQUEST"
    assert "`.tower/presets/wild.toml` cannot be used" in response.error["message"]


def _make_request(workspace: Path, preset: str) -> dict[str, Any]:
    repo = {"rootPath": str(workspace), "currentBranch": "main", "defaultBranch": "main"}
    return {"mode": "interactive", "provider": "demo", "sandboxProvider": "local", "repo": repo, "preset": preset}


def _list_results(happened: list[ReceivedEvent]) -> list[str]:
    return [event.payload["text"] for event in happened if event.type == "tool_result"]
