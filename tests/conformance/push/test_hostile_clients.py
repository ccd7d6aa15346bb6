"""Clients that flood, never read, or vanish: they get what they are due, and nobody else notices."""

import asyncio
import contextlib
from pathlib import Path

import pytest
from tests.conformance.daemons import ManagedDaemon
from tests.conftest import Connect, StartDaemon

from switchtower.testing.push_client import PushClient
from switchtower.testing.wire import SocketWire, encode_websocket_frame

MIB = 1_048_576
FLOOD = 5_000


async def start_reader(client: PushClient, count: int) -> list[str]:
    return [(await client.wait_for_response()).request_id for _ in range(count)]


@pytest.mark.requirement("push:transport:framing")
async def test_a_flood_of_requests_is_answered_one_by_one_in_order(client_per_transport: PushClient) -> None:
    frames = [client_per_transport.make_frame("ping") for _ in range(FLOOD)]
    reading = asyncio.create_task(start_reader(client_per_transport, FLOOD))
    await client_per_transport.send_frames(*frames)
    assert await reading == [frame["requestId"] for frame in frames]


@pytest.mark.requirement("push:transport:backpressure", "push:error:INTERNAL_ERROR")
async def test_a_flood_on_one_session_is_answered_or_refused_retryably_and_changes_nothing(
    client_per_transport: PushClient, workspace: Path
) -> None:
    session_id = (await client_per_transport.start_session(workspace)).session_id
    frames = [client_per_transport.make_frame("cancel_run", {}, session_id=session_id) for _ in range(FLOOD)]
    await client_per_transport.send_frames(*frames)
    responses = [await client_per_transport.wait_for_response() for _ in frames]
    assert sorted(response.request_id for response in responses) == sorted(str(frame["requestId"]) for frame in frames)
    for response in responses:
        assert response.error is not None
        assert (response.code, response.error["retryable"]) in (("NO_ACTIVE_RUN", False), ("INTERNAL_ERROR", True))
    assert (await client_per_transport.run(session_id, "say: unharmed"))[-1].payload["outcome"] == "success"


@pytest.mark.requirement("push:transport:backpressure")
async def test_a_flood_of_starts_makes_as_many_sessions(dedicated_daemon: StartDaemon, connect: Connect, workspace: Path) -> None:
    client = await connect(dedicated_daemon())
    repo = {"rootPath": str(workspace), "currentBranch": "main", "defaultBranch": "main"}
    payload = {"mode": "interactive", "provider": "demo", "sandboxProvider": "local", "repo": repo}
    frames = [client.make_frame("start_session", payload) for _ in range(2_500)]
    await client.send_frames(*frames)
    started = {(await client.wait_for_response(frame["requestId"])).session_id for frame in frames}
    assert len(started) == len(frames)
    assert {(await client.next_event()).session_id for _ in frames} == started


@pytest.mark.requirement("push:transport:backpressure")
async def test_a_client_that_never_reads_is_not_read_from_and_costs_little(
    dedicated_daemon: StartDaemon, connect: Connect, transport: str
) -> None:
    daemon = dedicated_daemon()
    other = await connect(daemon)
    await other.ping()
    before = daemon.resident_bytes
    greedy = await connect(daemon, transport)
    frames = b"".join(
        (encode_websocket_frame(frame) if transport == "websocket" else frame + b"\n")
        for number in range(100)
        for frame in [b'{"v":"push.runtime.v1","kind":"request","requestId":"req_%d","type":"ping","payload":{}}' % number]
    )
    sent = 0
    with contextlib.suppress(TimeoutError):
        while sent < 100 * MIB:
            greedy.wire.send_bytes(frames * 100)
            async with asyncio.timeout(0.5):
                await greedy.wire.drain()
            sent += len(frames) * 100
    assert sent < 50 * MIB, "the daemon went on reading though nobody takes its answers"
    assert daemon.resident_bytes - before < 20 * MIB
    for _ in range(20):
        await other.ping()


@pytest.mark.requirement("push:transport:backpressure")
async def test_a_client_that_never_reads_large_answers_costs_little(
    dedicated_daemon: StartDaemon, connect: Connect, workspace: Path
) -> None:
    daemon = dedicated_daemon()
    other = await connect(daemon)
    for _ in range(200):
        await other.start_session(workspace)
    await other.request_payload("list_sessions", {"limit": 200})
    before = daemon.resident_bytes
    greedy = await connect(daemon)
    frames = [greedy.make_frame("list_sessions", {"limit": 200}) for _ in range(20_000)]
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(2):
            await greedy.send_frames(*frames)
    for _ in range(20):
        await other.ping()
    assert daemon.resident_bytes - before < 150 * MIB, "20,000 such answers are 800 MiB"


