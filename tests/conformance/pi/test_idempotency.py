"""`idempotencyKey`: a retry under another id is still the same intent, within a session and for a while."""

import pytest
from tests.conformance.pi.conftest import Join, StartPi
from tests.conformance.pi.stage import CheckedClient


@pytest.mark.requirement("pi:idempotency:same-key", "pi:lifecycle:replay-shape")
async def test_the_same_key_under_another_id_replays(pi_client: CheckedClient) -> None:
    session_id, key = await pi_client.start_session(), pi_client.make_id()
    first = await pi_client.request("cycle_thinking_level", sessionId=session_id, idempotencyKey=key)
    again = await pi_client.request("cycle_thinking_level", sessionId=session_id, idempotencyKey=key)
    assert again == {**first, "id": again["id"], "replayed": True}
    assert pi_client.list_phases(again["id"]) == ["command_accepted", "command_finished", "response"]
    assert pi_client.list_lifecycle(again["id"])[1]["data"]["replayed"] is True
    assert await pi_client.get_version(session_id) == 1


@pytest.mark.requirement("pi:idempotency:conflict", "pi:error:identity-conflict")
async def test_the_same_key_for_something_else_is_a_conflict(pi_client: CheckedClient) -> None:
    session_id, key = await pi_client.start_session(), pi_client.make_id()
    await pi_client.execute("set_session_name", sessionId=session_id, name="one", idempotencyKey=key)
    error = await pi_client.expect_refusal("set_session_name", sessionId=session_id, name="two", idempotencyKey=key)
    assert error.startswith(f"Conflicting idempotencyKey '{key}': ")
    assert (await pi_client.execute("get_state", sessionId=session_id))["sessionName"] == "one"


@pytest.mark.requirement("pi:idempotency:scope")
async def test_a_key_belongs_to_its_session(pi_client: CheckedClient) -> None:
    one, other, key = await pi_client.start_session(), await pi_client.start_session(), pi_client.make_id()
    first = await pi_client.request("set_session_name", sessionId=one, name="one", idempotencyKey=key)
    second = await pi_client.request("set_session_name", sessionId=other, name="two", idempotencyKey=key)
    assert (first["success"], second["success"]) == (True, True)
    assert "replayed" not in second


@pytest.mark.requirement("pi:idempotency:scope")
async def test_server_commands_have_keys_of_their_own(pi_client: CheckedClient) -> None:
    session_id, key = await pi_client.start_session(), pi_client.make_id()
    await pi_client.execute("set_session_name", sessionId=session_id, name="one", idempotencyKey=key)
    first = await pi_client.request("create_session", idempotencyKey=key)
    again = await pi_client.request("create_session", idempotencyKey=key)
    assert again == {**first, "id": again["id"], "replayed": True}


@pytest.mark.requirement("pi:idempotency:before-id")
async def test_the_key_is_looked_at_before_the_id(pi_client: CheckedClient) -> None:
    session_id, key = await pi_client.start_session(), pi_client.make_id()
    used = (await pi_client.request("get_state", sessionId=session_id))["id"]
    first = await pi_client.request("set_session_name", sessionId=session_id, name="one", idempotencyKey=key)
    pi_client.frames.clear()
    again = await pi_client.request("set_session_name", sessionId=session_id, name="one", idempotencyKey=key, id=used)
    assert again == {**first, "id": used, "replayed": True}
    pi_client.frames.clear()
    error = await pi_client.expect_refusal("set_session_name", sessionId=session_id, name="two", idempotencyKey=key, id=used)
    assert error.startswith("Conflicting idempotencyKey")


@pytest.mark.requirement("pi:idempotency:expiry")
async def test_an_expired_key_is_as_good_as_new(start_pi: StartPi, connect_pi: Join) -> None:
    pi = await connect_pi(start_pi(pi_idempotency_minutes=0.005))
    session_id, key = await pi.start_session(), pi.make_id()
    first = await pi.request("cycle_thinking_level", sessionId=session_id, idempotencyKey=key)
    assert (await pi.request("cycle_thinking_level", sessionId=session_id, idempotencyKey=key))["replayed"] is True
    while "replayed" in (later := await pi.request("cycle_thinking_level", sessionId=session_id, idempotencyKey=key)):
        assert later["data"] == first["data"]
    assert later["sessionVersion"] == 2
    assert later["data"] != first["data"]


@pytest.mark.requirement("pi:idempotency:same-key")
async def test_a_retry_of_a_command_under_way_awaits_it(pi_client: CheckedClient) -> None:
    session_id, key = await pi_client.start_session(), pi_client.make_id()
    first = await pi_client.start_prompt(session_id, "ask: ready? | yes | no", idempotencyKey=key)
    retry = await pi_client.begin("prompt", sessionId=session_id, message="ask: ready? | yes | no", idempotencyKey=key)
    await pi_client.execute("abort", sessionId=session_id)
    outcome = await pi_client.wait_for_response(first)
    assert await pi_client.wait_for_response(retry) == {**outcome, "id": retry, "replayed": True}
    assert "command_started" not in pi_client.list_phases(retry)
