"""The agent inside a real daemon, seen only through push: a model behind HTTP, its faults, tools, steering, undo, MCP."""

import asyncio
import json
import shutil
import subprocess
import sys
import tempfile
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from uuid import uuid4

import pytest
from msgspec import Struct
from tests.conformance.daemons import ManagedDaemon
from tests.conformance.schema_check import check

from switchtower.testing import model_script as script
from switchtower.testing.model_server import ModelServer, run_in_thread
from switchtower.testing.push_client import PushClient, ReceivedEvent

KEY = "sk-test-0123456789abcdefghijklmnop"
TIMEOUT = 60.0
FRIENDLY = Path(__file__).parents[1] / "tools" / "mcp" / "servers" / "friendly.py"

KINDS = ("openai", "anthropic", "google", "ollama", "mistral", "zai", "minimax", "openrouter")

Scene = Callable[..., Awaitable["AgentModelSession"]]


class AgentModelSession(Struct):
    """A client of a daemon, and what the model behind it was asked."""

    client: PushClient
    daemon: ManagedDaemon
    server: ModelServer
    model: str
    provider: str

    @property
    def requests(self) -> list[script.ReceivedRequest]:
        return [request for request in self.server.requests if self.model in _get_model(request)]

    async def start(self, workspace: Path, **fields: object) -> str:
        session = await self.client.start_session(workspace, **{"provider": self.provider, "model": self.model, **fields})
        return session.session_id


def _get_model(request: script.ReceivedRequest) -> str:
    return str(request.body.get("model") or request.path)


class ScriptedModelDaemon:
    """One daemon and one model server for all: each test has a model of its own, which plays what the test wrote."""

    def __init__(self) -> None:
        self.plays: dict[str, deque[script.ScriptedAnswer]] = {}
        self.daemon = ManagedDaemon()

    def answer(self, request: script.ReceivedRequest) -> script.ScriptedAnswer:
        [play] = [answers for model, answers in self.plays.items() if model in _get_model(request)]
        return play.popleft()


def _make_configuration(server: ModelServer, kinds: Sequence[str]) -> str:
    tables = []
    for kind in kinds:
        base_url = server.origin if kind in ("anthropic", "google") else server.url
        tables.append(
            f'[models.{kind}]\nprovider = "{kind}"\nmodel = "maker/m-1"\nbase_url = "{base_url}"\nkey_env = "FAKE_KEY"\n'
            "price_in = 1.0\nprice_out = 10.0\ncontext_window = 100000\n"
        )
    return "\n".join(tables)


@pytest.fixture(scope="module")
def scripted_model_daemon() -> Iterator[tuple[ScriptedModelDaemon, ModelServer]]:
    house = ScriptedModelDaemon()
    with pytest.MonkeyPatch.context() as patch, run_in_thread(house.answer) as server:
        patch.setenv("FAKE_KEY", KEY)
        (house.daemon.home / "config.toml").write_text(_make_configuration(server, KINDS))
        try:
            house.daemon.start()
            yield house, server
        finally:
            house.daemon.discard()


@pytest.fixture
async def start_agent(scripted_model_daemon: tuple[ScriptedModelDaemon, ModelServer]) -> AsyncIterator[Scene]:
    """`await scene(answer, …)`: a model that gives these answers, and a client of the daemon that is configured for it."""
    house, server = scripted_model_daemon
    async with AsyncExitStack() as stack:

        async def set_up(*answers: script.ScriptedAnswer, kind: str = "openai") -> AgentModelSession:
            model = f"maker/m-{uuid4().hex}"
            house.plays[model] = deque(answers)
            client = await PushClient.connect_socket(house.daemon.socket, check=check, timeout=TIMEOUT)
            await stack.enter_async_context(client)
            return AgentModelSession(client, house.daemon, server, model, kind)

        yield set_up


@pytest.fixture
async def start_dedicated_agent(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Scene]:
    """The same with a daemon and a server of its own, on the test's own loop."""
    monkeypatch.setenv("FAKE_KEY", KEY)
    async with AsyncExitStack() as stack:

        async def set_up(*answers: script.ScriptedAnswer, config: str = "") -> AgentModelSession:
            server = await stack.enter_async_context(ModelServer(answers))
            daemon = ManagedDaemon()
            stack.callback(daemon.discard)
            (daemon.home / "config.toml").write_text(config + _make_configuration(server, ["openai"]))
            await asyncio.to_thread(daemon.start)
            client = await PushClient.connect_socket(daemon.socket, check=check, timeout=TIMEOUT)
            await stack.enter_async_context(client)
            return AgentModelSession(client, daemon, server, "maker/m-1", "openai")

        yield set_up


