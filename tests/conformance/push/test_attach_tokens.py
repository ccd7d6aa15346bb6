"""Who may attach: the owner's socket by default, a token where the setting asks for one, a wrong token never."""

from pathlib import Path

import pytest
from tests.conformance import shared_store
from tests.conformance.daemons import ManagedDaemon
from tests.conftest import Connect, StartDaemon

from switchtower.testing.push_client import PushClient, RequestRefused
from switchtower.testing.wire import UpgradeRefused, WebSocketWire

WRONG = "att_" + "0" * 40


@pytest.fixture
def attach_token_daemon(start_daemon: StartDaemon) -> ManagedDaemon:
    return start_daemon(attach_token_required=True)


@pytest.mark.requirement("push:security:owner-socket-trusted")
async def test_the_owner_attaches_without_a_token_and_with_the_right_one(
    client_per_transport: PushClient, push_daemon: ManagedDaemon, connect: Connect, transport: str, workspace: Path
) -> None:
    session = await client_per_transport.start_session(workspace)
    other = await connect(push_daemon, transport)
    assert (await other.attach(session.session_id))["state"] == "idle"
    assert (await other.attach(session.session_id, token=session.attach_token))["state"] == "idle"


@pytest.mark.requirement("push:security:wrong-token", "push:error:ATTACH_FORBIDDEN")
@pytest.mark.parametrize("type_", ["attach_session", "resume_session"])
async def test_a_wrong_token_never_attaches(client_per_transport: PushClient, workspace: Path, type_: str) -> None:
    session, other = await client_per_transport.start_session(workspace), await client_per_transport.start_session(workspace)
    for token in (WRONG, other.attach_token, session.attach_token[:-1], session.attach_token + "0", "att_x"):
        payload = {"lastSeenSeq": 0, "attachToken": token}
        response = await client_per_transport.request(type_, payload, session_id=session.session_id)
        assert response.code == "ATTACH_FORBIDDEN"
        assert token not in response.raw.decode()
    await client_per_transport.read_until("session_started")
    await client_per_transport.read_until("session_started")
    await client_per_transport.ping()
    assert not client_per_transport.events, "nothing was replayed and no summary was made"


@pytest.mark.requirement("push:security:token-required-by-setting", "push:error:ATTACH_FORBIDDEN")
async def test_with_the_setting_the_socket_needs_the_token_too(
    attach_token_daemon: ManagedDaemon, connect: Connect, workspace: Path
) -> None:
    owner, stranger = await connect(attach_token_daemon), await connect(attach_token_daemon)
    session = await owner.start_session(workspace)
    assert (await owner.attach(session.session_id))["state"] == "idle", "who started it is attached already"

    for type_ in ("attach_session", "resume_session"):
        response = await stranger.request(type_, {"lastSeenSeq": 0}, session_id=session.session_id)
        assert response.frame["error"]["code"] == "ATTACH_FORBIDDEN"
        assert response.session_id == session.session_id
    with pytest.raises(RequestRefused, match="ATTACH_FORBIDDEN"):
        await stranger.attach(session.session_id, token=WRONG)
    assert not stranger.events

    assert (await stranger.attach(session.session_id, token=session.attach_token))["state"] == "idle"
    assert (await stranger.next_event()).type == "session_started"
    assert (await stranger.attach(session.session_id))["state"] == "idle", "attached once is trusted for this session"


@pytest.mark.requirement("push:security:token-required-by-setting")
async def test_who_may_not_attach_may_not_command_either(
    attach_token_daemon: ManagedDaemon, connect: Connect, workspace: Path
) -> None:
    owner, stranger = await connect(attach_token_daemon), await connect(attach_token_daemon)
    session = await owner.start_session(workspace)
    run_id = await owner.send(session.session_id, "run: true")
    asked = (await owner.read_until("approval_required"))[-1]
    message = {"clientMessageId": "msg_1", "text": "x"}
    assert (await stranger.request("send_user_message", message, session_id=session.session_id)).code == "ATTACH_FORBIDDEN"
    assert (await stranger.decide(asked)).code == "ATTACH_FORBIDDEN"
    assert (await stranger.cancel(session.session_id, run_id)).code == "ATTACH_FORBIDDEN"
    await owner.ping()
    assert not owner.events, "nothing happened"

    await stranger.attach(session.session_id, asked.seq, token=session.attach_token)
    assert (await stranger.decide(asked)).ok
    assert (await stranger.read_until("run_complete"))[-1].payload["outcome"] == "success"


@pytest.mark.requirement("push:security:token-required-by-setting")
async def test_a_session_that_does_not_exist_is_not_found_with_or_without_a_token(
    attach_token_daemon: ManagedDaemon, connect: Connect
) -> None:
    stranger = await connect(attach_token_daemon)
    for token in (None, WRONG):
        with pytest.raises(RequestRefused, match="SESSION_NOT_FOUND"):
            await stranger.attach("sess_none", token=token)


@pytest.mark.requirement("push:security:token-survives-restart")
async def test_a_token_is_good_after_a_restart_and_is_nowhere_on_disk(
    dedicated_daemon: StartDaemon, connect: Connect, workspace: Path
) -> None:
    daemon = dedicated_daemon(attach_token_required=True)
    session = await (await connect(daemon)).start_session(workspace)
    daemon.stop()
    daemon.start()
    client = await connect(daemon)
    with pytest.raises(RequestRefused, match="ATTACH_FORBIDDEN"):
        await client.attach(session.session_id, token=WRONG)
    await client.attach(session.session_id, token=session.attach_token)
    assert b"session_started" in (await client.next_event()).raw
    stored = [path for path in daemon.home.rglob("*") if path.is_file()]
    assert shared_store.is_wanted() or any(session.session_id.encode() in path.read_bytes() for path in stored)
    assert not any(session.attach_token.encode() in path.read_bytes() for path in stored)


@pytest.mark.requirement("push:security:websocket-token")
@pytest.mark.parametrize("token", [None, "", "x", "att_x", "ü"])
async def test_a_websocket_without_the_owners_token_is_not_let_in(push_daemon: ManagedDaemon, token: str | None) -> None:
    with pytest.raises(UpgradeRefused) as refused:
        await WebSocketWire.open(push_daemon.http, token)
    assert refused.value.status == 401


@pytest.mark.requirement("push:security:websocket-token")
async def test_a_sessions_token_does_not_open_a_websocket(
    push_daemon: ManagedDaemon, client: PushClient, workspace: Path
) -> None:
    session = await client.start_session(workspace)
    with pytest.raises(UpgradeRefused) as refused:
        await WebSocketWire.open(push_daemon.http, session.attach_token)
    assert refused.value.status == 401


@pytest.mark.requirement("push:transport:websocket")
async def test_other_paths_speak_no_push(push_daemon: ManagedDaemon) -> None:
    for path in ("/", "/ws", "/ws/push/", "/ws/PUSH", "/ws/push/../push2"):
        with pytest.raises(UpgradeRefused) as refused:
            await WebSocketWire.open(push_daemon.http, push_daemon.token, path)
        assert refused.value.status == 404
