"""Questions of extensions and of the agent, asked of pi's clients: answered, dismissed, answered by nobody."""

import json
import subprocess
from typing import Any

import pytest
from tests.daemon.pi_stage import PiHarness, answer_to, get_text, list_event_types

from switchtower.testing import model_script as script
from switchtower.testing.pi_client import Frame, PiClient


def make_repository(pi_harness: PiHarness) -> None:
    """One commit, and one change that is not committed."""
    git = ["git", "-C", str(pi_harness.workspace), "-c", "user.name=t", "-c", "user.email=t@example.com"]
    (pi_harness.workspace / "a.txt").write_text("one\n")
    for arguments in (["init", "-q", "-b", "main"], ["add", "."], ["commit", "-q", "-m", "first"]):
        subprocess.run([*git, *arguments], check=True, capture_output=True)
    (pi_harness.workspace / "a.txt").write_text("two\n")


async def respond(client: PiClient, session_id: str, request: Frame, **response: Any) -> Frame:
    return await client.request(
        "extension_ui_response",
        sessionId=session_id,
        requestId=request["requestId"],
        response={"method": request["method"], **response},
    )


async def test_review_asks_what_and_the_choice_becomes_the_prompt(pi_harness: PiHarness) -> None:
    server = await pi_harness.start_model_server(script.reply_text("Nothing is wrong."))
    await pi_harness.open()
    make_repository(pi_harness)
    client, other = await pi_harness.connect(), await pi_harness.connect()
    session_id = await pi_harness.start_session(client)
    await other.execute("switch_session", sessionId=session_id)
    commands = (await client.execute("get_commands", sessionId=session_id))["commands"]
    assert {(command["name"], command["source"]) for command in commands} >= {("review", "extension"), ("brief", "extension")}
    prompt = await client.begin("prompt", sessionId=session_id, message="/review")
    request = await client.next_event("extension_ui_request")
    assert await other.next_event("extension_ui_request") == request
    assert (request["method"], request["title"]) == ("select", "What should be reviewed?")
    assert [option.partition(" (")[0] for option in request["options"]] == ["Uncommitted changes", "The last commit"]
    assert (await client.execute("get_metrics"))["stores"]["extensionUI"]["pendingCount"] == 1

    wrong = await respond(other, session_id, request, value="Everything")
    assert wrong["error"] == "Validation failed: response.value: must be one of the options"
    other_method = await respond(other, session_id, {**request, "method": "input"}, value=request["options"][0])
    assert other_method["error"].startswith("Validation failed: response.method: must be select or cancelled")
    assert (await respond(other, session_id, request, value=request["options"][0]))["success"] is True
    late = await respond(client, session_id, request, value=request["options"][1])
    assert late["error"] == f"No pending UI request with id {request['requestId']}"
    assert (await client.wait_for_response(prompt))["success"] is True
    told = json.dumps((await server.wait_for_request()).body["messages"])
    assert "the uncommitted changes, new files included" in told
    assert (await client.execute("get_last_assistant_text", sessionId=session_id))["text"] == "Nothing is wrong."
    closed = [event for event in client.list_events() if event["type"] == "extension_ui_closed"]
    assert [event["requestId"] for event in closed] == [request["requestId"]]


async def test_brief_holds_an_interview_until_the_answers_will_do(pi_harness: PiHarness) -> None:
    server = await pi_harness.start_model_server(script.reply_text("Understood."))
    await pi_harness.open()
    client = await pi_harness.connect()
    session_id = await pi_harness.start_session(client)
    prompt = await client.begin("prompt", sessionId=session_id, message="/brief make it faster")
    request = await client.next_event("extension_ui_request")
    assert (request["method"], request["title"]) == ("interview", "A brief for: make it faster")
    assert [question["id"] for question in request["questions"]] == ["goal", "constraints", "done", "files", "scope", "plan"]
    # What is required is missing: it is asked again, with the reason.
    assert (await respond(client, session_id, request, responses={"goal": " ", "plan": "maybe"}))["success"] is True
    again = await client.next_event("extension_ui_request")
    assert again["requestId"] != request["requestId"]
    assert "needs an answer" in again["message"]
    answers = {"goal": "Twice as fast", "scope": again["questions"][4]["options"][0], "plan": True, "unasked": 1}
    assert (await respond(client, session_id, again, responses=answers))["success"] is True
    assert (await client.wait_for_response(prompt))["success"] is True
    told = json.dumps((await server.wait_for_request()).body["messages"])
    for words in ("make it faster", "Twice as fast", "Keep the change as small as possible.", "describe a plan"):
        assert words in told
    assert "unasked" not in told


