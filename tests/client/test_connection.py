"""One connection: who gets which answer, what happens to events nobody takes, and how an end is told."""

import asyncio
import json
from typing import Any

import pytest
from tests.client.conftest import ScriptedConnection, ScriptedPushServer

from switchtower.client import errors
from switchtower.client.connection import DaemonConnection
from switchtower.protocols.push import messages


async def test_answers_find_their_askers_in_any_order(daemon: ScriptedPushServer) -> None:
    async def backwards(wire: ScriptedConnection) -> None:
        first, second = await wire.request(), await wire.request()
        await wire.answer(second, {"pong": True, "ts": 2})
        await wire.answer(first, {"pong": True, "ts": 1})
        await wire.wait_closed()

    await daemon.serve(backwards)
    connection = await DaemonConnection.open(daemon.settings.socket)

    async with asyncio.timeout(60):
        answers = await asyncio.gather(*(connection.request(messages.Ping(), messages.Pong) for _ in range(2)))

    assert [answer.ts for answer in answers] == [1, 2]
    connection.close()


async def test_a_request_is_the_document_s_envelope_without_nulls(daemon: ScriptedPushServer) -> None:
    seen: list[dict[str, Any]] = []

    async def keep(wire: ScriptedConnection) -> None:
        seen.append(request := await wire.request())
        await wire.answer(request, {"sessionId": "sess_B", "state": "idle", "attachToken": "att_B"})
        await wire.wait_closed()

    await daemon.serve(keep)
    connection = await DaemonConnection.open(daemon.settings.socket)
    repo = messages.Repo("/w", "main", "main")
    async with asyncio.timeout(60):
        answer = await connection.request(
            messages.StartSession("headless", "demo", repo, "local", {"source": "cli"}), messages.StartSessionAnswer
        )

    assert seen == [
        {
            "v": "push.runtime.v1",
            "kind": "request",
            "requestId": "req_1",
            "type": "start_session",
            "payload": {
                "mode": "headless",
                "provider": "demo",
                "sandboxProvider": "local",
                "repo": {"rootPath": "/w", "currentBranch": "main", "defaultBranch": "main"},
                "metadata": {"source": "cli"},
            },
        }
    ]
    assert answer.sessionId == "sess_B"
    connection.close()


async def test_a_refusal_carries_code_message_and_whether_to_retry(daemon: ScriptedPushServer) -> None:
    async def refuse(wire: ScriptedConnection) -> None:
        await wire.refuse(await wire.request(), "RUN_IN_PROGRESS", retryable=True)
        await wire.wait_closed()

    await daemon.serve(refuse)
    connection = await DaemonConnection.open(daemon.settings.socket)

    async with asyncio.timeout(60):
        with pytest.raises(errors.RequestFailed) as refused:
            await connection.request(messages.Ping(), messages.Pong)

    assert (refused.value.code, refused.value.message, refused.value.retryable) == (
        "RUN_IN_PROGRESS",
        "refused with RUN_IN_PROGRESS",
        True,
    )
    connection.close()


@pytest.mark.parametrize("size", [1, 2, 7, 100_000])
async def test_frames_may_be_cut_anywhere(event: Any, size: int) -> None:
    frames = [event(1, payload={"text": "naïve ✓"}), event(2), event(3)]
    stream = b"".join(json.dumps(frame, ensure_ascii=False).encode() + b"\n" for frame in frames)
    connection = DaemonConnection(keep_events=10)

    for start in range(0, len(stream), size):
        connection.data_received(stream[start : start + size])

    received = [await connection.receive_event() for _ in frames]
    assert [json.loads(event.line) for event in received] == frames
    assert [event.payload.text for event in received if isinstance(event.payload, messages.Token)] == ["naïve ✓", "2 ", "3 "]