@pytest.fixture
def workspace() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="ws-", dir="/tmp"))
    (folder / "README.md").write_text("# A workspace\nwith two lines\n")
    yield folder
    shutil.rmtree(folder)


def join_assistant_text(events: list[ReceivedEvent]) -> str:
    """What the assistant said, without what a broken attempt had said."""
    text = ""
    for event in events:
        if event.type == "assistant_token":
            text += event.payload["text"]
        elif event.type == "warning" and event.payload["code"] == "MODEL_RETRY":
            text = ""
    return text


def get_outcome(events: list[ReceivedEvent]) -> str:
    return str(events[-1].payload["outcome"])


def list_statuses(events: list[ReceivedEvent], phase: str) -> list[str]:
    return [event.payload.get("detail", "") for event in events if event.payload.get("phase") == phase]


def list_warnings(events: list[ReceivedEvent]) -> list[str]:
    return [event.payload["code"] for event in events if event.type == "warning"]


@pytest.mark.parametrize("kind", ["openai", "anthropic", "google"])
async def test_a_model_streams_calls_a_tool_and_answers(start_agent: Scene, workspace: Path, kind: str) -> None:
    read = script.reply_call("read_file", "I will look.", path="README.md")
    stage = await start_agent(read, script.reply_text("It is a workspace.", usage=script.ScriptedUsage(1_000, 100)), kind=kind)
    session_id = await stage.start(workspace)
    events = await stage.client.run(session_id, "what is this?")
    assert get_outcome(events) == "success"
    assert join_assistant_text(events) == "I will look.It is a workspace."
    [result] = [event for event in events if event.type == "tool_result"]
    assert "with two lines" in result.payload["text"]
    assert "with two lines" in json.dumps(stage.requests[1].body), "the model was told what the tool found"
    assert list_statuses(events, "Usage")[-1].startswith("1000 tokens in, 100 out, $0.002000 (")
    info = await stage.client.request_payload("get_session", session_id=session_id)
    assert info["usage"]["calls"] == 2
    assert info["contextTokens"] == 1_100


@pytest.mark.requirement("push:start:providers-seen")
@pytest.mark.parametrize("kind", ["ollama", "mistral", "zai", "minimax", "openrouter"])
async def test_the_providers_that_clients_name_serve_when_they_are_configured(
    start_agent: Scene, workspace: Path, kind: str
) -> None:
    stage = await start_agent(script.reply_text("hello"), kind=kind)
    assert join_assistant_text(await stage.client.run(await stage.start(workspace), "hi")) == "hello"


async def test_trouble_that_passes_is_retried_and_seen(start_agent: Scene, workspace: Path) -> None:
    cut = script.ScriptedReply((script.TextStep("Once upon "), script.CutStep()))
    answers = [script.refuse_rate_limited("0"), script.ScriptedRefusal(500), cut, script.reply_text("The end.")]
    stage = await start_agent(*answers)
    session_id = await stage.start(workspace)
    events = await stage.client.run(session_id, "tell a story")
    assert get_outcome(events) == "success"
    assert join_assistant_text(events) == "The end."
    assert list_warnings(events) == ["MODEL_NOT_CHECKED", *["MODEL_RETRY"] * 3]
    assert len(stage.requests) == 4
    info = await stage.client.request_payload("get_session", session_id=session_id)
    assert info["state"] == "completed"


async def test_a_refused_key_fails_the_run_with_a_remedy_and_is_never_shown(start_agent: Scene, workspace: Path) -> None:
    stage = await start_agent(script.ScriptedRefusal(401, f"Incorrect API key provided: {KEY}"))
    session_id = await stage.start(workspace)
    events = await stage.client.run(session_id, f"my key is {KEY}")
    assert get_outcome(events) == "failed"
    [error] = [event for event in events if event.type == "error"]
    assert error.payload["code"] == "MODEL_ERROR"
    assert "FAKE_KEY" in error.payload["message"]
    assert KEY not in "".join(str(event.raw) for event in events)
    assert KEY not in stage.daemon.log


