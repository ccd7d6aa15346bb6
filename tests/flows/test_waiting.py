"""Flows that wait for people and agents, as sessions of a daemon: decided over push, worked on by the demo model."""

import asyncio
import json
import shlex
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
from tests.conformance.daemons import ManagedDaemon
from tests.crash.tower_process import find_run_processes
from tests.flows.flowing import (
    count_runs,
    get_foreign_runtime,
    list_steps,
    make_chain,
    make_counting_step,
    make_document,
    make_edge,
    make_node,
    make_shell_step,
    report,
    run,
    start,
    wait_for_agent_question,
    wait_for_end,
    wait_for_question,
    wait_for_step,
)

from switchtower.testing.push_client import PushClient, ReceivedEvent

ASKS = make_chain(
    make_counting_step("first"), make_node("ask", "approval", title="Go on?", message="Really?"), make_counting_step("last")
)
WAY_OUT = make_document(
    [make_node("ask", "approval"), make_counting_step("yes"), make_shell_step("no", "echo no > no.txt")],
    [make_edge("ask", "yes"), make_edge("ask", "no", on="failure")],
)


def make_agent_step(prompt: str, **more: Any) -> dict[str, Any]:
    return make_node("do", "agent.run", prompt=prompt, provider="demo", **more)


async def decide_question(
    client: PushClient, workspace: Path, flow: dict[str, Any], decision: str, comment: str | None = None
) -> tuple[ReceivedEvent, list[ReceivedEvent], dict[str, Any]]:
    """The question, what happened after it, and the report."""
    session_id = await start(client, workspace, flow)
    question = await wait_for_question(client, session_id)
    assert (await client.decide(question, decision, comment=comment)).ok
    return question, await wait_for_end(client, session_id), await report(client, session_id)


@pytest.mark.requirement("rep:tower:approval")
async def test_a_flow_waits_until_somebody_decides(client: PushClient, workspace: Path) -> None:
    question, events, told = await decide_question(client, workspace, ASKS, "approve", "fine")

    shown = question.payload
    assert (shown["title"], shown["summary"], shown["details"]["step"], shown["details"]["flow"]) == (
        "Go on?",
        "Really?",
        "ask",
        "staged",
    )
    assert (count_runs(workspace, "first"), count_runs(workspace, "last")) == (1, 1)
    assert events[-1].payload["outcome"] == "success"
    assert (told["status"], told["exitCode"]) == ("completed", 0)
    started, ended = (event for event in told["events"] if event["step_id"] == "ask")
    assert started["approval_id"] == shown["approvalId"]
    assert ended["outputs"] == {"approved": True, "comment": "fine", "by": "owner", "via": "cli"}


async def test_nothing_runs_while_a_flow_waits(client: PushClient, workspace: Path) -> None:
    session_id = await start(client, workspace, ASKS)
    question = await wait_for_question(client, session_id)

    assert find_run_processes({str(question.run_id)}) == {}
    told = await report(client, session_id)
    assert (told["status"], told["exitCode"], told["summary"]) == (
        "running",
        None,
        {"completed_steps": 1, "failed_steps": 0},
    )
    assert (await client.request_payload("get_session", {"sessionId": session_id}, session_id=session_id))[
        "state"
    ] == "awaiting_approval"
    assert (await client.cancel(session_id, str(question.run_id))).ok
    await wait_for_end(client, session_id)
    assert (await client.decide(question)).ok is False
    assert count_runs(workspace, "last") == 0


@pytest.mark.requirement("rep:tower:denied")
async def test_a_no_fails_the_flow(client: PushClient, workspace: Path) -> None:
    _, events, told = await decide_question(client, workspace, ASKS, "deny", "not today")

    assert events[-1].payload["outcome"] == "failed"
    error = told["summary"]["error"]
    assert (told["exitCode"], error["code"], error["message"]) == (1, 2001, "denied by owner: not today")
    assert error["data"]["details"] == {"approved": False, "comment": "not today", "by": "owner", "via": "cli"}
    assert count_runs(workspace, "last") == 0


