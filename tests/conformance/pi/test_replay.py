"""The same `id` again: the same outcome, or a conflict; never a second execution."""

import signal

import pytest
from tests.conformance.pi.conftest import Join, StartPi
from tests.conformance.pi.stage import CheckedClient, PiDaemon

QUESTION = "ask: ready? | yes | no"


@pytest.mark.requirement("pi:replay:same-id", "pi:lifecycle:replay-shape", "pi:response:replayed")
async def test_the_same_id_replays_the_outcome_without_starting_again(pi: CheckedClient) -> None:
    session_id = await pi.session()
    first = await pi.ask("cycle_thinking_level", sessionId=session_id)
    pi.frames.clear()
    again = await pi.ask("cycle_thinking_level", sessionId=session_id, id=first["id"])
    assert again == {**first, "replayed": True}
    assert pi.phases(first["id"]) == ["command_accepted", "command_finished", "response"]
    finished = pi.lifecycle(first["id"])[1]["data"]
    assert finished["replayed"] is True
    assert (finished["success"], finished["sessionVersion"]) == (True, 1)
    assert (await pi.do("get_state", sessionId=session_id))["thinkingLevel"] == first["data"]["level"]
    assert await pi.version(session_id) == 1


@pytest.mark.requirement("pi:replay:same-id")
async def test_a_failure_is_replayed_like_a_success(pi: CheckedClient) -> None:
    session_id = f"later-{pi.new_id()}"
    first = await pi.ask("get_state", sessionId=session_id)
    await pi.do("create_session", sessionId=session_id)
    pi.frames.clear()
    again = await pi.ask("get_state", sessionId=session_id, id=first["id"])
    assert again == {**first, "replayed": True}


@pytest.mark.requirement("pi:replay:same-id")
async def test_a_created_session_is_created_once(pi: CheckedClient) -> None:
    first = await pi.ask("create_session")
    await pi.quiet()
    pi.frames.clear()
    again = await pi.ask("create_session", id=first["id"])
    assert again == {**first, "replayed": True}
    await pi.quiet()
    assert not [frame for frame in pi.frames if frame["type"] == "session_created"]


@pytest.mark.requirement("pi:replay:conflict", "pi:error:identity-conflict")
async def test_the_same_id_for_something_else_is_a_conflict(pi: CheckedClient) -> None:
    session_id = await pi.session()
    first = await pi.ask("set_session_name", sessionId=session_id, name="one")
    id_ = first["id"]
    pi.frames.clear()
    assert await pi.refused("set_session_name", sessionId=session_id, name="two", id=id_) == (
        f"Conflicting id '{id_}': previously used for 'set_session_name', now used for 'set_session_name'"
    )
    pi.frames.clear()
    assert await pi.refused("get_state", sessionId=session_id, id=id_) == (
        f"Conflicting id '{id_}': previously used for 'set_session_name', now used for 'get_state'"
    )
    assert (await pi.do("get_state", sessionId=session_id))["sessionName"] == "one"
    pi.frames.clear()
    assert await pi.ask("set_session_name", sessionId=session_id, name="one", id=id_) == {**first, "replayed": True}


@pytest.mark.requirement("pi:replay:fingerprint")
async def test_the_order_of_keys_and_the_spelling_of_numbers_do_not_matter(pi: CheckedClient) -> None:
    session_id, id_ = await pi.session(), pi.new_id()
    await pi.say(
        f'{{"type":"set_session_name","id":"{id_}","sessionId":"{session_id}","name":"n","ifSessionVersion":0}}'.encode()
    )
    first = await pi.response(id_)
    pi.frames.clear()
    await pi.say(
        f'{{ "ifSessionVersion": 0.0, "name": "\\u006e", "sessionId": "{session_id}",'
        f' "id": "{id_}", "type": "set_session_name" }}'.encode()
    )
    assert await pi.response(id_) == {**first, "replayed": True}


@pytest.mark.requirement("pi:replay:in-flight")
async def test_a_duplicate_of_a_command_under_way_awaits_it(pi: CheckedClient) -> None:
    session_id = await pi.session()
    id_ = await pi.running(session_id, QUESTION)
    await pi.say({"type": "prompt", "id": id_, "sessionId": session_id, "message": QUESTION})
    await pi.quiet()
    assert "response" not in pi.phases(id_)
    await pi.do("abort", sessionId=session_id)
    await pi.response(id_)
    await pi.quiet()
    responses = [frame for frame in pi.lifecycle(id_) if frame["type"] == "response"]
    assert responses[1] == {**responses[0], "replayed": True}
    assert pi.phases(id_).count("command_started") == 1
    messages = (await pi.do("get_messages", sessionId=session_id))["messages"]
    assert [message["role"] for message in messages].count("user") == 1


