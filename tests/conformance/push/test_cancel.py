"""Cancelling at each moment of a run: while it streams, while a tool works, while a question waits, while it is checked."""

import asyncio
from pathlib import Path

import pytest

from switchtower.testing.push_client import PushClient, ReceivedEvent


def find_sleepers(seconds: int) -> list[str]:
    """The processes that sleep for exactly so long."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if (process / "cmdline").read_bytes() == f"sleep\0{seconds}\0".encode():
                found.append(process.name)
        except OSError:
            continue
    return found


async def wait_for_sleepers(seconds: int, count: int = 1) -> None:
    async with asyncio.timeout(60):
        while len(find_sleepers(seconds)) < count:
            await asyncio.sleep(0.01)


@pytest.fixture
def seconds(workspace: Path) -> int:
    """A time to sleep that no other test sleeps for."""
    return 10**9 + int.from_bytes(workspace.name[-4:].encode())


def get_outcome(events: list[ReceivedEvent]) -> tuple[str, int]:
    return events[-1].payload["outcome"], events[-1].payload["headless"]["exitCodeHint"]


@pytest.mark.requirement("push:cancel:stops-run")
async def test_cancel_while_streaming_ends_the_stream(client_per_transport: PushClient, workspace: Path) -> None:
    session_id = (await client_per_transport.start_session(workspace)).session_id
    run_id = await client_per_transport.send(session_id, "count 1000000")
    await client_per_transport.read_until("assistant_token")
    assert (await client_per_transport.cancel(session_id, run_id, reason="enough of that")).ok
    events = await client_per_transport.read_until("run_complete")
    assert get_outcome(events) == ("cancelled", 2)
    assert [event.payload["detail"] for event in events if event.payload.get("phase") == "Cancelling run"] == ["enough of that"]
    await client_per_transport.ping()
    assert not client_per_transport.events, "nothing is said after the end"


@pytest.mark.requirement("push:cancel:stops-run", "push:cancel:leaves-nothing")
async def test_cancel_while_a_tool_works_kills_it_and_closes_its_call(
    client_per_transport: PushClient, workspace: Path, seconds: int
) -> None:
    session_id = (await client_per_transport.start_session(workspace)).session_id
    run_id = await client_per_transport.send(session_id, f"run: sleep {seconds} & (setsid sleep {seconds} &) ; sleep {seconds}")
    await client_per_transport.decide((await client_per_transport.read_until("approval_required"))[-1])
    await wait_for_sleepers(seconds, count=3)
    assert (await client_per_transport.cancel(session_id, run_id)).ok
    events = await client_per_transport.read_until("run_complete")
    assert get_outcome(events) == ("cancelled", 2)
    (result,) = (event.payload for event in events if event.type == "tool_result")
    assert (result["toolName"], result["isError"]) == ("sandbox_exec", True)
    assert find_sleepers(seconds) == []


@pytest.mark.requirement("push:cancel:stops-run", "push:concurrency:first-approval-wins")
async def test_cancel_while_a_question_waits_withdraws_it(client_per_transport: PushClient, workspace: Path) -> None:
    session_id = (await client_per_transport.start_session(workspace)).session_id
    run_id = await client_per_transport.send(session_id, "write notes.txt: hello")
    asked = (await client_per_transport.read_until("approval_required"))[-1]
    assert (await client_per_transport.cancel(session_id, run_id)).ok
    events = await client_per_transport.read_until("run_complete")
    assert get_outcome(events) == ("cancelled", 2)
    withdrawn = [event.payload for event in events if event.type == "warning"]
    assert [(one["code"], one["detail"]) for one in withdrawn] == [("APPROVAL_WITHDRAWN", asked.payload["approvalId"])]
    assert (await client_per_transport.decide(asked)).code == "APPROVAL_EXPIRED"
    assert not (workspace / "notes.txt").exists()


@pytest.mark.requirement("push:cancel:stops-run", "push:cancel:leaves-nothing")
async def test_cancel_while_acceptance_is_checked_ends_the_check(client: PushClient, workspace: Path, seconds: int) -> None:
    session_id = (await client.start_session(workspace)).session_id
    run_id = await client.send(session_id, "say: done", acceptance=[{"id": "slow", "check": f"sleep {seconds}"}])
    await wait_for_sleepers(seconds)
    assert (await client.cancel(session_id, run_id)).ok
    assert get_outcome(await client.read_until("run_complete")) == ("cancelled", 2)
    assert find_sleepers(seconds) == []


@pytest.mark.requirement("push:cancel:stops-run")
async def test_a_repeated_cancel_is_accepted_and_told_once(client: PushClient, workspace: Path) -> None:
    session_id = (await client.start_session(workspace)).session_id
    run_id = await client.send(session_id, "run: true")
    await client.read_until("approval_required")
    frames = [client.make_frame("cancel_run", {"runId": run_id}, session_id=session_id) for _ in range(5)]
    await client.send_frames(*frames)
    for frame in frames:
        assert (await client.wait_for_response(frame["requestId"])).code in (None, "NO_ACTIVE_RUN")
    events = await client.read_until("run_complete")
    assert [event.payload.get("phase") for event in events].count("Cancelling run") == 1
    assert (await client.run(session_id, "say: ready for the next"))[-1].payload["outcome"] == "success"
