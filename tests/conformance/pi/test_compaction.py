"""Compaction and retries: asked for or automatic, told as events, and stopped when somebody wants them to."""

import pytest
from tests.conformance.pi.conftest import Join
from tests.conformance.pi.stage import CheckedClient
from tests.conformance.pi.theatre import ScriptedModels

from switchtower.testing import model_script as script

LONG = script.ScriptedReply((script.TextStep("a long story " * 300, piece=650),))
SUMMARY = script.reply_text("the story in short")


@pytest.mark.requirement("pi:compaction:compact")
async def test_a_conversation_is_compacted_on_request(scripted_models: ScriptedModels, connect_pi: Join) -> None:
    pi = await connect_pi(scripted_models.daemon)
    session_id = await scripted_models.start_session(pi, LONG, LONG, SUMMARY)
    await pi.execute("prompt", sessionId=session_id, message="tell")
    await pi.execute("prompt", sessionId=session_id, message="more")
    result = await pi.execute("compact", sessionId=session_id, customInstructions="keep the names")
    assert result["summary"] == "the story in short"
    assert result["tokensBefore"] > 0
    assert (await pi.next_event("compaction_end"))["result"]["summary"] == "the story in short"
    assert scripted_models.server is not None
    assert any("keep the names" in str(request.body) for request in scripted_models.server.requests)


@pytest.mark.requirement("pi:compaction:compact")
async def test_compacting_nothing_fails(pi_client: CheckedClient) -> None:
    assert await pi_client.expect_refusal("compact", sessionId=await pi_client.start_session())


@pytest.mark.requirement("pi:compaction:abort")
async def test_a_compaction_can_be_aborted(scripted_models: ScriptedModels, connect_pi: Join) -> None:
    pi = await connect_pi(scripted_models.daemon)
    session_id = await scripted_models.start_session(pi, LONG, LONG, script.ScriptedReply((script.HoldStep(),)))
    await pi.execute("prompt", sessionId=session_id, message="tell")
    await pi.execute("prompt", sessionId=session_id, message="more")
    compact = await pi.begin("compact", sessionId=session_id)
    await pi.next_event("compaction_start")
    assert (await pi.request("abort_compaction", sessionId=session_id))["success"]
    assert (await pi.wait_for_response(compact))["success"] is False
    assert (await pi.next_event("compaction_end"))["aborted"] is True
    assert len((await pi.execute("get_messages", sessionId=session_id))["messages"]) == 4


@pytest.mark.requirement("pi:compaction:auto", "pi:event:auto_compaction")
async def test_a_context_that_overflows_is_compacted_and_the_prompt_succeeds(
    scripted_models: ScriptedModels, connect_pi: Join
) -> None:
    pi = await connect_pi(scripted_models.daemon)
    session_id = await scripted_models.start_session(
        pi, LONG, LONG, script.refuse_overflow(), SUMMARY, script.reply_text("after all")
    )
    await pi.execute("prompt", sessionId=session_id, message="tell")
    await pi.execute("prompt", sessionId=session_id, message="more")
    assert (await pi.request("prompt", sessionId=session_id, message="and now?"))["success"]
    assert (await pi.next_event("auto_compaction_start"))["reason"] == "overflow"
    end = await pi.next_event("auto_compaction_end")
    assert (end["result"]["summary"], end["aborted"], end["willRetry"]) == ("the story in short", False, True)
    assert await pi.execute("get_last_assistant_text", sessionId=session_id) == {"text": "after all"}


@pytest.mark.requirement("pi:compaction:auto")
async def test_a_context_that_grows_too_full_is_compacted_unless_that_is_switched_off(
    scripted_models: ScriptedModels, connect_pi: Join
) -> None:
    pi = await connect_pi(scripted_models.daemon)
    full = script.ScriptedReply(LONG.steps, usage=script.ScriptedUsage(input=1_900, output=50))
    for enabled in (True, False):
        session_id = await scripted_models.start_session(pi, full, full, SUMMARY, script.reply_text("short"))
        await pi.execute("set_auto_compaction", sessionId=session_id, enabled=enabled)
        for message in ("tell", "more", "and more"):
            await pi.execute("prompt", sessionId=session_id, message=message)
        await pi.drain()
        told = [event["reason"] for event in pi.list_events(session_id) if event["type"] == "auto_compaction_start"]
        assert told[:1] == (["threshold"] if enabled else [])