@pytest.mark.requirement("pi:replay:same-id")
async def test_duplicates_in_one_write_execute_once(pi: CheckedClient) -> None:
    session_id, id_ = await pi.session(), pi.new_id()
    await pi.say(*[{"type": "cycle_thinking_level", "id": id_, "sessionId": session_id}] * 20)
    await pi.until(lambda _: pi.phases(id_).count("response") == 20)
    assert pi.phases(id_).count("command_started") == 1
    assert await pi.version(session_id) == 1


@pytest.mark.requirement("pi:response:no-stale-id", "pi:idempotency:same-key")
async def test_a_replay_without_id_does_not_tell_the_first_ones(pi: CheckedClient) -> None:
    session_id, key = await pi.session(), pi.new_id()
    command = {"type": "cycle_thinking_level", "sessionId": session_id, "idempotencyKey": key}
    await pi.say({**command, "id": "first-" + key})
    first = await pi.response("first-" + key)
    await pi.say(command)
    again = await pi.until(lambda frame: frame["type"] == "response" and "replayed" in frame)
    assert "id" not in again
    assert again["data"] == first["data"]
    await pi.say({**command, "id": "second-" + key})
    assert (await pi.response("second-" + key)) == {**first, "id": "second-" + key, "replayed": True}


@pytest.mark.requirement("pi:replay:restart")
async def test_outcomes_are_remembered_over_a_restart(own_pi: StartPi, join: Join) -> None:
    daemon = own_pi()
    pi = await join(daemon, door="websocket")
    session_id = await pi.session()
    named = await pi.ask("set_session_name", sessionId=session_id, name="kept", idempotencyKey="key-kept")
    prompted = await pi.ask("prompt", sessionId=session_id, message="say: kept")
    failed = await pi.ask("set_model", sessionId=session_id, provider="no", modelId="no")
    daemon.stop(signal.SIGKILL)
    daemon.start()

    pi = await join(daemon, door="websocket")
    assert await pi.ask("set_session_name", sessionId=session_id, name="kept", id=named["id"]) == {**named, "replayed": True}
    by_key = await pi.ask("set_session_name", sessionId=session_id, name="kept", idempotencyKey="key-kept")
    assert by_key == {**named, "id": by_key["id"], "replayed": True}
    assert await pi.ask("prompt", sessionId=session_id, message="say: kept", id=prompted["id"]) == {**prompted, "replayed": True}
    again = await pi.ask("set_model", sessionId=session_id, provider="no", modelId="no", id=failed["id"])
    assert again == {**failed, "replayed": True}
    assert await pi.version(session_id) == 2
    assert len((await pi.do("get_messages", sessionId=session_id))["messages"]) == 2


@pytest.mark.requirement("pi:replay:restart")
async def test_a_command_that_was_under_way_when_the_server_was_killed_has_one_outcome(own_pi: StartPi, join: Join) -> None:
    daemon = own_pi()
    pi = await join(daemon, door="websocket")
    session_id = await pi.session()
    prompt = await pi.running(session_id, "ask: ready? | yes | no")
    await pi.next_event("extension_ui_request")
    daemon.stop(signal.SIGKILL)
    daemon.start()

    pi = await join(daemon, door="websocket")
    await pi.say({"type": "prompt", "id": prompt, "sessionId": session_id, "message": "ask: ready? | yes | no"})
    await pi.ask("abort", sessionId=session_id)
    first = await pi.response(prompt)
    assert first["replayed"] is True
    await pi.quiet()
    assert "command_started" not in pi.phases(prompt)
    pi.frames.clear()
    assert await pi.ask("prompt", id=prompt, sessionId=session_id, message="ask: ready? | yes | no") == first
    users = [m for m in (await pi.do("get_messages", sessionId=session_id))["messages"] if m["role"] == "user"]
    assert len(users) == 1


@pytest.mark.requirement("pi:replay:between-connections")
async def test_a_client_that_comes_back_finds_its_outcomes(pid: PiDaemon, join: Join) -> None:
    pi = await join(pid, door="websocket")
    session_id = await pi.session()
    prompt = await pi.running(session_id, QUESTION)
    pi.wire.abort()
    back = await join(pid, door="websocket")
    await back.say({"type": "prompt", "id": prompt, "sessionId": session_id, "message": QUESTION})
    await back.do("abort", sessionId=session_id)
    outcome = await back.response(prompt)
    assert (outcome["success"], outcome["replayed"]) == (True, True)


@pytest.mark.requirement("pi:replay:namespaces")
async def test_processes_that_count_from_one_do_not_meet(pid: PiDaemon, join: Join) -> None:
    one, other = await join(pid, door="stdio"), await join(pid, door="stdio")
    first = await one.ask("create_session", id="1")
    second = await other.ask("create_session", id="1")
    assert "replayed" not in second
    assert first["data"]["sessionId"] != second["data"]["sessionId"]
