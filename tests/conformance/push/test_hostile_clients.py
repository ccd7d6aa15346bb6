"""Clients that flood, never read, or vanish: they get what they are due, and nobody else notices."""

import asyncio
import contextlib
from pathlib import Path

import pytest
from tests.conformance.daemons import Daemon
from tests.conftest import Connect, StartDaemon

from switchtower.testing.push_client import PushClient
from switchtower.testing.wires import SocketWire, websocket_frame

MIB = 1_048_576
FLOOD = 5_000


async def reader_of(client: PushClient, count: int) -> list[str]:
    return [(await client.response()).request_id for _ in range(count)]


@pytest.mark.requirement("push:transport:framing")
async def test_a_flood_of_requests_is_answered_one_by_one_in_order(either: PushClient) -> None:
    frames = [either.frame("ping") for _ in range(FLOOD)]
    reading = asyncio.create_task(reader_of(either, FLOOD))
    await either.say(*frames)
    assert await reading == [frame["requestId"] for frame in frames]


@pytest.mark.requirement("push:transport:backpressure", "push:error:INTERNAL_ERROR")
async def test_a_flood_on_one_session_is_answered_or_refused_retryably_and_changes_nothing(
    either: PushClient, workspace: Path
) -> None:
    session_id = (await either.start_session(workspace)).session_id
    frames = [either.frame("cancel_run", {}, session_id=session_id) for _ in range(FLOOD)]
    await either.say(*frames)
    responses = [await either.response() for _ in frames]
    assert sorted(response.request_id for response in responses) == sorted(str(frame["requestId"]) for frame in frames)
    for response in responses:
        assert response.error is not None
        assert (response.code, response.error["retryable"]) in (("NO_ACTIVE_RUN", False), ("INTERNAL_ERROR", True))
    assert (await either.run(session_id, "say: unharmed"))[-1].payload["outcome"] == "success"


@pytest.mark.requirement("push:transport:backpressure")
async def test_a_flood_of_starts_makes_as_many_sessions(own_daemon: StartDaemon, connect: Connect, workspace: Path) -> None:
    client = await connect(own_daemon())
    repo = {"rootPath": str(workspace), "currentBranch": "main", "defaultBranch": "main"}
    payload = {"mode": "interactive", "provider": "demo", "sandboxProvider": "local", "repo": repo}
    frames = [client.frame("start_session", payload) for _ in range(2_500)]
    await client.say(*frames)
    started = {(await client.response(frame["requestId"])).session_id for frame in frames}
    assert len(started) == len(frames)
    assert {(await client.event()).session_id for _ in frames} == started


@pytest.mark.requirement("push:transport:backpressure")
async def test_a_client_that_never_reads_is_not_read_from_and_costs_little(
    own_daemon: StartDaemon, connect: Connect, transport: str
) -> None:
    daemon = own_daemon()
    other = await connect(daemon)
    await other.ping()
    before = daemon.resident_bytes
    greedy = await connect(daemon, transport)
    frames = b"".join(
        (websocket_frame(frame) if transport == "websocket" else frame + b"\n")
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
    own_daemon: StartDaemon, connect: Connect, workspace: Path
) -> None:
    daemon = own_daemon()
    other = await connect(daemon)
    for _ in range(200):
        await other.start_session(workspace)
    await other.ask("list_sessions", {"limit": 200})
    before = daemon.resident_bytes
    greedy = await connect(daemon)
    frames = [greedy.frame("list_sessions", {"limit": 200}) for _ in range(20_000)]
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(2):
            await greedy.say(*frames)
    for _ in range(20):
        await other.ping()
    assert daemon.resident_bytes - before < 150 * MIB, "20,000 such answers are 800 MiB"


@pytest.mark.requirement("push:replay:slow-reader", "push:transport:backpressure")
async def test_observers_that_never_read_neither_slow_a_run_nor_fill_the_daemon(
    own_daemon: StartDaemon, connect: Connect, workspace: Path
) -> None:
    daemon = own_daemon()
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
async def test_an_endless_line_does_not_grow_the_daemon(own_daemon: StartDaemon, connect: Connect) -> None:
    daemon = own_daemon()
    client = await connect(daemon)
    await client.ping()
    before = daemon.resident_bytes
    for _ in range(64):
        client.wire.send_bytes(b"x" * MIB)
        await client.wire.drain()
    assert (await client.response()).code == "INVALID_REQUEST"
    assert daemon.resident_bytes - before < 16 * MIB
    client.wire.send_bytes(b"\n")
    await client.ping()
    assert not client.responses, "one line, one answer"


@pytest.mark.requirement("push:transport:disconnects")
async def test_clients_that_vanish_at_any_byte_leave_the_daemon_unharmed(
    own_daemon: StartDaemon, connect: Connect, workspace: Path, transport: str
) -> None:
    daemon = own_daemon()
    other = await connect(daemon)
    session_id = (await other.start_session(workspace)).session_id
    frame = b'{"v":"push.runtime.v1","kind":"request","requestId":"req_1","type":"attach_session",' + (
        b'"sessionId":"%b","payload":{"lastSeenSeq":0}}' % session_id.encode()
    )
    spelled = frame + b"\n" if transport == "socket" else websocket_frame(frame)
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
    pushd: Daemon, connect: Connect, workspace: Path, transport: str
) -> None:
    starter = await connect(pushd, transport)
    session_id = (await starter.start_session(workspace)).session_id
    run_id = await starter.send(session_id, "count 2000")
    starter.wire.abort()
    late = await connect(pushd, transport)
    await late.attach(session_id, 0)
    events = await late.until("run_complete")
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    assert (events[-1].run_id, events[-1].payload["outcome"]) == (run_id, "success")


@pytest.mark.requirement("push:transport:disconnects")
async def test_a_client_that_only_stops_writing_still_gets_its_answers(pushd: Daemon, connect: Connect) -> None:
    client = await connect(pushd)
    assert isinstance(client.wire, SocketWire)
    frames = [client.frame("ping") for _ in range(3)]
    await client.say(*frames)
    client.wire.writer.write_eof()
    assert [(await client.response()).request_id for _ in frames] == [frame["requestId"] for frame in frames]


@pytest.mark.requirement("push:transport:disconnects")
async def test_hundreds_of_clients_come_and_go(pushd: Daemon, connect: Connect, transport: str) -> None:
    for _ in range(10):
        clients = await asyncio.gather(*(connect(pushd, transport) for _ in range(30)))
        await asyncio.gather(*(client.ping() for client in clients))
        for client in clients:
            client.wire.abort()
    assert await (await connect(pushd, transport)).ping()
