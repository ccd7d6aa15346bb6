"""One client connection, over the Unix socket or a WebSocket. First it asks and waits for answers; then it only watches.

Watching costs next to nothing: bytes are counted and searched for the frame that ends the stream, never parsed. Frames of
a WebSocket carry the same JSON in clear, so nothing here depends on the transport but the first connection.
"""

import asyncio
import base64
import itertools
import re
import time
from typing import Any, Self, cast
from urllib.parse import urlsplit

LAST = b'"run_complete"'
_REQUEST = re.compile(rb'"requestId":"[^"]+')
_SESSION = re.compile(rb'"sessionId":"(sess_[^"]+)"')
_numbers = itertools.count(1)


class PushLoadClient(asyncio.Protocol):
    def __init__(self) -> None:
        self.bytes_received = 0
        self.kept: list[bytes] | None = None
        """What was received while watching, when somebody wants to count it afterwards."""
        self._transport: asyncio.Transport
        self._is_websocket = False
        self._buffer = b""
        self._awaited: tuple[re.Pattern[bytes], asyncio.Future[re.Match[bytes]]] | None = None
        self._last: asyncio.Future[float] | None = None
        self._tail = b""

    @classmethod
    async def connect(cls, socket: str | None = None, http: str | None = None, token: str = "") -> Self:
        loop = asyncio.get_running_loop()
        if socket is not None:
            return (await loop.create_unix_connection(cls, socket))[1]
        address = urlsplit(http or "")
        _, peer = await loop.create_connection(cls, address.hostname or "", address.port or 80)
        key = base64.b64encode(bytes(16)).decode()
        upgrade = (
            f"GET /ws/push?token={token} HTTP/1.1\r\nHost: {address.netloc}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            f"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key}\r\n\r\n"
        )
        answer = await peer._exchange(upgrade.encode(), re.compile(rb"HTTP/1.1 (\d+)[^\0]*\r\n\r\n"))
        assert answer[1] == b"101", answer[0]
        peer._is_websocket = True
        return peer

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        if self._last is not None:
            self.bytes_received += len(data)
            if self.kept is not None:
                self.kept.append(data)
            if (LAST in data or LAST in self._tail + data[: len(LAST)]) and not self._last.done():
                self._last.set_result(time.perf_counter())
            self._tail = data[-len(LAST) :]
            return
        self._buffer += data
        if self._awaited is not None and (found := self._awaited[0].search(self._buffer)):
            self._awaited[1].set_result(found)
            self._awaited = None
            self._buffer = b""

    def connection_lost(self, exc: Exception | None) -> None:
        if self._last is not None and not self._last.done():
            self._last.set_exception(ConnectionError("the server went away"))

    async def ask(self, request: bytes) -> bytes:
        """The answer as it came. Refusals are not expected here."""
        named = _REQUEST.search(request)
        assert named, "a request has an id"
        answer = await self._exchange(self._frame_message(request), re.compile(named[0] + rb'"[^\n]*"error":(null)?[^\n]*}'))
        assert answer[1], answer[0]
        return answer[0]

    async def start_session(self, start: bytes) -> str:
        found = _SESSION.search(await self.ask(start))
        assert found, "a started session has an id"
        return found[1].decode()

    def wait_for_last_frame(self, *, keep: bool = False) -> "asyncio.Future[float]":
        """From now on only watches; the moment at which the last frame was there."""
        self.kept = [] if keep else None
        self._last = asyncio.get_running_loop().create_future()
        return self._last

    def send_frame(self, frame: bytes) -> None:
        self._transport.write(self._frame_message(frame))

    def close(self) -> None:
        self._transport.close()

    def _frame_message(self, frame: bytes) -> bytes:
        if not self._is_websocket:
            return frame + b"\n"
        # RFC 6455: a client masks; with a key of zeros the text stays as it is.
        length = bytes((0x80 | len(frame),)) if len(frame) < 126 else b"\xfe" + len(frame).to_bytes(2, "big")
        return b"\x81" + length + bytes(4) + frame

    async def _exchange(self, data: bytes, until: re.Pattern[bytes]) -> re.Match[bytes]:
        answered: asyncio.Future[re.Match[bytes]] = asyncio.get_running_loop().create_future()
        self._awaited = until, answered
        self._transport.write(data)
        async with asyncio.timeout(30):
            return await answered


def next_number() -> int:
    return next(_numbers)


def main(load: Any) -> None:
    """Runs a load with the arguments of the command line, and prints what it found out."""
    import sys

    import msgspec
    import uvloop

    arguments = msgspec.json.decode(sys.argv[1])
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        found = runner.run(load(**arguments))
    sys.stdout.buffer.write(msgspec.json.encode(found))