async def test_a_no_with_a_reason_leads_along_the_failure_edge(client: PushClient, workspace: Path) -> None:
    _, events, told = await decide_question(client, workspace, WAY_OUT, "deny", "rather not")

    assert (events[-1].payload["outcome"], told["exitCode"]) == ("success", 0)
    assert (count_runs(workspace, "yes"), (workspace / "no.txt").read_text()) == (0, "no\n")


@pytest.mark.requirement("rep:tower:denied-and-stopped")
async def test_a_no_without_a_reason_ends_the_flow_at_once(client: PushClient, workspace: Path) -> None:
    _, events, told = await decide_question(client, workspace, WAY_OUT, "deny")

    assert events[-1].payload["outcome"] == "denied"
    assert (told["status"], told["exitCode"], list_steps(told)) == ("failed", 1, [("ask", "started", 0), ("ask", "failed", 0)])
    assert not (workspace / "no.txt").exists()


@pytest.mark.requirement("rep:tower:expired")
async def test_a_question_that_expires_fails_the_step(start_daemon: Any, connect: Any, workspace: Path) -> None:
    client: PushClient = await connect(start_daemon(approval_timeout=0.2))
    events, told = await run(client, workspace, ASKS)

    assert events[-1].payload["outcome"] == "failed"
    error = told["summary"]["error"]
    assert (error["message"], error["data"]["details"]) == ("nobody decided in time", {"expired": True})


@pytest.mark.requirement("rep:tower:withdrawn")
async def test_a_step_out_of_time_takes_its_question_back(client: PushClient, workspace: Path) -> None:
    session_id = await start(client, workspace, make_document([make_node("ask", "approval", timeout_ms=300)]))
    question = await wait_for_question(client, session_id)
    await wait_for_end(client, session_id)
    told = await report(client, session_id)

    assert (told["exitCode"], told["summary"]["error"]["data"]["cause"]) == (1, "Timeout")
    assert (await client.decide(question)).code in ("APPROVAL_EXPIRED", "APPROVAL_NOT_FOUND", "NO_ACTIVE_RUN")


async def test_two_questions_at_once_are_decided_in_any_order(client: PushClient, workspace: Path) -> None:
    flow = make_document(
        [make_node("a", "approval"), make_node("b", "approval"), make_counting_step("after")],
        [make_edge("a", "after"), make_edge("b", "after")],
    )
    session_id = await start(client, workspace, flow)
    questions = {
        event.payload["details"]["step"]: event for event in [await wait_for_question(client, session_id) for _ in range(2)]
    }
    assert questions.keys() == {"a", "b"}
    assert (await client.decide(questions["b"])).ok
    await wait_for_step(client, session_id, "b", "ended")
    assert count_runs(workspace, "after") == 0
    assert (await client.decide(questions["a"])).ok
    await wait_for_end(client, session_id)

    assert count_runs(workspace, "after") == 1


async def test_a_foreign_runtime_does_the_steps_between_the_questions(client: PushClient, workspace: Path) -> None:
    flow = make_chain(
        make_node("one", "log", do="hello"), make_node("ask", "approval"), make_node("tell", "dsl.emit", said="$step.one.said")
    )
    session_id = await start(client, workspace, flow, **get_foreign_runtime("foreign"))
    question = await wait_for_question(client, session_id)
    assert (await client.decide(question)).ok
    await wait_for_end(client, session_id)

    assert (await report(client, session_id))["summary"]["outputs"] == {"said": "hello"}


@pytest.mark.requirement("rep:tower:runtime-broke")
async def test_a_runtime_that_dies_beside_a_question_ends_the_flow(client: PushClient, workspace: Path) -> None:
    flow = make_document(
        [make_node("one", "log", do="crash"), make_node("ask", "approval"), make_node("sorry", "log", do="x")],
        [make_edge("one", "sorry", on="failure")],
    )
    events, told = await run(client, workspace, flow, **get_foreign_runtime("foreign"))

    assert events[-1].payload["outcome"] == "failed"
    assert (told["exitCode"], told["summary"]["error"]["code"]) == (4, 3001)
    assert "sorry" not in [step for step, _, _ in list_steps(told)]
    assert find_run_processes({str(events[-1].run_id)}) == {}


