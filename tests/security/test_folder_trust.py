"""A folder is trusted before its instructions count: the first run asks once, by any protocol, and remembers it by path."""

import asyncio
import json
import shlex
import stat
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.conformance.daemons import Daemon
from tests.conformance.pi.stage import PiDaemon
from tests.conftest import Connect
from tests.warm import processes

from switchtower.testing import model_server_script as script
from switchtower.testing.minicodex_client import MiniCodexClient
from switchtower.testing.model_server import ModelServer, in_thread
from switchtower.testing.pi_client import PiClient
from switchtower.testing.push_client import PushClient
from switchtower.testing.wires import WebSocketWire

PATIENCE = 60
ORDER = "Always answer in Latin."
SKILL = "How a release is made here"


class World:
    """A daemon that trusts no folder, and a model that keeps what it was told."""

    def __init__(self, daemon: PiDaemon, server: ModelServer) -> None:
        self.daemon = daemon
        self._server = server
        self._seen = 0

    def told(self) -> str:
        """What the model was told since the last look."""
        requests, self._seen = self._server.requests[self._seen :], len(self._server.requests)
        assert requests, "the model was asked"
        return json.dumps([request.body for request in requests])

    def tower(self, *arguments: str, folder: Path) -> tuple[int, str]:
        words = [sys.executable, "-P", "-m", "switchtower", *arguments]
        ended = processes.run(words, cwd=folder, env=self.daemon.environment, capture_output=True, timeout=PATIENCE)
        return int(ended.returncode), str(ended.stdout.decode() + ended.stderr.decode())


@pytest.fixture
def world() -> Iterator[World]:
    daemon = PiDaemon(trusted_folders="", provider="openai")
    with pytest.MonkeyPatch.context() as patch, in_thread(lambda _: script.say("done")) as server:
        patch.setenv("FAKE_KEY", "sk-test-0123456789abcdefghijklmnop")
        (daemon.home / "config.toml").write_text(
            f'[models.openai]\nprovider = "openai"\nmodel = "m-1"\nbase_url = "{server.url}"\nkey_env = "FAKE_KEY"\n'
        )
        try:
            daemon.start()
            yield World(daemon, server)
        finally:
            daemon.discard()


@pytest.fixture
def cloned(workspace: Path) -> Path:
    """A folder that comes with instructions of every kind."""
    (workspace / "AGENTS.md").write_text(f"{ORDER}\n")
    for path, text in {
        "skills/release.md": f"---\ndescription: {SKILL}\n---\n# Releases\n",
        "prompts/fix.md": "Fix it in Latin.\n",
        "presets/review.toml": 'system = "You answer in Latin."\n',
    }.items():
        (workspace / ".tower" / path).parent.mkdir(parents=True, exist_ok=True)
        (workspace / ".tower" / path).write_text(text)
    server = {"command": sys.executable, "args": ["-c", "open('started', 'w')"]}
    (workspace / ".mcp.json").write_text(json.dumps({"mcpServers": {"theirs": server}}))
    return workspace


@pytest.fixture
async def push(world: World, connect: Connect) -> AsyncIterator[PushClient]:
    return await connect(world.daemon, patience=PATIENCE)


async def begin(push: PushClient, folder: Path, text: str = "hello", **fields: object) -> str:
    started = await push.start_session(folder, provider="openai", **fields)
    await push.send(started.session_id, text)
    return started.session_id


async def test_the_first_run_asks_with_what_the_folder_contains(world: World, push: PushClient, cloned: Path) -> None:
    await begin(push, cloned)

    asked = (await push.until("approval_required"))[-1]

    assert asked.payload["title"] == "Trust this folder?"
    assert asked.payload["details"]["folder"] == str(cloned)
    assert asked.payload["details"]["contains"] == [
        "AGENTS.md",
        ".mcp.json",
        ".tower/prompts/fix.md",
        ".tower/skills/release.md",
        ".tower/presets/review.toml",
    ]


async def test_a_no_lets_the_run_work_without_the_folders_instructions(world: World, push: PushClient, cloned: Path) -> None:
    session_id = await begin(push, cloned, "/fix")

    await push.decide((await push.until("approval_required"))[-1], "deny")
    events = await push.until("run_complete")

    assert events[-1].payload["outcome"] == "success"
    told = world.told()
    assert ORDER not in told
    assert SKILL not in told
    assert "Latin" not in told
    assert not (cloned / "started").exists()
    assert "which you have not trusted" in str([event.payload for event in events])
    # The session is not asked again.
    again = await push.run(session_id, "hello again")
    assert "approval_required" not in [event.type for event in again]
    assert ORDER not in world.told()


