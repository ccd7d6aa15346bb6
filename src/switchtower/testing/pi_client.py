"""A pi client for tests: sends what the test sends, over any wire, and keeps every frame in the order of arrival.

It reads only when the test asks for something, so a test decides when a client is slow. It never reconnects, and it tolerates
no error.
"""

import asyncio
import itertools
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any

import msgspec

from switchtower.testing.wire import ClientWire

TIMEOUT = 60.0
"""Seconds that any operation may take before it times out."""

Frame = dict[str, Any]


class CommandFailed(Exception):
    """The server responded with an error where the test expected success."""

    def __init__(self, response: Frame) -> None:
        super().__init__(response.get("error"))
        self.response = response
        self.error = str(response.get("error"))


class PiClient:
    def __init__(self, wire: ClientWire, *, timeout: float = TIMEOUT) -> None:
        self.wire = wire
        self.frames: list[Frame] = []
        """All frames that have arrived, in order."""
        self.sizes: list[int] = []
        """The number of bytes of each frame."""
        self._timeout = timeout
        self._numbers = itertools.count(1)
        self._seen = 0
        """The number of frames that `next` has passed."""

    async def __aenter__(self) -> "PiClient":
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.wire.abort()

    # Sending

    def make_id(self) -> str:
        return f"c{id(self):x}-{next(self._numbers)}"

    async def send_frames(self, *frames: bytes | Mapping[str, object]) -> None:
        """Sends without waiting for a response; bytes are sent unchanged."""
        self.wire.send(*(frame if isinstance(frame, bytes) else msgspec.json.encode(frame) for frame in frames))
        async with asyncio.timeout(self._timeout):
            await self.wire.drain()

    async def begin(self, type_: str, **fields: object) -> str:
        """Sends a command without waiting for its response; returns its id."""
        command = {"type": type_, "id": self.make_id(), **fields}
        await self.send_frames(command)
        return str(command["id"])

    async def request(self, type_: str, **fields: object) -> Frame:
        """Sends a command; returns its response, whether or not it succeeded."""
        return await self.wait_for_response(await self.begin(type_, **fields))

    async def execute(self, type_: str, **fields: object) -> Any:
        """Sends a command that is expected to succeed; returns its data."""
        response = await self.request(type_, **fields)
        if not response["success"]:
            raise CommandFailed(response)
        return response.get("data")

    # Receiving

    async def receive(self) -> Frame:
        """Returns the next frame as it arrives."""
        async with asyncio.timeout(self._timeout):
            raw = await self.wire.receive()
        frame: Frame = msgspec.json.decode(raw)
        self.frames.append(frame)
        self.sizes.append(len(raw))
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

    async def wait_for_response(self, id_: str) -> Frame:
        return await self.wait_for(lambda frame: frame["type"] == "response" and frame.get("id") == id_)

    async def next_event(self, type_: str) -> Frame:
        """Returns the payload of the next session event of this type."""
        frame = await self.next(lambda frame: frame["type"] == "event" and frame["event"]["type"] == type_)
        event: Frame = frame["event"]
        return event

    def list_events(self, session_id: str | None = None) -> list[Frame]:
        """Returns the session events that have arrived, as payloads."""
        return [frame["event"] for frame in self.frames if frame["type"] == "event" and session_id in (None, frame["sessionId"])]

    def list_lifecycle(self, command_id: str) -> list[Frame]:
        """Returns all frames of one command, in order: its lifecycle events and its response."""
        return [
            frame
            for frame in self.frames
            if frame.get("id") == command_id or (frame.get("data") or {}).get("commandId") == command_id
        ]
