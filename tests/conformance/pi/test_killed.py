"""What a run had said when its daemon was killed: it stays in the conversation."""

import signal

import pytest
from tests.conformance.pi.conftest import Join, StartPi


@pytest.mark.requirement("pi:messages:killed", "pi:event:survives-restart")
@pytest.mark.parametrize("pi_transport", ["websocket"])
async def test_what_a_killed_run_had_said_is_in_its_messages(dedicated_pi: StartPi, connect_pi: Join) -> None:
    daemon = dedicated_pi(demo_delay_ms=2)
    pi = await connect_pi(daemon)
    await pi.execute("create_session", sessionId="s1")
    await pi.execute("switch_session", sessionId="s1")
    await pi.begin("prompt", sessionId="s1", message="count 1000000")
    said, thought = "", ""
    while len(said.split()) < 20:
        update = (await pi.next_event("message_update"))["assistantMessageEvent"]
        thought += update["delta"] if update["type"] == "thinking_delta" else ""
        said += update["delta"] if update["type"] == "text_delta" else ""
    daemon.stop(signal.SIGKILL)
    daemon.start()
    again = await connect_pi(daemon)
    messages = (await again.execute("get_messages", sessionId="s1"))["messages"]
    assert [message["role"] for message in messages] == ["user", "assistant"]
    assert (messages[1]["stopReason"], bool(messages[1]["errorMessage"])) == ("aborted", True)
    thinking, text = messages[1]["content"][0]["thinking"], messages[1]["content"][1]["text"]
    assert (thinking, text.startswith(said)) == (thought, True), "no word that a client has seen is lost"
    assert await again.execute("get_last_assistant_text", sessionId="s1") == {"text": text.strip()}
    assert (await again.execute("get_state", sessionId="s1"))["messageCount"] == 2
    assert (await again.request("prompt", sessionId="s1", message="say: on"))["success"]
    after = (await again.execute("get_messages", sessionId="s1"))["messages"]
    assert after[:2] == messages