async def test_a_foreign_runtime_that_lacks_a_kind_is_asked_first(client: PushClient, workspace: Path) -> None:
    _, told = await run(
        client, workspace, make_chain(make_node("ask", "approval"), make_node("x", "moon.landing")), **get_foreign_runtime("good")
    )

    assert (told["exitCode"], told["summary"]["error"]["code"], list_steps(told)) == (3, 1002, [])


# Agents


@pytest.mark.requirement("rep:tower:agent")
async def test_an_agent_s_session_does_a_step(client: PushClient, workspace: Path) -> None:
    flow = make_chain(
        make_agent_step("write notes.txt: hello\nsay: written", policy="yolo", acceptance=["test -s notes.txt"]),
        make_node("tell", "dsl.emit", said="$step.do.text", passed="$step.do.acceptance.0.passed"),
    )
    events, told = await run(client, workspace, flow)

    assert events[-1].payload["outcome"] == "success", told
    assert (workspace / "notes.txt").read_text().strip() == "hello"
    assert told["summary"]["outputs"]["passed"] is True
    assert "written" in told["summary"]["outputs"]["said"]
    started, ended = (event for event in told["events"] if event.get("step_id") == "do")
    session_id = started["session_id"]
    assert ended["outputs"]["session_id"] == session_id
    info = await client.request_payload("get_session", {"sessionId": session_id}, session_id=session_id)
    assert (info["state"], info["title"]) == ("completed", "staged: do")


@pytest.mark.requirement("rep:tower:agent-retry")
async def test_a_failed_acceptance_is_a_failed_try_and_the_next_try_is_a_new_session(client: PushClient, workspace: Path) -> None:
    events, told = await run(
        client, workspace, make_document([make_agent_step("say: hello", acceptance=["test -e there"], retries=1)])
    )

    assert events[-1].payload["outcome"] == "failed"
    assert list_steps(told) == [("do", state, attempt) for attempt in (0, 1) for state in ("started", "failed")]
    sessions = [event["session_id"] for event in told["events"] if event["state"] == "started"]
    assert len(set(sessions)) == 2
    details = told["summary"]["error"]["data"]["details"]
    assert (details["session_id"], details["acceptance"]) == (
        sessions[1],
        [{"id": "check-1", "passed": False, "exit_code": 1}],
    )


async def test_a_question_of_the_agent_is_anybody_s_too(client: PushClient, workspace: Path) -> None:
    session_id = await start(client, workspace, make_document([make_agent_step("run: echo made > made.txt", policy="ask")]))
    question = await wait_for_agent_question(client, session_id)
    assert (await client.decide(question)).ok
    await wait_for_end(client, session_id)

    assert (await report(client, session_id))["status"] == "completed"
    assert (workspace / "made.txt").read_text() == "made\n"


async def test_who_stops_the_agent_fails_the_step(client: PushClient, workspace: Path) -> None:
    session_id = await start(
        client, workspace, make_document([make_agent_step("run: echo made > made.txt", policy="ask", retries=3)])
    )
    question = await wait_for_agent_question(client, session_id)
    assert (await client.decide(question, "deny")).ok
    await wait_for_end(client, session_id)
    told = await report(client, session_id)

    assert (told["exitCode"], list_steps(told)) == (1, [("do", "started", 0), ("do", "failed", 0)])
    assert told["summary"]["error"]["data"]["details"]["outcome"] == "denied"
    assert not (workspace / "made.txt").exists()


@pytest.mark.requirement("rep:tower:cancel-agent")
async def test_to_cancel_a_flow_is_to_cancel_its_agent(client: PushClient, workspace: Path) -> None:
    session_id = await start(client, workspace, make_document([make_agent_step("run: echo made > made.txt", policy="ask")]))
    question = await wait_for_agent_question(client, session_id)
    run_id = (await client.request_payload("get_session", {"sessionId": session_id}, session_id=session_id))["activeRunId"]
    assert (await client.cancel(session_id, run_id)).ok
    ends: dict[str, str] = {}
    while len(ends) < 2:
        event = await client.next_event()
        if event.type == "run_complete":
            ends[event.session_id] = event.payload["outcome"]

    assert ends == {session_id: "cancelled", question.session_id: "cancelled"}
    assert not (workspace / "made.txt").exists()


