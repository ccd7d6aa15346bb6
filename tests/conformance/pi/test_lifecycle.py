"""What everybody hears of an admitted command: accepted, started, finished once; and in which order on the wire."""

import re

import pytest
from tests.conformance.pi.conftest import Join
from tests.conformance.pi.stage import LIFECYCLE, CheckedClient, PiDaemon

ALL = [*LIFECYCLE, "response"]


@pytest.mark.requirement("pi:lifecycle:accepted", "pi:lifecycle:order", "pi:lifecycle:wire-order")
async def test_a_command_is_accepted_started_finished_and_then_answered(pi_client: CheckedClient) -> None:
    session_id = await pi_client.start_session()
    for type_ in ("list_sessions", "get_metrics", "health_check", "list_stored_sessions"):
        response = await pi_client.request(type_)
        assert pi_client.list_phases(response["id"]) == ALL
    for type_ in ("get_state", "get_messages", "abort", "cycle_thinking_level", "get_available_models"):
        response = await pi_client.request(type_, sessionId=session_id)
        assert pi_client.list_phases(response["id"]) == ALL


@pytest.mark.requirement("pi:lifecycle:finished-once")
async def test_each_command_is_finished_exactly_once_however_it_ends(pi_client: CheckedClient) -> None:
    session_id = await pi_client.start_session()
    ids = [
        await pi_client.begin("prompt", sessionId=session_id, message="say: hello"),
        await pi_client.begin("set_model", sessionId=session_id, provider="no", modelId="no"),
        await pi_client.begin("bash", sessionId=session_id, command="exit 1"),
        await pi_client.begin("get_state", sessionId="nobody"),
        await pi_client.begin("list_sessions", dependsOn=["nobody"]),
        await pi_client.begin("abort", sessionId=session_id),
    ]
    for id_ in ids:
        await pi_client.wait_for_response(id_)
    await pi_client.drain()
    for id_ in ids:
        assert pi_client.list_phases(id_) == ALL


@pytest.mark.requirement("pi:lifecycle:wire-order", "pi:event:session_created", "pi:event:session_deleted")
async def test_sessions_are_announced_behind_the_response(pi_client: CheckedClient) -> None:
    created = await pi_client.request("create_session")
    await pi_client.drain()
    session_id = created["data"]["sessionId"]
    place = pi_client.frames.index(created)
    assert pi_client.frames[place - 1]["type"] == "command_finished"
    assert pi_client.frames[place + 1] == {"type": "session_created", "data": created["data"]}
    deleted = await pi_client.request("delete_session", sessionId=session_id)
    await pi_client.drain()
    place = pi_client.frames.index(deleted)
    assert pi_client.frames[place + 1] == {"type": "session_deleted", "data": {"sessionId": session_id}}


@pytest.mark.requirement("pi:lifecycle:metadata")
async def test_lifecycle_events_carry_what_the_command_said_and_how_it_ended(pi_client: CheckedClient) -> None:
    session_id = await pi_client.start_session()
    first = (await pi_client.request("set_session_name", sessionId=session_id, name="n"))["id"]
    key = pi_client.make_id()
    response = await pi_client.request(
        "set_thinking_level",
        sessionId=session_id,
        level="low",
        dependsOn=[first],
        ifSessionVersion=1,
        idempotencyKey=key,
    )
    told = {
        "commandId": response["id"],
        "commandType": "set_thinking_level",
        "sessionId": session_id,
        "dependsOn": [first],
        "ifSessionVersion": 1,
        "idempotencyKey": key,
    }
    assert pi_client.list_lifecycle(response["id"])[:3] == [
        {"type": "command_accepted", "data": told},
        {"type": "command_started", "data": told},
        {"type": "command_finished", "data": {**told, "success": True, "sessionVersion": 2}},
    ]


@pytest.mark.requirement("pi:lifecycle:metadata")
async def test_a_failure_is_told_with_its_error(pi_client: CheckedClient) -> None:
    response = await pi_client.request("get_state", sessionId="nobody")
    assert pi_client.list_lifecycle(response["id"])[2] == {
        "type": "command_finished",
        "data": {
            "commandId": response["id"],
            "commandType": "get_state",
            "sessionId": "nobody",
            "dependsOn": [],
            "success": False,
            "error": "Session nobody not found",
        },
    }


@pytest.mark.requirement("pi:lifecycle:anonymous")
async def test_a_command_without_id_goes_by_a_made_up_one(pi_client: CheckedClient) -> None:
    await pi_client.send_frames({"type": "list_sessions"}, {"type": "list_sessions"})
    await pi_client.drain()
    names = [frame["data"]["commandId"] for frame in pi_client.frames if frame["type"] == "command_accepted"]
    made_up = [name for name in names if name.startswith("anon:")]
    assert len(set(made_up)) >= 2
    assert all(re.fullmatch(r"anon:\d+:\d+", name) for name in made_up)


@pytest.mark.requirement("pi:lifecycle:anonymous-not-kept")
async def test_nobody_can_depend_on_a_command_without_id(pi_client: CheckedClient) -> None:
    await pi_client.send_frames({"type": "list_sessions"})
    accepted = await pi_client.wait_for(lambda frame: frame["type"] == "command_accepted")
    name = accepted["data"]["commandId"]
    assert await pi_client.expect_refusal("list_sessions", dependsOn=[name]) == f"Dependency '{name}' is unknown"


@pytest.mark.requirement("pi:lifecycle:broadcast")
async def test_every_connection_hears_of_every_admitted_command_but_only_its_own_answers(
    pi_client: CheckedClient, pi_daemon: PiDaemon, connect_pi: Join
) -> None:
    watcher = await connect_pi(pi_daemon)
    session_id = await pi_client.start_session()
    response = await pi_client.request("get_state", sessionId=session_id)
    await watcher.get_lifecycle_data(response["id"], "command_finished")
    assert watcher.list_phases(response["id"]) == list(LIFECYCLE)
    await watcher.wait_for(lambda frame: frame["type"] == "session_created" and frame["data"]["sessionId"] == session_id)


@pytest.mark.requirement("pi:lifecycle:opt-out")
async def test_a_client_can_do_without_lifecycle_events(pi_daemon: PiDaemon, connect_pi: Join) -> None:
    quiet = await connect_pi(pi_daemon, door="websocket", path="/?lifecycle=off")
    session_id = (await quiet.execute("create_session"))["sessionId"]
    await quiet.drain()
    assert not [frame for frame in quiet.frames if frame["type"] in LIFECYCLE]
    assert [frame for frame in quiet.frames if frame["type"] == "session_created"][-1]["data"]["sessionId"] == session_id


@pytest.mark.requirement("pi:lifecycle:refused-after-admission")
async def test_a_conflict_is_accepted_and_finished_but_never_started(pi_client: CheckedClient) -> None:
    id_ = (await pi_client.request("list_sessions"))["id"]
    pi_client.frames.clear()
    await pi_client.request("get_metrics", id=id_)
    assert pi_client.list_phases(id_) == ["command_accepted", "command_finished", "response"]
