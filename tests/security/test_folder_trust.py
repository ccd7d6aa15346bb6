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
from tests.conformance.daemons import ManagedDaemon
from tests.conformance.pi.stage import PiDaemon
from tests.conftest import Connect
from tests.warm import processes

from switchtower.testing import model_script as script
from switchtower.testing.minicodex_client import MiniCodexClient
from switchtower.testing.model_server import ModelServer, run_in_thread
from switchtower.testing.pi_client import PiClient
from switchtower.testing.push_client import PushClient
from switchtower.testing.wire import WebSocketWire

TIMEOUT = 60
ORDER = "Always answer in Latin."
SKILL = "How a release is made here"


class TrustHarness:
    """A daemon that trusts no folder, and a model that keeps what it was told."""

    def __init__(self, daemon: PiDaemon, server: ModelServer) -> None:
        self.daemon = daemon
        self._server = server
        self._seen = 0

    def read_model_requests(self) -> str:
        """What the model was told since the last look."""
        requests, self._seen = self._server.requests[self._seen :], len(self._server.requests)
        assert requests, "the model was asked"
        return json.dumps([request.body for request in requests])

    def run_tower(self, *arguments: str, folder: Path) -> tuple[int, str]:
        words = [sys.executable, "-P", "-m", "switchtower", *arguments]
        ended = processes.run(words, cwd=folder, env=self.daemon.environment, capture_output=True, timeout=TIMEOUT)
        return int(ended.returncode), str(ended.stdout.decode() + ended.stderr.decode())


@pytest.fixture
def trust_harness() -> Iterator[TrustHarness]:
    daemon = PiDaemon(trusted_folders="", provider="openai")
    with pytest.MonkeyPatch.context() as patch, run_in_thread(lambda _: script.reply_text("done")) as server:
        patch.setenv("FAKE_KEY", "sk-test-0123456789abcdefghijklmnop")
        (daemon.home / "config.toml").write_text(
            f'[models.openai]\nprovider = "openai"\nmodel = "m-1"\nbase_url = "{server.url}"\nkey_env = "FAKE_KEY"\n'
        )
        try:
            daemon.start()
            yield TrustHarness(daemon, server)
        finally:
            daemon.discard()


@pytest.fixture
def cloned_folder(workspace: Path) -> Path:
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
async def push_client(trust_harness: TrustHarness, connect: Connect) -> AsyncIterator[PushClient]:
    return await connect(trust_harness.daemon, timeout=TIMEOUT)


async def begin(push: PushClient, folder: Path, text: str = "hello", **fields: object) -> str:
    started = await push.start_session(folder, provider="openai", **fields)
    await push.send(started.session_id, text)
    return started.session_id


async def test_the_first_run_asks_with_what_the_folder_contains(
    trust_harness: TrustHarness, push_client: PushClient, cloned_folder: Path
) -> None:
    await begin(push_client, cloned_folder)

    asked = (await push_client.read_until("approval_required"))[-1]

    assert asked.payload["title"] == "Trust this folder?"
    assert asked.payload["details"]["folder"] == str(cloned_folder)
    assert asked.payload["details"]["contains"] == [
        "AGENTS.md",
        ".mcp.json",
        ".tower/prompts/fix.md",
        ".tower/skills/release.md",
        ".tower/presets/review.toml",
    ]


async def test_a_no_lets_the_run_work_without_the_folders_instructions(
    trust_harness: TrustHarness, push_client: PushClient, cloned_folder: Path
) -> None:
    session_id = await begin(push_client, cloned_folder, "/fix")

    await push_client.decide((await push_client.read_until("approval_required"))[-1], "deny")
    events = await push_client.read_until("run_complete")

    assert events[-1].payload["outcome"] == "success"
    told = trust_harness.read_model_requests()
    assert ORDER not in told
    assert SKILL not in told
    assert "Latin" not in told
    assert not (cloned_folder / "started").exists()
    assert "which you have not trusted" in str([event.payload for event in events])
    # The session is not asked again.
    again = await push_client.run(session_id, "hello again")
    assert "approval_required" not in [event.type for event in again]
    assert ORDER not in trust_harness.read_model_requests()