async def test_commands_do_not_see_the_key(start_agent: Scene, workspace: Path) -> None:
    stage = await start_agent(script.reply_call("run", command="env"), script.reply_text("done"))
    session_id = await stage.start(workspace)
    await stage.client.send(session_id, "go")
    await stage.client.decide((await stage.client.read_until("approval_required"))[-1])
    events = await stage.client.read_until("run_complete")
    [result] = [event for event in events if event.type == "tool_result"]
    assert "PATH=" in result.payload["text"]
    assert "FAKE_KEY" not in result.payload["text"]


async def test_rubbish_from_a_model_is_answered_and_the_run_goes_on(start_agent: Scene, workspace: Path) -> None:
    broken = script.ScriptedReply((script.CallStep("read_file", '{"path": "READ'), script.CallStep("no_such_tool", {"x": 1})))
    stage = await start_agent(broken, script.reply_text("I see."))
    session_id = await stage.start(workspace)
    events = await stage.client.run(session_id, "go")
    assert get_outcome(events) == "success"
    results = [event.payload for event in events if event.type == "tool_result"]
    assert [result["isError"] for result in results] == [True, True]
    assert "no tool `no_such_tool`" in results[1]["text"]


async def test_ten_megabytes_of_output_are_journalled_and_delivered(start_agent: Scene, workspace: Path) -> None:
    stage = await start_agent(script.reply_flood(10_000_000))
    session_id = await stage.start(workspace)
    events = await stage.client.run(session_id, "go")
    assert get_outcome(events) == "success"
    assert len(join_assistant_text(events)) == 10_000_000


async def test_a_slow_stream_is_aborted_at_once_and_the_model_hears_it(start_dedicated_agent: Scene, workspace: Path) -> None:
    stage = await start_dedicated_agent(script.ScriptedReply((script.TextStep("thinking "), script.HoldStep())))
    session_id = await stage.start(workspace)
    run_id = await stage.client.send(session_id, "go")
    await stage.client.read_until("assistant_token")
    await stage.client.cancel(session_id, run_id)
    assert get_outcome(await stage.client.read_until("run_complete")) == "cancelled"
    async with asyncio.timeout(TIMEOUT):
        await stage.requests[0].gone.wait()


async def test_steering_reaches_the_model_and_a_follow_up_runs_after(start_dedicated_agent: Scene, workspace: Path) -> None:
    go = asyncio.Event()
    first = script.ScriptedReply((script.TextStep("Looking. "), script.HoldStep(go), script.CallStep("list_dir", {})))
    stage = await start_dedicated_agent(first, script.reply_text("With tabs."), script.reply_text("Documented."))
    session_id = await stage.start(workspace)
    await stage.client.send(session_id, "go")
    await stage.client.read_until("assistant_token")
    for number, (text, delivery) in enumerate([("use tabs", "steer"), ("then the docs", "follow_up")]):
        queued = {"clientMessageId": f"msg_{number}", "text": text, "delivery": delivery}
        answer = await stage.client.request_payload("queue_message", queued, session_id=session_id)
        assert answer == {"accepted": True, "messageId": f"msg_{number}", "runId": None}
    go.set()
    assert join_assistant_text(await stage.client.read_until("run_complete")).endswith("With tabs.")
    assert join_assistant_text(await stage.client.read_until("run_complete")) == "Documented."
    assert "use tabs" in json.dumps(stage.requests[1].body)
    assert "then the docs" not in json.dumps(stage.requests[1].body)
    assert "then the docs" in json.dumps(stage.requests[2].body)


async def test_a_conversation_is_compacted_on_request(start_agent: Scene, workspace: Path) -> None:
    talk = [script.ScriptedReply((script.TextStep("word " * 30_000, piece=4_096),)) for _ in range(2)]
    stage = await start_agent(*talk, script.reply_text("Goal: to talk."), script.reply_text("Yes."))
    session_id = await stage.start(workspace)
    for _ in talk:
        await stage.client.run(session_id, "talk")
    await stage.client.request_payload("compact_session", {"instructions": "briefly"}, session_id=session_id)
    events = await stage.client.read_until("run_complete")
    assert get_outcome(events) == "success"
    assert list_statuses(events, "Context compacted")
    await stage.client.run(session_id, "still there?")
    told = json.dumps(stage.requests[-1].body)
    assert "Goal: to talk." in told
    assert told.count("word word") < 30_000


