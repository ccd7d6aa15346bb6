"""How much one client may have: sessions, connections, commands a minute. Refused with the words that clients look for."""

from pathlib import Path

import pytest
from tests.conformance.pi.conftest import Join, StartPi
from tests.conformance.pi.stage import CheckedClient, connect

from switchtower import config


@pytest.mark.requirement("pi:limit:sessions", "pi:error:session-limit")
async def test_sessions_are_limited_and_an_unloaded_one_makes_room(dedicated_pi: StartPi, connect_pi: Join) -> None:
    pi = await connect_pi(dedicated_pi(pi_max_sessions=2))
    first, second = await pi.start_session(), await pi.start_session()
    assert await pi.expect_refusal("create_session") == "Session limit reached (2 sessions)"
    path = (await pi.execute("get_state", sessionId=first))["sessionFile"]
    await pi.execute("delete_session", sessionId=first)
    third = await pi.start_session()
    assert await pi.expect_refusal("load_session", sessionPath=path) == "Session limit reached (2 sessions)"
    listed = {info["sessionId"] for info in (await pi.execute("list_sessions"))["sessions"]}
    assert listed == {second, third}
    assert (await pi.execute("get_metrics"))["commandsRejected"]["sessionLimit"] == 2


@pytest.mark.requirement("pi:limit:connections")
async def test_a_connection_too_many_is_closed_with_try_again_later(dedicated_pi: StartPi) -> None:
    daemon = dedicated_pi(pi_max_connections=1)
    first = await connect(daemon, "websocket")
    with pytest.raises(EOFError, match="1013"):
        await connect(daemon, "websocket")
    assert (await first.execute("get_metrics"))["commandsRejected"]["connectionLimit"] == 1
    first.wire.abort()


@pytest.mark.requirement("pi:limit:rate", "pi:error:rate", "pi:lifecycle:refused-after-admission")
async def test_commands_to_one_session_are_limited_for_each_client(start_pi: StartPi, connect_pi: Join) -> None:
    daemon = start_pi(pi_session_rate=10)
    pi, other = await connect_pi(daemon), await connect_pi(daemon)
    session_id = await pi.start_session()
    for _ in range(9):
        assert (await pi.request("get_state", sessionId=session_id))["success"]
    refused = await pi.request("get_state", sessionId=session_id)
    assert refused["error"] == "Rate limit exceeded (10 commands/minute)"
    assert pi.list_phases(refused["id"]) == ["command_accepted", "command_finished", "response"]
    assert (await pi.request("list_sessions"))["success"]
    assert (await other.request("get_state", sessionId=session_id))["success"]
    assert (await pi.request("get_state", sessionId=await other.start_session()))["success"]
    assert (await pi.execute("get_metrics"))["commandsRejected"]["rateLimit"] >= 1


@pytest.mark.requirement("pi:limit:rate", "pi:error:rate")
async def test_all_commands_of_one_client_are_limited(start_pi: StartPi, connect_pi: Join) -> None:
    daemon = start_pi(pi_client_rate=5)
    pi, other = await connect_pi(daemon), await connect_pi(daemon)
    for _ in range(5):
        assert (await pi.request("list_sessions"))["success"]
    assert await pi.expect_refusal("list_sessions") == "Rate limit exceeded (5 commands/minute)"
    usage = (await other.execute("get_metrics"))["rateLimitUsage"]
    assert (usage["globalCount"], usage["globalLimit"]) == (1, 5)


@pytest.mark.requirement("pi:limit:rate")
async def test_a_replay_is_answered_even_beyond_the_rate(start_pi: StartPi, connect_pi: Join) -> None:
    pi = await connect_pi(start_pi(pi_client_rate=5))
    first = await pi.request("health_check")
    for _ in range(4):
        await pi.request("health_check")
    await pi.expect_refusal("health_check")
    pi.frames.clear()
    assert (await pi.request("health_check", id=first["id"]))["replayed"] is True


@pytest.mark.requirement("pi:limit:control")
async def test_a_client_that_has_used_up_its_rate_can_still_decide_stop_and_delete(start_pi: StartPi, connect_pi: Join) -> None:
    pi = await connect_pi(start_pi(pi_session_rate=4))
    session_id = await pi.start_session()
    await pi.begin("prompt", sessionId=session_id, message="ask: ready? | yes | no")
    asked = await pi.next_event("extension_ui_request")
    for _ in range(2):
        await pi.request("get_state", sessionId=session_id)
    assert await pi.expect_refusal("get_state", sessionId=session_id) == "Rate limit exceeded (4 commands/minute)"
    response = {"method": "select", "value": "yes"}
    await pi.execute("extension_ui_response", sessionId=session_id, requestId=asked["requestId"], response=response)
    await pi.next_event("agent_end")
    await pi.execute("abort", sessionId=session_id)
    assert await pi.execute("delete_session", sessionId=session_id) == {"deleted": True}


@pytest.mark.requirement("pi:limit:defaults")
async def test_the_defaults_are_those_that_clients_know(pi_client: CheckedClient, tmp_path: Path) -> None:
    settings = config.Settings(home=tmp_path)
    assert (settings.pi_max_sessions, settings.pi_max_connections) == (100, 1_000)
    assert settings.pi_max_frame_bytes == 10 * 1024 * 1024
    assert (settings.pi_session_rate, settings.pi_client_rate) == (100, 1_000)
    assert settings.pi_idempotency_minutes == 10
    replay = (await pi_client.execute("get_metrics"))["stores"]["replay"]
    assert (replay["maxOutcomes"], replay["maxInFlight"]) == (2_000, 10_000)


@pytest.mark.requirement("pi:limit:outcomes")
async def test_the_outcomes_that_are_kept_are_bounded(dedicated_pi: StartPi, connect_pi: Join) -> None:
    pi = await connect_pi(dedicated_pi())
    ids = [pi.make_id() for _ in range(2_100)]
    for start in range(0, len(ids), 300):
        await pi.send_frames(*({"type": "health_check", "id": id_} for id_ in ids[start : start + 300]))
        await pi.wait_for_response(ids[start : start + 300][-1])
    metrics = await pi.execute("get_metrics")
    assert metrics["stores"]["replay"]["outcomeCount"] <= 2_000
    pi.frames.clear()
    assert "replayed" not in await pi.request("health_check", id=ids[0])
    assert (await pi.request("health_check", id=ids[-1]))["success"]
