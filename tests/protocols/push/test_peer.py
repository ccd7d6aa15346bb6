"""One push client at a tower that fails: our own bugs stay ours, and the client hears that something went wrong, no more."""

import asyncio
import json
import logging
from collections.abc import Callable
from typing import Any

import pytest

from switchtower.core import commands, errors, events
from switchtower.core.ports import host_services as ports_host_services
from switchtower.core.ports import journal, session_service
from switchtower.core.roles import Access
from switchtower.core.session import Session
from switchtower.protocols.push.connection import MAX_PENDING_REQUESTS, PushConnection
from switchtower.testing.memory.stream import MemoryStream, RecordingReceiver, join_receivers
from switchtower.testing.push_client import check_closed, make_start_payload
from switchtower.transports.stream import ConnectionOrigin, Packet

SECRET = "/home/owner/.ssh/id_ed25519 is not where I expected it"
REQUESTS: dict[str, dict[str, Any]] = {
    "start_session": make_start_payload("/tmp"),
    "list_sessions": {},
    "attach_session": {"sessionId": "sess_1", "lastSeenSeq": 0},
    "resume_session": {"sessionId": "sess_1", "lastSeenSeq": 0},
    "send_user_message": {"sessionId": "sess_1", "clientMessageId": "msg_1", "text": "x"},
    "submit_approval": {"sessionId": "sess_1", "runId": "run_1", "approvalId": "appr_1", "decision": "approve"},
    "cancel_run": {"sessionId": "sess_1"},
    "ping": {},
}


class FailingSessionService:
    """Implements `tower.Tower`. Each method fails as it is told to."""

    def __init__(self, failure: Exception) -> None:
        self._failure = failure

    def now_ms(self) -> int:
        raise self._failure

    def mint(self, prefix: str) -> str:
        return f"{prefix}_1"

    def mint_secret(self, prefix: str) -> str:
        return f"{prefix}_secret"

    def submit(self, command: commands.AnyCommand, done: session_service.OutcomeCallback) -> None:
        raise self._failure

    def attach(
        self,
        session_id: str,
        after_seq: int,
        subscriber: session_service.Subscriber,
        *,
        admit: Callable[[Session], None],
        done: Callable[[session_service.Attachment | errors.CoreError], None],
    ) -> None:
        raise self._failure

    def subscribe(self, session_id: str, after_seq: int, subscriber: session_service.Subscriber) -> session_service.Subscription:
        raise self._failure

    @property
    def host_services(self) -> ports_host_services.HostServices:
        raise self._failure

    async def get_session(self, session_id: str) -> Session:
        raise self._failure

    async def list_cards(self, limit: int) -> list[journal.Card]:
        raise self._failure


class SlowSessionService(FailingSessionService):
    """Keeps every command and answers when the test says so."""

    def __init__(self) -> None:
        super().__init__(AssertionError("not asked for here"))
        self.waiting: list[session_service.OutcomeCallback] = []

    def submit(self, command: commands.AnyCommand, done: session_service.OutcomeCallback) -> None:
        self.waiting.append(done)


def connect_client(tower_: session_service.SessionService) -> RecordingReceiver:
    client = RecordingReceiver()
    join_receivers(PushConnection(tower_, Access(name="owner", via="cli", trusted=True), "0"), client)
    return client


def make_frame(type_: str, request_id: str = "req_1") -> bytes:
    envelope = {"v": "push.runtime.v1", "kind": "request", "requestId": request_id, "type": type_, "payload": REQUESTS[type_]}
    return json.dumps(envelope).encode()


async def answer(client: RecordingReceiver) -> dict[str, Any]:
    async with asyncio.timeout(60):
        response: dict[str, Any] = json.loads(await client.next_frame())
    check_closed(response)
    return response


@pytest.mark.requirement("push:error:INTERNAL_ERROR")
@pytest.mark.parametrize("type_", sorted(REQUESTS))
async def test_a_bug_of_ours_is_an_internal_error_without_detail_and_a_traceback_in_the_log(
    type_: str, caplog: pytest.LogCaptureFixture
) -> None:
    client = connect_client(FailingSessionService(RuntimeError(SECRET)))
    with caplog.at_level(logging.ERROR):
        client.send(make_frame(type_))
        response = await answer(client)
    error = {"code": "INTERNAL_ERROR", "message": response["error"]["message"], "retryable": False}
    assert response["error"] == error
    assert SECRET not in json.dumps(response)
    assert SECRET in caplog.text
    assert not client.closed, "the connection goes on"


@pytest.mark.requirement("push:error:INTERNAL_ERROR")
@pytest.mark.parametrize("refusal", [errors.JournalUnavailable(), errors.Overloaded(), errors.ShuttingDown(), errors.Fenced()])
@pytest.mark.parametrize("type_", sorted(REQUESTS))
async def test_trouble_that_passes_is_an_internal_error_that_may_be_tried_again(type_: str, refusal: errors.CoreError) -> None:
    client = connect_client(FailingSessionService(refusal))
    client.send(make_frame(type_))
    error = (await answer(client))["error"]
    assert (error["code"], error["retryable"], error["message"]) == ("INTERNAL_ERROR", True, refusal.message)


