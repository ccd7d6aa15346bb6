"""Extensions and questions of the agent at a real daemon, by two clients: everybody is asked, and the first answer counts."""

import json
import signal
from pathlib import Path
from typing import Any

from tests.conformance.daemons import ManagedDaemon
from tests.conftest import Connect, StartDaemon

from switchtower.testing.push_client import PushClient, ReceivedEvent


async def wait_for_dialog(client: PushClient) -> tuple[ReceivedEvent, dict[str, Any]]:
    """The next dialog, with what its detail says."""
    while True:
        event = (await client.read_until("warning"))[-1]
        if event.payload["code"] == "DIALOG_OPENED":
            return event, json.loads(event.payload["detail"])


async def answer(client: PushClient, session_id: str, dialog: dict[str, Any], **given: Any) -> Any:
    return await client.request("answer_dialog", {"sessionId": session_id, "dialogId": dialog["dialogId"], **given})


async def test_a_brief_is_answered_by_one_client_and_seen_by_all(
    connect: Connect, push_daemon: ManagedDaemon, workspace: Path
) -> None:
    first, second = await connect(push_daemon), await connect(push_daemon)
    session = (await first.start_session(workspace)).session_id
    await second.attach(session)
    run_id = await first.send(session, "/brief")

    event, dialog = await wait_for_dialog(first)
    assert (event.run_id, event.payload["message"], dialog["method"]) == (run_id, "A brief for the agent", "interview")
    assert (await wait_for_dialog(second))[1] == dialog
    accepted = await answer(second, session, dialog, responses={"goal": "say: briefed by the second"})
    assert accepted.payload == {"accepted": True}
    late = await answer(first, session, dialog, responses={"goal": "say: too late"})
    assert late.code == "INVALID_REQUEST"

    for client in (first, second):
        ended = (await client.read_until("run_complete"))[-1]
        assert (ended.payload["outcome"], ended.payload["summary"]) == ("success", "briefed by the second")


async def test_the_agent_asks_and_goes_on_with_the_answer(client: PushClient, workspace: Path) -> None:
    session = (await client.start_session(workspace)).session_id
    await client.send(session, "ask: Which? | tabs | spaces")

    _, dialog = await wait_for_dialog(client)
    assert (dialog["method"], dialog["options"]) == ("select", ["tabs", "spaces"])
    assert (await answer(client, session, dialog, value="neither")).code == "INVALID_REQUEST"
    assert (await answer(client, session, dialog, confirmed=True)).code == "INVALID_REQUEST"
    await answer(client, session, dialog, value="spaces")

    seen = await client.read_until("run_complete")
    [result] = [event.payload for event in seen if event.type == "tool_result"]
    assert (result["toolName"], result["text"], result["isError"]) == ("ask_user", "spaces", False)


async def test_a_dismissed_dialog_cancels_the_run_and_an_unknown_one_is_refused(client: PushClient, workspace: Path) -> None:
    session = (await client.start_session(workspace)).session_id
    await client.send(session, "/brief")

    _, dialog = await wait_for_dialog(client)
    assert (await answer(client, session, {"dialogId": "dlg_unheard_of"}, value="x")).code == "INVALID_REQUEST"
    assert (await answer(client, session, dialog, dismissed=True)).ok
    ended = (await client.read_until("run_complete"))[-1]

    assert ended.payload["outcome"] == "cancelled"
    assert "was dismissed" in ended.payload["summary"]


async def test_a_dialog_that_nobody_answers_fails_in_its_time(
    start_daemon: StartDaemon, connect: Connect, workspace: Path
) -> None:
    client = await connect(start_daemon(pi_ui_timeout=0.2))
    session = (await client.start_session(workspace)).session_id

    ended = (await client.run(session, "/brief"))[-1]

    assert ended.payload["outcome"] == "failed"
    assert ended.payload["summary"].endswith("was not answered: nobody did within 0.2 s")


async def test_a_run_that_waits_for_an_answer_can_be_cancelled(client: PushClient, workspace: Path) -> None:
    session = (await client.start_session(workspace)).session_id
    run_id = await client.send(session, "/brief")
    _, dialog = await wait_for_dialog(client)

    await client.cancel(session, run_id)

    assert (await client.read_until("run_complete"))[-1].payload["outcome"] == "cancelled"
    assert (await answer(client, session, dialog, dismissed=True)).code == "INVALID_REQUEST"


async def test_nobody_is_asked_in_a_headless_session(client: PushClient, workspace: Path) -> None:
    session = (await client.start_session(workspace, mode="headless")).session_id

    seen = await client.run(session, "/brief")

    assert seen[-1].payload["outcome"] == "failed"
    assert "nobody is there to answer in a headless session" in seen[-1].payload["summary"]
    assert not any(event.type == "warning" and event.payload["code"] == "DIALOG_OPENED" for event in seen)


async def test_extensions_are_listed_beside_skills_and_prompts(client: PushClient, workspace: Path) -> None:
    (workspace / ".tower" / "prompts").mkdir(parents=True)
    (workspace / ".tower" / "prompts" / "review.md").write_text("Review it our way.")

    listed = (await client.request_payload("list_templates", {"rootPath": str(workspace)}))["templates"]

    by_name = {template["name"]: template for template in listed}
    assert by_name["brief"] == {
        "name": "brief",
        "kind": "extension",
        "description": "Answer a few questions and have them made into a task",
        "path": "switchtower.extensions.brief:EXTENSION",
        "origin": "plugin",
    }
    assert by_name["review"]["kind"] == "prompt"
    assert by_name["extension:review"]["description"].endswith("(`/review` is `.tower/prompts/review.md` here)")


async def test_a_daemon_that_is_killed_while_it_asks_closes_the_question_when_it_is_back(
    dedicated_daemon: StartDaemon, connect: Connect, workspace: Path
) -> None:
    daemon = dedicated_daemon()
    client = await connect(daemon)
    session = (await client.start_session(workspace)).session_id
    run_id = await client.send(session, "/brief")
    event, dialog = await wait_for_dialog(client)
    daemon.stop(signal.SIGKILL)
    daemon.start()

    again = await connect(daemon)
    await again.attach(session, event.seq)
    ended = (await again.read_until("run_complete"))[-1]

    assert (ended.run_id, ended.payload["outcome"]) == (run_id, "failed")
    assert (await answer(again, session, dialog, dismissed=True)).code == "INVALID_REQUEST"
    assert (await again.run(session, "say: still here"))[-1].payload["summary"] == "still here"
