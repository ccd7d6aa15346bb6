"""The same `id` again: the same outcome, or a conflict; never a second execution."""

import signal

import pytest
from tests.conformance.pi.conftest import Join, StartPi
from tests.conformance.pi.stage import CheckedClient, PiDaemon

QUESTION = "ask: ready? | yes | no"


@pytest.mark.requirement("pi:replay:same-id", "pi:lifecycle:replay-shape", "pi:response:replayed")
async def test_the_same_id_replays_the_outcome_without_starting_again(pi_client: CheckedClient) -> None:
    session_id = await pi_client.start_session()
    first = await pi_client.request("cycle_thinking_level", sessionId=session_id)
    pi_client.frames.clear()
    again = await pi_client.request("cycle_thinking_level", sessionId=session_id, id=first["id"])
    assert again == {**first, "replayed": True}
    assert pi_client.list_phases(first["id"]) == ["command_accepted", "command_finished", "response"]
    finished = pi_client.list_lifecycle(first["id"])[1]["data"]
    assert finished["replayed"] is True
    assert (finished["success"], finished["sessionVersion"]) == (True, 1)
    assert (await pi_client.execute("get_state", sessionId=session_id))["thinkingLevel"] == first["data"]["level"]
    assert await pi_client.get_version(session_id) == 1


@pytest.mark.requirement("pi:replay:same-id")
async def test_a_failure_is_replayed_like_a_success(pi_client: CheckedClient) -> None:
    session_id = f"later-{pi_client.make_id()}"
    first = await pi_client.request("get_state", sessionId=session_id)
    await pi_client.execute("create_session", sessionId=session_id)
    pi_client.frames.clear()
    again = await pi_client.request("get_state", sessionId=session_id, id=first["id"])
    assert again == {**first, "replayed": True}


@pytest.mark.requirement("pi:replay:same-id")
async def test_a_created_session_is_created_once(pi_client: CheckedClient) -> None:
    first = await pi_client.request("create_session")
    await pi_client.drain()
    pi_client.frames.clear()
    again = await pi_client.request("create_session", id=first["id"])
    assert again == {**first, "replayed": True}
    await pi_client.drain()
    assert not [frame for frame in pi_client.frames if frame["type"] == "session_created"]


@pytest.mark.requirement("pi:replay:conflict", "pi:error:identity-conflict")
async def test_the_same_id_for_something_else_is_a_conflict(pi_client: CheckedClient) -> None:
    session_id = await pi_client.start_session()
    first = await pi_client.request("set_session_name", sessionId=session_id, name="one")
    id_ = first["id"]
    pi_client.frames.clear()
    assert await pi_client.expect_refusal("set_session_name", sessionId=session_id, name="two", id=id_) == (
        f"Conflicting id '{id_}': previously used for 'set_session_name', now used for 'set_session_name'"
    )
    pi_client.frames.clear()
    assert await pi_client.expect_refusal("get_state", sessionId=session_id, id=id_) == (
        f"Conflicting id '{id_}': previously used for 'set_session_name', now used for 'get_state'"
    )
    assert (await pi_client.execute("get_state", sessionId=session_id))["sessionName"] == "one"
    pi_client.frames.clear()
    assert await pi_client.request("set_session_name", sessionId=session_id, name="one", id=id_) == {**first, "replayed": True}


@pytest.mark.requirement("pi:replay:fingerprint")
async def test_the_order_of_keys_and_the_spelling_of_numbers_do_not_matter(pi_client: CheckedClient) -> None:
    session_id, id_ = await pi_client.start_session(), pi_client.make_id()
    await pi_client.send_frames(
        f'{{"type":"set_session_name","id":"{id_}","sessionId":"{session_id}","name":"n","ifSessionVersion":0}}'.encode()
    )
    first = await pi_client.wait_for_response(id_)
    pi_client.frames.clear()
    await pi_client.send_frames(
        f'{{ "ifSessionVersion": 0.0, "name": "\\u006e", "sessionId": "{session_id}",'
        f' "id": "{id_}", "type": "set_session_name" }}'.encode()
    )
    assert await pi_client.wait_for_response(id_) == {**first, "replayed": True}


@pytest.mark.requirement("pi:replay:in-flight")
async def test_a_duplicate_of_a_command_under_way_awaits_it(pi_client: CheckedClient) -> None:
    session_id = await pi_client.start_session()
    id_ = await pi_client.start_prompt(session_id, QUESTION)
    await pi_client.send_frames({"type": "prompt", "id": id_, "sessionId": session_id, "message": QUESTION})
    await pi_client.drain()
    assert "response" not in pi_client.list_phases(id_)
    await pi_client.execute("abort", sessionId=session_id)
    await pi_client.wait_for_response(id_)
    await pi_client.drain()
    responses = [frame for frame in pi_client.list_lifecycle(id_) if frame["type"] == "response"]
    assert responses[1] == {**responses[0], "replayed": True}
    assert pi_client.list_phases(id_).count("command_started") == 1
    messages = (await pi_client.execute("get_messages", sessionId=session_id))["messages"]
    assert [message["role"] for message in messages].count("user") == 1