@pytest.mark.parametrize("command", ["/review", "/brief"])
async def test_a_dismissed_question_ends_the_run_without_the_model(pi_harness: PiHarness, command: str) -> None:
    server = await pi_harness.start_model_server()
    await pi_harness.open()
    make_repository(pi_harness)
    client = await pi_harness.connect()
    session_id = await pi_harness.start_session(client)
    prompt = await client.begin("prompt", sessionId=session_id, message=command)
    request = await client.next_event("extension_ui_request")
    answer = {"type": "extension_ui_response", "id": "x", "sessionId": session_id, "requestId": request["requestId"]}
    assert (await answer_to(client, {**answer, "response": {"method": "cancelled"}}))["success"] is True
    assert (await client.wait_for_response(prompt))["success"] is True, (
        "a run that somebody stopped has done what was wanted of it"
    )
    await client.next_event("agent_end")
    assert server.requests == []
    assert (await client.execute("get_state", sessionId=session_id))["isStreaming"] is False


@pytest.mark.parametrize("command", ["/review", "/brief"])
async def test_when_nobody_answers_the_extension_gets_an_error_and_the_prompt_says_so(
    pi_harness: PiHarness, command: str
) -> None:
    server = await pi_harness.start_model_server()
    await pi_harness.open(pi_ui_timeout=0.3)
    make_repository(pi_harness)
    client = await pi_harness.connect()
    session_id = await pi_harness.start_session(client)
    answer = await client.request("prompt", sessionId=session_id, message=command)
    assert answer["success"] is False
    assert "was not answered: nobody did within 0.3 s" in answer["error"]
    [request] = [event for event in client.list_events() if event["type"] == "extension_ui_request"]
    assert 0 < request["timeout"] <= 300
    closed = [event for event in client.list_events() if event["type"] == "extension_ui_closed"]
    assert [event["requestId"] for event in closed] == [request["requestId"]]
    late = await respond(client, session_id, {**request, "method": "cancelled"})
    assert late["error"] == f"No pending UI request with id {request['requestId']}"
    assert list_event_types(client.list_events())[-1] == "agent_end"
    assert server.requests == []


async def test_the_agent_s_own_questions_reach_the_client_and_the_answer_reaches_the_model(pi_harness: PiHarness) -> None:
    server = await pi_harness.start_model_server(
        script.reply_call("ask_user", question="Which one?", options=["left", "right"]),
        script.reply_call("ask_user", question="Why?"),
        script.reply_text("I see."),
    )
    await pi_harness.open()
    client = await pi_harness.connect()
    session_id = await pi_harness.start_session(client)
    prompt = await client.begin("prompt", sessionId=session_id, message="choose")
    choice = await client.next_event("extension_ui_request")
    assert (choice["method"], choice["title"], choice["options"]) == ("select", "Which one?", ["left", "right"])
    assert (await respond(client, session_id, choice, value="right"))["success"] is True
    reason = await client.next_event("extension_ui_request")
    assert (reason["method"], reason["title"]) == ("input", "Why?")
    assert (await respond(client, session_id, reason, value="because\nit is"))["success"] is True
    assert (await client.wait_for_response(prompt))["success"] is True
    messages = (await client.execute("get_messages", sessionId=session_id))["messages"]
    results = [get_text(message) for message in messages if message["role"] == "toolResult"]
    assert results == ["right", "because\nit is"]
    assert "because" in json.dumps((await server.wait_for_request(3)).body["messages"])


async def test_a_question_that_nobody_answers_is_told_to_the_model_which_goes_on(pi_harness: PiHarness) -> None:
    await pi_harness.start_model_server(script.reply_call("ask_user", question="Anyone?"), script.reply_text("Then I guess."))
    await pi_harness.open(pi_ui_timeout=0.3)
    client = await pi_harness.connect()
    session_id = await pi_harness.start_session(client)
    await client.execute("prompt", sessionId=session_id, message="ask somebody")
    [ended] = [event for event in client.list_events() if event["type"] == "tool_execution_end"]
    assert ended["isError"] is True
    assert "nobody did within 0.3 s" in json.dumps(ended["result"])
    assert (await client.execute("get_last_assistant_text", sessionId=session_id))["text"] == "Then I guess."


async def test_a_question_of_a_daemon_that_crashed_is_closed_and_its_prompt_has_failed(pi_harness: PiHarness) -> None:
    await pi_harness.open()
    make_repository(pi_harness)
    before = await pi_harness.connect()
    session_id = await pi_harness.start_session(before)
    prompt = {"type": "prompt", "id": "p-1", "sessionId": session_id, "message": "/review"}
    await before.send_frames(prompt)
    asked = await before.next_event("extension_ui_request")
    await pi_harness.open_again()
    client = await pi_harness.connect()
    assert (await client.execute("get_state", sessionId=session_id))["isStreaming"] is False
    late = await respond(client, session_id, asked, value=asked["options"][0])
    assert late["error"] == f"No pending UI request with id {asked['requestId']}"
    answer = await answer_to(client, prompt)
    assert (answer["success"], answer["replayed"]) == (False, True)
    assert "the daemon ended" in answer["error"]