async def test_a_budget_ends_a_run_with_a_clear_outcome(start_agent: Scene, workspace: Path) -> None:
    stage = await start_agent(*[script.reply_call("list_dir") for _ in range(9)])
    session_id = await stage.start(workspace, limits={"maxTurns": 3})
    events = await stage.client.run(session_id, "go")
    assert get_outcome(events) == "failed"
    assert [event.payload["code"] for event in events if event.type == "error"] == ["BUDGET_EXCEEDED"]
    assert len(stage.requests) == 3


async def test_always_makes_a_rule_for_the_session_that_is_shown(start_agent: Scene, workspace: Path) -> None:
    touch = [script.reply_call("run", command=f"touch ran && echo {number}") for number in (1, 1)]
    stage = await start_agent(*touch, script.reply_text("done"))
    session_id = await stage.start(workspace)
    await stage.client.send(session_id, "go")
    asked = (await stage.client.read_until("approval_required"))[-1]
    decision = {
        "runId": asked.run_id,
        "approvalId": asked.payload["approvalId"],
        "decision": "approve",
        "scope": "session",
    }
    await stage.client.request_payload("submit_approval", decision, session_id=session_id)
    events = await stage.client.read_until("run_complete")
    assert get_outcome(events) == "success"
    assert "approval_required" not in [event.type for event in events]
    [rule] = (await stage.client.request_payload("get_session", session_id=session_id))["rules"]
    assert asked.payload["details"]["always"].endswith(rule["command"])


async def test_what_a_session_did_is_shown_undone_and_made_again(start_agent: Scene, workspace: Path) -> None:
    subprocess.run(["git", "init", "-q"], cwd=workspace, check=True)
    write = script.reply_call("write_file", path="notes.txt", content="remember\n")
    stage = await start_agent(write, script.reply_text("done"))
    session_id = await stage.start(workspace, policy="auto")
    await stage.client.run(session_id, "go")
    diff = (await stage.client.request_payload("diff_session", session_id=session_id))["diff"]
    assert "+remember" in diff
    for redo, there in ((False, False), (True, True)):
        await stage.client.request_payload("undo_run", {"redo": redo}, session_id=session_id)
        assert get_outcome(await stage.client.read_until("run_complete")) == "success"
        assert (workspace / "notes.txt").exists() is there
    assert (
        subprocess.run(["git", "status", "--porcelain"], cwd=workspace, capture_output=True, check=True).stdout.count(b"\n") == 2
    )


async def test_an_mcp_server_of_the_workspace_starts_after_a_yes_and_serves(start_agent: Scene, workspace: Path) -> None:
    servers = {"mcpServers": {"friendly": {"command": sys.executable, "args": [str(FRIENDLY), "stdio"]}}}
    (workspace / ".mcp.json").write_text(json.dumps(servers))
    stage = await start_agent(script.reply_call("friendly_add", a=2, b=3), script.reply_text("Five."))
    session_id = await stage.start(workspace)
    await stage.client.send(session_id, "add")
    asked = (await stage.client.read_until("approval_required"))[-1]
    assert (asked.payload["kind"], asked.payload["title"]) == ("mcp", "Start an MCP server")
    await stage.client.decide(asked)
    asked = (await stage.client.read_until("approval_required"))[-1]
    assert asked.payload["title"] == "Use the tool friendly_add"
    await stage.client.decide(asked)
    events = await stage.client.read_until("run_complete")
    [result] = [event for event in events if event.type == "tool_result"]
    assert "5" in result.payload["text"]
    assert "friendly_add" in json.dumps(stage.requests[0].body["tools"])


async def test_an_mcp_server_that_nobody_allows_is_left_out_of_a_headless_run(start_agent: Scene, workspace: Path) -> None:
    (workspace / ".mcp.json").write_text(json.dumps({"mcpServers": {"evil": {"command": "touch", "args": ["started"]}}}))
    stage = await start_agent(script.reply_text("without"))
    session_id = await stage.start(workspace, mode="headless")
    await stage.client.send(session_id, "go")
    await stage.client.decide((await stage.client.read_until("approval_required"))[-1], "deny")
    events = await stage.client.read_until("run_complete")
    assert get_outcome(events) == "success"
    assert "MCP_SERVER_DENIED" in list_warnings(events)
    assert not (workspace / "started").exists()


