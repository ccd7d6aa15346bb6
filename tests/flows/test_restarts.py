"""A flow that waits for people or agents goes on after its daemon has ended, however it ended; nothing is done twice."""

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable
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
    node,
    ran,
    report,
    shell,
    start,
    steps,
    until_step,
)

from switchtower.testing.push_client import PushClient

ENDS = pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM], ids=["killed", "stopped"])
ASKS = chain(counting("first"), node("ask", "approval"), counting("last"), node("tell", "dsl.emit", by="$step.ask.by"))

Again = Callable[[Daemon, signal.Signals], Awaitable[PushClient]]


@pytest.fixture
def again(connect: Any) -> Again:
    """Ends the daemon in this way, and gives a client of the next."""

    async def restart(daemon: Daemon, how: signal.Signals) -> PushClient:
        await asyncio.to_thread(daemon.stop, how)
        await asyncio.to_thread(daemon.start)
        client: PushClient = await connect(daemon)
        return client

    return restart


async def under_way(workspace: Path) -> None:
    """Returns when a step has told it through its pipe."""
    async with asyncio.timeout(60):
        await asyncio.to_thread((workspace / "pipe").read_bytes)


def waiting(name: str, **more: Any) -> dict[str, Any]:
    """A step that tells that it runs, and goes on when there is a file `go`."""
    command = f"echo ran >> {name}.txt; test -e go && exit; echo > pipe; exec sleep 600"
    return shell(name, command, **more)


@pytest.mark.requirement("rep:tower:restart")
@ENDS
async def test_a_flow_goes_on_waiting_and_then_goes_on(
    own_daemon: Any, connect: Any, again: Again, workspace: Path, how: signal.Signals
) -> None:
    daemon = own_daemon()
    client: PushClient = await connect(daemon)
    session_id = await start(client, workspace, ASKS)
    question = await asked(client, session_id)
    for _ in range(2):
        client = await again(daemon, how)
        await client.attach(session_id, question.seq)
    info = await client.ask("get_session", {"sessionId": session_id}, session_id=session_id)
    assert (info["state"], info["activeRunId"]) == ("awaiting_approval", question.run_id)
    assert (await client.decide(question)).ok
    events = await finished(client, session_id)
    told = await report(client, session_id)

    assert [event.seq for event in events] == list(range(question.seq + 1, question.seq + 1 + len(events)))
    assert (events[-1].payload["outcome"], events[-1].run_id) == ("success", question.run_id)
    assert (ran(workspace, "first"), ran(workspace, "last")) == (1, 1)
    assert (told["status"], told["exitCode"], told["summary"]) == (
        "completed",
        0,
        {"completed_steps": 4, "failed_steps": 0, "outputs": {"by": "owner"}},
    )
    assert steps(told) == [(step, state, 0) for step in ("first", "ask", "last", "tell") for state in ("started", "succeeded")]


@ENDS
async def test_two_questions_wait_over_a_restart(
    own_daemon: Any, connect: Any, again: Again, workspace: Path, how: signal.Signals
) -> None:
    flow = document([node("a", "approval"), node("b", "approval"), counting("after")], [edge("a", "after"), edge("b", "after")])
    daemon = own_daemon()
    client: PushClient = await connect(daemon)
    session_id = await start(client, workspace, flow)
    first, second = await asked(client, session_id), await asked(client, session_id)
    assert (await client.decide(first)).ok
    await until_step(client, session_id, first.payload["details"]["step"], "ended")
    client = await again(daemon, how)
    await client.attach(session_id, second.seq)
    assert (await client.decide(first)).ok is False
    assert (await client.decide(second)).ok
    events = await finished(client, session_id)

    assert events[-1].payload["outcome"] == "success"
    assert ran(workspace, "after") == 1


@pytest.mark.requirement("rep:tower:restart-agent")
@ENDS
async def test_an_agent_that_waits_is_waited_for(
    own_daemon: Any, connect: Any, again: Again, workspace: Path, how: signal.Signals
) -> None:
    flow = chain(node("do", "agent.run", prompt="run: echo ran >> agent.txt", provider="demo", policy="ask"), counting("last"))
    daemon = own_daemon()
    client: PushClient = await connect(daemon)
    session_id = await start(client, workspace, flow)
    question = await asked_inside(client, session_id)
    client = await again(daemon, how)
    await client.attach(session_id)
    assert (await client.decide(question)).ok
    await finished(client, session_id)
    told = await report(client, session_id)

    assert told["status"] == "completed", told
    assert (ran(workspace, "agent"), ran(workspace, "last")) == (1, 1)
    assert [event["session_id"] for event in told["events"] if "session_id" in event] == [question.session_id]