async def test_an_agent_that_cannot_be_had_fails_the_step(client: PushClient, workspace: Path) -> None:
    flow = make_document([make_node("do", "agent.run", prompt="hello", provider="nobody-has-this", retries=2)])
    _, told = await run(client, workspace, flow)

    assert (told["exitCode"], list_steps(told)) == (1, [("do", "started", 0), ("do", "failed", 0)])
    assert "nobody-has-this" in told["summary"]["error"]["message"]


# Safety


INSIDE = textwrap.dedent(
    """
    import asyncio, json, sys
    from switchtower.testing.push_client import PushClient

    async def main():
        async with await PushClient.connect_socket(sys.argv[1]) as push:
            listed = (await push.request_payload("list_sessions", {"limit": 100}))["sessions"]
            told = []
            for session in listed:
                info = await push.request("get_session", {"sessionId": session["sessionId"]}, session_id=session["sessionId"])
                payload = {"sessionId": session["sessionId"], "runId": "run_1", "approvalId": sys.argv[2], "decision": "approve"}
                if info.payload and info.payload.get("activeRunId"):
                    payload["runId"] = info.payload["activeRunId"]
                told.append((await push.request("submit_approval", payload, session_id=session["sessionId"])).code)
            flow = {"mode": "interactive", "provider": "flow", "sandboxProvider": "local", "engine": "flow",
                    "repo": {"rootPath": ".", "currentBranch": "main", "defaultBranch": "main"},
                    "flow": {"document": json.loads(sys.argv[3])}}
            told.append((await push.request("start_session", flow)).code)
            return told

    print(json.dumps(sorted(set(asyncio.run(main())))))
    """
)


@pytest.mark.requirement("rep:tower:no-self-approval")
async def test_what_a_flow_starts_cannot_approve_it_nor_start_another(
    client: PushClient, push_daemon: ManagedDaemon, workspace: Path
) -> None:
    (workspace / "inside.py").write_text(INSIDE)
    (workspace / "other.json").write_text(json.dumps(make_chain(make_counting_step("other"))))
    command = (
        "while ! test -s approval; do sleep 0.05; done; "
        f'{shlex.join([sys.executable, "inside.py", str(push_daemon.socket)])} "$(cat approval)" "$(cat other.json)" > told.json'
    )
    flow = make_document(
        [make_node("ask", "approval"), make_shell_step("try", command), make_counting_step("after")], [make_edge("ask", "after")]
    )
    session_id = await start(client, workspace, flow)
    question = await wait_for_question(client, session_id)
    (workspace / "approval").write_text(question.payload["approvalId"])
    await wait_for_step(client, session_id, "try", "ended")

    assert json.loads((workspace / "told.json").read_text()) == ["ATTACH_FORBIDDEN"]
    assert (count_runs(workspace, "after"), count_runs(workspace, "other")) == (0, 0)
    assert (await client.decide(question)).ok
    await wait_for_end(client, session_id)
    assert count_runs(workspace, "after") == 1


@pytest.mark.requirement("rep:tower:secrets")
async def test_secrets_are_used_and_not_kept(client: PushClient, push_daemon: ManagedDaemon, workspace: Path) -> None:
    secret = "hunter-22-xyzzy-pass"
    flow = make_chain(
        make_node("use", "file.write", path="used.txt", content="$input.password"),
        make_node("ask", "approval"),
        make_node("tell", "dsl.emit", password="$input.password"),
        password="string",
    )
    session_id = await start(client, workspace, flow, inputs={"password": secret})
    question = await wait_for_question(client, session_id)
    assert (await client.decide(question)).ok
    events = await wait_for_end(client, session_id)
    told = await report(client, session_id)

    assert told["status"] == "completed", told
    assert (workspace / "used.txt").read_text() == secret
    assert secret not in json.dumps([event.frame for event in events])
    assert told["summary"]["outputs"] == {"password": "[redacted]"}
    await asyncio.to_thread(_check_not_in_home, push_daemon.home, secret)


def _check_not_in_home(home: Path, secret: str) -> None:
    for path in home.rglob("*"):
        if path.is_file():
            assert secret.encode() not in path.read_bytes(), path
