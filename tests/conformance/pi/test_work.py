"""The agent at work: prompt, steer, follow_up, abort, and what is left in the conversation."""

import base64
from pathlib import Path

import pytest
from tests.conformance.pi.conftest import Join
from tests.conformance.pi.stage import CheckedClient
from tests.conformance.pi.theatre import KEY, Theatre

from switchtower.testing import model_server_script as script

QUESTION = "ask: ready? | yes | no"
PIXEL = base64.b64encode(
    bytes.fromhex(
        "89504e470d0a1a0a0000000d49484452000000010000000108060000001f15c4890000000d49444154789c6360606060000000050001a5f645400000000049454e44ae426082"
    )
).decode()


def texts(messages: list[dict[str, object]], role: str) -> list[str]:
    """What messages of a role say."""
    said = []
    for message in messages:
        content = message["content"]
        assert isinstance(content, list)
        if message["role"] == role:
            said.append("".join(part.get("text", "") for part in content))
    return said


def _told_by_users(pi: CheckedClient, session_id: str) -> list[dict[str, object]]:
    ends = [event["message"] for event in pi.events(session_id) if event["type"] == "message_end"]
    return [message for message in ends if message["role"] == "user"]


@pytest.mark.requirement("pi:prompt:answered-at-end")
async def test_a_prompt_is_answered_when_the_run_has_ended(pi: CheckedClient) -> None:
    session_id = await pi.session()
    response = await pi.ask("prompt", sessionId=session_id, message="say: done")
    assert response["success"]
    assert (await pi.do("get_state", sessionId=session_id))["isStreaming"] is False
    await pi.next_event("agent_end")
    messages = (await pi.do("get_messages", sessionId=session_id))["messages"]
    assert (texts(messages, "user"), texts(messages, "assistant")) == (["say: done"], ["done"])
    assert await pi.do("get_last_assistant_text", sessionId=session_id) == {"text": "done"}


@pytest.mark.requirement("pi:prompt:images")
async def test_pictures_are_kept_with_the_message(pi: CheckedClient) -> None:
    session_id = await pi.session()
    image = {"type": "image", "data": PIXEL, "mimeType": "image/png"}
    assert (await pi.ask("prompt", sessionId=session_id, message="say: seen", images=[image]))["success"]
    [user] = [m for m in (await pi.do("get_messages", sessionId=session_id))["messages"] if m["role"] == "user"]
    assert image in user["content"]


@pytest.mark.requirement("pi:prompt:streaming-behavior", "pi:steer:delivered", "pi:follow-up:queued")
async def test_what_is_said_to_a_running_agent_reaches_it(pi: CheckedClient) -> None:
    session_id = await pi.session()
    prompt = await pi.running(session_id, QUESTION)
    question = await pi.next_event("extension_ui_request")
    await pi.do("follow_up", sessionId=session_id, message="say: last")
    await pi.do("prompt", sessionId=session_id, message="say: later still", streamingBehavior="followUp")
    await pi.do("steer", sessionId=session_id, message="say: steered")
    await pi.do("prompt", sessionId=session_id, message="say: steered again", streamingBehavior="steer")
    answer = {"method": "select", "value": "yes"}
    await pi.do("extension_ui_response", sessionId=session_id, requestId=question["requestId"], response=answer)
    assert (await pi.response(prompt))["success"]
    await pi.until(lambda _: len(_told_by_users(pi, session_id)) == 5)
    said = texts((await pi.do("get_messages", sessionId=session_id))["messages"], "user")
    assert said[0] == QUESTION
    assert sorted(said[1:]) == ["say: last", "say: later still", "say: steered", "say: steered again"]
    assert said.index("say: steered") < said.index("say: last") < said.index("say: later still")


@pytest.mark.requirement("pi:prompt:streaming-behavior")
async def test_a_streaming_behaviour_without_a_run_is_an_ordinary_prompt(pi: CheckedClient) -> None:
    session_id = await pi.session()
    for behaviour in ("steer", "followUp"):
        response = await pi.ask("prompt", sessionId=session_id, message=f"say: {behaviour}", streamingBehavior=behaviour)
        assert response["success"]
        assert await pi.do("get_last_assistant_text", sessionId=session_id) == {"text": behaviour}