@pytest.mark.requirement("pi:replay:same-id")
async def test_duplicates_in_one_write_execute_once(pi_client: CheckedClient) -> None:
    session_id, id_ = await pi_client.start_session(), pi_client.make_id()
    await pi_client.send_frames(*[{"type": "cycle_thinking_level", "id": id_, "sessionId": session_id}] * 20)
    await pi_client.wait_for(lambda _: pi_client.list_phases(id_).count("response") == 20)
    assert pi_client.list_phases(id_).count("command_started") == 1
    assert await pi_client.get_version(session_id) == 1


@pytest.mark.requirement("pi:response:no-stale-id", "pi:idempotency:same-key")
async def test_a_replay_without_id_does_not_tell_the_first_ones(pi_client: CheckedClient) -> None:
    session_id, key = await pi_client.start_session(), pi_client.make_id()
    command = {"type": "cycle_thinking_level", "sessionId": session_id, "idempotencyKey": key}
    await pi_client.send_frames({**command, "id": "first-" + key})
    first = await pi_client.wait_for_response("first-" + key)
    await pi_client.send_frames(command)
    again = await pi_client.wait_for(lambda frame: frame["type"] == "response" and "replayed" in frame)
    assert "id" not in again
    assert again["data"] == first["data"]
    await pi_client.send_frames({**command, "id": "second-" + key})
    assert (await pi_client.wait_for_response("second-" + key)) == {**first, "id": "second-" + key, "replayed": True}


@pytest.mark.requirement("pi:replay:restart")
async def test_outcomes_are_remembered_over_a_restart(dedicated_pi: StartPi, connect_pi: Join) -> None:
    daemon = dedicated_pi()
    pi = await connect_pi(daemon, door="websocket")
    session_id = await pi.start_session()
    named = await pi.request("set_session_name", sessionId=session_id, name="kept", idempotencyKey="key-kept")
    prompted = await pi.request("prompt", sessionId=session_id, message="say: kept")
    failed = await pi.request("set_model", sessionId=session_id, provider="no", modelId="no")
    daemon.stop(signal.SIGKILL)
    daemon.start()

    pi = await connect_pi(daemon, door="websocket")
    assert await pi.request("set_session_name", sessionId=session_id, name="kept", id=named["id"]) == {**named, "replayed": True}
    by_key = await pi.request("set_session_name", sessionId=session_id, name="kept", idempotencyKey="key-kept")
    assert by_key == {**named, "id": by_key["id"], "replayed": True}
    assert await pi.request("prompt", sessionId=session_id, message="say: kept", id=prompted["id"]) == {
        **prompted,
        "replayed": True,
    }
    again = await pi.request("set_model", sessionId=session_id, provider="no", modelId="no", id=failed["id"])
    assert again == {**failed, "replayed": True}
    assert await pi.get_version(session_id) == 2
    assert len((await pi.execute("get_messages", sessionId=session_id))["messages"]) == 2


@pytest.mark.requirement("pi:replay:restart")
async def test_a_command_that_was_under_way_when_the_server_was_killed_has_one_outcome(
    dedicated_pi: StartPi, connect_pi: Join
) -> None:
    daemon = dedicated_pi()
    pi = await connect_pi(daemon, door="websocket")
    session_id = await pi.start_session()
    prompt = await pi.start_prompt(session_id, "ask: ready? | yes | no")
    await pi.next_event("extension_ui_request")
    daemon.stop(signal.SIGKILL)
    daemon.start()

    pi = await connect_pi(daemon, door="websocket")
    await pi.send_frames({"type": "prompt", "id": prompt, "sessionId": session_id, "message": "ask: ready? | yes | no"})
    await pi.request("abort", sessionId=session_id)
    first = await pi.wait_for_response(prompt)
    assert first["replayed"] is True
    await pi.drain()
    assert "command_started" not in pi.list_phases(prompt)
    pi.frames.clear()
    assert await pi.request("prompt", id=prompt, sessionId=session_id, message="ask: ready? | yes | no") == first
    users = [m for m in (await pi.execute("get_messages", sessionId=session_id))["messages"] if m["role"] == "user"]
    assert len(users) == 1


@pytest.mark.requirement("pi:replay:between-connections")
async def test_a_client_that_comes_back_finds_its_outcomes(pi_daemon: PiDaemon, connect_pi: Join) -> None:
    pi = await connect_pi(pi_daemon, door="websocket")
    session_id = await pi.start_session()
    prompt = await pi.start_prompt(session_id, QUESTION)
    pi.wire.abort()
    back = await connect_pi(pi_daemon, door="websocket")
    await back.send_frames({"type": "prompt", "id": prompt, "sessionId": session_id, "message": QUESTION})
    await back.execute("abort", sessionId=session_id)
    outcome = await back.wait_for_response(prompt)
    assert (outcome["success"], outcome["replayed"]) == (True, True)


@pytest.mark.requirement("pi:replay:namespaces")
async def test_processes_that_count_from_one_do_not_meet(pi_daemon: PiDaemon, connect_pi: Join) -> None:
    one, other = await connect_pi(pi_daemon, door="stdio"), await connect_pi(pi_daemon, door="stdio")
    first = await one.request("create_session", id="1")
    second = await other.request("create_session", id="1")
    assert "replayed" not in second
    assert first["data"]["sessionId"] != second["data"]["sessionId"]