async def test_a_yes_is_remembered_by_path_and_covers_what_lies_below(
    world: World, push: PushClient, connect: Connect, cloned: Path
) -> None:
    await begin(push, cloned)
    await push.decide((await push.until("approval_required"))[-1])
    server = (await push.until("approval_required"))[-1]  # a folder's trust does not start its servers
    assert server.payload["title"] == "Start an MCP server"
    await push.decide(server, "deny", comment="no")
    await push.until("run_complete")
    assert ORDER in (told := world.told())
    assert SKILL in told

    world.daemon.stop()
    world.daemon.start()
    below = cloned / "below"
    below.mkdir()
    (below / "AGENTS.md").write_text("Be brief.\n")
    link = cloned.parent / f"{cloned.name}-link"
    link.symlink_to(below)
    again = await connect(world.daemon, patience=PATIENCE)
    try:
        for folder in (below, link):
            await begin(again, folder)
            assert "approval_required" not in [event.type for event in await again.until("run_complete")]
            assert "Be brief." in world.told()
    finally:
        link.unlink()
    [file] = world.daemon.home.rglob("trusted_folders.json")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


async def test_a_folder_without_instructions_asks_nothing(world: World, push: PushClient, workspace: Path) -> None:
    await begin(push, workspace)

    assert "approval_required" not in [event.type for event in await push.until("run_complete")]


async def test_instructions_that_come_later_are_asked_about(world: World, push: PushClient, workspace: Path) -> None:
    session_id = await begin(push, workspace)
    await push.until("run_complete")
    (workspace / "CLAUDE.md").write_text(ORDER)

    await push.send(session_id, "hello")

    assert (await push.until("approval_required"))[-1].payload["details"]["contains"] == ["CLAUDE.md"]
    assert ORDER not in world.told()


async def test_nested_instructions_are_asked_about(world: World, push: PushClient, workspace: Path) -> None:
    (workspace / "docs").mkdir()
    (workspace / "docs" / "AGENTS.md").write_text(ORDER)

    await begin(push, workspace)

    assert (await push.until("approval_required"))[-1].payload["details"]["contains"] == ["docs/AGENTS.md"]


async def test_over_minicodex_the_question_is_an_approval(world: World, cloned: Path) -> None:
    mini = await MiniCodexClient.open(world.daemon.http, world.daemon.token, cwd=str(cloned))
    await mini.hello()
    await mini.do("send", text="hello")

    asked = await mini.next_of("approval_pending")
    await mini.do("deny", call_id=asked["call_id"])
    await mini.ended()

    assert "trust_folder" in json.dumps(asked)
    assert ORDER not in world.told()
    mini.wire.abort()


async def test_over_pi_the_question_is_an_approval(world: World, cloned: Path) -> None:
    pi = PiClient(await WebSocketWire.open(world.daemon.pi, None, path="/"))
    await pi.receive()
    session_id = (await pi.do("create_session", cwd=str(cloned)))["sessionId"]
    await pi.do("switch_session", sessionId=session_id)
    prompt = await pi.begin("prompt", sessionId=session_id, message="hello")
    asked = await pi.next_event("extension_ui_request")

    refusal = {"method": "confirm", "confirmed": False}
    await pi.do("extension_ui_response", sessionId=session_id, requestId=asked["requestId"], response=refusal)
    await pi.response(prompt)

    assert ORDER not in world.told()
    pi.wire.abort()


# Without a person


async def test_a_headless_run_is_not_asked_and_reads_nothing(world: World, cloned: Path) -> None:
    code, told = await asyncio.to_thread(world.tower, "run", "--headless", "hello", folder=cloned)

    assert code == 0, told
    assert "You have not trusted this folder" in told
    assert ORDER not in world.told()
    assert not (cloned / "started").exists()


async def test_yolo_is_not_asked_and_reads_nothing(world: World, push: PushClient, cloned: Path) -> None:
    await begin(push, cloned, policy="yolo")

    events = await push.until("run_complete")

    assert "FOLDER_NOT_TRUSTED" in [event.payload.get("code") for event in events]
    assert ORDER not in world.told()
    assert not (cloned / "started").exists()


