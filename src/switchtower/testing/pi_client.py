"""A pi client for tests: says what it is told to, over any wire, and keeps everything that it is sent in the order it came.

It reads only when it is asked for something, so a test decides when a client is slow. Nothing here reconnects or forgives.
"""

import asyncio
import itertools
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any

import msgspec

from switchtower.testing.wire import ClientWire

TIMEOUT = 60.0
"""Seconds that anything may take before a test is told that it does not come."""

Frame = dict[str, Any]


class CommandFailed(Exception):
    """The server answered with an error where the test expected success."""

    def __init__(self, response: Frame) -> None:
        super().__init__(response.get("error"))
        self.response = response
        self.error = str(response.get("error"))


class PiClient:
    def __init__(self, wire: ClientWire, *, timeout: float = TIMEOUT) -> None:
        self.wire = wire
        self.frames: list[Frame] = []
        """All that has arrived, in order."""
        self.sizes: list[int] = []
        """The bytes of each."""
        self._timeout = timeout
        self._numbers = itertools.count(1)
        self._seen = 0
        """How many frames `next` has passed."""

    async def __aenter__(self) -> "PiClient":
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.wire.abort()

    # Saying

    def make_id(self) -> str:
        return f"c{id(self):x}-{next(self._numbers)}"

    async def send_frames(self, *frames: bytes | Mapping[str, object]) -> None:
        """Sends without waiting for an answer; bytes go out as they are."""
        self.wire.send(*(frame if isinstance(frame, bytes) else msgspec.json.encode(frame) for frame in frames))
        async with asyncio.timeout(self._timeout):
            await self.wire.drain()

    async def begin(self, type_: str, **fields: object) -> str:
        """Sends a command and does not wait for its answer; the id it has."""
        command = {"type": type_, "id": self.make_id(), **fields}
        await self.send_frames(command)
        return str(command["id"])

    async def request(self, type_: str, **fields: object) -> Frame:
        """Sends a command; its response, whatever it says."""
        return await self.wait_for_response(await self.begin(type_, **fields))

    async def execute(self, type_: str, **fields: object) -> Any:
        """Sends a command that is expected to succeed; its data."""
        response = await self.request(type_, **fields)
        if not response["success"]:
            raise CommandFailed(response)
        return response.get("data")

    # Hearing

    async def receive(self) -> Frame:
        """The next frame as it arrives."""
        async with asyncio.timeout(self._timeout):
            raw = await self.wire.receive()
        frame: Frame = msgspec.json.decode(raw)
        self.frames.append(frame)
        self.sizes.append(len(raw))
        return frame

    async def wait_for(self, wanted: Callable[[Frame], bool]) -> Frame:
        """The first frame of all that arrived or will, that is wanted."""
        place = 0
        while True:
            while place < len(self.frames):
                if wanted(self.frames[place]):
                    return self.frames[place]
                place += 1
            await self.receive()

    async def next(self, wanted: Callable[[Frame], bool]) -> Frame:
        """Like `until`, but looks only behind the last one that it found."""
        while True:
            while self._seen < len(self.frames):
                self._seen += 1
                if wanted(self.frames[self._seen - 1]):
                    return self.frames[self._seen - 1]
            await self.receive()

    async def wait_for_response(self, id_: str) -> Frame:
        return await self.wait_for(lambda frame: frame["type"] == "response" and frame.get("id") == id_)

    async def next_event(self, type_: str) -> Frame:
        """The payload of the next session event of this type."""
        frame = await self.next(lambda frame: frame["type"] == "event" and frame["event"]["type"] == type_)
        event: Frame = frame["event"]
        return event

    def list_events(self, session_id: str | None = None) -> list[Frame]:
        """The session events that have arrived, as payloads."""
        return [frame["event"] for frame in self.frames if frame["type"] == "event" and session_id in (None, frame["sessionId"])]

    def list_lifecycle(self, command_id: str) -> list[Frame]:
        """What was told of one command, in order: its lifecycle events and its response."""
        return [
            frame
            for frame in self.frames
            if frame.get("id") == command_id or (frame.get("data") or {}).get("commandId") == command_id
        ]
