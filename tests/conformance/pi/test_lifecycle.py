"""What everybody hears of an admitted command: accepted, started, finished once; and in which order on the wire."""

import re

import pytest
from tests.conformance.pi.conftest import Join
from tests.conformance.pi.stage import LIFECYCLE, CheckedClient, PiDaemon

ALL = [*LIFECYCLE, "response"]


@pytest.mark.requirement("pi:lifecycle:accepted", "pi:lifecycle:order", "pi:lifecycle:wire-order")
async def test_a_command_is_accepted_started_finished_and_then_answered(pi: CheckedClient) -> None:
    session_id = await pi.session()
    for type_ in ("list_sessions", "get_metrics", "health_check", "list_stored_sessions"):
        response = await pi.ask(type_)
        assert pi.phases(response["id"]) == ALL
    for type_ in ("get_state", "get_messages", "abort", "cycle_thinking_level", "get_available_models"):
        response = await pi.ask(type_, sessionId=session_id)
        assert pi.phases(response["id"]) == ALL


@pytest.mark.requirement("pi:lifecycle:finished-once")
async def test_each_command_is_finished_exactly_once_however_it_ends(pi: CheckedClient) -> None:
    session_id = await pi.session()
    ids = [
        await pi.begin("prompt", sessionId=session_id, message="say: hello"),
        await pi.begin("set_model", sessionId=session_id, provider="no", modelId="no"),
        await pi.begin("bash", sessionId=session_id, command="exit 1"),
        await pi.begin("get_state", sessionId="nobody"),
        await pi.begin("list_sessions", dependsOn=["nobody"]),
        await pi.begin("abort", sessionId=session_id),
    ]
    for id_ in ids:
        await pi.response(id_)
    await pi.quiet()
    for id_ in ids:
        assert pi.phases(id_) == ALL


@pytest.mark.requirement("pi:lifecycle:wire-order", "pi:event:session_created", "pi:event:session_deleted")
async def test_sessions_are_announced_behind_the_response(pi: CheckedClient) -> None:
    created = await pi.ask("create_session")
    await pi.quiet()
    session_id = created["data"]["sessionId"]
    place = pi.frames.index(created)
    assert pi.frames[place - 1]["type"] == "command_finished"
    assert pi.frames[place + 1] == {"type": "session_created", "data": created["data"]}
    deleted = await pi.ask("delete_session", sessionId=session_id)
    await pi.quiet()
    place = pi.frames.index(deleted)
    assert pi.frames[place + 1] == {"type": "session_deleted", "data": {"sessionId": session_id}}


@pytest.mark.requirement("pi:lifecycle:metadata")
async def test_lifecycle_events_carry_what_the_command_said_and_how_it_ended(pi: CheckedClient) -> None:
    session_id = await pi.session()
    first = (await pi.ask("set_session_name", sessionId=session_id, name="n"))["id"]
    key = pi.new_id()
    response = await pi.ask(
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
    assert pi.lifecycle(response["id"])[:3] == [
        {"type": "command_accepted", "data": told},
        {"type": "command_started", "data": told},
        {"type": "command_finished", "data": {**told, "success": True, "sessionVersion": 2}},
    ]


@pytest.mark.requirement("pi:lifecycle:metadata")
async def test_a_failure_is_told_with_its_error(pi: CheckedClient) -> None:
    response = await pi.ask("get_state", sessionId="nobody")
    assert pi.lifecycle(response["id"])[2] == {
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
async def test_a_command_without_id_goes_by_a_made_up_one(pi: CheckedClient) -> None:
    await pi.say({"type": "list_sessions"}, {"type": "list_sessions"})
    await pi.quiet()
    names = [frame["data"]["commandId"] for frame in pi.frames if frame["type"] == "command_accepted"]
    made_up = [name for name in names if name.startswith("anon:")]
    assert len(set(made_up)) >= 2
    assert all(re.fullmatch(r"anon:\d+:\d+", name) for name in made_up)


@pytest.mark.requirement("pi:lifecycle:anonymous-not-kept")
async def test_nobody_can_depend_on_a_command_without_id(pi: CheckedClient) -> None:
    await pi.say({"type": "list_sessions"})
    accepted = await pi.until(lambda frame: frame["type"] == "command_accepted")
    name = accepted["data"]["commandId"]
    assert await pi.refused("list_sessions", dependsOn=[name]) == f"Dependency '{name}' is unknown"


@pytest.mark.requirement("pi:lifecycle:broadcast")
async def test_every_connection_hears_of_every_admitted_command_but_only_its_own_answers(
    pi: CheckedClient, pid: PiDaemon, join: Join
) -> None:
    watcher = await join(pid)
    session_id = await pi.session()
    response = await pi.ask("get_state", sessionId=session_id)
    await watcher.told(response["id"], "command_finished")
    assert watcher.phases(response["id"]) == list(LIFECYCLE)
    await watcher.until(lambda frame: frame["type"] == "session_created" and frame["data"]["sessionId"] == session_id)


@pytest.mark.requirement("pi:lifecycle:opt-out")
async def test_a_client_can_do_without_lifecycle_events(pid: PiDaemon, join: Join) -> None:
    quiet = await join(pid, door="websocket", path="/?lifecycle=off")
    session_id = (await quiet.do("create_session"))["sessionId"]
    await quiet.quiet()
    assert not [frame for frame in quiet.frames if frame["type"] in LIFECYCLE]
    assert [frame for frame in quiet.frames if frame["type"] == "session_created"][-1]["data"]["sessionId"] == session_id


@pytest.mark.requirement("pi:lifecycle:refused-after-admission")
async def test_a_conflict_is_accepted_and_finished_but_never_started(pi: CheckedClient) -> None:
    id_ = (await pi.ask("list_sessions"))["id"]
    pi.frames.clear()
    await pi.ask("get_metrics", id=id_)
    assert pi.phases(id_) == ["command_accepted", "command_finished", "response"]
