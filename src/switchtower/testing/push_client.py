"""A push client for tests: sends what the test sends, over either transport, and checks every frame that it receives.

It reads only when the test asks for something, so a test decides when a client is slow. One coroutine at a time uses one
client; several clients race. It never reconnects or retries, and it tolerates no error.
"""

import asyncio
import contextlib
import itertools
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import msgspec
from msgspec import UNSET, Struct

from switchtower.protocols.push import extension_messages, messages
from switchtower.testing.wire import ClientWire, SocketWire, WebSocketWire

TIMEOUT = 60.0
"""Seconds that any operation may take before it times out."""


class ReceivedEvent(Struct, frozen=True):
    """An event as it arrived; `raw` is the very bytes."""

    raw: bytes
    session_id: str
    run_id: str | None
    seq: int
    ts: int
    type: str
    payload: dict[str, Any]

    @property
    def frame(self) -> "Frame":
        frame: Frame = msgspec.json.decode(self.raw)
        return frame


class ReceivedResponse(Struct, frozen=True):
    raw: bytes
    request_id: str
    type: str
    session_id: str | None
    ok: bool
    payload: dict[str, Any]
    error: dict[str, Any] | None

    @property
    def frame(self) -> "Frame":
        frame: Frame = msgspec.json.decode(self.raw)
        return frame

    @property
    def code(self) -> str | None:
        return self.error["code"] if self.error else None


class RequestRefused(Exception):
    """The daemon responded with an error where the test expected success."""

    def __init__(self, response: ReceivedResponse) -> None:
        super().__init__(response.error)
        self.response = response
        self.code = response.code


class StartedSession(Struct, frozen=True):
    session_id: str
    attach_token: str


_ANSWERS = {**messages.ANSWERS, **extension_messages.ANSWERS}

Frame = dict[str, Any]
CheckPushFrame = Callable[[Frame], None]
"""Raises when a frame is not what the protocol allows."""


def check_closed(frame: Frame) -> None:
    """Checks a frame by the wire types, which are closed: a missing, wrong or additional field is refused."""
    if frame.get("kind") == "event":
        event = msgspec.convert(frame, messages.EventEnvelope)
        msgspec.convert(event.payload, messages.EVENTS[event.type])
        assert event.v == messages.VERSION, "every message includes the version"
        assert event.runId is not UNSET or event.type not in messages.RUN_EVENTS, f"`{event.type}` without its run"
    else:
        response = msgspec.convert(frame, messages.ResponseEnvelope)
        assert response.v == messages.VERSION, "every message includes the version"
        assert response.ok is (response.error is None), "an error, unless it is ok"
        if response.ok:
            msgspec.convert(response.payload, _ANSWERS[response.type])
        else:
            assert response.payload == {}, "a refusal has an empty payload"


# The client


