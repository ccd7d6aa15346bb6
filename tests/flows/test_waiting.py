"""Flows that wait for people and agents, as sessions of a daemon: decided over push, worked on by the demo model."""

import asyncio
import json
import shlex
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
from tests.conformance.daemons import Daemon
from tests.crash.tower_process import processes_of
from tests.flows.flowing import (
    asked,
    asked_inside,
    chain,
    counting,
    document,
    edge,
    finished,
    foreign,
    node,
    ran,
    report,
    run,
    shell,
    start,
    steps,
    until_step,
)

from switchtower.testing.push_client import Event, PushClient

ASKS = chain(counting("first"), node("ask", "approval", title="Go on?", message="Really?"), counting("last"))
WAY_OUT = document(
    [node("ask", "approval"), counting("yes"), shell("no", "echo no > no.txt")],
    [edge("ask", "yes"), edge("ask", "no", on="failure")],
)


def agent(prompt: str, **more: Any) -> dict[str, Any]:
    return node("do", "agent.run", prompt=prompt, provider="demo", **more)


async def decided(
    client: PushClient, workspace: Path, flow: dict[str, Any], decision: str, comment: str | None = None
) -> tuple[Event, list[Event], dict[str, Any]]:
    """The question, what happened after it, and the report."""
    session_id = await start(client, workspace, flow)
    question = await asked(client, session_id)
    assert (await client.decide(question, decision, comment=comment)).ok
    return question, await finished(client, session_id), await report(client, session_id)


@pytest.mark.requirement("rep:tower:approval")
async def test_a_flow_waits_until_somebody_decides(client: PushClient, workspace: Path) -> None:
    question, events, told = await decided(client, workspace, ASKS, "approve", "fine")

    shown = question.payload
    assert (shown["title"], shown["summary"], shown["details"]["step"], shown["details"]["flow"]) == (
        "Go on?",
        "Really?",
        "ask",
        "staged",
    )
    assert (ran(workspace, "first"), ran(workspace, "last")) == (1, 1)
    assert events[-1].payload["outcome"] == "success"
    assert (told["status"], told["exitCode"]) == ("completed", 0)
    started, ended = (event for event in told["events"] if event["step_id"] == "ask")
    assert started["approval_id"] == shown["approvalId"]
    assert ended["outputs"] == {"approved": True, "comment": "fine", "by": "owner", "via": "cli"}


async def test_nothing_runs_while_a_flow_waits(client: PushClient, workspace: Path) -> None:
    session_id = await start(client, workspace, ASKS)
    question = await asked(client, session_id)

    assert processes_of({str(question.run_id)}) == {}
    told = await report(client, session_id)
    assert (told["status"], told["exitCode"], told["summary"]) == (
        "running",
        None,
        {"completed_steps": 1, "failed_steps": 0},
    )
    assert (await client.ask("get_session", {"sessionId": session_id}, session_id=session_id))["state"] == "awaiting_approval"
    assert (await client.cancel(session_id, str(question.run_id))).ok
    await finished(client, session_id)
    assert (await client.decide(question)).ok is False
    assert ran(workspace, "last") == 0


@pytest.mark.requirement("rep:tower:denied")
async def test_a_no_fails_the_flow(client: PushClient, workspace: Path) -> None:
    _, events, told = await decided(client, workspace, ASKS, "deny", "not today")

    assert events[-1].payload["outcome"] == "failed"
    error = told["summary"]["error"]
    assert (told["exitCode"], error["code"], error["message"]) == (1, 2001, "denied by owner: not today")
    assert error["data"]["details"] == {"approved": False, "comment": "not today", "by": "owner", "via": "cli"}
    assert ran(workspace, "last") == 0


async def test_a_no_with_a_reason_leads_along_the_failure_edge(client: PushClient, workspace: Path) -> None:
    _, events, told = await decided(client, workspace, WAY_OUT, "deny", "rather not")

    assert (events[-1].payload["outcome"], told["exitCode"]) == ("success", 0)
    assert (ran(workspace, "yes"), (workspace / "no.txt").read_text()) == (0, "no\n")


@pytest.mark.requirement("rep:tower:denied-and-stopped")
async def test_a_no_without_a_reason_ends_the_flow_at_once(client: PushClient, workspace: Path) -> None:
    _, events, told = await decided(client, workspace, WAY_OUT, "deny")

    assert events[-1].payload["outcome"] == "denied"
    assert (told["status"], told["exitCode"], steps(told)) == ("failed", 1, [("ask", "started", 0), ("ask", "failed", 0)])
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
    session_id = await start(client, workspace, document([node("ask", "approval", timeout_ms=300)]))
    question = await asked(client, session_id)
    await finished(client, session_id)
    told = await report(client, session_id)

    assert (told["exitCode"], told["summary"]["error"]["data"]["cause"]) == (1, "Timeout")
    assert (await client.decide(question)).code in ("APPROVAL_EXPIRED", "APPROVAL_NOT_FOUND", "NO_ACTIVE_RUN")