@pytest.mark.requirement("rep:tower:restart-agent")
@ENDS
async def test_an_agent_that_was_at_work_failed_its_try(
    own_daemon: Any, connect: Any, again: Again, workspace: Path, how: signal.Signals
) -> None:
    os.mkfifo(workspace / "pipe")
    prompt = "run: echo ran >> agent.txt; test -e go && exit; echo > pipe; exec sleep 600"
    flow = document([node("do", "agent.run", prompt=prompt, provider="demo", policy="yolo", retries=1)])
    daemon = own_daemon()
    client: PushClient = await connect(daemon)
    session_id = await start(client, workspace, flow)
    await under_way(workspace)
    (workspace / "go").touch()
    client = await again(daemon, how)
    await client.attach(session_id)
    await finished(client, session_id)
    told = await report(client, session_id)

    assert told["status"] == "completed", told
    assert steps(told) == [("do", "started", 0), ("do", "failed", 0), ("do", "started", 1), ("do", "succeeded", 1)]
    assert ran(workspace, "agent") == 2


@pytest.mark.requirement("rep:tower:restart-step")
@ENDS
@pytest.mark.parametrize("retries", [0, 1])
async def test_an_ordinary_step_under_way_beside_a_question_failed_its_try(
    own_daemon: Any, connect: Any, again: Again, workspace: Path, how: signal.Signals, retries: int
) -> None:
    os.mkfifo(workspace / "pipe")
    flow = document(
        [node("ask", "approval"), waiting("slow", retries=retries), counting("sorry")], [edge("slow", "sorry", on="failure")]
    )
    daemon = own_daemon()
    client: PushClient = await connect(daemon)
    session_id = await start(client, workspace, flow)
    question = await asked(client, session_id)
    await under_way(workspace)
    (workspace / "go").touch()
    client = await again(daemon, how)
    await client.attach(session_id, question.seq)
    assert (await client.decide(question)).ok
    events = await finished(client, session_id)
    told = await report(client, session_id)

    assert told["status"] == "completed", told
    assert ran(workspace, "slow") == 1 + retries
    assert ran(workspace, "sorry") == 1 - retries
    failed = next(event for event in told["events"] if event.get("state") == "failed")
    assert (failed["step_id"], failed["attempt"], failed["error"]["data"]["cause"]) == ("slow", 0, "Interrupted")
    assert processes_of({str(events[-1].run_id)}) == {}


@pytest.mark.requirement("rep:tower:restart-plain")
@ENDS
async def test_a_flow_of_a_runtime_alone_ends_with_its_daemon(
    own_daemon: Any, connect: Any, again: Again, workspace: Path, how: signal.Signals
) -> None:
    os.mkfifo(workspace / "pipe")
    daemon = own_daemon()
    client: PushClient = await connect(daemon)
    session_id = await start(client, workspace, chain(waiting("slow", retries=3), counting("last")))
    call = await until_step(client, session_id, "slow")
    await under_way(workspace)
    client = await again(daemon, how)
    await client.attach(session_id, call.seq)
    events = await finished(client, session_id)
    told = await report(client, session_id)

    assert events[-1].payload["outcome"] == "failed"
    assert (told["status"], told["summary"]["error"]["code"]) == ("failed", 3001)
    assert (ran(workspace, "slow"), ran(workspace, "last")) == (1, 0)
    assert processes_of({str(call.run_id)}) == {}


@pytest.mark.requirement("rep:tower:secrets")
async def test_a_flow_whose_secret_was_not_kept_says_so(own_daemon: Any, connect: Any, again: Again, workspace: Path) -> None:
    flow = chain(
        node("ask", "approval"), node("use", "file.write", path="used.txt", content="$input.password"), password="string"
    )
    daemon = own_daemon()
    client: PushClient = await connect(daemon)
    session_id = await start(client, workspace, flow, inputs={"password": "hunter-22-xyzzy-pass"})
    question = await asked(client, session_id)
    client = await again(daemon, signal.SIGKILL)
    await client.attach(session_id, question.seq)
    events = await finished(client, session_id)
    told = await report(client, session_id)

    assert events[-1].payload["outcome"] == "failed"
    assert "held a secret, which is not kept; hint: run the flow again" in told["summary"]["error"]["message"]
    assert not (workspace / "used.txt").exists()
    assert (await client.decide(question)).ok is False


async def test_a_question_that_expires_while_no_daemon_runs_has_expired(
    own_daemon: Any, connect: Any, again: Again, workspace: Path
) -> None:
    daemon = own_daemon(approval_timeout=0.4)
    client: PushClient = await connect(daemon)
    session_id = await start(client, workspace, document([node("ask", "approval")]))
    question = await asked(client, session_id)
    client = await again(daemon, signal.SIGKILL)
    await client.attach(session_id, question.seq)
    await finished(client, session_id)

    assert (await report(client, session_id))["summary"]["error"]["message"] == "nobody decided in time"


@ENDS
async def test_a_flow_that_is_being_cancelled_does_not_come_back(
    own_daemon: Any, connect: Any, again: Again, workspace: Path, how: signal.Signals
) -> None:
    daemon = own_daemon()
    client: PushClient = await connect(daemon)
    session_id = await start(client, workspace, ASKS)
    question = await asked(client, session_id)
    assert (await client.cancel(session_id, str(question.run_id))).ok
    client = await again(daemon, how)
    await client.attach(session_id, question.seq)
    await finished(client, session_id)
    told = await report(client, session_id)

    assert (told["status"], ran(workspace, "last")) == ("failed", 0)
    assert (await client.decide(question)).ok is False