async def test_what_a_newer_daemon_adds_is_ignored(daemon: ScriptedPushServer, event: Any) -> None:
    async def newer(wire: ScriptedConnection) -> None:
        await wire.send(
            event(1, type="horoscope", payload={"sign": "♌"}), event(2, payload={"text": "x", "mood": 1}, extra=True)
        )
        await wire.answer(await wire.request(), {"pong": True, "ts": 1, "load": 0.5})
        await wire.wait_closed()

    await daemon.serve(newer)
    connection = await DaemonConnection.open(daemon.settings.socket, keep_events=10)

    async with asyncio.timeout(60):
        unknown, known = await connection.receive_event(), await connection.receive_event()
        assert (await connection.request(messages.Ping(), messages.Pong)).ts == 1

    assert (unknown.type, unknown.payload) == ("horoscope", None)
    assert isinstance(known.payload, messages.Token)
    assert known.payload.text == "x"
    connection.close()


async def test_the_end_of_the_connection_reaches_askers_and_watchers(daemon: ScriptedPushServer, event: Any) -> None:
    async def leave(wire: ScriptedConnection) -> None:
        await wire.request()
        await wire.send(event(1))

    await daemon.serve(leave)
    connection = await DaemonConnection.open(daemon.settings.socket, keep_events=10)

    async with asyncio.timeout(60):
        with pytest.raises(errors.ConnectionLost):
            await connection.request(messages.Ping(), messages.Pong)
        assert (await connection.receive_event()).seq == 1, "what came before the end is not lost"
        with pytest.raises(errors.ConnectionLost):
            await connection.receive_event()
    assert not connection.is_open


async def test_a_silent_daemon_is_given_up_on(daemon: ScriptedPushServer) -> None:
    await daemon.serve(lambda wire: wire.wait_closed())
    connection = await DaemonConnection.open(daemon.settings.socket)

    with pytest.raises(errors.ConnectionLost, match="did not answer `ping` within"):
        await connection.request(messages.Ping(), messages.Pong, timeout=0.01)
    connection.close()


@pytest.mark.parametrize("line", [b"not json\n", b"[]\n", b'{"kind":"event","type":"assistant_token","payload":{}}\n'])
async def test_what_is_not_the_protocol_ends_the_connection(daemon: ScriptedPushServer, line: bytes) -> None:
    async def babble(wire: ScriptedConnection) -> None:
        wire.writer.write(line)
        await wire.wait_closed()

    await daemon.serve(babble)
    connection = await DaemonConnection.open(daemon.settings.socket, keep_events=10)

    async with asyncio.timeout(60):
        with pytest.raises(errors.ProtocolViolation, match=r"not push\.runtime\.v1"):
            await connection.receive_event()


async def test_a_watcher_that_does_not_take_events_stops_reading_and_misses_none(daemon: ScriptedPushServer, event: Any) -> None:
    total, kept = 20_000, 100
    written = 0
    everything_written = asyncio.Event()

    async def flood(wire: ScriptedConnection) -> None:
        nonlocal written
        wire.writer.transport.set_write_buffer_limits(high=1)
        for start in range(1, total, 10):
            await wire.send(*(event(seq) for seq in range(start, start + 10)))
            written = start + 9
        everything_written.set()
        await wire.wait_closed()

    await daemon.serve(flood)
    connection = await DaemonConnection.open(daemon.settings.socket, keep_events=kept)
    async with asyncio.timeout(60):
        assert (await connection.receive_event()).seq == 1
        before = -1
        while before != written:  # until the flood stands still
            before = written
            for _ in range(20):
                await asyncio.sleep(0)
            await asyncio.sleep(0.02)
        assert written < total, "the daemon was held back"
        assert [(await connection.receive_event()).seq for _ in range(total - 1)] == list(range(2, total + 1))
        await everything_written.wait()
    connection.close()


async def test_an_answer_gets_through_behind_events_that_nobody_takes(daemon: ScriptedPushServer, event: Any) -> None:
    async def flood_then_answer(wire: ScriptedConnection) -> None:
        request = await wire.request()
        await wire.send(*(event(seq) for seq in range(1, 2_001)))
        await wire.answer(request, {"pong": True, "ts": 7})
        await wire.wait_closed()

    await daemon.serve(flood_then_answer)
    connection = await DaemonConnection.open(daemon.settings.socket, keep_events=10)

    async with asyncio.timeout(60):
        assert (await connection.request(messages.Ping(), messages.Pong)).ts == 7
    connection.close()