async def test_two_questions_at_once_are_decided_in_any_order(client: PushClient, workspace: Path) -> None:
    flow = document([node("a", "approval"), node("b", "approval"), counting("after")], [edge("a", "after"), edge("b", "after")])
    session_id = await start(client, workspace, flow)
    questions = {event.payload["details"]["step"]: event for event in [await asked(client, session_id) for _ in range(2)]}
    assert questions.keys() == {"a", "b"}
    assert (await client.decide(questions["b"])).ok
    await until_step(client, session_id, "b", "ended")
    assert ran(workspace, "after") == 0
    assert (await client.decide(questions["a"])).ok
    await finished(client, session_id)

    assert ran(workspace, "after") == 1


async def test_a_foreign_runtime_does_the_steps_between_the_questions(client: PushClient, workspace: Path) -> None:
    flow = chain(node("one", "log", do="hello"), node("ask", "approval"), node("tell", "dsl.emit", said="$step.one.said"))
    session_id = await start(client, workspace, flow, **foreign("foreign"))
    question = await asked(client, session_id)
    assert (await client.decide(question)).ok
    await finished(client, session_id)

    assert (await report(client, session_id))["summary"]["outputs"] == {"said": "hello"}


@pytest.mark.requirement("rep:tower:runtime-broke")
async def test_a_runtime_that_dies_beside_a_question_ends_the_flow(client: PushClient, workspace: Path) -> None:
    flow = document(
        [node("one", "log", do="crash"), node("ask", "approval"), node("sorry", "log", do="x")],
        [edge("one", "sorry", on="failure")],
    )
    events, told = await run(client, workspace, flow, **foreign("foreign"))

    assert events[-1].payload["outcome"] == "failed"
    assert (told["exitCode"], told["summary"]["error"]["code"]) == (4, 3001)
    assert "sorry" not in [step for step, _, _ in steps(told)]
    assert processes_of({str(events[-1].run_id)}) == {}


async def test_a_foreign_runtime_that_lacks_a_kind_is_asked_first(client: PushClient, workspace: Path) -> None:
    _, told = await run(client, workspace, chain(node("ask", "approval"), node("x", "moon.landing")), **foreign("good"))

    assert (told["exitCode"], told["summary"]["error"]["code"], steps(told)) == (3, 1002, [])


# Agents


@pytest.mark.requirement("rep:tower:agent")
async def test_an_agent_s_session_does_a_step(client: PushClient, workspace: Path) -> None:
    flow = chain(
        agent("write notes.txt: hello\nsay: written", policy="yolo", acceptance=["test -s notes.txt"]),
        node("tell", "dsl.emit", said="$step.do.text", passed="$step.do.acceptance.0.passed"),
    )
    events, told = await run(client, workspace, flow)

    assert events[-1].payload["outcome"] == "success", told
    assert (workspace / "notes.txt").read_text().strip() == "hello"
    assert told["summary"]["outputs"]["passed"] is True
    assert "written" in told["summary"]["outputs"]["said"]
    started, ended = (event for event in told["events"] if event.get("step_id") == "do")
    session_id = started["session_id"]
    assert ended["outputs"]["session_id"] == session_id
    info = await client.ask("get_session", {"sessionId": session_id}, session_id=session_id)
    assert (info["state"], info["title"]) == ("completed", "staged: do")


@pytest.mark.requirement("rep:tower:agent-retry")
async def test_a_failed_acceptance_is_a_failed_try_and_the_next_try_is_a_new_session(client: PushClient, workspace: Path) -> None:
    events, told = await run(client, workspace, document([agent("say: hello", acceptance=["test -e there"], retries=1)]))

    assert events[-1].payload["outcome"] == "failed"
    assert steps(told) == [("do", state, attempt) for attempt in (0, 1) for state in ("started", "failed")]
    sessions = [event["session_id"] for event in told["events"] if event["state"] == "started"]
    assert len(set(sessions)) == 2
    details = told["summary"]["error"]["data"]["details"]
    assert (details["session_id"], details["acceptance"]) == (
        sessions[1],
        [{"id": "check-1", "passed": False, "exit_code": 1}],
    )


