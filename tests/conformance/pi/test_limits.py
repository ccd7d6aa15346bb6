"""How much one client may have: sessions, connections, commands a minute. Refused with the words that clients look for."""

from pathlib import Path

import pytest
from tests.conformance.pi.conftest import Join, StartPi
from tests.conformance.pi.stage import CheckedClient, connect

from switchtower import config


@pytest.mark.requirement("pi:limit:sessions", "pi:error:session-limit")
async def test_sessions_are_limited_and_an_unloaded_one_makes_room(own_pi: StartPi, join: Join) -> None:
    pi = await join(own_pi(pi_max_sessions=2))
    first, second = await pi.session(), await pi.session()
    assert await pi.refused("create_session") == "Session limit reached (2 sessions)"
    path = (await pi.do("get_state", sessionId=first))["sessionFile"]
    await pi.do("delete_session", sessionId=first)
    third = await pi.session()
    assert await pi.refused("load_session", sessionPath=path) == "Session limit reached (2 sessions)"
    listed = {info["sessionId"] for info in (await pi.do("list_sessions"))["sessions"]}
    assert listed == {second, third}
    assert (await pi.do("get_metrics"))["commandsRejected"]["sessionLimit"] == 2


@pytest.mark.requirement("pi:limit:connections")
async def test_a_connection_too_many_is_closed_with_try_again_later(own_pi: StartPi) -> None:
    daemon = own_pi(pi_max_connections=1)
    first = await connect(daemon, "websocket")
    with pytest.raises(EOFError, match="1013"):
        await connect(daemon, "websocket")
    assert (await first.do("get_metrics"))["commandsRejected"]["connectionLimit"] == 1
    first.wire.abort()


@pytest.mark.requirement("pi:limit:rate", "pi:error:rate", "pi:lifecycle:refused-after-admission")
async def test_commands_to_one_session_are_limited_for_each_client(start_pi: StartPi, join: Join) -> None:
    daemon = start_pi(pi_session_rate=10)
    pi, other = await join(daemon), await join(daemon)
    session_id = await pi.session()
    for _ in range(9):
        assert (await pi.ask("get_state", sessionId=session_id))["success"]
    refused = await pi.ask("get_state", sessionId=session_id)
    assert refused["error"] == "Rate limit exceeded (10 commands/minute)"
    assert pi.phases(refused["id"]) == ["command_accepted", "command_finished", "response"]
    assert (await pi.ask("list_sessions"))["success"]
    assert (await other.ask("get_state", sessionId=session_id))["success"]
    assert (await pi.ask("get_state", sessionId=await other.session()))["success"]
    assert (await pi.do("get_metrics"))["commandsRejected"]["rateLimit"] >= 1


@pytest.mark.requirement("pi:limit:rate", "pi:error:rate")
async def test_all_commands_of_one_client_are_limited(start_pi: StartPi, join: Join) -> None:
    daemon = start_pi(pi_client_rate=5)
    pi, other = await join(daemon), await join(daemon)
    for _ in range(5):
        assert (await pi.ask("list_sessions"))["success"]
    assert await pi.refused("list_sessions") == "Rate limit exceeded (5 commands/minute)"
    usage = (await other.do("get_metrics"))["rateLimitUsage"]
    assert (usage["globalCount"], usage["globalLimit"]) == (1, 5)


@pytest.mark.requirement("pi:limit:rate")
async def test_a_replay_is_answered_even_beyond_the_rate(start_pi: StartPi, join: Join) -> None:
    pi = await join(start_pi(pi_client_rate=5))
    first = await pi.ask("health_check")
    for _ in range(4):
        await pi.ask("health_check")
    await pi.refused("health_check")
    pi.frames.clear()
    assert (await pi.ask("health_check", id=first["id"]))["replayed"] is True


@pytest.mark.requirement("pi:limit:control")
async def test_a_client_that_has_used_up_its_rate_can_still_decide_stop_and_delete(start_pi: StartPi, join: Join) -> None:
    pi = await join(start_pi(pi_session_rate=4))
    session_id = await pi.session()
    await pi.begin("prompt", sessionId=session_id, message="ask: ready? | yes | no")
    asked = await pi.next_event("extension_ui_request")
    for _ in range(2):
        await pi.ask("get_state", sessionId=session_id)
    assert await pi.refused("get_state", sessionId=session_id) == "Rate limit exceeded (4 commands/minute)"
    response = {"method": "select", "value": "yes"}
    await pi.do("extension_ui_response", sessionId=session_id, requestId=asked["requestId"], response=response)
    await pi.next_event("agent_end")
    await pi.do("abort", sessionId=session_id)
    assert await pi.do("delete_session", sessionId=session_id) == {"deleted": True}


@pytest.mark.requirement("pi:limit:defaults")
async def test_the_defaults_are_those_that_clients_know(pi: CheckedClient, tmp_path: Path) -> None:
    settings = config.Settings(home=tmp_path)
    assert (settings.pi_max_sessions, settings.pi_max_connections) == (100, 1_000)
    assert settings.pi_max_frame_bytes == 10 * 1024 * 1024
    assert (settings.pi_session_rate, settings.pi_client_rate) == (100, 1_000)
    assert settings.pi_idempotency_minutes == 10
    replay = (await pi.do("get_metrics"))["stores"]["replay"]
    assert (replay["maxOutcomes"], replay["maxInFlight"]) == (2_000, 10_000)


@pytest.mark.requirement("pi:limit:outcomes")
async def test_the_outcomes_that_are_kept_are_bounded(own_pi: StartPi, join: Join) -> None:
    pi = await join(own_pi())
    ids = [pi.new_id() for _ in range(2_100)]
    for start in range(0, len(ids), 300):
        await pi.say(*({"type": "health_check", "id": id_} for id_ in ids[start : start + 300]))
        await pi.response(ids[start : start + 300][-1])
    metrics = await pi.do("get_metrics")
    assert metrics["stores"]["replay"]["outcomeCount"] <= 2_000
    pi.frames.clear()
    assert "replayed" not in await pi.ask("health_check", id=ids[0])
    assert (await pi.ask("health_check", id=ids[-1]))["success"]
