"""The events of a session: which there are, in which order, and that a subscriber misses none of them."""

import asyncio
import itertools
import os
import signal
from pathlib import Path

import pytest
from tests.conformance.pi.conftest import Join, StartPi
from tests.conformance.pi.stage import CheckedClient, PiDaemon, list_types
from tests.conformance.pi.theatre import ScriptedModels

from switchtower.testing import model_script as script


def drop_repeats(names: list[str]) -> list[str]:
    return [name for name, _ in itertools.groupby(names)]


@pytest.mark.requirement("pi:event:envelope", "pi:event:agent", "pi:event:message")
async def test_a_run_is_told_from_its_start_to_its_end(pi_client: CheckedClient) -> None:
    session_id = await pi_client.start_session()
    await pi_client.execute("prompt", sessionId=session_id, message="say: hello")
    await pi_client.next_event("agent_end")
    events = pi_client.list_events(session_id)
    assert drop_repeats(list_types(events)) == [
        "agent_start",
        "turn_start",
        "message_start",
        "message_end",
        "message_start",
        "message_update",
        "message_end",
        "turn_end",
        "agent_end",
    ]
    messages = (await pi_client.execute("get_messages", sessionId=session_id))["messages"]
    assert events[-1]["messages"] == messages
    assert [event["message"] for event in events if event["type"] == "message_end"] == messages
    assert events[-2]["message"] == messages[-1]


@pytest.mark.requirement("pi:event:message-model")
async def test_an_assistant_message_names_its_model_from_its_start_on(pi_client: CheckedClient) -> None:
    session_id = await pi_client.start_session()
    await pi_client.execute("prompt", sessionId=session_id, message="say: hello")
    await pi_client.next_event("agent_end")
    told = [
        event["message"] for event in pi_client.list_events(session_id) if event.get("message", {}).get("role") == "assistant"
    ]
    assert {(message["provider"], message["model"]) for message in told} == {("demo", "demo")}


@pytest.mark.requirement("pi:event:message-update")
async def test_the_pieces_of_a_message_make_up_its_blocks(scripted_models: ScriptedModels, connect_pi: Join) -> None:
    pi = await connect_pi(scripted_models.daemon)
    text = "words and ünïcödé 🚂 " * 40
    session_id = await scripted_models.start_session(pi, script.ScriptedReply((script.TextStep(text, 7),)))
    await pi.execute("prompt", sessionId=session_id, message="tell")
    end = await pi.next_event("agent_end")
    pieces = [event["assistantMessageEvent"] for event in pi.list_events(session_id) if event["type"] == "message_update"]
    assert drop_repeats(list_types(pieces)) == ["text_start", "text_delta", "text_end"]
    assert {piece["contentIndex"] for piece in pieces} == {0}
    assert "".join(piece["delta"] for piece in pieces if piece["type"] == "text_delta") == text
    assert pieces[-1]["content"] == text
    assert end["messages"][-1]["content"] == [{"type": "text", "text": text}]


@pytest.mark.requirement("pi:event:message-update")
async def test_thinking_and_text_are_blocks_of_their_own(pi_client: CheckedClient) -> None:
    session_id = await pi_client.start_session()
    await pi_client.execute("prompt", sessionId=session_id, message="think: deeply\nsay: done")
    end = await pi_client.next_event("agent_end")
    pieces = [event["assistantMessageEvent"] for event in pi_client.list_events(session_id) if event["type"] == "message_update"]
    assert {"thinking_start", "thinking_delta", "thinking_end", "text_start", "text_delta", "text_end"} <= set(list_types(pieces))
    for block, index in itertools.product(("thinking", "text"), (0, 1)):
        deltas = [piece for piece in pieces if piece["type"] == f"{block}_delta" and piece["contentIndex"] == index]
        ends = [piece for piece in pieces if piece["type"] == f"{block}_end" and piece["contentIndex"] == index]
        if deltas:
            assert "".join(piece["delta"] for piece in deltas) == ends[-1]["content"]
            assert end["messages"][-1]["content"][index][block] == ends[-1]["content"]