@pytest.mark.requirement("push:replay:slow-reader", "push:transport:backpressure")
async def test_observers_that_never_read_neither_slow_a_run_nor_fill_the_daemon(
    dedicated_daemon: StartDaemon, connect: Connect, workspace: Path
) -> None:
    daemon = dedicated_daemon()
    owner = await connect(daemon)
    session_id = (await owner.start_session(workspace)).session_id
    await owner.run(session_id, "count 1000")
    before = daemon.resident_bytes
    for number in range(10):
        idle = await connect(daemon, ("socket", "websocket")[number % 2])
        await idle.attach(session_id, 0)
    events = await owner.run(session_id, "count 20000")
    assert events[-1].payload["outcome"] == "success"
    # Ten times a full output buffer at most; unbounded queues would hold ten times 4 MB more.
    assert daemon.resident_bytes - before < 40 * MIB


@pytest.mark.requirement("push:transport:line-limit")
async def test_an_endless_line_does_not_grow_the_daemon(dedicated_daemon: StartDaemon, connect: Connect) -> None:
    daemon = dedicated_daemon()
    client = await connect(daemon)
    await client.ping()
    before = daemon.resident_bytes
    for _ in range(64):
        client.wire.send_bytes(b"x" * MIB)
        await client.wire.drain()
    assert (await client.wait_for_response()).code == "INVALID_REQUEST"
    assert daemon.resident_bytes - before < 16 * MIB
    client.wire.send_bytes(b"\n")
    await client.ping()
    assert not client.responses, "one line, one answer"


@pytest.mark.requirement("push:transport:disconnects")
async def test_clients_that_vanish_at_any_byte_leave_the_daemon_unharmed(
    dedicated_daemon: StartDaemon, connect: Connect, workspace: Path, transport: str
) -> None:
    daemon = dedicated_daemon()
    other = await connect(daemon)
    session_id = (await other.start_session(workspace)).session_id
    frame = b'{"v":"push.runtime.v1","kind":"request","requestId":"req_1","type":"attach_session",' + (
        b'"sessionId":"%b","payload":{"lastSeenSeq":0}}' % session_id.encode()
    )
    spelled = frame + b"\n" if transport == "socket" else encode_websocket_frame(frame)
    for cut in range(0, len(spelled) + 1, 7):
        vanishing = await connect(daemon, transport)
        vanishing.wire.send_bytes(spelled[:cut])
        if cut % 2:
            await vanishing.wire.drain()
        vanishing.wire.abort()
    assert (await other.run(session_id, "say: all is well"))[-1].payload["outcome"] == "success"
    assert "Traceback" not in daemon.log


@pytest.mark.requirement("push:transport:disconnects")
async def test_a_run_goes_on_when_the_client_that_started_it_vanishes(
    push_daemon: ManagedDaemon, connect: Connect, workspace: Path, transport: str
) -> None:
    starter = await connect(push_daemon, transport)
    session_id = (await starter.start_session(workspace)).session_id
    run_id = await starter.send(session_id, "count 2000")
    starter.wire.abort()
    late = await connect(push_daemon, transport)
    await late.attach(session_id, 0)
    events = await late.read_until("run_complete")
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    assert (events[-1].run_id, events[-1].payload["outcome"]) == (run_id, "success")


@pytest.mark.requirement("push:transport:disconnects")
async def test_a_client_that_only_stops_writing_still_gets_its_answers(push_daemon: ManagedDaemon, connect: Connect) -> None:
    client = await connect(push_daemon)
    assert isinstance(client.wire, SocketWire)
    frames = [client.make_frame("ping") for _ in range(3)]
    await client.send_frames(*frames)
    client.wire.writer.write_eof()
    assert [(await client.wait_for_response()).request_id for _ in frames] == [frame["requestId"] for frame in frames]


@pytest.mark.requirement("push:transport:disconnects")
async def test_hundreds_of_clients_come_and_go(push_daemon: ManagedDaemon, connect: Connect, transport: str) -> None:
    for _ in range(10):
        clients = await asyncio.gather(*(connect(push_daemon, transport) for _ in range(30)))
        await asyncio.gather(*(client.ping() for client in clients))
        for client in clients:
            client.wire.abort()
    assert await (await connect(push_daemon, transport)).ping()
