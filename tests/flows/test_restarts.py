"""A flow that waits for people or agents goes on after its daemon has ended, however it ended; nothing is done twice."""

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from tests.conformance.daemons import ManagedDaemon
from tests.crash.tower_process import find_run_processes
from tests.flows.flowing import (
    count_runs,
    list_steps,
    make_chain,
    make_counting_step,
    make_document,
    make_edge,
    make_node,
    make_shell_step,
    report,
    start,
    wait_for_agent_question,
    wait_for_end,
    wait_for_question,
    wait_for_step,
)

from switchtower.testing.push_client import PushClient

ENDS = pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM], ids=["killed", "stopped"])
ASKS = make_chain(
    make_counting_step("first"),
    make_node("ask", "approval"),
    make_counting_step("last"),
    make_node("tell", "dsl.emit", by="$step.ask.by"),
)

Again = Callable[[ManagedDaemon, signal.Signals], Awaitable[PushClient]]


@pytest.fixture
def restart_daemon(connect: Any) -> Again:
    """Ends the daemon in this way, and gives a client of the next."""

    async def restart(daemon: ManagedDaemon, how: signal.Signals) -> PushClient:
        await asyncio.to_thread(daemon.stop, how)
        await asyncio.to_thread(daemon.start)
        client: PushClient = await connect(daemon)
        return client

    return restart


async def wait_until_running(workspace: Path) -> None:
    """Returns when a step has told it through its pipe."""
    async with asyncio.timeout(60):
        await asyncio.to_thread((workspace / "pipe").read_bytes)


def make_waiting_step(name: str, **more: Any) -> dict[str, Any]:
    """A step that tells that it runs, and goes on when there is a file `go`."""
    command = f"echo ran >> {name}.txt; test -e go && exit; echo > pipe; exec sleep 600"
    return make_shell_step(name, command, **more)


@pytest.mark.requirement("rep:tower:restart")
@ENDS
async def test_a_flow_goes_on_waiting_and_then_goes_on(
    dedicated_daemon: Any, connect: Any, restart_daemon: Again, workspace: Path, how: signal.Signals
) -> None:
    daemon = dedicated_daemon()
    client: PushClient = await connect(daemon)
    session_id = await start(client, workspace, ASKS)
    question = await wait_for_question(client, session_id)
    for _ in range(2):
        client = await restart_daemon(daemon, how)
        await client.attach(session_id, question.seq)
    info = await client.request_payload("get_session", {"sessionId": session_id}, session_id=session_id)
    assert (info["state"], info["activeRunId"]) == ("awaiting_approval", question.run_id)
    assert (await client.decide(question)).ok
    events = await wait_for_end(client, session_id)
    told = await report(client, session_id)

    assert [event.seq for event in events] == list(range(question.seq + 1, question.seq + 1 + len(events)))
    assert (events[-1].payload["outcome"], events[-1].run_id) == ("success", question.run_id)
    assert (count_runs(workspace, "first"), count_runs(workspace, "last")) == (1, 1)
    assert (told["status"], told["exitCode"], told["summary"]) == (
        "completed",
        0,
        {"completed_steps": 4, "failed_steps": 0, "outputs": {"by": "owner"}},
    )
    assert list_steps(told) == [
        (step, state, 0) for step in ("first", "ask", "last", "tell") for state in ("started", "succeeded")
    ]


@ENDS
async def test_two_questions_wait_over_a_restart(
    dedicated_daemon: Any, connect: Any, restart_daemon: Again, workspace: Path, how: signal.Signals
) -> None:
    flow = make_document(
        [make_node("a", "approval"), make_node("b", "approval"), make_counting_step("after")],
        [make_edge("a", "after"), make_edge("b", "after")],
    )
    daemon = dedicated_daemon()
    client: PushClient = await connect(daemon)
    session_id = await start(client, workspace, flow)
    first, second = await wait_for_question(client, session_id), await wait_for_question(client, session_id)
    assert (await client.decide(first)).ok
    await wait_for_step(client, session_id, first.payload["details"]["step"], "ended")
    client = await restart_daemon(daemon, how)
    await client.attach(session_id, second.seq)
    assert (await client.decide(first)).ok is False
    assert (await client.decide(second)).ok
    events = await wait_for_end(client, session_id)

    assert events[-1].payload["outcome"] == "success"
    assert count_runs(workspace, "after") == 1


@pytest.mark.requirement("rep:tower:restart-agent")
@ENDS
async def test_an_agent_that_waits_is_waited_for(
    dedicated_daemon: Any, connect: Any, restart_daemon: Again, workspace: Path, how: signal.Signals
) -> None:
    flow = make_chain(
        make_node("do", "agent.run", prompt="run: echo ran >> agent.txt", provider="demo", policy="ask"),
        make_counting_step("last"),
    )
    daemon = dedicated_daemon()
    client: PushClient = await connect(daemon)
    session_id = await start(client, workspace, flow)
    question = await wait_for_agent_question(client, session_id)
    client = await restart_daemon(daemon, how)
    await client.attach(session_id)
    assert (await client.decide(question)).ok
    await wait_for_end(client, session_id)
    told = await report(client, session_id)

    assert told["status"] == "completed", told
    assert (count_runs(workspace, "agent"), count_runs(workspace, "last")) == (1, 1)
    assert [event["session_id"] for event in told["events"] if "session_id" in event] == [question.session_id]


