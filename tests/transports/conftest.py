"""Every transport is tried on both event loops; sockets get a folder with a short name, because their paths must be short."""

import asyncio
import base64
import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
import uvloop

TEXT, BINARY, CONTINUATION, CLOSE, PING, PONG = 1, 2, 0, 8, 9, 10


def pytest_asyncio_loop_factories(config: pytest.Config, item: pytest.Item) -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    return {"uvloop": uvloop.new_event_loop, "asyncio": asyncio.SelectorEventLoop}


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

    async def handshake(self, port: int, path: str, headers: dict[str, str]) -> None:
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

    def frame(self, opcode: int, payload: bytes = b"", *, fin: bool = True, masked: bool = True, reserved: int = 0) -> bytes:
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
        self.writer.write(self.frame(opcode, payload, fin=fin, masked=masked, reserved=reserved))

    async def receive(self) -> tuple[int, bytes]:
        first, size = await self.reader.readexactly(2)
        assert first & 0xF0 == 0x80, "a server sends whole messages and no extension's bits"
        if size == 126:
            size = int.from_bytes(await self.reader.readexactly(2))
        elif size == 127:
            size = int.from_bytes(await self.reader.readexactly(8))
        return first & 0x0F, await self.reader.readexactly(size)

    async def closed_with(self) -> tuple[int, str]:
        """The goodbye, past whatever comes before it."""
        while True:
            opcode, payload = await self.receive()
            if opcode == CLOSE:
                return int.from_bytes(payload[:2]), payload[2:].decode()


Dial = Callable[..., Awaitable[RawWebSocket]]


@pytest.fixture
async def dial() -> AsyncIterator[Dial]:
    async with AsyncExitStack() as stack:

        async def connect(port: int, path: str = "/", **headers: str) -> RawWebSocket:
            client = RawWebSocket(*await asyncio.open_connection("127.0.0.1", port))
            stack.callback(client.writer.transport.abort)
            async with asyncio.timeout(5):
                await client.handshake(port, path, {name.replace("_", "-"): value for name, value in headers.items()})
            return client

        yield connect
