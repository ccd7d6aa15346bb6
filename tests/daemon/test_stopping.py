"""A daemon that is asked to stop: runs are closed honestly, clients hear of it, questions are kept, nothing is left running."""

import asyncio
import signal
from pathlib import Path

import pytest
from tests.crash import story
from tests.crash.tower_process import PushConnectionLost, PushRequestRefused, RawPushClient, find_run_processes
from tests.daemon.conftest import Connect, StartDaemon


async def _read_to_end(client: RawPushClient) -> list[str]:
    async with asyncio.timeout(60):
        await client.closed.wait()
    return [frame.type for frame in client.events]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_clients_hear_how_a_run_ended_before_they_are_disconnected(
    start_daemon_process: StartDaemon, connect: Connect, workspace: Path, number: signal.Signals
) -> None:
    daemon = await start_daemon_process(demo_delay_ms=2)
    client = await connect(daemon)
    session_id = await client.start_session(workspace)
    await client.send(session_id, "count 100000")
    await client.wait_for_event("assistant_token")
    daemon.process.send_signal(number)
    types = await _read_to_end(client)
    assert types[-2:] == ["error", "run_complete"]
    assert client.events[-2].content["code"] == "RUN_INTERRUPTED"
    assert client.events[-1].content["outcome"] == "failed"
    assert await asyncio.to_thread(daemon.process.wait, 20) == 0

    again = await connect(await start_daemon_process())
    answer = await again.attach(session_id)
    assert answer["state"] == "failed"
    await again.wait_until(lambda: len(again.events) == answer["replay"]["toSeq"])
    (run,) = story.read(again.events).values()
    assert (run.outcome, run.errors) == ("failed", ["RUN_INTERRUPTED"])
    assert [frame.seq for frame in again.events] == list(range(1, len(again.events) + 1))


async def test_a_running_command_ends_with_the_daemon(
    start_daemon_process: StartDaemon, connect: Connect, workspace: Path
) -> None:
    daemon = await start_daemon_process()
    client = await connect(daemon)
    session_id = await client.start_session(workspace)
    run_id = await client.send(session_id, "run: (setsid sleep 1000 &); trap '' TERM; touch begun; sleep 1000; sleep 1000")
    asked = await client.wait_for_event("approval_required")
    await client.decide(session_id, run_id, asked.content["approvalId"])
    async with asyncio.timeout(60):
        while not (workspace / "begun").exists():
            await asyncio.sleep(0.01)
    assert find_run_processes({run_id})
    assert await daemon.stop() == 0
    assert find_run_processes({run_id}) == {}
    await _read_to_end(client)
    (run,) = story.read(client.events).values()
    assert (run.outcome, run.errors) == ("failed", ["RUN_INTERRUPTED"])


async def test_a_pending_approval_outlives_a_stop_and_its_run_goes_on(
    start_daemon_process: StartDaemon, connect: Connect, workspace: Path
) -> None:
    daemon = await start_daemon_process()
    client = await connect(daemon)
    session_id = await client.start_session(workspace)
    run_id = await client.send(session_id, "write notes.txt: hello")
    asked = (await client.wait_for_event("approval_required")).content
    assert await daemon.stop() == 0
    assert (await _read_to_end(client))[-1] == "approval_required"
    assert not (workspace / "notes.txt").exists()

    again = await connect(await start_daemon_process())
    assert (await again.attach(session_id))["state"] == "awaiting_approval"
    await again.decide(session_id, run_id, asked["approvalId"])
    assert (await again.wait_for_event("run_complete")).content["outcome"] == "success"
    assert (workspace / "notes.txt").read_text() == "hello"
    assert [frame.type for frame in again.events].count("approval_required") == 1


async def test_a_denial_after_the_restart_is_a_denial(
    start_daemon_process: StartDaemon, connect: Connect, workspace: Path
) -> None:
    daemon = await start_daemon_process()
    client = await connect(daemon)
    session_id = await client.start_session(workspace)
    run_id = await client.send(session_id, "write notes.txt: hello")
    asked = (await client.wait_for_event("approval_required")).content
    await daemon.stop()

    again = await connect(await start_daemon_process())
    await again.attach(session_id)
    await again.decide(session_id, run_id, asked["approvalId"], "deny")
    assert (await again.wait_for_event("run_complete")).content["outcome"] == "denied"
    assert not (workspace / "notes.txt").exists()


async def test_no_request_is_lost_without_an_answer_while_it_stops(
    start_daemon_process: StartDaemon, connect: Connect, workspace: Path
) -> None:
    """Each is accepted and then holds, or is refused as retryable, or finds the connection closed."""
    daemon = await start_daemon_process()
    client = await connect(daemon)
    sessions = [await client.start_session(workspace) for _ in range(20)]
    sending = (client.send(session_id, "count 50", f"msg_{number}") for number, session_id in enumerate(sessions))
    sent = [asyncio.create_task(request) for request in sending]
    await asyncio.sleep(0)
    stopping = asyncio.create_task(daemon.stop())
    answers = await asyncio.gather(*sent, return_exceptions=True)
    await stopping

    again = await connect(await start_daemon_process())
    for number, (session_id, answer) in enumerate(zip(sessions, answers, strict=True)):
        if isinstance(answer, str):
            assert await again.send(session_id, "count 50", f"msg_{number}") == answer
        elif isinstance(answer, PushRequestRefused):
            assert answer.retryable
        else:
            assert isinstance(answer, PushConnectionLost)


async def test_what_an_acceptance_check_left_running_ends_with_its_run(
    start_daemon_process: StartDaemon, connect: Connect, workspace: Path
) -> None:
    client = await connect(await start_daemon_process())
    session_id = await client.start_session(workspace)
    criterion = {"id": "leaves", "check": "(setsid sleep 1000 &); true"}
    payload = {"clientMessageId": "msg_1", "text": "say: hello", "acceptanceCriteria": [criterion]}
    run_id = (await client.ask("send_user_message", payload, session_id))["runId"]
    ended = (await client.wait_for_event("run_complete")).content
    assert ended["outcome"] == "success"
    assert find_run_processes({run_id}) == {}