@pytest.mark.requirement("rep:tower:restart-agent")
@ENDS
async def test_an_agent_that_was_at_work_failed_its_try(
    dedicated_daemon: Any, connect: Any, restart_daemon: Again, workspace: Path, how: signal.Signals
) -> None:
    os.mkfifo(workspace / "pipe")
    prompt = "run: echo ran >> agent.txt; test -e go && exit; echo > pipe; exec sleep 600"
    flow = make_document([make_node("do", "agent.run", prompt=prompt, provider="demo", policy="yolo", retries=1)])
    daemon = dedicated_daemon()
    client: PushClient = await connect(daemon)
    session_id = await start(client, workspace, flow)
    await wait_until_running(workspace)
    (workspace / "go").touch()
    client = await restart_daemon(daemon, how)
    await client.attach(session_id)
    await wait_for_end(client, session_id)
    told = await report(client, session_id)

    assert told["status"] == "completed", told
    assert list_steps(told) == [("do", "started", 0), ("do", "failed", 0), ("do", "started", 1), ("do", "succeeded", 1)]
    assert count_runs(workspace, "agent") == 2


@pytest.mark.requirement("rep:tower:restart-step")
@ENDS
@pytest.mark.parametrize("retries", [0, 1])
async def test_an_ordinary_step_under_way_beside_a_question_failed_its_try(
    dedicated_daemon: Any, connect: Any, restart_daemon: Again, workspace: Path, how: signal.Signals, retries: int
) -> None:
    os.mkfifo(workspace / "pipe")
    flow = make_document(
        [make_node("ask", "approval"), make_waiting_step("slow", retries=retries), make_counting_step("sorry")],
        [make_edge("slow", "sorry", on="failure")],
    )
    daemon = dedicated_daemon()
    client: PushClient = await connect(daemon)
    session_id = await start(client, workspace, flow)
    question = await wait_for_question(client, session_id)
    await wait_until_running(workspace)
    (workspace / "go").touch()
    client = await restart_daemon(daemon, how)
    await client.attach(session_id, question.seq)
    assert (await client.decide(question)).ok
    events = await wait_for_end(client, session_id)
    told = await report(client, session_id)

    assert told["status"] == "completed", told
    assert count_runs(workspace, "slow") == 1 + retries
    assert count_runs(workspace, "sorry") == 1 - retries
    failed = next(event for event in told["events"] if event.get("state") == "failed")
    assert (failed["step_id"], failed["attempt"], failed["error"]["data"]["cause"]) == ("slow", 0, "Interrupted")
    assert find_run_processes({str(events[-1].run_id)}) == {}


@pytest.mark.requirement("rep:tower:restart-plain")
@ENDS
async def test_a_flow_of_a_runtime_alone_ends_with_its_daemon(
    dedicated_daemon: Any, connect: Any, restart_daemon: Again, workspace: Path, how: signal.Signals
) -> None:
    os.mkfifo(workspace / "pipe")
    daemon = dedicated_daemon()
    client: PushClient = await connect(daemon)
    session_id = await start(client, workspace, make_chain(make_waiting_step("slow", retries=3), make_counting_step("last")))
    call = await wait_for_step(client, session_id, "slow")
    await wait_until_running(workspace)
    client = await restart_daemon(daemon, how)
    await client.attach(session_id, call.seq)
    events = await wait_for_end(client, session_id)
    told = await report(client, session_id)

    assert events[-1].payload["outcome"] == "failed"
    assert (told["status"], told["summary"]["error"]["code"]) == ("failed", 3001)
    assert (count_runs(workspace, "slow"), count_runs(workspace, "last")) == (1, 0)
    assert find_run_processes({str(call.run_id)}) == {}


@pytest.mark.requirement("rep:tower:secrets")
async def test_a_flow_whose_secret_was_not_kept_says_so(
    dedicated_daemon: Any, connect: Any, restart_daemon: Again, workspace: Path
) -> None:
    flow = make_chain(
        make_node("ask", "approval"),
        make_node("use", "file.write", path="used.txt", content="$input.password"),
        password="string",
    )
    daemon = dedicated_daemon()
    client: PushClient = await connect(daemon)
    session_id = await start(client, workspace, flow, inputs={"password": "hunter-22-xyzzy-pass"})
    question = await wait_for_question(client, session_id)
    client = await restart_daemon(daemon, signal.SIGKILL)
    await client.attach(session_id, question.seq)
    events = await wait_for_end(client, session_id)
    told = await report(client, session_id)

    assert events[-1].payload["outcome"] == "failed"
    assert "held a secret, which is not kept; hint: run the flow again" in told["summary"]["error"]["message"]
    assert not (workspace / "used.txt").exists()
    assert (await client.decide(question)).ok is False


async def test_a_question_that_expires_while_no_daemon_runs_has_expired(
    dedicated_daemon: Any, connect: Any, restart_daemon: Again, workspace: Path
) -> None:
    daemon = dedicated_daemon(approval_timeout=0.4)
    client: PushClient = await connect(daemon)
    session_id = await start(client, workspace, make_document([make_node("ask", "approval")]))
    question = await wait_for_question(client, session_id)
    client = await restart_daemon(daemon, signal.SIGKILL)
    await client.attach(session_id, question.seq)
    await wait_for_end(client, session_id)

    assert (await report(client, session_id))["summary"]["error"]["message"] == "nobody decided in time"


@ENDS
async def test_a_flow_that_is_being_cancelled_does_not_come_back(
    dedicated_daemon: Any, connect: Any, restart_daemon: Again, workspace: Path, how: signal.Signals
) -> None:
    daemon = dedicated_daemon()
    client: PushClient = await connect(daemon)
    session_id = await start(client, workspace, ASKS)
    question = await wait_for_question(client, session_id)
    assert (await client.cancel(session_id, str(question.run_id))).ok
    client = await restart_daemon(daemon, how)
    await client.attach(session_id, question.seq)
    await wait_for_end(client, session_id)
    told = await report(client, session_id)

    assert (told["status"], count_runs(workspace, "last")) == ("failed", 0)
    assert (await client.decide(question)).ok is False
