"""Somebody at the other end who says exactly what it is told to, mistakes included."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from switchtower.cluster.mesh import frames
from switchtower.cluster.mesh.mesh import parse_address
from switchtower.cluster.mesh.ports import MeshPeer
from switchtower.cluster.mesh.tls import MeshKey


class RawMeshPeer:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    def send_bytes(self, *messages: Any) -> None:
        self.writer.write(b"".join(frames.add_length_prefix(msgspec.msgpack.encode(message)) for message in messages))

    def send_hello(self, peer: MeshPeer, *, protocol: int = frames.PROTOCOL, **more: Any) -> None:
        self.send_bytes({"protocol": protocol, "peer": msgspec.to_builtins(peer) | more, "window": 1_000, **more})

    async def receive(self) -> Any:
        size = int.from_bytes(await self.reader.readexactly(4))
        return msgspec.msgpack.decode(await self.reader.readexactly(size))

    async def read_to_end(self) -> bytes:
        """All that was said until then."""
        said = b""
        try:
            while data := await self.reader.read(65_536):
                said += data
        except (ConnectionError, ssl.SSLError):
            pass
        return said


@asynccontextmanager
async def dial(address: str, context: ssl.SSLContext | None) -> AsyncIterator[RawMeshPeer]:
    host, port = parse_address(address)
    reader, writer = await asyncio.open_connection(host, port, ssl=context, server_hostname="" if context else None, limit=2**26)
    try:
        yield RawMeshPeer(reader, writer)
    finally:
        writer.transport.abort()


@asynccontextmanager
async def open_listener(key: MeshKey) -> "AsyncIterator[tuple[str, asyncio.Queue[RawMeshPeer]]]":
    """An address, and whoever comes there."""
    came: asyncio.Queue[RawMeshPeer] = asyncio.Queue()
    writers: list[asyncio.StreamWriter] = []

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        came.put_nowait(RawMeshPeer(reader, writer))

    server = await asyncio.start_server(accept, "127.0.0.1", 0, ssl=key.create_server_context())
    try:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}", came
    finally:
        server.close()
        for writer in writers:
            writer.transport.abort()
        await server.wait_closed()
