"""The agent at work: prompt, steer, follow_up, abort, and what is left in the conversation."""

import base64
from pathlib import Path

import pytest
from tests.conformance.pi.conftest import Join
from tests.conformance.pi.stage import CheckedClient
from tests.conformance.pi.theatre import SCRIPTED_KEY, ScriptedModels

from switchtower.testing import model_script as script

QUESTION = "ask: ready? | yes | no"
PIXEL = base64.b64encode(
    bytes.fromhex(
        "89504e470d0a1a0a0000000d49484452000000010000000108060000001f15c4890000000d49444154789c6360606060000000050001a5f645400000000049454e44ae426082"
    )
).decode()


def list_texts(messages: list[dict[str, object]], role: str) -> list[str]:
    """What messages of a role say."""
    said = []
    for message in messages:
        content = message["content"]
        assert isinstance(content, list)
        if message["role"] == role:
            said.append("".join(part.get("text", "") for part in content))
    return said


def _list_user_texts(pi: CheckedClient, session_id: str) -> list[dict[str, object]]:
    ends = [event["message"] for event in pi.list_events(session_id) if event["type"] == "message_end"]
    return [message for message in ends if message["role"] == "user"]


@pytest.mark.requirement("pi:prompt:answered-at-end")
async def test_a_prompt_is_answered_when_the_run_has_ended(pi_client: CheckedClient) -> None:
    session_id = await pi_client.start_session()
    response = await pi_client.request("prompt", sessionId=session_id, message="say: done")
    assert response["success"]
    assert (await pi_client.execute("get_state", sessionId=session_id))["isStreaming"] is False
    await pi_client.next_event("agent_end")
    messages = (await pi_client.execute("get_messages", sessionId=session_id))["messages"]
    assert (list_texts(messages, "user"), list_texts(messages, "assistant")) == (["say: done"], ["done"])
    assert await pi_client.execute("get_last_assistant_text", sessionId=session_id) == {"text": "done"}


@pytest.mark.requirement("pi:prompt:images")
async def test_pictures_are_kept_with_the_message(pi_client: CheckedClient) -> None:
    session_id = await pi_client.start_session()
    image = {"type": "image", "data": PIXEL, "mimeType": "image/png"}
    assert (await pi_client.request("prompt", sessionId=session_id, message="say: seen", images=[image]))["success"]
    [user] = [m for m in (await pi_client.execute("get_messages", sessionId=session_id))["messages"] if m["role"] == "user"]
    assert image in user["content"]


@pytest.mark.requirement("pi:prompt:streaming-behavior", "pi:steer:delivered", "pi:follow-up:queued")
async def test_what_is_said_to_a_running_agent_reaches_it(pi_client: CheckedClient) -> None:
    session_id = await pi_client.start_session()
    prompt = await pi_client.start_prompt(session_id, QUESTION)
    question = await pi_client.next_event("extension_ui_request")
    await pi_client.execute("follow_up", sessionId=session_id, message="say: last")
    await pi_client.execute("prompt", sessionId=session_id, message="say: later still", streamingBehavior="followUp")
    await pi_client.execute("steer", sessionId=session_id, message="say: steered")
    await pi_client.execute("prompt", sessionId=session_id, message="say: steered again", streamingBehavior="steer")
    answer = {"method": "select", "value": "yes"}
    await pi_client.execute("extension_ui_response", sessionId=session_id, requestId=question["requestId"], response=answer)
    assert (await pi_client.wait_for_response(prompt))["success"]
    await pi_client.wait_for(lambda _: len(_list_user_texts(pi_client, session_id)) == 5)
    said = list_texts((await pi_client.execute("get_messages", sessionId=session_id))["messages"], "user")
    assert said[0] == QUESTION
    assert sorted(said[1:]) == ["say: last", "say: later still", "say: steered", "say: steered again"]
    assert said.index("say: steered") < said.index("say: last") < said.index("say: later still")


@pytest.mark.requirement("pi:prompt:streaming-behavior")
async def test_a_streaming_behaviour_without_a_run_is_an_ordinary_prompt(pi_client: CheckedClient) -> None:
    session_id = await pi_client.start_session()
    for behaviour in ("steer", "followUp"):
        response = await pi_client.request(
            "prompt", sessionId=session_id, message=f"say: {behaviour}", streamingBehavior=behaviour
        )
        assert response["success"]
        assert await pi_client.execute("get_last_assistant_text", sessionId=session_id) == {"text": behaviour}


