"""Questions to people: approvals and dialogs as `extension_ui_request`, answered once, by whoever comes first."""

import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
from tests.conformance.pi.conftest import Join, StartPi
from tests.conformance.pi.stage import CheckedClient, PiDaemon

WRITE = "write notes.txt: hello"


async def answer(pi: CheckedClient, session_id: str, request: dict[str, Any], **response: object) -> dict[str, Any]:
    return await pi.request("extension_ui_response", sessionId=session_id, requestId=request["requestId"], response=response)


@pytest.mark.requirement("pi:ui:confirm", "pi:ui:request")
async def test_an_approval_is_asked_as_confirm_and_a_yes_lets_it_happen(pi_client: CheckedClient, workspace: Path) -> None:
    session_id = await pi_client.start_session(workspace)
    prompt = await pi_client.start_prompt(session_id, WRITE)
    request = await pi_client.next_event("extension_ui_request")
    assert request["method"] == "confirm"
    assert "notes.txt" in request["message"]
    assert not (workspace / "notes.txt").exists()
    response = await answer(pi_client, session_id, request, method="confirm", confirmed=True)
    assert response["success"]
    assert "data" not in response
    assert (await pi_client.wait_for_response(prompt))["success"]
    assert (workspace / "notes.txt").read_text().strip() == "hello"
    assert (await pi_client.next_event("extension_ui_closed"))["requestId"] == request["requestId"]


@pytest.mark.requirement("pi:ui:confirm", "pi:ui:cancelled")
@pytest.mark.parametrize("response", [{"method": "confirm", "confirmed": False}, {"method": "cancelled"}])
async def test_a_no_or_a_dismissal_keeps_it_from_happening(
    pi_client: CheckedClient, workspace: Path, response: dict[str, object]
) -> None:
    session_id = await pi_client.start_session(workspace)
    prompt = await pi_client.start_prompt(session_id, WRITE)
    request = await pi_client.next_event("extension_ui_request")
    assert (await answer(pi_client, session_id, request, **response))["success"]
    await pi_client.wait_for_response(prompt)
    assert not (workspace / "notes.txt").exists()


@pytest.mark.requirement("pi:ui:first-wins", "pi:ui:broadcast", "pi:error:no-ui-request")
async def test_every_follower_is_asked_and_the_first_answer_wins(
    pi_client: CheckedClient, pi_daemon: PiDaemon, connect_pi: Join, workspace: Path
) -> None:
    session_id = await pi_client.start_session(workspace)
    other = await connect_pi(pi_daemon)
    await other.execute("switch_session", sessionId=session_id)
    prompt = await pi_client.start_prompt(session_id, WRITE)
    request = await pi_client.next_event("extension_ui_request")
    assert (await other.next_event("extension_ui_request"))["requestId"] == request["requestId"]
    assert (await answer(other, session_id, request, method="confirm", confirmed=True))["success"]
    late = await answer(pi_client, session_id, request, method="confirm", confirmed=False)
    assert late["error"] == f"No pending UI request with id {request['requestId']}"
    assert (await pi_client.wait_for_response(prompt))["success"]
    assert (workspace / "notes.txt").exists()


@pytest.mark.requirement("pi:ui:unknown", "pi:error:no-ui-request")
async def test_a_question_that_was_not_asked_cannot_be_answered(pi_client: CheckedClient) -> None:
    session_id = await pi_client.start_session()
    response = await answer(pi_client, session_id, {"requestId": "req-1"}, method="cancelled")
    assert response["error"] == "No pending UI request with id req-1"


@pytest.mark.requirement("pi:ui:method")
async def test_an_answer_of_another_kind_is_refused_and_the_question_stays(pi_client: CheckedClient) -> None:
    session_id = await pi_client.start_session()
    prompt = await pi_client.start_prompt(session_id, "ask: which? | left | right")
    request = await pi_client.next_event("extension_ui_request")
    assert (request["method"], request["options"]) == ("select", ["left", "right"])
    for wrong in (
        {"method": "confirm", "confirmed": True},
        {"method": "select", "value": "up"},
        {"method": "interview", "responses": {}},
    ):
        assert (await answer(pi_client, session_id, request, **wrong))["success"] is False
    assert (await answer(pi_client, session_id, request, method="select", value="left"))["success"]
    assert (await pi_client.wait_for_response(prompt))["success"]
    results = [
        m for m in (await pi_client.execute("get_messages", sessionId=session_id))["messages"] if m["role"] == "toolResult"
    ]
    assert "left" in results[0]["content"][0]["text"]


