"""Frames to and from a daemon, for test clients of any protocol: over a Unix socket by lines, or over a WebSocket."""

import asyncio
import base64
from collections import deque
from pathlib import Path
from typing import Protocol
from urllib.parse import quote, urlsplit

_READ = 65_536
_MASK = b"\x5a\xc3\x0f\x99"
_TEXT, _CLOSE, _PING, _PONG = 1, 8, 9, 10


class ClientWire(Protocol):
    """Frames to and from the daemon, without their delimiters."""

    def send(self, *frames: bytes) -> None: ...

    def send_bytes(self, data: bytes) -> None:
        """Sends bytes below all framing, exactly as given."""
        ...

    async def drain(self) -> None: ...

    async def receive(self) -> bytes:
        """Raises `EOFError` when the daemon has closed the connection."""
        ...

    def abort(self) -> None: ...


class SocketWire:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self._lines: deque[bytes] = deque()
        self._unfinished = b""

    @classmethod
    async def open(cls, socket: Path | str) -> "SocketWire":
        return cls(*await asyncio.open_unix_connection(str(socket)))

    def send(self, *frames: bytes) -> None:
        self.writer.write(b"".join(frame + b"\n" for frame in frames))

    def send_bytes(self, data: bytes) -> None:
        self.writer.write(data)

    async def drain(self) -> None:
        await self.writer.drain()

    async def receive(self) -> bytes:
        while not self._lines:
            data = await self.reader.read(_READ)
            if not data:
                raise EOFError("the daemon closed the connection")
            *lines, self._unfinished = (self._unfinished + data).split(b"\n")
            self._lines.extend(lines)
        return self._lines.popleft()

    def abort(self) -> None:
        self.writer.transport.abort()


class UpgradeRefused(Exception):
    def __init__(self, status: int) -> None:
        super().__init__(f"the upgrade was answered with {status}")
        self.status = status


class WebSocketWire:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self.close_code: int | None = None
        """The code with which the daemon closed the connection."""
        self._buffer = b""
        self._position = 0

    @classmethod
    async def open(cls, http: str, token: str | None, path: str = "/ws/push") -> "WebSocketWire":
        """`http` is an address of `endpoints.json`. Raises `UpgradeRefused`."""
        address = urlsplit(http)
        reader, writer = await asyncio.open_connection(address.hostname, address.port)
        query = "" if token is None else f"?token={quote(token)}"
        key = base64.b64encode(b"sixteen bytes ok").decode()
        writer.write(
            f"GET {path}{query} HTTP/1.1\r\nHost: {address.netloc}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            f"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key}\r\n\r\n".encode()
        )
        head = await reader.readuntil(b"\r\n\r\n")
        status = int(head.split(None, 2)[1])
        if status != 101:
            writer.transport.abort()
            raise UpgradeRefused(status)
        return cls(reader, writer)

    def send(self, *frames: bytes) -> None:
        self.writer.write(b"".join(encode_websocket_frame(frame) for frame in frames))

    def send_bytes(self, data: bytes) -> None:
        self.writer.write(data)

    async def drain(self) -> None:
        await self.writer.drain()

    async def receive(self) -> bytes:
        while True:
            opcode, payload = self._read_message() or (None, b"")
            if opcode == _TEXT:
                return payload
            if opcode is None:
                data = await self.reader.read(_READ)
                if not data:
                    raise EOFError("the daemon closed the connection")
                self._buffer, self._position = self._buffer[self._position :] + data, 0
            elif opcode == _PING:
                self.writer.write(encode_websocket_frame(payload, opcode=_PONG))
            elif opcode == _CLOSE:
                self.close_code = int.from_bytes(payload[:2])
                self.writer.write(encode_websocket_frame(payload[:2], opcode=_CLOSE))
                raise EOFError(f"the daemon closed the connection with {self.close_code}")

    def _read_message(self) -> tuple[int, bytes] | None:
        """Returns the next message, if all of it has arrived. A server's message is not masked and, from this daemon, not
        fragmented.
        """
        buffer, start = self._buffer, self._position
        if len(buffer) < start + 2:
            return None
        opcode, size, body = buffer[start] & 0x0F, buffer[start + 1], start + 2
        if size >= 126:
            body += 2 if size == 126 else 8
            size = int.from_bytes(buffer[start + 2 : body])
        if len(buffer) < body + size:
            return None
        self._position = body + size
        return opcode, buffer[body : self._position]

    def abort(self) -> None:
        self.writer.transport.abort()


def encode_websocket_frame(payload: bytes, *, opcode: int = _TEXT) -> bytes:
    """Encodes one whole masked message."""
    size = len(payload)
    if size < 126:
        length = bytes((0x80 | size,))
    elif size < 65_536:
        length = b"\xfe" + size.to_bytes(2)
    else:
        length = b"\xff" + size.to_bytes(8)
    mask = (_MASK * (size // 4 + 1))[:size]
    masked = (int.from_bytes(payload) ^ int.from_bytes(mask)).to_bytes(size)
    return bytes((0x80 | opcode,)) + length + _MASK + masked
