"""A MiniCodex client for tests: sends what the test sends, keeps every frame in the order of arrival, and folds the events.

It reads only when the test asks for something, so a test decides when a client is slow. It never reconnects, and it tolerates
no error.
"""

import asyncio
import itertools
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any
from urllib.parse import quote

import msgspec

from switchtower.testing.wire import WebSocketWire

TIMEOUT = 60.0
"""Seconds that any operation may take before it times out."""
PATH = "/ws/minicodex"
ITEMS = ("user_text", "assistant_text", "tool_call", "function_call_output", "reasoning")
ENDED = ("finished", "error")

Frame = dict[str, Any]
CheckFrame = Callable[[bytes], object]
"""Raises when a strict client would refuse a frame."""


STREAMED = ("assistant_text", "reasoning")


class FoldedSession:
    """The state of a client that trusts the server: a snapshot to start with, and each event after it."""

    def __init__(self) -> None:
        self.session_state: Frame = {}
        self.run_state: Frame | None = None
        self.transcript: list[Frame] = []
        self._settled = 0
        """Items that no failed model call can void."""
        self.last_event_id = 0
        self.event_ids: list[int] = []
        """The ids of every received event, in order; a snapshot does not change them."""

    def begin(self, snapshot: Frame) -> None:
        """Replaces everything by the server's snapshot."""
        self.session_state = dict(snapshot["session_state"])
        self.run_state = snapshot["run_state"]
        self.transcript = list(snapshot["transcript"])
        self._settled = len(self.transcript)
        if self.run_state is not None and self.run_state["status"] not in ENDED:
            while self._settled and self.transcript[self._settled - 1]["type"] in STREAMED:
                self._settled -= 1
        self.last_event_id = snapshot["event_id"]

    def fold(self, event: Frame) -> None:
        event_id = event["event_id"]
        assert event_id > self.last_event_id, f"event ids are strictly monotonic: {event_id} after {self.last_event_id}"
        self.last_event_id = self.session_state["last_event_id"] = event_id
        self.event_ids.append(event_id)
        is_retry = event["type"] == "error" and event["code"] == "RETRY"
        if is_retry:
            del self.transcript[self._settled :]
        if event["type"] in ITEMS:
            self.transcript.append({name: value for name, value in event.items() if name not in ("event_id", "run_id", "ts")})
        if event["type"] not in (*STREAMED, "error") or is_retry:
            self._settled = len(self.transcript)
        if event["type"] == "run_status":
            self._fold_status(event["run_state"])
        elif self.run_state is not None and event.get("run_id") == self.run_state["run_id"]:
            self.run_state = {**self.run_state, "last_event_id": event_id}

    def _fold_status(self, run_state: Frame) -> None:
        self.run_state = run_state
        self.session_state["run_counter"] += run_state["status"] == "starting"
        self.session_state["active_run_id"] = None if run_state["status"] in ENDED else run_state["run_id"]

    def build_snapshot(self, *, with_transcript: bool = True) -> Frame:
        """Returns the expected result of `get_snapshot`."""
        return {
            "type": "snapshot",
            "v": "1.0.0",
            "session_id": self.session_state["session_id"],
            "session_state": self.session_state,
            "run_state": self.run_state,
            "transcript": self.transcript if with_transcript else [],
            "event_id": self.last_event_id,
        }

    @property
    def assistant_text(self) -> str:
        """The text of the assistant's messages."""
        return "".join(item["text"] for item in self.transcript if item["type"] == "assistant_text")


