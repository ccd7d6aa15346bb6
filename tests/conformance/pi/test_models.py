"""Models and thinking levels: chosen, cycled, and refused by name."""

import pytest
from tests.conformance.pi.conftest import Join
from tests.conformance.pi.stage import CheckedClient
from tests.conformance.pi.theatre import ScriptedModels

from switchtower.testing import model_script as script


@pytest.mark.requirement("pi:model:set")
async def test_a_model_is_chosen_by_provider_and_id(scripted_models: ScriptedModels, connect_pi: Join) -> None:
    pi = await connect_pi(scripted_models.daemon)
    session_id = await scripted_models.start_session(pi, script.reply_text("from the theatre"))
    state = await pi.execute("get_state", sessionId=session_id)
    assert state["model"]["provider"] == "openai"
    await pi.execute("prompt", sessionId=session_id, message="hello")
    assert await pi.execute("get_last_assistant_text", sessionId=session_id) == {"text": "from the theatre"}
    chosen = await pi.execute("set_model", sessionId=session_id, provider="demo", modelId="demo")
    assert chosen["model"] == (await pi.execute("get_state", sessionId=session_id))["model"]
    await pi.execute("prompt", sessionId=session_id, message="say: from the demo")
    assert await pi.execute("get_last_assistant_text", sessionId=session_id) == {"text": "from the demo"}


@pytest.mark.requirement("pi:model:unknown", "pi:error:model-not-found")
async def test_an_unknown_model_is_refused(pi_client: CheckedClient) -> None:
    session_id = await pi_client.start_session()
    assert (
        await pi_client.expect_refusal("set_model", sessionId=session_id, provider="no", modelId="such")
        == "Model not found: no/such"
    )
    assert (await pi_client.execute("get_state", sessionId=session_id))["model"]["id"] == "demo"


@pytest.mark.requirement("pi:model:cycle")
async def test_models_are_cycled_in_both_directions(scripted_models: ScriptedModels, connect_pi: Join) -> None:
    pi = await connect_pi(scripted_models.daemon)
    session_id = await pi.start_session()
    models = (await pi.execute("get_available_models", sessionId=session_id))["models"]
    assert len(models) >= 2
    first = (await pi.execute("get_state", sessionId=session_id))["model"]
    seen = [(await pi.execute("cycle_model", sessionId=session_id))["model"] for _ in models]
    assert seen[-1] == first
    assert sorted(model["id"] for model in seen) == sorted(model["id"] for model in models)
    back = await pi.execute("cycle_model", sessionId=session_id, direction="backward")
    assert back["model"] == seen[-2]
    assert back["isScoped"] is False
    assert (await pi.execute("get_state", sessionId=session_id))["model"] == back["model"]


@pytest.mark.requirement("pi:model:cycle")
async def test_where_there_is_one_model_there_is_nothing_to_cycle(pi_client: CheckedClient) -> None:
    session_id = await pi_client.start_session()
    response = await pi_client.request("cycle_model", sessionId=session_id)
    assert (response["success"], response["data"]) == (True, None)


@pytest.mark.requirement("pi:thinking:set")
async def test_every_thinking_level_is_accepted(pi_client: CheckedClient) -> None:
    session_id = await pi_client.start_session()
    for level in ("none", "minimal", "low", "medium", "high", "xhigh", "off"):
        assert (await pi_client.request("set_thinking_level", sessionId=session_id, level=level))["success"]
        state = await pi_client.execute("get_state", sessionId=session_id)
        assert state["thinkingLevel"] == ("off" if level == "none" else level)


@pytest.mark.requirement("pi:thinking:cycle")
async def test_thinking_levels_are_cycled(pi_client: CheckedClient) -> None:
    session_id = await pi_client.start_session()
    seen = [(await pi_client.execute("cycle_thinking_level", sessionId=session_id))["level"] for _ in range(6)]
    assert len(set(seen)) == 6
    assert seen[-1] == "off"
    assert (await pi_client.execute("get_state", sessionId=session_id))["thinkingLevel"] == "off"


@pytest.mark.requirement("pi:model:cycle")
async def test_what_is_configured_survives_unloading(pi_client: CheckedClient) -> None:
    session_id = await pi_client.start_session()
    await pi_client.execute("set_thinking_level", sessionId=session_id, level="high")
    await pi_client.execute("set_session_name", sessionId=session_id, name="kept")
    before = await pi_client.execute("get_state", sessionId=session_id)
    await pi_client.execute("delete_session", sessionId=session_id)
    loaded = await pi_client.execute("load_session", sessionPath=before["sessionFile"])
    assert loaded["sessionInfo"] == before