@pytest.mark.skipif(shutil.which("bwrap") is None, reason="bubblewrap is not installed")
async def test_a_sandbox_keeps_commands_inside_the_workspace(start_agent: Scene, workspace: Path) -> None:
    outside = workspace.parent / f"{workspace.name}-outside"
    command = f"touch inside; touch {outside}; true"
    stage = await start_agent(script.reply_call("run", command=command), script.reply_text("done"))
    session_id = await stage.start(workspace, sandboxProvider="bubblewrap", policy="yolo")
    events = await stage.client.run(session_id, "go")
    assert get_outcome(events) == "success"
    assert (workspace / "inside").exists()
    assert not outside.exists()
    assert "POLICY_YOLO" in list_warnings(events)


async def test_a_worktree_of_its_own_leaves_the_repository_alone(start_agent: Scene, workspace: Path) -> None:
    for command in (["init", "-q"], ["add", "."], ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "first"]):
        subprocess.run(["git", *command], cwd=workspace, check=True)
    stage = await start_agent(script.reply_call("write_file", path="new.txt", content="x"), script.reply_text("done"))
    session_id = await stage.start(workspace, policy="auto", worktree=True)
    assert get_outcome(await stage.client.run(session_id, "go")) == "success"
    info = await stage.client.request_payload("get_session", session_id=session_id)
    assert info["worktreeOf"] == str(workspace)
    assert (Path(info["rootPath"]) / "new.txt").exists()
    assert not (workspace / "new.txt").exists()


async def test_a_template_and_a_mentioned_file_reach_the_model(start_agent: Scene, workspace: Path) -> None:
    (workspace / ".tower" / "prompts").mkdir(parents=True)
    (workspace / ".tower" / "prompts" / "review.md").write_text("Review $ARGUMENTS with care.")
    stage = await start_agent(script.reply_text("done"))
    session_id = await stage.start(workspace)
    listed = await stage.client.request_payload("list_templates", {"rootPath": str(workspace)})
    assert ("review", "prompt") in [(template["name"], template["kind"]) for template in listed["templates"]]
    await stage.client.run(session_id, "/review @README.md")
    told = json.dumps(stage.requests[0].body)
    assert "Review @README.md with care." in told
    assert "with two lines" in told


async def test_models_are_listed_with_what_is_usable_and_why_not(start_dedicated_agent: Scene, workspace: Path) -> None:
    stage = await start_dedicated_agent()
    models = {model["name"]: model for model in (await stage.client.request_payload("list_models"))["models"]}
    assert models["openai"]["usable"]
    assert models["openai"]["isDefault"]
    assert models["demo"]["usable"]
    assert not models["anthropic"]["usable"]
    assert "ANTHROPIC_API_KEY" in models["anthropic"]["reason"]


async def test_a_session_can_be_given_another_model(start_dedicated_agent: Scene, workspace: Path) -> None:
    stage = await start_dedicated_agent(script.reply_text("from the other"))
    session_id = (await stage.client.start_session(workspace)).session_id
    response = await stage.client.request("configure_session", {"provider": "nobody"}, session_id=session_id)
    assert response.code == "PROVIDER_NOT_CONFIGURED"
    await stage.client.request_payload("configure_session", {"provider": "openai"}, session_id=session_id)
    assert join_assistant_text(await stage.client.run(session_id, "hi")) == "from the other"


async def test_the_default_model_is_the_configured_one(start_dedicated_agent: Scene, workspace: Path) -> None:
    stage = await start_dedicated_agent(script.reply_text("hello"))
    session_id = (await stage.client.start_session(workspace, provider="auto")).session_id
    started = (await stage.client.read_until("session_started"))[-1]
    assert started.payload["provider"] == "openai"
    assert join_assistant_text(await stage.client.run(session_id, "hi")) == "hello"


async def test_configured_rules_allow_and_deny(start_dedicated_agent: Scene, workspace: Path) -> None:
    rules = '[[rules]]\neffect = "allow"\ntool = "run"\ncommand = "touch *"\n[[rules]]\neffect = "deny"\ntool = "write_file"\n'
    stage = await start_dedicated_agent(
        script.reply_call("run", command="touch allowed"),
        script.reply_call("write_file", path="denied", content="x"),
        script.reply_text("done"),
        config=rules,
    )
    session_id = await stage.start(workspace)
    events = await stage.client.run(session_id, "go")
    assert "approval_required" not in [event.type for event in events]
    assert (workspace / "allowed").exists()
    assert not (workspace / "denied").exists()