@pytest.mark.requirement("pi:event:tool", "pi:event:message-update")
async def test_a_tools_execution_is_told_with_its_arguments_and_result(pi_client: CheckedClient, workspace: Path) -> None:
    session_id = await pi_client.start_session(workspace)
    await pi_client.execute("prompt", sessionId=session_id, message="read README.md")
    end = await pi_client.next_event("agent_end")
    events = pi_client.list_events(session_id)
    [start] = [event for event in events if event["type"] == "tool_execution_start"]
    [stop] = [event for event in events if event["type"] == "tool_execution_end"]
    assert (start["toolName"], start["args"]) == ("read_file", {"path": "README.md"})
    assert (stop["toolCallId"], stop["toolName"], stop["isError"]) == (start["toolCallId"], "read_file", False)
    assert "# A workspace" in stop["result"]["content"][0]["text"]
    [call] = [
        event["assistantMessageEvent"]["toolCall"]
        for event in events
        if event["type"] == "message_update" and event["assistantMessageEvent"]["type"] == "toolcall_end"
    ]
    assert call == {"type": "toolCall", "id": start["toolCallId"], "name": "read_file", "arguments": start["args"]}
    roles = [message["role"] for message in end["messages"]]
    assert roles == ["user", "assistant", "toolResult", "assistant"]
    assert end["messages"][1]["stopReason"] == "toolUse"
    assert end["messages"][3]["stopReason"] == "stop"
    turns = [event for event in events if event["type"] == "turn_end"]
    assert [len(turn["toolResults"]) for turn in turns] == [1, 0]
    assert turns[0]["toolResults"][0]["toolCallId"] == start["toolCallId"]
    assert list_types(events).count("turn_start") == 2


@pytest.mark.requirement("pi:event:tool")
async def test_a_tool_that_fails_says_so(pi_client: CheckedClient, workspace: Path) -> None:
    session_id = await pi_client.start_session(workspace)
    await pi_client.execute("prompt", sessionId=session_id, message="read nowhere.txt")
    assert (await pi_client.next_event("tool_execution_end"))["isError"] is True
    results = [
        m for m in (await pi_client.execute("get_messages", sessionId=session_id))["messages"] if m["role"] == "toolResult"
    ]
    assert results[0]["isError"] is True


@pytest.mark.requirement("pi:event:tool")
async def test_the_output_of_a_running_tool_is_told_as_it_comes(pi_client: CheckedClient, workspace: Path) -> None:
    session_id = await pi_client.start_session(workspace)
    os.mkfifo(workspace / "gate")
    prompt = await pi_client.start_prompt(session_id, "run: echo line 1; cat gate; echo line 2")
    request = await pi_client.next_event("extension_ui_request")
    yes = {"method": "confirm", "confirmed": True}
    await pi_client.execute("extension_ui_response", sessionId=session_id, requestId=request["requestId"], response=yes)
    update = await pi_client.next_event("tool_execution_update")
    assert "line 1" in update["partialResult"]["content"][0]["text"]
    await asyncio.to_thread((workspace / "gate").write_text, "open")
    assert (await pi_client.wait_for_response(prompt))["success"]
    assert "line 2" in (await pi_client.next_event("tool_execution_end"))["result"]["content"][0]["text"]


@pytest.mark.requirement("pi:event:message-update-cost")
async def test_an_update_costs_the_same_however_long_the_message_has_become(pi_client: CheckedClient) -> None:
    session_id = await pi_client.start_session()
    await pi_client.execute("prompt", sessionId=session_id, message="count 3000")
    await pi_client.next_event("agent_end")
    sizes = [
        size
        for frame, size in zip(pi_client.frames, pi_client.sizes, strict=True)
        if frame["type"] == "event"
        and frame["event"]["type"] == "message_update"
        and frame["event"]["assistantMessageEvent"]["type"] == "text_delta"
    ]
    assert len(sizes) >= 3_000
    assert max(sizes) < 8_192


@pytest.mark.requirement("pi:event:nothing-lost")
async def test_a_subscriber_that_reads_late_misses_nothing(
    pi_client: CheckedClient, pi_daemon: PiDaemon, connect_pi: Join
) -> None:
    session_id = await pi_client.start_session()
    slow = await connect_pi(pi_daemon)
    await slow.execute("switch_session", sessionId=session_id)
    await pi_client.execute("prompt", sessionId=session_id, message="count 3000")
    await pi_client.next_event("agent_end")
    await slow.next_event("agent_end")
    assert slow.list_events(session_id) == pi_client.list_events(session_id)


@pytest.mark.requirement("pi:event:envelope")
async def test_what_is_configured_is_told_to_subscribers(pi_client: CheckedClient) -> None:
    session_id = await pi_client.start_session()
    await pi_client.execute("set_session_name", sessionId=session_id, name="told")
    assert (await pi_client.next_event("session_info_changed"))["sessionName"] == "told"


@pytest.mark.requirement("pi:event:survives-restart")
async def test_messages_are_the_same_after_a_restart(dedicated_pi: StartPi, connect_pi: Join, workspace: Path) -> None:
    daemon = dedicated_pi()
    pi = await connect_pi(daemon)
    session_id = await pi.start_session(workspace)
    await pi.execute("prompt", sessionId=session_id, message="read README.md")
    before = await pi.execute("get_messages", sessionId=session_id)
    daemon.stop(signal.SIGKILL)
    daemon.start()
    pi = await connect_pi(daemon)
    assert await pi.execute("get_messages", sessionId=session_id) == before
    assert await pi.get_version(session_id) == 1
