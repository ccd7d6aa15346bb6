"""Agent sessions as runs: what they say is output, what they ask are permission requests, what is typed are messages."""

from pathlib import Path

import pytest
from tests.conformance.daemons import Daemon
from tests.conformance.relay.conftest import Linked
from tests.conformance.relay.fake_hub import FakeHub
from tests.conformance.relay.peers import App, Web
from tests.conftest import Connect

from switchtower.testing.push_client import PushClient


@pytest.fixture
async def push(connect: Connect, hub: Daemon) -> PushClient:
    return await connect(hub)


@pytest.mark.requirement("relay:agents:row")
async def test_an_agents_session_is_listed_among_the_runs(push: PushClient, web: Web, here: str, workspace: Path) -> None:
    session = (await push.start_session(workspace)).session_id
    row = web.get(f"/sessions/{session}")
    assert (row["id"], row["host_id"], row["cwd"], row["status"]) == (session, here, str(workspace), "awaiting_input")
    assert session in [row["id"] for row in web.get("/runs")]


@pytest.mark.requirement("relay:agents:output", "relay:agents:input")
async def test_what_is_typed_is_a_message_and_what_the_agent_says_is_output(
    push: PushClient, app: App, web: Web, workspace: Path
) -> None:
    session = (await push.start_session(workspace)).session_id
    started = await app.told("run.started", session)
    assert started["seq"] == 1
    await app.command("run.send_input", session, input_id="m-1", text="say: good morning\n")
    waiting = await app.told("run.awaiting_input", session)
    assert waiting["data"]["reason"] == "prompt"
    assert "good morning" in app.output(session)
    typed = await app.told("run.input", session)
    assert (typed["data"]["actor"], typed["data"]["text_redacted"]) == ("web", "say: good morning")
    assert web.get(f"/sessions/{session}")["status"] == "awaiting_input"
    spoken = [message for message in web.get(f"/runs/{session}/messages") if message["role"] == "assistant"]
    assert any("good morning" in message["text"] for message in spoken)


@pytest.mark.requirement("relay:agents:approvals")
@pytest.mark.parametrize("how", ["approve", "typed"])
async def test_what_an_agent_asks_is_a_permission_request(
    push: PushClient, app: App, web: Web, workspace: Path, how: str
) -> None:
    session = (await push.start_session(workspace)).session_id
    await app.command("run.send_input", session, input_id="m-1", text="run: touch ran\n")
    asked = (await app.told("run.permission_requested", session))["data"]
    row = web.get(f"/sessions/{session}")
    assert (row["status"], row["pending_request_id"]) == ("awaiting_approval", asked["request_id"])
    assert asked["op_tool"] == "run"
    assert not (workspace / "ran").exists()
    if how == "approve":
        await app.command("run.permission.approve", session, request_id=asked["request_id"])
    else:
        await app.command("run.send_input", session, input_id="m-2", text=asked["approve_text"])
    await app.told("run.awaiting_input", session, reason="prompt")
    assert (workspace / "ran").exists()
    decided = (await app.told("run.permission_decided", session))["data"]
    assert (decided["request_id"], decided["decision"], decided["actor"]) == (asked["request_id"], "approve", "web")


@pytest.mark.requirement("relay:agents:stop")
async def test_stop_ends_what_an_agent_does(push: PushClient, app: App, web: Web, workspace: Path) -> None:
    session = (await push.start_session(workspace)).session_id
    await app.command("run.send_input", session, input_id="m-1", text="run: touch ran\n")
    await app.told("run.permission_requested", session)
    await app.command("run.stop", session)
    await app.told("run.permission_decided", session, decision="withdrawn")
    web.row_when(session, lambda row: row["status"] == "awaiting_input")
    assert not (workspace / "ran").exists()


@pytest.mark.requirement("relay:agents:calls")
async def test_calls_work_in_an_agents_folder(push: PushClient, app: App, workspace: Path) -> None:
    session = (await push.start_session(workspace)).session_id
    assert (await app.call("rpc.fs.read", session, path="README.md"))["content"].startswith("# A workspace")
    assert await app.error("rpc.fs.read", session, path="../x") == "path contains .."
    assert await app.error("rpc.bash", session, cmd="touch ran") == "run is not active"
    assert not (workspace / "ran").exists()


@pytest.mark.requirement("relay:agents:linked")
async def test_an_agents_session_on_a_host_is_told_to_its_hub(
    connect: Connect, linked: FakeHub, linked_for_all: Linked, workspace: Path
) -> None:
    push = await connect(linked_for_all.daemon)
    session = (await push.start_session(workspace)).session_id
    linked.until("run.started", session)
    linked.send("run.send_input", {"input_id": "m-1", "text": "say: from afar\n"}, run_id=session)
    linked.until("run.awaiting_input", session)
    assert "from afar" in linked.output(session)
    assert [frame["prev_seq"] for frame in linked.of(session)] == [0, *[frame["seq"] for frame in linked.of(session)[:-1]]]