async def test_a_question_of_the_agent_is_anybody_s_too(client: PushClient, workspace: Path) -> None:
    session_id = await start(client, workspace, document([agent("run: echo made > made.txt", policy="ask")]))
    question = await asked_inside(client, session_id)
    assert (await client.decide(question)).ok
    await finished(client, session_id)

    assert (await report(client, session_id))["status"] == "completed"
    assert (workspace / "made.txt").read_text() == "made\n"


async def test_who_stops_the_agent_fails_the_step(client: PushClient, workspace: Path) -> None:
    session_id = await start(client, workspace, document([agent("run: echo made > made.txt", policy="ask", retries=3)]))
    question = await asked_inside(client, session_id)
    assert (await client.decide(question, "deny")).ok
    await finished(client, session_id)
    told = await report(client, session_id)

    assert (told["exitCode"], steps(told)) == (1, [("do", "started", 0), ("do", "failed", 0)])
    assert told["summary"]["error"]["data"]["details"]["outcome"] == "denied"
    assert not (workspace / "made.txt").exists()


@pytest.mark.requirement("rep:tower:cancel-agent")
async def test_to_cancel_a_flow_is_to_cancel_its_agent(client: PushClient, workspace: Path) -> None:
    session_id = await start(client, workspace, document([agent("run: echo made > made.txt", policy="ask")]))
    question = await asked_inside(client, session_id)
    run_id = (await client.ask("get_session", {"sessionId": session_id}, session_id=session_id))["activeRunId"]
    assert (await client.cancel(session_id, run_id)).ok
    ends: dict[str, str] = {}
    while len(ends) < 2:
        event = await client.event()
        if event.type == "run_complete":
            ends[event.session_id] = event.payload["outcome"]

    assert ends == {session_id: "cancelled", question.session_id: "cancelled"}
    assert not (workspace / "made.txt").exists()


async def test_an_agent_that_cannot_be_had_fails_the_step(client: PushClient, workspace: Path) -> None:
    flow = document([node("do", "agent.run", prompt="hello", provider="nobody-has-this", retries=2)])
    _, told = await run(client, workspace, flow)

    assert (told["exitCode"], steps(told)) == (1, [("do", "started", 0), ("do", "failed", 0)])
    assert "nobody-has-this" in told["summary"]["error"]["message"]


# Safety


INSIDE = textwrap.dedent(
    """
    import asyncio, json, sys
    from switchtower.testing.push_client import PushClient

    async def main():
        async with await PushClient.over_socket(sys.argv[1]) as push:
            listed = (await push.ask("list_sessions", {"limit": 100}))["sessions"]
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
async def test_what_a_flow_starts_cannot_approve_it_nor_start_another(client: PushClient, pushd: Daemon, workspace: Path) -> None:
    (workspace / "inside.py").write_text(INSIDE)
    (workspace / "other.json").write_text(json.dumps(chain(counting("other"))))
    command = (
        "while ! test -s approval; do sleep 0.05; done; "
        f'{shlex.join([sys.executable, "inside.py", str(pushd.socket)])} "$(cat approval)" "$(cat other.json)" > told.json'
    )
    flow = document([node("ask", "approval"), shell("try", command), counting("after")], [edge("ask", "after")])
    session_id = await start(client, workspace, flow)
    question = await asked(client, session_id)
    (workspace / "approval").write_text(question.payload["approvalId"])
    await until_step(client, session_id, "try", "ended")

    assert json.loads((workspace / "told.json").read_text()) == ["ATTACH_FORBIDDEN"]
    assert (ran(workspace, "after"), ran(workspace, "other")) == (0, 0)
    assert (await client.decide(question)).ok
    await finished(client, session_id)
    assert ran(workspace, "after") == 1


@pytest.mark.requirement("rep:tower:secrets")
async def test_secrets_are_used_and_not_kept(client: PushClient, pushd: Daemon, workspace: Path) -> None:
    secret = "hunter-22-xyzzy-pass"
    flow = chain(
        node("use", "file.write", path="used.txt", content="$input.password"),
        node("ask", "approval"),
        node("tell", "dsl.emit", password="$input.password"),
        password="string",
    )
    session_id = await start(client, workspace, flow, inputs={"password": secret})
    question = await asked(client, session_id)
    assert (await client.decide(question)).ok
    events = await finished(client, session_id)
    told = await report(client, session_id)

    assert told["status"] == "completed", told
    assert (workspace / "used.txt").read_text() == secret
    assert secret not in json.dumps([event.frame for event in events])
    assert told["summary"]["outputs"] == {"password": "[redacted]"}
    await asyncio.to_thread(_not_in_the_home, pushd.home, secret)


def _not_in_the_home(home: Path, secret: str) -> None:
    for path in home.rglob("*"):
        if path.is_file():
            assert secret.encode() not in path.read_bytes(), path
