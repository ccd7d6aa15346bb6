"""Every transport is tried on both event loops; sockets get a folder with a short name, because their paths must be short."""

import asyncio
import base64
import functools
import inspect
import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any

import pytest
import uvloop

from switchtower.testing.memory.stream import RecordingReceiver
from switchtower.transports import http, upgrade
from switchtower.transports.stream import Stream

TEXT, BINARY, CONTINUATION, CLOSE, PING, PONG = 1, 2, 0, 8, 9, 10


def pytest_asyncio_loop_factories(config: pytest.Config, item: pytest.Item) -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    return {"uvloop": uvloop.new_event_loop, "asyncio": asyncio.SelectorEventLoop}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What never comes makes a test fail, not hang."""
    for item in items:
        if (
            isinstance(item, pytest.Function)
            and item.path.parent == Path(__file__).parent
            and inspect.iscoroutinefunction(item.obj)
        ):
            item.obj = _limit_time(item.obj)


def _limit_time(test: Callable[..., Awaitable[None]]) -> Callable[..., Awaitable[None]]:
    @functools.wraps(test)
    async def timed(*args: Any, **kwargs: Any) -> None:
        async with asyncio.timeout(60):
            await test(*args, **kwargs)

    return timed


@pytest.fixture
def folder() -> Iterator[Path]:
    made = Path(tempfile.mkdtemp(prefix="tower-"))
    yield made
    shutil.rmtree(made)


class RawWebSocket:
    """A client that says exactly what it is told to, mistakes included."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.status = 0
        self.headers: dict[str, str] = {}
        self.body = b""

    async def send_handshake(self, port: int, path: str, headers: dict[str, str]) -> None:
        asked = {
            "Host": f"127.0.0.1:{port}",
            "Upgrade": "websocket",
            "Connection": "Upgrade",
            "Sec-WebSocket-Version": "13",
            "Sec-WebSocket-Key": base64.b64encode(b"sixteen bytes ok").decode(),
        } | headers
        lines = [f"GET {path} HTTP/1.1", *(f"{name}: {value}" for name, value in asked.items() if value), "", ""]
        self.writer.write("\r\n".join(lines).encode())
        status, *answered = (await self.reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        self.status = int(status.split()[1])
        self.headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in answered if line)}
        if self.status != 101:
            self.body = await self.reader.read()

    async def leave(self) -> None:
        with suppress(AttributeError):  # asyncio's: a transport that was closed while it still wrote has no loop in the end
            self.writer.transport.abort()
        with suppress(OSError):
            await self.writer.wait_closed()

    def send_frame(self, opcode: int, payload: bytes = b"", *, fin: bool = True, masked: bool = True, reserved: int = 0) -> bytes:
        mask = os.urandom(4) if masked else b"\0\0\0\0"
        bit = 0x80 if masked else 0
        size = len(payload)
        if size < 126:
            length = bytes((bit | size,))
        elif size < 65_536:
            length = bytes((bit | 126,)) + size.to_bytes(2)
        else:
            length = bytes((bit | 127,)) + size.to_bytes(8)
        spread = (mask * (size // 4 + 1))[:size]
        body = (int.from_bytes(payload) ^ int.from_bytes(spread)).to_bytes(size)
        return bytes((0x80 * fin | reserved | opcode,)) + length + (mask if masked else b"") + body

    def send(self, opcode: int, payload: bytes = b"", *, fin: bool = True, masked: bool = True, reserved: int = 0) -> None:
        self.writer.write(self.send_frame(opcode, payload, fin=fin, masked=masked, reserved=reserved))

    async def receive(self) -> tuple[int, bytes]:
        first, size = await self.reader.readexactly(2)
        assert first & 0xF0 == 0x80, "a server sends whole messages and no extension's bits"
        assert size <= 125 or not first & 0x08, "RFC 6455, 5.5: a control frame is short"
        if size == 126:
            size = int.from_bytes(await self.reader.readexactly(2))
        elif size == 127:
            size = int.from_bytes(await self.reader.readexactly(8))
        return first & 0x0F, await self.reader.readexactly(size)

    async def read_close(self) -> tuple[int, str]:
        """The goodbye, past whatever comes before it."""
        while True:
            opcode, payload = await self.receive()
            if opcode == CLOSE:
                return int.from_bytes(payload[:2]), payload[2:].decode()


Dial = Callable[..., Awaitable[RawWebSocket]]


@pytest.fixture
async def connect_raw() -> AsyncIterator[Dial]:
    async with AsyncExitStack() as stack:

        async def connect(port: int, path: str = "/", **headers: str) -> RawWebSocket:
            client = RawWebSocket(*await asyncio.open_connection("127.0.0.1", port))
            stack.push_async_callback(client.leave)
            await client.send_handshake(port, path, {name.replace("_", "-"): value for name, value in headers.items()})
            return client

        yield connect


class CountingReceiver(RecordingReceiver):
    """Also knows how many reads there were."""

    def __init__(self) -> None:
        super().__init__()
        self.reads = 0

    def on_frames(self, frames: list[bytes]) -> None:
        self.reads += 1
        super().on_frames(frames)


class WebSocketServer:
    """A listener, and an inbox for each client in the order of their arrival."""

    listener: http.HttpListener

    def __init__(self) -> None:
        self.inboxes: list[CountingReceiver] = []
        self.requests: list[upgrade.UpgradeRequest] = []
        self.build: type[CountingReceiver] = CountingReceiver

    def accept(self, request: upgrade.UpgradeRequest) -> CountingReceiver | upgrade.UpgradeRefusal:
        self.requests.append(request)
        if request.path != "/ws":
            return upgrade.UpgradeRefusal(404, "no such door")
        if request.origin.token == "wrong":
            return upgrade.UpgradeRefusal(401, "a token is needed")
        self.inboxes.append(self.build())
        return self.inboxes[-1]

    def start_failing(self) -> None:
        class Failing(CountingReceiver):
            def on_connected(self, stream: Stream) -> None:
                raise RuntimeError("a bug of ours")

        self.build = Failing


Serve = Callable[..., Awaitable[WebSocketServer]]


async def serve_page(scope: Any, receive: Any, send: Any) -> None:
    assert scope["type"] == "http"
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"5")]})
    await send({"type": "http.response.body", "body": b"hello"})


@pytest.fixture
async def serve() -> AsyncIterator[Serve]:
    async with AsyncExitStack() as stack:

        async def start(app: Any = serve_page, host: str = "127.0.0.1", port: int = 0, **options: Any) -> WebSocketServer:
            server = WebSocketServer()
            limits = {"max_message_bytes": 100_000, "output_limit_bytes": 100_000} | options
            server.listener = await http.serve(app, host, port, server.accept, **limits)
            stack.push_async_callback(server.listener.close, grace=0)
            return server

        yield start