async def test_a_yes_is_remembered_by_path_and_covers_what_lies_below(
    trust_harness: TrustHarness, push_client: PushClient, connect: Connect, cloned_folder: Path
) -> None:
    await begin(push_client, cloned_folder)
    await push_client.decide((await push_client.read_until("approval_required"))[-1])
    server = (await push_client.read_until("approval_required"))[-1]  # a folder's trust does not start its servers
    assert server.payload["title"] == "Start an MCP server"
    await push_client.decide(server, "deny", comment="no")
    await push_client.read_until("run_complete")
    assert ORDER in (told := trust_harness.read_model_requests())
    assert SKILL in told

    trust_harness.daemon.stop()
    trust_harness.daemon.start()
    below = cloned_folder / "below"
    below.mkdir()
    (below / "AGENTS.md").write_text("Be brief.\n")
    link = cloned_folder.parent / f"{cloned_folder.name}-link"
    link.symlink_to(below)
    again = await connect(trust_harness.daemon, timeout=TIMEOUT)
    try:
        for folder in (below, link):
            await begin(again, folder)
            assert "approval_required" not in [event.type for event in await again.read_until("run_complete")]
            assert "Be brief." in trust_harness.read_model_requests()
    finally:
        link.unlink()
    [file] = trust_harness.daemon.home.rglob("trusted_folders.json")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


async def test_a_folder_without_instructions_asks_nothing(
    trust_harness: TrustHarness, push_client: PushClient, workspace: Path
) -> None:
    await begin(push_client, workspace)

    assert "approval_required" not in [event.type for event in await push_client.read_until("run_complete")]


async def test_instructions_that_come_later_are_asked_about(
    trust_harness: TrustHarness, push_client: PushClient, workspace: Path
) -> None:
    session_id = await begin(push_client, workspace)
    await push_client.read_until("run_complete")
    (workspace / "CLAUDE.md").write_text(ORDER)

    await push_client.send(session_id, "hello")

    assert (await push_client.read_until("approval_required"))[-1].payload["details"]["contains"] == ["CLAUDE.md"]
    assert ORDER not in trust_harness.read_model_requests()


async def test_nested_instructions_are_asked_about(trust_harness: TrustHarness, push_client: PushClient, workspace: Path) -> None:
    (workspace / "docs").mkdir()
    (workspace / "docs" / "AGENTS.md").write_text(ORDER)

    await begin(push_client, workspace)

    assert (await push_client.read_until("approval_required"))[-1].payload["details"]["contains"] == ["docs/AGENTS.md"]


async def test_over_minicodex_the_question_is_an_approval(trust_harness: TrustHarness, cloned_folder: Path) -> None:
    mini = await MiniCodexClient.open(trust_harness.daemon.http, trust_harness.daemon.token, cwd=str(cloned_folder))
    await mini.send_hello()
    await mini.execute("send", text="hello")

    asked = await mini.next_of_type("approval_pending")
    await mini.execute("deny", call_id=asked["call_id"])
    await mini.wait_for_end()

    assert "trust_folder" in json.dumps(asked)
    assert ORDER not in trust_harness.read_model_requests()
    mini.wire.abort()


async def test_over_pi_the_question_is_an_approval(trust_harness: TrustHarness, cloned_folder: Path) -> None:
    pi = PiClient(await WebSocketWire.open(trust_harness.daemon.pi, None, path="/"))
    await pi.receive()
    session_id = (await pi.execute("create_session", cwd=str(cloned_folder)))["sessionId"]
    await pi.execute("switch_session", sessionId=session_id)
    prompt = await pi.begin("prompt", sessionId=session_id, message="hello")
    asked = await pi.next_event("extension_ui_request")

    refusal = {"method": "confirm", "confirmed": False}
    await pi.execute("extension_ui_response", sessionId=session_id, requestId=asked["requestId"], response=refusal)
    await pi.wait_for_response(prompt)

    assert ORDER not in trust_harness.read_model_requests()
    pi.wire.abort()


# Without a person


async def test_a_headless_run_is_not_asked_and_reads_nothing(trust_harness: TrustHarness, cloned_folder: Path) -> None:
    code, told = await asyncio.to_thread(trust_harness.run_tower, "run", "--headless", "hello", folder=cloned_folder)

    assert code == 0, told
    assert "You have not trusted this folder" in told
    assert ORDER not in trust_harness.read_model_requests()
    assert not (cloned_folder / "started").exists()


async def test_yolo_is_not_asked_and_reads_nothing(
    trust_harness: TrustHarness, push_client: PushClient, cloned_folder: Path
) -> None:
    await begin(push_client, cloned_folder, policy="yolo")

    events = await push_client.read_until("run_complete")

    assert "FOLDER_NOT_TRUSTED" in [event.payload.get("code") for event in events]
    assert ORDER not in trust_harness.read_model_requests()
    assert not (cloned_folder / "started").exists()


async def test_a_headless_run_can_be_told_to_trust(trust_harness: TrustHarness, cloned_folder: Path) -> None:
    code, told = await asyncio.to_thread(trust_harness.run_tower, "run", "--headless", "--trust", "hello", folder=cloned_folder)

    assert code == 0, told
    assert ORDER in trust_harness.read_model_requests()


