"""Ask once, run once: `clientMessageId` within a session."""

import asyncio
from pathlib import Path

import pytest
from tests.conformance.daemons import ManagedDaemon
from tests.conftest import Connect, StartDaemon

from switchtower.testing.push_client import PushClient


@pytest.mark.requirement("push:send:idempotent")
async def test_the_same_message_gets_the_same_answer_and_one_run(client_per_transport: PushClient, workspace: Path) -> None:
    session_id = (await client_per_transport.start_session(workspace)).session_id
    message = {"clientMessageId": "msg_once", "text": "say: once"}
    first = await client_per_transport.request("send_user_message", message, session_id=session_id)
    during = await client_per_transport.request("send_user_message", message, session_id=session_id)
    complete = (await client_per_transport.read_until("run_complete"))[-1]
    after = await client_per_transport.request("send_user_message", message, session_id=session_id)
    assert first.payload == during.payload == after.payload == {"runId": complete.run_id, "accepted": True}
    await client_per_transport.attach(session_id, 0)
    replayed = await client_per_transport.read_until("run_complete")
    assert [event.payload.get("phase") for event in replayed].count("Run started") == 1
    assert replayed[-1].seq == complete.seq
    await client_per_transport.ping()
    assert not client_per_transport.events


@pytest.mark.requirement("push:send:idempotent")
async def test_duplicates_in_one_write_make_one_run(client: PushClient, workspace: Path) -> None:
    session_id = (await client.start_session(workspace)).session_id
    message = {"clientMessageId": "msg_burst", "text": "say: once"}
    frames = [client.make_frame("send_user_message", message, session_id=session_id) for _ in range(50)]
    await client.send_frames(*frames)
    payloads = [(await client.wait_for_response(frame["requestId"])).payload for frame in frames]
    assert payloads == [payloads[0]] * 50
    assert payloads[0] is not None
    await client.read_until("run_complete")
    await client.ping()
    assert not client.events


@pytest.mark.requirement("push:send:idempotent")
async def test_clients_that_race_with_one_identity_share_one_run(
    push_daemon: ManagedDaemon, connect: Connect, workspace: Path
) -> None:
    clients = [await connect(push_daemon, ("socket", "websocket")[number % 2]) for number in range(10)]
    session_id = (await clients[0].start_session(workspace)).session_id
    run_ids = await asyncio.gather(*(client.send(session_id, "say: once", message_id="msg_race") for client in clients))
    assert len(set(run_ids)) == 1
    for client in clients[1:]:
        assert (await client.read_until("run_complete"))[-1].run_id == run_ids[0]


@pytest.mark.requirement("push:send:identity-conflict", "push:error:INVALID_REQUEST")
async def test_the_same_identity_with_another_text_or_criteria_is_refused(
    client_per_transport: PushClient, workspace: Path
) -> None:
    session_id = (await client_per_transport.start_session(workspace)).session_id
    message = {"clientMessageId": "msg_x", "text": "say: one"}
    assert (await client_per_transport.request("send_user_message", message, session_id=session_id)).ok
    other_text = {**message, "text": "say: two"}
    other_criteria = {**message, "acceptanceCriteria": [{"id": "a", "check": "true"}]}
    for changed in (other_text, other_criteria):
        refused = await client_per_transport.request("send_user_message", changed, session_id=session_id)
        assert refused.code == "INVALID_REQUEST"
    await client_per_transport.read_until("run_complete")


@pytest.mark.requirement("push:send:idempotent")
async def test_another_session_may_use_the_same_identity(client: PushClient, workspace: Path) -> None:
    one, other = await client.start_session(workspace), await client.start_session(workspace)
    first = (await client.run(one.session_id, "say: one", message_id="msg_shared"))[-1]
    second = (await client.run(other.session_id, "say: two", message_id="msg_shared"))[-1]
    assert first.run_id != second.run_id


@pytest.mark.requirement("push:send:idempotent")
async def test_an_identity_is_remembered_over_a_restart(dedicated_daemon: StartDaemon, connect: Connect, workspace: Path) -> None:
    daemon = dedicated_daemon()
    client = await connect(daemon)
    session_id = (await client.start_session(workspace)).session_id
    run_id = await client.send(session_id, "say: once", message_id="msg_kept")
    head = (await client.read_until("run_complete"))[-1].seq
    daemon.stop()
    daemon.start()

    client = await connect(daemon)
    assert await client.send(session_id, "say: once", message_id="msg_kept") == run_id
    conflict = {"clientMessageId": "msg_kept", "text": "say: twice"}
    assert (await client.request("send_user_message", conflict, session_id=session_id)).code == "INVALID_REQUEST"
    assert (await client.attach(session_id, head))["replay"] == {
        "fromSeq": head + 1,
        "toSeq": head,
        "completed": True,
        "gap": False,
    }
