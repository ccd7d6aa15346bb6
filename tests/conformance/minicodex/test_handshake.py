"""Coming in: hello or resume first, versions, capabilities, which session, and who may."""

from pathlib import Path

import pytest
from tests.conformance.daemons import ManagedDaemon
from tests.conformance.minicodex.conftest import Enter

from switchtower.testing.minicodex_client import MiniCodexClient
from switchtower.testing.wire import UpgradeRefused

COMMANDS = [
    {"type": "send", "text": "say: hi"},
    {"type": "approve", "call_id": "call_1"},
    {"type": "deny", "call_id": "call_1"},
    {"type": "abort"},
    {"type": "get_snapshot"},
    {"type": "ping"},
]


@pytest.mark.requirement(
    "minicodex:handshake:hello",
    "minicodex:handshake:new-session",
    "minicodex:matrix:fresh-connect",
    "minicodex:state:nulls",
)
async def test_hello_is_answered_by_a_welcome_and_a_snapshot_of_a_new_session(
    connect_minicodex: Enter, push_daemon: ManagedDaemon, workspace: Path
) -> None:
    client = await connect_minicodex(push_daemon, cwd=workspace)
    await client.send_frames({"type": "hello", "v": "1.0.0", "client_capabilities": []})
    welcome, snapshot = await client.receive(), await client.receive()
    session_id = welcome["session_state"]["session_id"]
    state = {
        "session_id": session_id,
        "version": "1.0.0",
        "capabilities": ["reasoning", "approvals", "replay", "deny_abort"],
        "last_event_id": None,
        "active_run_id": None,
        "run_counter": 0,
    }
    assert welcome == {"type": "welcome", "v": "1.0.0", "session_state": state}
    assert snapshot == {
        "type": "snapshot",
        "v": "1.0.0",
        "session_id": session_id,
        "session_state": state,
        "run_state": None,
        "transcript": [],
        "event_id": 0,
    }
    assert session_id.startswith("sess_")


@pytest.mark.requirement("minicodex:handshake:new-session")
async def test_every_client_without_a_session_gets_one_of_its_own_that_others_can_join(
    connect_minicodex: Enter, minicodex_client: MiniCodexClient, push_daemon: ManagedDaemon, workspace: Path
) -> None:
    second = await connect_minicodex(push_daemon, cwd=workspace)
    await second.send_hello()
    assert second.session_id != minicodex_client.session_id
    third = await connect_minicodex(push_daemon, session_id=minicodex_client.session_id)
    await third.send_hello()
    assert third.session_id == minicodex_client.session_id
    await minicodex_client.run("list .")
    assert (workspace / "README.md").exists()
    assert "README.md" in str(minicodex_client.ledger.transcript)


@pytest.mark.requirement("minicodex:handshake:first", "minicodex:errors:no-state-change")
@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: str(command["type"]))
async def test_nothing_is_done_for_who_has_not_said_hello(
    connect_minicodex: Enter, minicodex_client: MiniCodexClient, push_daemon: ManagedDaemon, command: dict[str, object]
) -> None:
    client = await connect_minicodex(push_daemon, session_id=minicodex_client.session_id)
    await client.send_frames({**command, "req_id": "early"})
    assert await client.receive() == {
        "type": "error",
        "code": "INVALID_COMMAND",
        "message": "say `hello` or `resume` first",
        "req_id": "early",
    }
    assert await minicodex_client.request_snapshot() == minicodex_client.ledger.build_snapshot()
    await client.send_hello()
    assert client.ledger.build_snapshot() == minicodex_client.ledger.build_snapshot()


@pytest.mark.requirement("minicodex:handshake:versions")
@pytest.mark.parametrize("version", ["1.0.0", "1.4.2", "1.0.0-rc.1", "1.0.0+build.5"])
async def test_the_same_major_version_is_welcome(
    connect_minicodex: Enter, push_daemon: ManagedDaemon, workspace: Path, version: str
) -> None:
    client = await connect_minicodex(push_daemon, cwd=workspace)
    assert (await client.send_hello(v=version))["v"] == "1.0.0"


@pytest.mark.requirement("minicodex:handshake:versions")
@pytest.mark.parametrize("version", ["0.9.0", "2.0.0", "10.0.0"])
async def test_another_major_version_is_told_which_one_is_spoken_and_closed(
    connect_minicodex: Enter, minicodex_client: MiniCodexClient, push_daemon: ManagedDaemon, version: str
) -> None:
    client = await connect_minicodex(push_daemon, session_id=minicodex_client.session_id)
    answer = await client.request("hello", v=version)
    assert (answer["code"], answer["details"]) == ("UNSUPPORTED_VERSION", {"supported": ["1.0.0"]})
    assert await client.wait_closed() == 1002