@pytest.mark.requirement("pi:abort:ends-the-run")
async def test_an_abort_ends_the_run_and_the_prompt_is_answered(pi_client: CheckedClient) -> None:
    session_id = await pi_client.start_session()
    prompt = await pi_client.start_prompt(session_id, QUESTION)
    await pi_client.next_event("extension_ui_request")
    assert (await pi_client.request("abort", sessionId=session_id))["success"]
    assert (await pi_client.execute("get_state", sessionId=session_id))["isStreaming"] is False
    assert (await pi_client.wait_for_response(prompt))["success"]
    end = await pi_client.next_event("agent_end")
    assert end["messages"][-1]["stopReason"] == "aborted"
    assert (await pi_client.request("prompt", sessionId=session_id, message="say: again"))["success"]


@pytest.mark.requirement("pi:abort:ends-the-run")
async def test_an_abort_with_nothing_to_abort_succeeds(pi_client: CheckedClient) -> None:
    assert (await pi_client.request("abort", sessionId=await pi_client.start_session()))["success"]


@pytest.mark.requirement("pi:prompt:model-failure")
async def test_a_failing_model_fails_the_prompt(scripted_models: ScriptedModels, connect_pi: Join) -> None:
    pi = await connect_pi(scripted_models.daemon)
    session_id = await scripted_models.start_session(pi, script.ScriptedRefusal(400, "the model says no"))
    response = await pi.request("prompt", sessionId=session_id, message="hello")
    assert response["success"] is False
    assert "the model says no" in response["error"]
    assert SCRIPTED_KEY not in response["error"]
    end = await pi.next_event("agent_end")
    assert end["messages"][-1]["stopReason"] == "error"
    assert end["messages"][-1]["errorMessage"]
    assert await pi.get_version(session_id) == 1


@pytest.mark.requirement("pi:abort:ends-the-run")
async def test_an_abort_ends_a_model_that_says_nothing(scripted_models: ScriptedModels, connect_pi: Join) -> None:
    pi = await connect_pi(scripted_models.daemon)
    session_id = await scripted_models.start_session(pi, script.ScriptedReply((script.TextStep("Well"), script.HoldStep())))
    prompt = await pi.start_prompt(session_id, "hello")
    await pi.next_event("message_update")
    await pi.execute("abort", sessionId=session_id)
    assert (await pi.wait_for_response(prompt))["success"]
    [said] = list_texts((await pi.next_event("agent_end"))["messages"], "assistant")
    assert said == "Well"


@pytest.mark.requirement("pi:stats:session", "pi:stats:context")
async def test_figures_add_up(scripted_models: ScriptedModels, connect_pi: Join, workspace: Path) -> None:
    pi = await connect_pi(scripted_models.daemon)
    usage = script.ScriptedUsage(input=100, output=20, cache_read=30)
    reply = script.ScriptedReply((script.CallStep("read_file", {"path": "README.md"}),), usage)
    session_id = await scripted_models.start_session(pi, reply, script.reply_text("read", usage=usage), cwd=workspace)
    assert (await pi.execute("get_context_usage", sessionId=session_id))["tokens"] is None
    await pi.execute("prompt", sessionId=session_id, message="hello")
    stats = await pi.execute("get_session_stats", sessionId=session_id)
    counted = [stats[name] for name in ("userMessages", "assistantMessages", "toolCalls", "toolResults", "totalMessages")]
    assert counted == [1, 2, 1, 1, 4]
    tokens = stats["tokens"]
    assert tokens["total"] == tokens["input"] + tokens["output"] + tokens["cacheRead"] + tokens["cacheWrite"] == 300
    assert (tokens["cacheRead"], tokens["output"]) == (60, 40)
    assert stats["cost"] > 0
    assert stats["sessionId"] == session_id
    context = await pi.execute("get_context_usage", sessionId=session_id)
    assert context["contextWindow"] == 2_000
    assert context["percent"] == pytest.approx(context["tokens"] / 20)


@pytest.mark.requirement("pi:messages:empty")
async def test_a_session_in_which_nothing_was_said_has_nothing_to_tell(pi_client: CheckedClient) -> None:
    session_id = await pi_client.start_session()
    assert await pi_client.execute("get_messages", sessionId=session_id) == {"messages": []}
    assert await pi_client.execute("get_last_assistant_text", sessionId=session_id) == {"text": None}
    assert await pi_client.execute("get_fork_messages", sessionId=session_id) == {"messages": []}