async def test_a_headless_run_can_be_told_to_trust(world: World, cloned: Path) -> None:
    code, told = await asyncio.to_thread(world.tower, "run", "--headless", "--trust", "hello", folder=cloned)

    assert code == 0, told
    assert ORDER in world.told()


async def test_a_configured_folder_is_trusted(connect: Connect, cloned: Path) -> None:
    daemon = PiDaemon(trusted_folders=f"/nowhere,{cloned.parent}/ws-*")
    try:
        daemon.start()
        client = await connect(daemon)
        started = await client.start_session(cloned)
        titles = [
            (await client.until("approval_required"))[-1].payload["title"]
            for _ in [await client.send(started.session_id, "say: hi")]
        ]
        assert titles == ["Start an MCP server"]
    finally:
        daemon.discard()


async def test_folders_are_trusted_and_forgotten_by_command(world: World, cloned: Path) -> None:
    def tower(*arguments: str) -> tuple[int, str]:
        return world.tower(*arguments, folder=cloned)

    assert (await asyncio.to_thread(tower, "trust", "add"))[0] == 0
    listed = await asyncio.to_thread(tower, "trust", "list")
    assert str(cloned) in listed[1]
    await asyncio.to_thread(tower, "run", "--headless", "hello")
    assert ORDER in world.told()
    assert (await asyncio.to_thread(tower, "trust", "remove"))[0] == 0
    assert (await asyncio.to_thread(tower, "trust", "remove"))[0] == 1
    await asyncio.to_thread(tower, "run", "--headless", "hello")
    assert ORDER not in world.told()


# Presets


async def test_a_preset_of_a_folder_that_is_not_trusted_is_refused(world: World, push: PushClient, cloned: Path) -> None:
    payload = {
        "mode": "interactive",
        "provider": "openai",
        "sandboxProvider": "auto",
        "repo": {"rootPath": str(cloned), "currentBranch": "main", "defaultBranch": "main"},
        "preset": "review",
    }

    refused = await push.request("start_session", payload)
    accepted = await push.request("start_session", {**payload, "trust": True})

    assert refused.error is not None
    assert "you have not trusted its folder" in refused.error["message"]
    assert accepted.ok


# Who may trust


async def test_a_token_over_websocket_trusts_no_folder(world: World, connect: Connect, cloned: Path) -> None:
    client = await connect(world.daemon, "websocket")
    repo = {"rootPath": str(cloned), "currentBranch": "main", "defaultBranch": "main"}
    start: dict[str, Any] = {"mode": "interactive", "provider": "openai", "sandboxProvider": "auto", "repo": repo, "trust": True}

    answers = [await client.request("trust_folder", {"path": str(cloned)}), await client.request("start_session", start)]

    assert [answer.code for answer in answers] == ["ATTACH_FORBIDDEN", "ATTACH_FORBIDDEN"]


async def test_a_process_of_a_run_trusts_no_folder(world: World, push: PushClient, workspace: Path) -> None:
    started = await push.start_session(workspace, provider="demo")
    trust = shlex.join([sys.executable, "-P", "-m", "switchtower", "trust", "add", str(workspace)])
    await push.send(started.session_id, f"run: TOWER_HOME={world.daemon.home} {trust}; true")
    await push.decide((await push.until("approval_required"))[-1])

    events = await push.until("run_complete")

    assert "ATTACH_FORBIDDEN" in str([event.payload for event in events])
    assert not list(world.daemon.home.rglob("trusted_folders.json"))


# The folder that a question was about


@pytest.mark.parametrize("swap", ["a link", "another folder"])
@pytest.mark.parametrize("message", ["write note.txt: hello", "run: touch note.txt"], ids=["write", "run"])
async def test_what_was_approved_for_one_folder_does_not_happen_in_another(
    pushd: Daemon, client: PushClient, tmp_path: Path, swap: str, message: str
) -> None:
    """The folder is replaced while the question waits."""
    folder, elsewhere = tmp_path / "work", tmp_path / "elsewhere"
    folder.mkdir()
    elsewhere.mkdir()
    started = await client.start_session(folder)
    await client.send(started.session_id, message)
    asked = (await client.until("approval_required"))[-1]

    folder.rename(tmp_path / "gone")
    if swap == "a link":
        folder.symlink_to(elsewhere)
    else:
        folder.mkdir()
    await client.decide(asked)
    events = await client.until("run_complete")

    assert not (elsewhere / "note.txt").exists()
    assert not (folder / "note.txt").exists()
    assert "the workspace's folder was replaced" in str([event.payload for event in events])
