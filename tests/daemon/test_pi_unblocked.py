"""A prompt that runs holds up nobody: what stops it, adds to it or looks at it is answered before it ends."""

import asyncio
from typing import Any

import pytest
from tests.daemon.pi_stage import PiHarness, answer_to

from switchtower.testing.pi_client import Frame, PiClient

FOR_EVER = "count 1000000"

READS: list[tuple[str, dict[str, Any]]] = [
    ("get_state", {}),
    ("get_messages", {}),
    ("get_session_stats", {}),
    ("get_context_usage", {}),
    ("get_fork_messages", {}),
    ("get_last_assistant_text", {}),
    ("get_available_models", {}),
    ("get_commands", {}),
    ("get_skills", {}),
    ("get_tools", {}),
    ("list_session_files", {}),
]
CONTROLS: list[tuple[str, dict[str, Any]]] = [
    ("steer", {"message": "say: hurry"}),
    ("follow_up", {"message": "say: afterwards"}),
    ("prompt", {"message": "say: and this", "streamingBehavior": "followUp"}),
    ("prompt", {"message": "say: and that", "streamingBehavior": "steer"}),
    ("set_session_name", {"name": "while it runs"}),
    ("set_thinking_level", {"level": "high"}),
    ("set_auto_compaction", {"enabled": False}),
    ("set_auto_retry", {"enabled": True}),
    ("abort_retry", {}),
    ("abort_compaction", {}),
    ("abort_bash", {}),
    ("bash", {"command": "echo meanwhile"}),
]


async def test_everything_is_answered_while_the_agent_speaks_and_an_abort_ends_it(pi_harness: PiHarness) -> None:
    await pi_harness.open(demo_delay_ms=2)
    client, other = await pi_harness.connect(), await pi_harness.connect()
    session_id = await pi_harness.start_session(client)
    prompt = await client.begin("prompt", sessionId=session_id, message=FOR_EVER)
    await client.next_event("message_update")
    for type_, fields in READS + CONTROLS:
        answer = await client.request(type_, sessionId=session_id, **fields)
        assert answer["success"] is True, answer
    for type_ in ("list_sessions", "list_stored_sessions", "get_metrics", "health_check"):
        assert (await client.request(type_))["success"] is True
    answer = await client.request(
        "extension_ui_response", sessionId=session_id, requestId="nobody's", response={"method": "confirm", "confirmed": True}
    )
    assert answer["error"] == "No pending UI request with id nobody's"

    await other.execute("switch_session", sessionId=session_id)
    assert (await other.execute("get_state", sessionId=session_id))["isStreaming"] is True
    update = await other.next_event("message_update")
    assert update["assistantMessageEvent"]["type"] == "text_delta"
    assert not any(frame.get("id") == prompt for frame in client.frames), "all this was before the prompt's end"

    abort = await other.begin("abort", sessionId=session_id)
    assert (await other.wait_for_response(abort))["success"] is True
    assert (await client.wait_for_response(prompt))["success"] is True
    ended = await client.wait_for(lambda frame: frame["type"] == "event" and frame["event"]["type"] == "agent_end")
    assert ended["event"]["messages"][-1]["stopReason"] == "aborted"
    places = {frame["id"]: place for place, frame in enumerate(client.frames) if frame["type"] == "response"}
    assert max(places.values()) == places[prompt]


async def test_what_was_queued_while_it_spoke_is_taken_up_and_nothing_is_taken_twice(pi_harness: PiHarness) -> None:
    await pi_harness.open(demo_delay_ms=2)
    client = await pi_harness.connect()
    session_id = await pi_harness.start_session(client)
    prompt = await client.begin("prompt", sessionId=session_id, message="count 300")
    await client.next_event("message_update")
    await client.execute("follow_up", sessionId=session_id, message="say: third")
    await client.execute("steer", sessionId=session_id, message="say: second")
    assert (await client.wait_for_response(prompt))["success"] is True
    await client.wait_for(lambda frame: frame["type"] == "event" and "third" in _get_assistant_text(frame["event"]))
    messages = (await client.execute("get_messages", sessionId=session_id))["messages"]
    users = [message["content"][0]["text"] for message in messages if message["role"] == "user"]
    assert users == ["count 300", "say: second", "say: third"]


def _get_assistant_text(event: Frame) -> str:
    if event["type"] != "message_end" or event["message"]["role"] != "assistant":
        return ""
    return "".join(block.get("text", "") for block in event["message"]["content"])


