"""Sessions at hand: created, listed, followed, unloaded."""

from pathlib import Path

import pytest
from tests.conformance.pi.conftest import Join
from tests.conformance.pi.stage import CheckedClient, PiDaemon


@pytest.mark.requirement("pi:session:create")
async def test_a_session_is_created_with_an_id_and_a_folder_of_the_clients_choice(
    pi_client: CheckedClient, workspace: Path
) -> None:
    session_id = f"mine_{pi_client.make_id()}"
    data = await pi_client.execute("create_session", sessionId=session_id, cwd=str(workspace))
    assert data["sessionId"] == data["sessionInfo"]["sessionId"] == session_id
    info = data["sessionInfo"]
    assert (info["isStreaming"], info["messageCount"], info["thinkingLevel"]) == (False, 0, "off")
    assert info["sessionFile"].endswith(f"_{session_id}.jsonl")
    assert (await pi_client.execute("bash", sessionId=session_id, command="pwd"))["output"].strip() == str(workspace)


@pytest.mark.requirement("pi:session:create")
async def test_a_session_without_an_id_gets_one(pi_client: CheckedClient) -> None:
    one, other = (
        (await pi_client.execute("create_session"))["sessionId"],
        (await pi_client.execute("create_session"))["sessionId"],
    )
    assert one != other


@pytest.mark.requirement("pi:session:exists", "pi:error:session-exists")
async def test_an_id_that_is_taken_is_refused(pi_client: CheckedClient) -> None:
    session_id = await pi_client.start_session()
    assert await pi_client.expect_refusal("create_session", sessionId=session_id) == f"Session {session_id} already exists"


@pytest.mark.requirement("pi:session:create", "pi:session:name-reused")
async def test_the_id_of_an_unloaded_session_can_be_used_again_in_any_folder(
    pi_client: CheckedClient, workspace: Path, tmp_path: Path
) -> None:
    session_id = f"again-{pi_client.make_id()}"
    for cwd in (workspace, workspace, tmp_path):
        created = await pi_client.request("create_session", sessionId=session_id, cwd=str(cwd))
        assert created["sessionVersion"] == 0
        info = created["data"]["sessionInfo"]
        assert (info["sessionId"], info["messageCount"], info.get("sessionName")) == (session_id, 0, None)
        assert (await pi_client.execute("get_messages", sessionId=session_id))["messages"] == []
        assert (await pi_client.execute("bash", sessionId=session_id, command="pwd"))["output"].strip() == str(cwd)
        await pi_client.execute("set_session_name", sessionId=session_id, name="left over")
        await pi_client.execute("prompt", sessionId=session_id, message="say: old")
        await pi_client.execute("delete_session", sessionId=session_id)
    stored = [info for info in (await pi_client.execute("list_stored_sessions"))["sessions"] if info["sessionId"] == session_id]
    assert [info["cwd"] for info in stored] == [str(tmp_path), str(workspace), str(workspace)]
    oldest = await pi_client.execute("load_session", sessionPath=stored[-1]["sessionPath"])
    assert oldest["sessionId"] == session_id
    error = await pi_client.expect_refusal("load_session", sessionPath=stored[0]["sessionPath"])
    assert error == f"Session {session_id} already exists"


@pytest.mark.requirement("pi:session:create")
async def test_a_folder_that_is_none_is_refused(pi_client: CheckedClient, workspace: Path) -> None:
    for cwd in (workspace / "nowhere", workspace / "README.md", "relative/path"):
        assert "Internal" not in await pi_client.expect_refusal("create_session", cwd=str(cwd))


@pytest.mark.requirement("pi:session:list")
async def test_sessions_are_listed_with_their_state(pi_client: CheckedClient) -> None:
    session_id = await pi_client.start_session()
    await pi_client.execute("set_session_name", sessionId=session_id, name="listed")
    await pi_client.execute("prompt", sessionId=session_id, message="say: hello")
    listed = {info["sessionId"]: info for info in (await pi_client.execute("list_sessions"))["sessions"]}
    assert listed[session_id] == await pi_client.execute("get_state", sessionId=session_id)
    assert listed[session_id]["sessionName"] == "listed"
    assert listed[session_id]["messageCount"] == 2