@pytest.mark.requirement("push:transport:backpressure")
async def test_with_too_much_unanswered_the_client_is_not_read_until_half_is_answered() -> None:
    patient = SlowSessionService()
    client = connect_client(patient)
    for number in range(MAX_PENDING_REQUESTS + 5):
        client.send(make_frame("cancel_run", f"req_{number}"))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    assert len(patient.waiting) == MAX_PENDING_REQUESTS

    while patient.waiting:
        patient.waiting.pop(0)(errors.NoActiveRun())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    answered = {(await answer(client))["requestId"] for _ in range(MAX_PENDING_REQUESTS + 5)}
    assert answered == {f"req_{number}" for number in range(MAX_PENDING_REQUESTS + 5)}


async def test_an_answer_for_a_client_that_has_gone_is_dropped() -> None:
    patient = SlowSessionService()
    client = connect_client(patient)
    client.send(make_frame("cancel_run"))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    (done,) = patient.waiting
    client.stream.abort()
    async with asyncio.timeout(60):
        await client.wait_until(lambda: client.closed)
    done(errors.NoActiveRun())
    assert not client.frames


class RecordingStream:
    """A `stream.Stream` that keeps what it is sent."""

    origin = ConnectionOrigin(transport="memory")
    writable = True

    def __init__(self) -> None:
        self.sent: list[Packet] = []

    def send(self, packet: Packet) -> None:
        self.sent.append(packet)

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def close(self, code: int = 1000, reason: str = "") -> None: ...

    def abort(self) -> None: ...


def test_a_batch_is_encoded_once_for_all_its_subscribers() -> None:
    entry = journal.Entry(1, 1_760_000_000_000, "run_1", events.TextDelta.kind, b'{"text":"hello"}')
    batch = session_service.Batch("sess_1", [entry])
    streams = [RecordingStream() for _ in range(3)]
    for stream in streams:
        peer = PushConnection(FailingSessionService(RuntimeError()), Access(name="owner", via="cli", trusted=True), "0")
        peer.on_connected(stream)
        peer.deliver(batch)
    first, *others = [packet for stream in streams for packet in stream.sent]
    assert len(others) == 2
    assert all(packet is first for packet in others)
    assert first.lines is first.lines
    assert first.websocket is first.websocket


# When the daemon goes


def connect_authenticated(tower_: session_service.SessionService) -> tuple[PushConnection, RecordingReceiver, MemoryStream]:
    peer, client = PushConnection(tower_, Access(name="owner", via="cli", trusted=True), "0"), RecordingReceiver()
    stream, _ = join_receivers(peer, client)
    return peer, client, stream


async def wait_closed(client: RecordingReceiver) -> None:
    async with asyncio.timeout(60):
        await client.wait_until(lambda: client.closed)


async def test_a_client_that_is_let_go_and_waits_for_nothing_is_closed_at_once() -> None:
    peer, client, stream = connect_authenticated(SlowSessionService())
    peer.close_for_restart(60)
    await wait_closed(client)
    assert stream.closed_with == (1012, "service restart, reconnect")
    assert not client.frames


async def test_a_client_that_is_let_go_has_its_answers_first_and_is_not_read_any_more() -> None:
    patient = SlowSessionService()
    peer, client, stream = connect_authenticated(patient)
    for number in range(2):
        client.send(make_frame("cancel_run", f"req_{number}"))
    while len(patient.waiting) < 2:
        await asyncio.sleep(0)
    peer.close_for_restart(60)
    peer.close_for_restart(60)  # once is enough
    client.send(make_frame("ping", "req_late"))
    stream.block()
    stream.unblock()
    patient.waiting.pop(0)(errors.NoActiveRun())
    assert (await answer(client))["requestId"] == "req_0"
    assert stream.closed_with is None
    patient.waiting.pop(0)(errors.NoActiveRun())
    assert (await answer(client))["requestId"] == "req_1"
    await wait_closed(client)
    assert stream.closed_with == (1012, "service restart, reconnect")
    assert not client.frames


async def test_a_client_that_is_let_go_is_not_waited_for_longer_than_the_grace() -> None:
    patient = SlowSessionService()
    peer, client, stream = connect_authenticated(patient)
    client.send(make_frame("cancel_run"))
    while not patient.waiting:
        await asyncio.sleep(0)
    peer.close_for_restart(0.01)
    await wait_closed(client)
    assert stream.closed_with == (1012, "service restart, reconnect")
    patient.waiting.pop(0)(errors.NoActiveRun())
    assert not client.frames


async def test_a_client_that_is_gone_need_not_be_let_go() -> None:
    peer, client, stream = connect_authenticated(SlowSessionService())
    client.stream.abort()
    await wait_closed(client)
    while peer.is_ready:
        await asyncio.sleep(0)
    peer.close_for_restart(0)
    assert stream.closed_with is None