async def test_an_answer_to_a_question_passes_the_prompt_that_asks_it(pi_harness: PiHarness) -> None:
    await pi_harness.open()
    client, other = await pi_harness.connect(), await pi_harness.connect()
    session_id = await pi_harness.start_session(client)
    prompt = await client.begin("prompt", sessionId=session_id, message="run: echo hi > out.txt\ncount 50")
    asked = await client.next_event("extension_ui_request")
    await other.execute("switch_session", sessionId=session_id)
    assert (await other.next_event("extension_ui_request"))["requestId"] == asked["requestId"]
    response = {"method": "confirm", "confirmed": True}
    answered = await client.request(
        "extension_ui_response", sessionId=session_id, requestId=asked["requestId"], response=response
    )
    assert answered["success"] is True
    assert (await client.wait_for_response(prompt))["success"] is True
    kinds = [frame.get("id") for frame in client.frames if frame["type"] == "response"]
    assert kinds.index(answered["id"]) < kinds.index(prompt)
    late = {"type": "extension_ui_response", "sessionId": session_id, "requestId": asked["requestId"], "response": response}
    assert (await answer_to(other, {**late, "id": "late"}))["error"] == f"No pending UI request with id {asked['requestId']}"


async def test_prompts_without_a_wish_take_turns_and_a_busy_session_holds_up_no_other(pi_harness: PiHarness) -> None:
    await pi_harness.open(demo_delay_ms=1)
    client, other = await pi_harness.connect(), await pi_harness.connect()
    session_id = await pi_harness.start_session(client)
    prompts = [await client.begin("prompt", sessionId=session_id, message=f"count {60 + number}") for number in range(3)]
    elsewhere = await pi_harness.start_session(other)
    await other.execute("prompt", sessionId=elsewhere, message="say: unhindered")
    for prompt in prompts:
        assert (await client.wait_for_response(prompt))["success"] is True
    order = [frame["id"] for frame in client.frames if frame["type"] == "response" and frame["id"] in prompts]
    assert order == prompts
    ends = [event for event in client.list_events() if event["type"] == "agent_end"]
    assert [end["messages"][0]["content"][0]["text"] for end in ends] == ["count 60", "count 61", "count 62"]


@pytest.mark.parametrize("waits", ["prompt", "delete_session", "compact", "new_session"])
async def test_what_comes_together_with_a_command_that_has_to_wait_is_not_held_up_by_it(
    pi_harness: PiHarness, waits: str
) -> None:
    await pi_harness.open(demo_delay_ms=2)
    client = await pi_harness.connect()
    session_id = await pi_harness.start_session(client)
    about = {"sessionId": session_id}
    first = await client.begin("prompt", **about, message=FOR_EVER)
    await client.next_event("message_update")
    waiting: Frame = {"type": waits, "id": "waits", **about, **({"message": "say: next"} if waits == "prompt" else {})}
    await client.send_frames(waiting, {"type": "get_state", "id": "look", **about}, {"type": "abort", "id": "stop", **about})
    async with asyncio.timeout(60):  # the agent would speak on for an hour
        for id_ in ("look", "stop", first, "waits"):
            await client.wait_for_response(id_)


@pytest.mark.parametrize("stop", ["abort_bash", "timeout"])
async def test_a_shell_command_is_passed_and_stopped(pi_harness: PiHarness, stop: str) -> None:
    await pi_harness.open(**({"pi_command_timeout": 1} if stop == "timeout" else {}))
    client = await pi_harness.connect()
    session_id = await pi_harness.start_session(client)
    bash = await client.begin("bash", sessionId=session_id, command="echo begun; sleep 1000")
    assert (await client.execute("get_state", sessionId=session_id))["isStreaming"] is False
    if stop == "abort_bash":
        await client.execute("abort_bash", sessionId=session_id)
        assert (await client.wait_for_response(bash))["data"]["cancelled"] is True
    else:
        answer = await client.wait_for_response(bash)
        assert answer["timedOut"] is True
        assert answer["error"] == "Command 'bash' timed out after 1000ms"
        repeated = await answer_to(
            client, {"type": "bash", "id": bash, "sessionId": session_id, "command": "echo begun; sleep 1000"}
        )
        assert repeated == {**answer, "replayed": True}
    assert (await client.execute("bash", sessionId=session_id, command="echo free"))["output"] == "free\n"


async def test_a_client_that_leaves_takes_nothing_with_it(pi_harness: PiHarness) -> None:
    await pi_harness.open(demo_delay_ms=1)
    first = await pi_harness.connect()
    session_id = await pi_harness.start_session(first)
    prompt = {"type": "prompt", "id": "p-1", "sessionId": session_id, "message": "count 200"}
    await first.send_frames(prompt)
    await first.next_event("message_update")
    first.wire.abort()
    second: PiClient = await pi_harness.connect()
    answer = await answer_to(second, prompt)
    assert (answer["success"], answer["replayed"]) == (True, True)
    assert (await second.execute("get_last_assistant_text", sessionId=session_id))["text"].endswith(" 200")