@pytest.mark.requirement("pi:ui:input")
async def test_a_question_without_options_is_an_input(pi_client: CheckedClient) -> None:
    session_id = await pi_client.start_session()
    prompt = await pi_client.start_prompt(session_id, "ask: what is your name?")
    request = await pi_client.next_event("extension_ui_request")
    assert request["method"] == "input"
    assert (await answer(pi_client, session_id, request, method="input", value="Ada"))["success"]
    assert (await pi_client.wait_for_response(prompt))["success"]


@pytest.mark.requirement("pi:ui:select", "pi:ui:request")
async def test_an_extension_asks_for_a_choice(pi_client: CheckedClient, workspace: Path) -> None:
    git = ("git", "-c", "user.name=t", "-c", "user.email=t@t")
    subprocess.run(["git", "init", "-q"], cwd=workspace, check=True)
    subprocess.run(["git", "add", "."], cwd=workspace, check=True)
    subprocess.run([*git, "commit", "-qm", "one"], cwd=workspace, check=True)
    session_id = await pi_client.start_session(workspace)
    prompt = await pi_client.begin("prompt", sessionId=session_id, message="/review")
    request = await pi_client.next_event("extension_ui_request")
    assert request["method"] == "select"
    assert request["title"]
    assert request["timeout"] > 0
    assert (await answer(pi_client, session_id, request, method="select", value=request["options"][0]))["success"]
    assert "did not understand" in (await pi_client.wait_for_response(prompt))["error"], "the demo model reviews nothing"


@pytest.mark.requirement("pi:ui:interview")
async def test_an_extension_holds_an_interview(pi_client: CheckedClient) -> None:
    session_id = await pi_client.start_session()
    prompt = await pi_client.begin("prompt", sessionId=session_id, message="/brief")
    request = await pi_client.next_event("extension_ui_request")
    assert request["method"] == "interview"
    ids = [question["id"] for question in request["questions"]]
    assert "goal" in ids
    assert (await answer(pi_client, session_id, request, method="interview", responses={"goal": "say: briefed"}))["success"]
    assert (await pi_client.wait_for_response(prompt))["success"]


@pytest.mark.requirement("pi:ui:cancelled")
async def test_a_dismissed_dialog_ends_what_the_extension_was_asked_for(pi_client: CheckedClient) -> None:
    session_id = await pi_client.start_session()
    prompt = await pi_client.begin("prompt", sessionId=session_id, message="/brief")
    request = await pi_client.next_event("extension_ui_request")
    assert (await answer(pi_client, session_id, request, method="cancelled"))["success"]
    await pi_client.wait_for_response(prompt)
    assert (await pi_client.execute("get_state", sessionId=session_id))["isStreaming"] is False


@pytest.mark.requirement("pi:ui:timeout")
async def test_a_dialog_that_nobody_answers_fails_after_its_time(start_pi: StartPi, connect_pi: Join) -> None:
    pi = await connect_pi(start_pi(pi_ui_timeout=0.3))
    session_id = await pi.start_session()
    prompt = await pi.begin("prompt", sessionId=session_id, message="/brief")
    request = await pi.next_event("extension_ui_request")
    assert 0 < request["timeout"] <= 300
    response = await pi.wait_for_response(prompt)
    assert response["success"] is False
    closed = await pi.next_event("extension_ui_closed")
    assert closed["requestId"] == request["requestId"]
    late = await answer(pi, session_id, request, method="cancelled")
    assert late["error"].startswith("No pending UI request")


@pytest.mark.requirement("pi:ui:restart")
async def test_a_question_survives_a_restart(dedicated_pi: StartPi, connect_pi: Join, workspace: Path) -> None:
    daemon = dedicated_pi()
    pi = await connect_pi(daemon)
    session_id = await pi.start_session(workspace)
    await pi.start_prompt(session_id, WRITE)
    request = await pi.next_event("extension_ui_request")
    daemon.stop(signal.SIGKILL)
    daemon.start()
    pi = await connect_pi(daemon)
    await pi.execute("switch_session", sessionId=session_id)
    assert (await pi.next_event("extension_ui_request"))["requestId"] == request["requestId"]
    assert (await answer(pi, session_id, request, method="confirm", confirmed=True))["success"]
    await pi.next_event("agent_end")
    assert (workspace / "notes.txt").exists()