class MiniCodexClient:
    def __init__(self, wire: WebSocketWire, *, ledger: FoldedSession | None = None, check: CheckFrame | None = None) -> None:
        self.wire = wire
        self.ledger = ledger or FoldedSession()
        self.frames: list[Frame] = []
        """All frames that have arrived, in order, except heartbeats, which arrive at any time."""
        self.heartbeats: list[Frame] = []
        self.timeout = TIMEOUT
        self._check = check
        self._numbers = itertools.count(1)
        self._seen = 0
        """The number of frames that `next` has passed."""

    @classmethod
    async def open(
        cls,
        http: str,
        token: str | None,
        *,
        ledger: FoldedSession | None = None,
        check: CheckFrame | None = None,
        **query: object,
    ) -> "MiniCodexClient":
        """`http` is an address of `endpoints.json`; the query names the session, or how to create one. The client has not sent
        hello yet.
        """
        given = {"token": token, **query}
        spelled = "&".join(f"{name}={quote(str(value), safe='')}" for name, value in given.items() if value is not None)
        async with asyncio.timeout(TIMEOUT):
            return cls(await WebSocketWire.open(http, None, path=f"{PATH}?{spelled}"), ledger=ledger, check=check)

    async def __aenter__(self) -> "MiniCodexClient":
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.wire.abort()

    @property
    def session_id(self) -> str:
        return str(self.ledger.session_state["session_id"])

    # Sending

    async def send_frames(self, *frames: bytes | Mapping[str, object]) -> None:
        """Sends without waiting for a response; bytes are sent unchanged."""
        self.wire.send(*(frame if isinstance(frame, bytes) else msgspec.json.encode(frame) for frame in frames))
        async with asyncio.timeout(self.timeout):
            await self.wire.drain()

    async def begin(self, type_: str, **fields: object) -> str:
        """Sends a command without waiting for its response; returns its id."""
        req_id = f"r{next(self._numbers)}-{id(self):x}"
        await self.send_frames({"type": type_, "req_id": req_id, **fields})
        return req_id

    async def request(self, type_: str, **fields: object) -> Frame:
        """Sends a command; returns its response, whether or not it succeeded."""
        return await self.wait_for_answer(await self.begin(type_, **fields))

    async def wait_for_answer(self, req_id: str) -> Frame:
        return await self.wait_for(lambda frame: frame.get("req_id") == req_id)

    async def execute(self, type_: str, **fields: object) -> None:
        """Sends a command that is expected to be accepted."""
        answer = await self.request(type_, **fields)
        assert answer["type"] == "accepted", answer

    async def expect_error(self, type_: str, **fields: object) -> str:
        """Sends a command that is expected to be refused; returns the code."""
        answer = await self.request(type_, **fields)
        assert answer["type"] == "error", answer
        return str(answer["code"])

    async def send_hello(self, *capabilities: str, v: str = "1.0.0") -> Frame:
        """Sends hello and adopts the snapshot, which it returns."""
        await self.begin("hello", v=v, client_capabilities=list(capabilities))
        welcome = await self.receive()
        assert welcome["type"] == "welcome", welcome
        snapshot = await self.receive()
        assert snapshot["type"] == "snapshot", snapshot
        self.ledger.begin(snapshot)
        return snapshot

    async def resume(self, last_seen_event_id: int | None = None) -> Frame:
        """Resumes from the last event of the ledger, or from another place. Returns the response, which is a welcome on
        success.
        """
        place = self.ledger.last_event_id if last_seen_event_id is None else last_seen_event_id
        return await self.request("resume", last_seen_event_id=place)

    async def request_snapshot(self, *, with_transcript: bool = True) -> Frame:
        """Returns the result of `get_snapshot`, without the request id."""
        snapshot = await self.request("get_snapshot", include_transcript_window=with_transcript)
        assert snapshot["type"] == "snapshot", snapshot
        return {name: value for name, value in snapshot.items() if name != "req_id"}

    # Receiving

    async def receive(self) -> Frame:
        """Returns the next frame as it arrives; events are folded."""
        async with asyncio.timeout(self.timeout):
            frame = await self._read()
            while frame["type"] == "heartbeat":
                self.heartbeats.append(frame)
                frame = await self._read()
        self.frames.append(frame)
        if "event_id" in frame and frame["type"] != "snapshot":
            self.ledger.fold(frame)
        return frame

    async def wait_for_heartbeat(self) -> Frame:
        """Use it only when no other frame is expected."""
        async with asyncio.timeout(self.timeout):
            return await self._read()

    async def _read(self) -> Frame:
        raw = await self.wire.receive()
        if self._check is not None:
            self._check(raw)
        frame: Frame = msgspec.json.decode(raw)
        return frame

    async def wait_for(self, wanted: Callable[[Frame], bool]) -> Frame:
        """Returns the first matching frame among all that have arrived or will arrive."""
        place = 0
        while True:
            while place < len(self.frames):
                if wanted(self.frames[place]):
                    return self.frames[place]
                place += 1
            await self.receive()

    async def next(self, wanted: Callable[[Frame], bool]) -> Frame:
        """Like `wait_for`, but searches only after the last match."""
        while True:
            while self._seen < len(self.frames):
                self._seen += 1
                if wanted(self.frames[self._seen - 1]):
                    return self.frames[self._seen - 1]
            await self.receive()

    async def next_of_type(self, type_: str) -> Frame:
        return await self.next(lambda frame: frame["type"] == type_)

    async def wait_for_status(self, *statuses: str) -> Frame:
        """Waits until the run has one of these statuses; returns its state."""
        frame = await self.next(lambda frame: frame["type"] == "run_status" and frame["run_state"]["status"] in statuses)
        state: Frame = frame["run_state"]
        return state

    async def wait_for_end(self) -> Frame:
        """Returns the state of the run that ends next, after all its events have arrived."""
        state = await self.wait_for_status(*ENDED)
        # `turn_done` follows it; it has arrived when the ping is answered.
        await self.request("ping")
        return state

    async def run(self, text: str, **fields: object) -> Frame:
        """Sends a message and reads until its run has ended."""
        await self.execute("send", text=text, **fields)
        return await self.wait_for_end()

    async def wait_closed(self) -> int | None:
        """Returns the code with which the server closes the connection; frames that arrive before are kept."""
        try:
            while True:
                await self.receive()
        except (EOFError, ConnectionError):
            return self.wire.close_code