@pytest.mark.requirement("pi:abort:ends-the-run")
async def test_an_abort_ends_the_run_and_the_prompt_is_answered(pi: CheckedClient) -> None:
    session_id = await pi.session()
    prompt = await pi.running(session_id, QUESTION)
    await pi.next_event("extension_ui_request")
    assert (await pi.ask("abort", sessionId=session_id))["success"]
    assert (await pi.do("get_state", sessionId=session_id))["isStreaming"] is False
    assert (await pi.response(prompt))["success"]
    end = await pi.next_event("agent_end")
    assert end["messages"][-1]["stopReason"] == "aborted"
    assert (await pi.ask("prompt", sessionId=session_id, message="say: again"))["success"]


@pytest.mark.requirement("pi:abort:ends-the-run")
async def test_an_abort_with_nothing_to_abort_succeeds(pi: CheckedClient) -> None:
    assert (await pi.ask("abort", sessionId=await pi.session()))["success"]


@pytest.mark.requirement("pi:prompt:model-failure")
async def test_a_failing_model_fails_the_prompt(theatre: Theatre, join: Join) -> None:
    pi = await join(theatre.daemon)
    session_id = await theatre.session(pi, script.Refusal(400, "the model says no"))
    response = await pi.ask("prompt", sessionId=session_id, message="hello")
    assert response["success"] is False
    assert "the model says no" in response["error"]
    assert KEY not in response["error"]
    end = await pi.next_event("agent_end")
    assert end["messages"][-1]["stopReason"] == "error"
    assert end["messages"][-1]["errorMessage"]
    assert await pi.version(session_id) == 1


@pytest.mark.requirement("pi:abort:ends-the-run")
async def test_an_abort_ends_a_model_that_says_nothing(theatre: Theatre, join: Join) -> None:
    pi = await join(theatre.daemon)
    session_id = await theatre.session(pi, script.Reply((script.Text("Well"), script.Hold())))
    prompt = await pi.running(session_id, "hello")
    await pi.next_event("message_update")
    await pi.do("abort", sessionId=session_id)
    assert (await pi.response(prompt))["success"]
    [said] = texts((await pi.next_event("agent_end"))["messages"], "assistant")
    assert said == "Well"


@pytest.mark.requirement("pi:stats:session", "pi:stats:context")
async def test_figures_add_up(theatre: Theatre, join: Join, workspace: Path) -> None:
    pi = await join(theatre.daemon)
    usage = script.Usage(input=100, output=20, cache_read=30)
    reply = script.Reply((script.Call("read_file", {"path": "README.md"}),), usage)
    session_id = await theatre.session(pi, reply, script.say("read", usage=usage), cwd=workspace)
    assert (await pi.do("get_context_usage", sessionId=session_id))["tokens"] is None
    await pi.do("prompt", sessionId=session_id, message="hello")
    stats = await pi.do("get_session_stats", sessionId=session_id)
    counted = [stats[name] for name in ("userMessages", "assistantMessages", "toolCalls", "toolResults", "totalMessages")]
    assert counted == [1, 2, 1, 1, 4]
    tokens = stats["tokens"]
    assert tokens["total"] == tokens["input"] + tokens["output"] + tokens["cacheRead"] + tokens["cacheWrite"] == 300
    assert (tokens["cacheRead"], tokens["output"]) == (60, 40)
    assert stats["cost"] > 0
    assert stats["sessionId"] == session_id
    context = await pi.do("get_context_usage", sessionId=session_id)
    assert context["contextWindow"] == 2_000
    assert context["percent"] == pytest.approx(context["tokens"] / 20)


@pytest.mark.requirement("pi:messages:empty")
async def test_a_session_in_which_nothing_was_said_has_nothing_to_tell(pi: CheckedClient) -> None:
    session_id = await pi.session()
    assert await pi.do("get_messages", sessionId=session_id) == {"messages": []}
    assert await pi.do("get_last_assistant_text", sessionId=session_id) == {"text": None}
    assert await pi.do("get_fork_messages", sessionId=session_id) == {"messages": []}