class PushClient:
    def __init__(self, wire: ClientWire, *, check: CheckPushFrame = check_closed, timeout: float = TIMEOUT) -> None:
        self.wire = wire
        self.events: deque[ReceivedEvent] = deque()
        """Events that have arrived and were not taken yet, in the order of arrival."""
        self.responses: deque[ReceivedResponse] = deque()
        """Responses that have arrived and were not claimed by their request yet."""
        self._check = check
        self._timeout = timeout
        self._numbers = itertools.count(1)

    @classmethod
    async def connect_socket(
        cls, socket: Path | str, *, check: CheckPushFrame = check_closed, timeout: float = TIMEOUT
    ) -> "PushClient":
        async with asyncio.timeout(timeout):
            return cls(await SocketWire.open(socket), check=check, timeout=timeout)

    @classmethod
    async def connect_websocket(
        cls, http: str, token: str | None, *, check: CheckPushFrame = check_closed, timeout: float = TIMEOUT
    ) -> "PushClient":
        async with asyncio.timeout(timeout):
            return cls(await WebSocketWire.open(http, token), check=check, timeout=timeout)

    async def __aenter__(self) -> "PushClient":
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.wire.abort()

    # Frames

    def make_request_id(self) -> str:
        return f"req_{next(self._numbers)}"

    def make_frame(self, type_: str, payload: object = None, *, session_id: str | None = None, **envelope: object) -> Frame:
        """Returns a request frame. Further keywords replace fields of the envelope; UNSET leaves one out."""
        whole = {
            "v": messages.VERSION,
            "kind": "request",
            "requestId": self.make_request_id(),
            "type": type_,
            "sessionId": UNSET if session_id is None else session_id,
            "payload": {} if payload is None else payload,
            **envelope,
        }
        return {name: value for name, value in whole.items() if value is not UNSET}

    async def send_frames(self, *frames: bytes | Mapping[str, object]) -> None:
        """Sends without waiting for a response; bytes are sent unchanged."""
        self.wire.send(*(frame if isinstance(frame, bytes) else msgspec.json.encode(frame) for frame in frames))
        async with asyncio.timeout(self._timeout):
            await self.wire.drain()

    async def wait_for_response(self, request_id: str | None = None) -> ReceivedResponse:
        """Returns the next response, or the one to this request."""
        async with asyncio.timeout(self._timeout):
            while True:
                for response in self.responses:
                    if request_id in (None, response.request_id):
                        self.responses.remove(response)
                        return response
                await self._read()

    async def next_event(self) -> ReceivedEvent:
        """Returns the next event of any session, in the order of arrival."""
        if not self.events:
            async with asyncio.timeout(self._timeout):
                while not self.events:
                    await self._read()
        return self.events.popleft()

    async def read_until(self, type_: str) -> list[ReceivedEvent]:
        """Returns the next events, up to and including the first of this type."""
        taken = [await self.next_event()]
        while taken[-1].type != type_:
            taken.append(await self.next_event())
        return taken

    async def wait_closed(self) -> None:
        """Returns when the daemon has closed the connection; frames that arrive before are kept."""
        async with asyncio.timeout(self._timeout):
            with contextlib.suppress(EOFError, ConnectionError):
                while True:
                    await self._read()

    async def _read(self) -> None:
        raw = await self.wire.receive()
        frame = msgspec.json.decode(raw)
        self._check(frame)
        if frame["kind"] == "event":
            place = frame["sessionId"], frame.get("runId"), frame["seq"], frame["ts"]
            self.events.append(ReceivedEvent(raw, *place, frame["type"], frame["payload"]))
        else:
            subject = frame["requestId"], frame["type"], frame.get("sessionId")
            self.responses.append(ReceivedResponse(raw, *subject, frame["ok"], frame["payload"], frame["error"]))

    # Requests

    async def request(
        self, type_: str, payload: object = None, *, session_id: str | None = None, **envelope: object
    ) -> ReceivedResponse:
        """Returns the whole response, whether or not it succeeded."""
        frame = self.make_frame(type_, payload, session_id=session_id, **envelope)
        await self.send_frames(frame)
        return await self.wait_for_response(str(frame["requestId"]))

    async def request_payload(self, type_: str, payload: object = None, *, session_id: str | None = None) -> dict[str, Any]:
        """Returns the response's payload. Raises `RequestRefused`."""
        response = await self.request(type_, payload, session_id=session_id)
        if not response.ok:
            raise RequestRefused(response)
        return response.payload

    async def send_hello(self, *capabilities: str) -> dict[str, Any]:
        return await self.request_payload(
            "hello", {"clientName": "test", "clientVersion": "1", "capabilities": list(capabilities)}
        )

    async def ping(self) -> int:
        """Returns the daemon's clock. Events that it sent before the response are in `events` afterwards."""
        return int((await self.request_payload("ping"))["ts"])

    async def start_session(self, workspace: Path | str, **fields: object) -> StartedSession:
        """Further keywords replace fields of the payload. The `session_started` event remains to be read."""
        answer = await self.request_payload("start_session", make_start_payload(workspace, **fields))
        return StartedSession(answer["sessionId"], answer["attachToken"])

    async def attach(self, session_id: str, last_seen_seq: int = 0, *, token: str | None = None) -> dict[str, Any]:
        payload = {"sessionId": session_id, "lastSeenSeq": last_seen_seq}
        if token is not None:
            payload["attachToken"] = token
        return await self.request_payload("attach_session", payload, session_id=session_id)

    async def send(
        self, session_id: str, text: str, *, message_id: str | None = None, acceptance: Sequence[Mapping[str, object]] = ()
    ) -> str:
        """Starts a run and returns its id."""
        payload: dict[str, object] = {
            "sessionId": session_id,
            "clientMessageId": message_id or f"msg_{next(self._numbers)}-{id(self)}",
            "text": text,
        }
        if acceptance:
            payload["acceptanceCriteria"] = list(acceptance)
        return str((await self.request_payload("send_user_message", payload, session_id=session_id))["runId"])

    async def run(self, session_id: str, text: str, **fields: Any) -> list[ReceivedEvent]:
        """Sends a message and reads until that run is complete."""
        await self.send(session_id, text, **fields)
        return await self.read_until("run_complete")

    async def decide(self, asked: ReceivedEvent, decision: str = "approve", *, comment: str | None = None) -> ReceivedResponse:
        """Answers an `approval_required`."""
        payload = {
            "sessionId": asked.session_id,
            "runId": asked.run_id,
            "approvalId": asked.payload["approvalId"],
            "decision": decision,
        }
        if comment is not None:
            payload["comment"] = comment
        return await self.request("submit_approval", payload, session_id=asked.session_id)

    async def cancel(self, session_id: str, run_id: str, *, reason: str = "user_cancelled") -> ReceivedResponse:
        payload = {"sessionId": session_id, "runId": run_id, "reason": reason}
        return await self.request("cancel_run", payload, session_id=session_id)


def make_start_payload(workspace: Path | str, **fields: object) -> dict[str, object]:
    return {
        "mode": "interactive",
        "provider": "demo",
        "sandboxProvider": "local",
        "repo": {"rootPath": str(workspace), "currentBranch": "main", "defaultBranch": "main"},
        **fields,
    }
