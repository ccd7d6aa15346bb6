"""Agent sessions as runs: what they say is output, what they ask are permission requests, what is typed are messages."""

from pathlib import Path

import pytest
from tests.conformance.daemons import ManagedDaemon
from tests.conformance.relay.conftest import HostWithFakeHub
from tests.conformance.relay.fake_hub import FakeHub
from tests.conformance.relay.peers import CheckedApp, CheckedHttp
from tests.conftest import Connect

from switchtower.testing.push_client import PushClient


@pytest.fixture
async def push_client(connect: Connect, hub: ManagedDaemon) -> PushClient:
    return await connect(hub)


@pytest.mark.requirement("relay:agents:row")
async def test_an_agents_session_is_listed_among_the_runs(
    push_client: PushClient, hub_http: CheckedHttp, local_host_id: str, workspace: Path
) -> None:
    session = (await push_client.start_session(workspace)).session_id
    row = hub_http.get(f"/sessions/{session}")
    assert (row["id"], row["host_id"], row["cwd"], row["status"]) == (session, local_host_id, str(workspace), "awaiting_input")
    assert session in [row["id"] for row in hub_http.get("/runs")]


@pytest.mark.requirement("relay:agents:output", "relay:agents:input")
async def test_what_is_typed_is_a_message_and_what_the_agent_says_is_output(
    push_client: PushClient, app: CheckedApp, hub_http: CheckedHttp, workspace: Path
) -> None:
    session = (await push_client.start_session(workspace)).session_id
    started = await app.wait_for_frame("run.started", session)
    assert started["seq"] == 1
    await app.send_command("run.send_input", session, input_id="m-1", text="say: good morning\n")
    waiting = await app.wait_for_frame("run.awaiting_input", session)
    assert waiting["data"]["reason"] == "prompt"
    assert "good morning" in app.join_output(session)
    typed = await app.wait_for_frame("run.input", session)
    assert (typed["data"]["actor"], typed["data"]["text_redacted"]) == ("web", "say: good morning")
    assert hub_http.get(f"/sessions/{session}")["status"] == "awaiting_input"
    spoken = [message for message in hub_http.get(f"/runs/{session}/messages") if message["role"] == "assistant"]
    assert any("good morning" in message["text"] for message in spoken)


@pytest.mark.requirement("relay:agents:approvals")
@pytest.mark.parametrize("how", ["approve", "typed"])
async def test_what_an_agent_asks_is_a_permission_request(
    push_client: PushClient, app: CheckedApp, hub_http: CheckedHttp, workspace: Path, how: str
) -> None:
    session = (await push_client.start_session(workspace)).session_id
    await app.send_command("run.send_input", session, input_id="m-1", text="run: touch ran\n")
    asked = (await app.wait_for_frame("run.permission_requested", session))["data"]
    row = hub_http.get(f"/sessions/{session}")
    assert (row["status"], row["pending_request_id"]) == ("awaiting_approval", asked["request_id"])
    assert asked["op_tool"] == "run"
    assert not (workspace / "ran").exists()
    if how == "approve":
        await app.send_command("run.permission.approve", session, request_id=asked["request_id"])
    else:
        await app.send_command("run.send_input", session, input_id="m-2", text=asked["approve_text"])
    await app.wait_for_frame("run.awaiting_input", session, reason="prompt")
    assert (workspace / "ran").exists()
    decided = (await app.wait_for_frame("run.permission_decided", session))["data"]
    assert (decided["request_id"], decided["decision"], decided["actor"]) == (asked["request_id"], "approve", "web")


@pytest.mark.requirement("relay:agents:stop")
async def test_stop_ends_what_an_agent_does(
    push_client: PushClient, app: CheckedApp, hub_http: CheckedHttp, workspace: Path
) -> None:
    session = (await push_client.start_session(workspace)).session_id
    await app.send_command("run.send_input", session, input_id="m-1", text="run: touch ran\n")
    await app.wait_for_frame("run.permission_requested", session)
    await app.send_command("run.stop", session)
    await app.wait_for_frame("run.permission_decided", session, decision="withdrawn")
    hub_http.wait_for_row(session, lambda row: row["status"] == "awaiting_input")
    assert not (workspace / "ran").exists()


@pytest.mark.requirement("relay:agents:calls")
async def test_calls_work_in_an_agents_folder(push_client: PushClient, app: CheckedApp, workspace: Path) -> None:
    session = (await push_client.start_session(workspace)).session_id
    assert (await app.call("rpc.fs.read", session, path="README.md"))["content"].startswith("# A workspace")
    assert await app.request_error("rpc.fs.read", session, path="../x") == "path contains .."
    assert await app.request_error("rpc.bash", session, cmd="touch ran") == "run is not active"
    assert not (workspace / "ran").exists()


@pytest.mark.requirement("relay:agents:linked")
async def test_an_agents_session_on_a_host_is_told_to_its_hub(
    connect: Connect, linked_fake_hub: FakeHub, shared_linked_host: HostWithFakeHub, workspace: Path
) -> None:
    push = await connect(shared_linked_host.daemon)
    session = (await push.start_session(workspace)).session_id
    linked_fake_hub.wait_for("run.started", session)
    linked_fake_hub.send("run.send_input", {"input_id": "m-1", "text": "say: from afar\n"}, run_id=session)
    linked_fake_hub.wait_for("run.awaiting_input", session)
    assert "from afar" in linked_fake_hub.get_output(session)
    assert [frame["prev_seq"] for frame in linked_fake_hub.list_run_messages(session)] == [
        0,
        *[frame["seq"] for frame in linked_fake_hub.list_run_messages(session)[:-1]],
    ]