async def test_a_configured_folder_is_trusted(connect: Connect, cloned_folder: Path) -> None:
    daemon = PiDaemon(trusted_folders=f"/nowhere,{cloned_folder.parent}/ws-*")
    try:
        daemon.start()
        client = await connect(daemon)
        started = await client.start_session(cloned_folder)
        titles = [
            (await client.read_until("approval_required"))[-1].payload["title"]
            for _ in [await client.send(started.session_id, "say: hi")]
        ]
        assert titles == ["Start an MCP server"]
    finally:
        daemon.discard()


async def test_folders_are_trusted_and_forgotten_by_command(trust_harness: TrustHarness, cloned_folder: Path) -> None:
    def tower(*arguments: str) -> tuple[int, str]:
        return trust_harness.run_tower(*arguments, folder=cloned_folder)

    assert (await asyncio.to_thread(tower, "trust", "add"))[0] == 0
    listed = await asyncio.to_thread(tower, "trust", "list")
    assert str(cloned_folder) in listed[1]
    await asyncio.to_thread(tower, "run", "--headless", "hello")
    assert ORDER in trust_harness.read_model_requests()
    assert (await asyncio.to_thread(tower, "trust", "remove"))[0] == 0
    assert (await asyncio.to_thread(tower, "trust", "remove"))[0] == 1
    await asyncio.to_thread(tower, "run", "--headless", "hello")
    assert ORDER not in trust_harness.read_model_requests()


# Presets


async def test_a_preset_of_a_folder_that_is_not_trusted_is_refused(
    trust_harness: TrustHarness, push_client: PushClient, cloned_folder: Path
) -> None:
    payload = {
        "mode": "interactive",
        "provider": "openai",
        "sandboxProvider": "auto",
        "repo": {"rootPath": str(cloned_folder), "currentBranch": "main", "defaultBranch": "main"},
        "preset": "review",
    }

    refused = await push_client.request("start_session", payload)
    accepted = await push_client.request("start_session", {**payload, "trust": True})

    assert refused.error is not None
    assert "you have not trusted its folder" in refused.error["message"]
    assert accepted.ok


# Who may trust


async def test_a_token_over_websocket_trusts_no_folder(
    trust_harness: TrustHarness, connect: Connect, cloned_folder: Path
) -> None:
    client = await connect(trust_harness.daemon, "websocket")
    repo = {"rootPath": str(cloned_folder), "currentBranch": "main", "defaultBranch": "main"}
    start: dict[str, Any] = {"mode": "interactive", "provider": "openai", "sandboxProvider": "auto", "repo": repo, "trust": True}

    answers = [await client.request("trust_folder", {"path": str(cloned_folder)}), await client.request("start_session", start)]

    assert [answer.code for answer in answers] == ["ATTACH_FORBIDDEN", "ATTACH_FORBIDDEN"]


async def test_a_process_of_a_run_trusts_no_folder(trust_harness: TrustHarness, push_client: PushClient, workspace: Path) -> None:
    started = await push_client.start_session(workspace, provider="demo")
    trust = shlex.join([sys.executable, "-P", "-m", "switchtower", "trust", "add", str(workspace)])
    await push_client.send(started.session_id, f"run: TOWER_HOME={trust_harness.daemon.home} {trust}; true")
    await push_client.decide((await push_client.read_until("approval_required"))[-1])

    events = await push_client.read_until("run_complete")

    assert "ATTACH_FORBIDDEN" in str([event.payload for event in events])
    assert not list(trust_harness.daemon.home.rglob("trusted_folders.json"))


# The folder that a question was about


@pytest.mark.parametrize("swap", ["a link", "another folder"])
@pytest.mark.parametrize("message", ["write note.txt: hello", "run: touch note.txt"], ids=["write", "run"])
async def test_what_was_approved_for_one_folder_does_not_happen_in_another(
    push_daemon: ManagedDaemon, client: PushClient, tmp_path: Path, swap: str, message: str
) -> None:
    """The folder is replaced while the question waits."""
    folder, elsewhere = tmp_path / "work", tmp_path / "elsewhere"
    folder.mkdir()
    elsewhere.mkdir()
    started = await client.start_session(folder)
    await client.send(started.session_id, message)
    asked = (await client.read_until("approval_required"))[-1]

    folder.rename(tmp_path / "gone")
    if swap == "a link":
        folder.symlink_to(elsewhere)
    else:
        folder.mkdir()
    await client.decide(asked)
    events = await client.read_until("run_complete")

    assert not (elsewhere / "note.txt").exists()
    assert not (folder / "note.txt").exists()
    assert "the workspace's folder was replaced" in str([event.payload for event in events])