@pytest.mark.requirement("minicodex:handshake:versions")
@pytest.mark.parametrize("version", ["1", "1.0", "one", "", "1.0.0\n", "v1.0.0", 1, None])
async def test_what_is_no_version_is_a_bad_argument_and_the_client_may_try_again(
    connect_minicodex: Enter, minicodex_client: MiniCodexClient, push_daemon: ManagedDaemon, version: object
) -> None:
    client = await connect_minicodex(push_daemon, session_id=minicodex_client.session_id)
    assert await client.expect_error("hello", v=version) == "BAD_ARGUMENT"
    await client.send_hello()


@pytest.mark.requirement("minicodex:handshake:req-id")
async def test_the_welcome_carries_the_id_that_it_was_asked_with(
    connect_minicodex: Enter, minicodex_client: MiniCodexClient, push_daemon: ManagedDaemon
) -> None:
    for command in ({"type": "hello", "v": "1.0.0"}, {"type": "resume", "last_seen_event_id": 0}, {"type": "resume"}):
        client = await connect_minicodex(push_daemon, session_id=minicodex_client.session_id)
        await client.send_frames({**command, "req_id": "mine"})
        welcome = await client.receive()
        assert (welcome["type"], welcome.get("req_id")) == ("welcome", "mine")


@pytest.mark.requirement("minicodex:handshake:unknown-session")
@pytest.mark.parametrize("first", [{"type": "hello", "v": "1.0.0"}, {"type": "resume", "last_seen_event_id": 4096}])
@pytest.mark.parametrize("session_id", ["sess_nobody", "../../etc/passwd", "x" * 2_000, "\N{SNOWMAN}"])
async def test_a_session_that_is_not_there_is_refused_and_the_connection_closed(
    connect_minicodex: Enter, push_daemon: ManagedDaemon, session_id: str, first: dict[str, object]
) -> None:
    client = await connect_minicodex(push_daemon, session_id=session_id)
    await client.send_frames({**first, "req_id": "mine"})
    answer = await client.receive()
    assert (answer["type"], answer["code"], answer["req_id"]) == ("error", "UNKNOWN_SESSION", "mine")
    assert await client.wait_closed() == 1008


@pytest.mark.requirement("minicodex:handshake:token")
@pytest.mark.parametrize("token", [None, "", "wrong"])
async def test_without_the_token_nobody_comes_in(connect_minicodex: Enter, push_daemon: ManagedDaemon, token: str | None) -> None:
    with pytest.raises(UpgradeRefused) as refusal:
        await connect_minicodex(push_daemon, token=token)
    assert refusal.value.status == 401


@pytest.mark.requirement("minicodex:handshake:again")
async def test_a_second_hello_begins_again_in_the_same_session(minicodex_client: MiniCodexClient) -> None:
    session_id = minicodex_client.session_id
    await minicodex_client.run("say: one")
    snapshot = await minicodex_client.send_hello()
    assert (snapshot["session_state"]["session_id"], minicodex_client.ledger.assistant_text) == (session_id, "one")
    await minicodex_client.run("say: two")
    assert minicodex_client.ledger.assistant_text == "onetwo"
    assert await minicodex_client.request_snapshot() == minicodex_client.ledger.build_snapshot()


@pytest.mark.requirement("minicodex:handshake:again")
async def test_a_hello_in_the_middle_of_a_run_tells_no_event_twice(minicodex_client: MiniCodexClient) -> None:
    await minicodex_client.execute("send", text="count 20000")
    rounds = 0
    while minicodex_client.ledger.session_state.get("active_run_id") or not minicodex_client.ledger.assistant_text:
        rounds += 1
        await minicodex_client.begin("hello", v="1.0.0")
        snapshot = await minicodex_client.next_of_type("snapshot")
        # What came before it is in it; the ledger refuses an event that it has seen.
        assert snapshot["event_id"] >= minicodex_client.ledger.last_event_id
        minicodex_client.ledger.begin(snapshot)
    assert rounds > 2
    assert minicodex_client.ledger.assistant_text == " ".join(map(str, range(1, 20_001)))


@pytest.mark.requirement("minicodex:handshake:new-session")
async def test_a_session_that_is_made_begins_with_the_preset_that_was_asked_for(
    connect_minicodex: Enter, push_daemon: ManagedDaemon, workspace: Path
) -> None:
    (workspace / ".tower" / "presets").mkdir(parents=True)
    (workspace / ".tower" / "presets" / "look.toml").write_text('policy = "read-only"\n')
    client = await connect_minicodex(push_daemon, cwd=workspace, preset="look")
    await client.send_hello()

    await client.run("write a.txt: x")
    assert not (workspace / "a.txt").exists()

    unknown = await connect_minicodex(push_daemon, cwd=workspace, preset="nowhere")
    await unknown.send_frames({"type": "hello", "v": "1.0.0"})
    refused = await unknown.receive()
    assert (refused["type"], refused["code"]) == ("error", "BAD_ARGUMENT")
    assert "look" in refused["message"]
