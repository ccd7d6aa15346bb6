"""`idempotencyKey`: a retry under another id is still the same intent, within a session and for a while."""

import pytest
from tests.conformance.pi.conftest import Join, StartPi
from tests.conformance.pi.stage import CheckedClient


@pytest.mark.requirement("pi:idempotency:same-key", "pi:lifecycle:replay-shape")
async def test_the_same_key_under_another_id_replays(pi: CheckedClient) -> None:
    session_id, key = await pi.session(), pi.new_id()
    first = await pi.ask("cycle_thinking_level", sessionId=session_id, idempotencyKey=key)
    again = await pi.ask("cycle_thinking_level", sessionId=session_id, idempotencyKey=key)
    assert again == {**first, "id": again["id"], "replayed": True}
    assert pi.phases(again["id"]) == ["command_accepted", "command_finished", "response"]
    assert pi.lifecycle(again["id"])[1]["data"]["replayed"] is True
    assert await pi.version(session_id) == 1


@pytest.mark.requirement("pi:idempotency:conflict", "pi:error:identity-conflict")
async def test_the_same_key_for_something_else_is_a_conflict(pi: CheckedClient) -> None:
    session_id, key = await pi.session(), pi.new_id()
    await pi.do("set_session_name", sessionId=session_id, name="one", idempotencyKey=key)
    error = await pi.refused("set_session_name", sessionId=session_id, name="two", idempotencyKey=key)
    assert error.startswith(f"Conflicting idempotencyKey '{key}': ")
    assert (await pi.do("get_state", sessionId=session_id))["sessionName"] == "one"


@pytest.mark.requirement("pi:idempotency:scope")
async def test_a_key_belongs_to_its_session(pi: CheckedClient) -> None:
    one, other, key = await pi.session(), await pi.session(), pi.new_id()
    first = await pi.ask("set_session_name", sessionId=one, name="one", idempotencyKey=key)
    second = await pi.ask("set_session_name", sessionId=other, name="two", idempotencyKey=key)
    assert (first["success"], second["success"]) == (True, True)
    assert "replayed" not in second


@pytest.mark.requirement("pi:idempotency:scope")
async def test_server_commands_have_keys_of_their_own(pi: CheckedClient) -> None:
    session_id, key = await pi.session(), pi.new_id()
    await pi.do("set_session_name", sessionId=session_id, name="one", idempotencyKey=key)
    first = await pi.ask("create_session", idempotencyKey=key)
    again = await pi.ask("create_session", idempotencyKey=key)
    assert again == {**first, "id": again["id"], "replayed": True}


@pytest.mark.requirement("pi:idempotency:before-id")
async def test_the_key_is_looked_at_before_the_id(pi: CheckedClient) -> None:
    session_id, key = await pi.session(), pi.new_id()
    used = (await pi.ask("get_state", sessionId=session_id))["id"]
    first = await pi.ask("set_session_name", sessionId=session_id, name="one", idempotencyKey=key)
    pi.frames.clear()
    again = await pi.ask("set_session_name", sessionId=session_id, name="one", idempotencyKey=key, id=used)
    assert again == {**first, "id": used, "replayed": True}
    pi.frames.clear()
    error = await pi.refused("set_session_name", sessionId=session_id, name="two", idempotencyKey=key, id=used)
    assert error.startswith("Conflicting idempotencyKey")


@pytest.mark.requirement("pi:idempotency:expiry")
async def test_an_expired_key_is_as_good_as_new(start_pi: StartPi, join: Join) -> None:
    pi = await join(start_pi(pi_idempotency_minutes=0.005))
    session_id, key = await pi.session(), pi.new_id()
    first = await pi.ask("cycle_thinking_level", sessionId=session_id, idempotencyKey=key)
    assert (await pi.ask("cycle_thinking_level", sessionId=session_id, idempotencyKey=key))["replayed"] is True
    while "replayed" in (later := await pi.ask("cycle_thinking_level", sessionId=session_id, idempotencyKey=key)):
        assert later["data"] == first["data"]
    assert later["sessionVersion"] == 2
    assert later["data"] != first["data"]


@pytest.mark.requirement("pi:idempotency:same-key")
async def test_a_retry_of_a_command_under_way_awaits_it(pi: CheckedClient) -> None:
    session_id, key = await pi.session(), pi.new_id()
    first = await pi.running(session_id, "ask: ready? | yes | no", idempotencyKey=key)
    retry = await pi.begin("prompt", sessionId=session_id, message="ask: ready? | yes | no", idempotencyKey=key)
    await pi.do("abort", sessionId=session_id)
    outcome = await pi.response(first)
    assert await pi.response(retry) == {**outcome, "id": retry, "replayed": True}
    assert "command_started" not in pi.phases(retry)