@pytest.mark.requirement("pi:session:delete")
async def test_a_deleted_session_is_unloaded_but_stays_stored(pi_client: CheckedClient) -> None:
    session_id = await pi_client.start_session()
    await pi_client.execute("prompt", sessionId=session_id, message="say: remembered")
    assert await pi_client.execute("delete_session", sessionId=session_id) == {"deleted": True}
    assert session_id not in {info["sessionId"] for info in (await pi_client.execute("list_sessions"))["sessions"]}
    stored = {info["sessionId"]: info for info in (await pi_client.execute("list_stored_sessions"))["sessions"]}
    loaded = await pi_client.execute("load_session", sessionPath=stored[session_id]["sessionPath"])
    assert loaded["sessionId"] == session_id
    assert await pi_client.execute("get_last_assistant_text", sessionId=session_id) == {"text": "remembered"}


@pytest.mark.requirement("pi:session:delete", "pi:error:session-not-found")
async def test_a_session_that_is_not_there_cannot_be_used(pi_client: CheckedClient) -> None:
    gone = await pi_client.start_session()
    await pi_client.execute("delete_session", sessionId=gone)
    for session_id in (gone, "nobody"):
        error = f"Session {session_id} not found"
        assert await pi_client.expect_refusal("delete_session", sessionId=session_id) == error
        assert await pi_client.expect_refusal("switch_session", sessionId=session_id) == error
        assert await pi_client.expect_refusal("prompt", sessionId=session_id, message="hi") == error
        assert await pi_client.expect_refusal("abort", sessionId=session_id) == error
        assert await pi_client.expect_refusal("bash", sessionId=session_id, command="true") == error


@pytest.mark.requirement("pi:session:switch", "pi:event:subscribers-only")
async def test_events_go_only_to_those_who_switched_to_the_session(
    pi_client: CheckedClient, pi_daemon: PiDaemon, connect_pi: Join
) -> None:
    watcher, stranger = await connect_pi(pi_daemon), await connect_pi(pi_daemon)
    session_id = await pi_client.start_session()
    switched = await watcher.execute("switch_session", sessionId=session_id)
    assert switched["sessionInfo"]["sessionId"] == session_id
    await pi_client.execute("prompt", sessionId=session_id, message="say: hello")
    await watcher.next_event("agent_end")
    assert watcher.list_events(session_id) == pi_client.list_events(session_id)
    await stranger.drain()
    assert stranger.list_events() == []


@pytest.mark.requirement("pi:session:switch")
async def test_following_a_session_does_not_end_following_another_and_twice_is_once(pi_client: CheckedClient) -> None:
    one, other = await pi_client.start_session(), await pi_client.start_session()
    await pi_client.execute("switch_session", sessionId=one)
    await pi_client.execute("prompt", sessionId=one, message="say: one")
    await pi_client.execute("prompt", sessionId=other, message="say: other")
    await pi_client.drain()
    for session_id in (one, other):
        assert [event["type"] for event in pi_client.list_events(session_id)].count("agent_end") == 1


@pytest.mark.requirement("pi:session:switch", "pi:event:nothing-lost")
async def test_who_joins_a_running_session_sees_what_is_under_way_and_how_it_ends(
    pi_client: CheckedClient, pi_daemon: PiDaemon, connect_pi: Join
) -> None:
    session_id = await pi_client.start_session()
    await pi_client.start_prompt(session_id, "ask: ready? | yes | no")
    question = await pi_client.next_event("extension_ui_request")
    late = await connect_pi(pi_daemon)
    await late.execute("switch_session", sessionId=session_id)
    assert (await late.next_event("extension_ui_request"))["requestId"] == question["requestId"]
    await pi_client.execute("abort", sessionId=session_id)
    await late.next_event("agent_end")


@pytest.mark.requirement("pi:session:state")
async def test_the_state_is_the_session_info_itself(pi_client: CheckedClient) -> None:
    session_id = await pi_client.start_session()
    state = await pi_client.execute("get_state", sessionId=session_id)
    assert state["sessionId"] == session_id
    assert state["model"]["provider"] == "demo"
    await pi_client.execute("set_session_name", sessionId=session_id, name="named")
    assert (await pi_client.execute("get_state", sessionId=session_id))["sessionName"] == "named"