@pytest.mark.requirement("pi:retry:events", "pi:event:auto_retry")
async def test_a_passing_trouble_is_retried_and_told(scripted_models: ScriptedModels, connect_pi: Join) -> None:
    pi = await connect_pi(scripted_models.daemon)
    session_id = await scripted_models.start_session(
        pi, script.ScriptedRefusal(503, "not now", headers={"retry-after": "0"}), script.reply_text("here I am")
    )
    assert (await pi.request("prompt", sessionId=session_id, message="hello"))["success"]
    start = await pi.next_event("auto_retry_start")
    assert start["attempt"] == 1
    assert start["maxAttempts"] >= 1
    assert "not now" in start["errorMessage"]
    end = await pi.next_event("auto_retry_end")
    assert (end["success"], end["attempt"]) == (True, 1)
    assert await pi.execute("get_last_assistant_text", sessionId=session_id) == {"text": "here I am"}


@pytest.mark.requirement("pi:retry:abort")
async def test_a_countdown_can_be_aborted(scripted_models: ScriptedModels, connect_pi: Join) -> None:
    pi = await connect_pi(scripted_models.daemon)
    session_id = await scripted_models.start_session(
        pi, script.ScriptedRefusal(503, "much later", headers={"retry-after": "100"})
    )
    prompt = await pi.begin("prompt", sessionId=session_id, message="hello")
    assert (await pi.next_event("auto_retry_start"))["delayMs"] >= 100_000
    assert (await pi.request("abort_retry", sessionId=session_id))["success"]
    end = await pi.next_event("auto_retry_end")
    assert (end["success"], end["attempt"]) == (False, 1)
    assert end["finalError"]
    assert (await pi.wait_for_response(prompt))["success"] is False


@pytest.mark.requirement("pi:retry:switch")
async def test_without_auto_retry_the_first_trouble_counts(scripted_models: ScriptedModels, connect_pi: Join) -> None:
    pi = await connect_pi(scripted_models.daemon)
    session_id = await scripted_models.start_session(
        pi, script.ScriptedRefusal(503, "not now", headers={"retry-after": "0"}), script.reply_text("here")
    )
    await pi.execute("set_auto_retry", sessionId=session_id, enabled=False)
    assert "not now" in await pi.expect_refusal("prompt", sessionId=session_id, message="hello")
    await pi.next_event("agent_end")
    assert not [event for event in pi.list_events(session_id) if event["type"].startswith("auto_retry")]


@pytest.mark.requirement("pi:retry:abort", "pi:compaction:abort")
async def test_stopping_what_does_not_happen_succeeds(pi_client: CheckedClient) -> None:
    session_id = await pi_client.start_session()
    for command in ("abort_retry", "abort_compaction", "abort_bash"):
        assert (await pi_client.request(command, sessionId=session_id))["success"]


@pytest.mark.requirement("pi:breaker:model", "pi:error:circuit-breaker", "pi:server:health")
async def test_a_provider_that_keeps_failing_is_left_alone(dedicated_scripted_models: ScriptedModels, connect_pi: Join) -> None:
    pi = await connect_pi(dedicated_scripted_models.daemon)
    session_id = await dedicated_scripted_models.start_session(pi, script.ScriptedRefusal(503, "broken"))
    await pi.execute("set_auto_retry", sessionId=session_id, enabled=False)
    for _ in range(6):
        assert "broken" in await pi.expect_refusal("prompt", sessionId=session_id, message="hello")
    assert (await pi.expect_refusal("prompt", sessionId=session_id, message="hello")).startswith("Circuit breaker open")
    health = await pi.execute("health_check")
    assert (health["healthy"], health["hasOpenCircuit"], health["hasOpenBashCircuit"]) == (False, True, False)
    assert health["issues"]
    [breaker] = [one for one in (await pi.execute("get_metrics"))["circuitBreakers"] if one["state"] == "open"]
    assert breaker["totalRejected"] == 1, "the prompt that was refused"
    assert (breaker["totalFailures"], breaker["failureCount"], breaker["totalSuccesses"]) == (6, 6, 0)
    assert breaker["lastFailureTime"]
    await pi.execute("set_model", sessionId=session_id, provider="demo", modelId="demo")
    assert (await pi.request("prompt", sessionId=session_id, message="say: another provider"))["success"]
