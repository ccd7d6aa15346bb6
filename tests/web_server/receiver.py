"""A server somewhere else that daemons send to: keeps what it gets, and answers as told."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

RECEIVER_TIMEOUT = 60.0


class CapturedRequest(NamedTuple):
    method: str
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class WebhookReceiver:
    def __init__(self) -> None:
        self.got: list[CapturedRequest] = []
        self.answers: list[str] = []
        """The next answers' status lines with their headers; 200 when there is none left."""
        self.silent = False
        """Takes everything and answers nothing."""
        self.port = 0
        self._news = asyncio.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def wait_for_requests(self, count: int = 1) -> list[CapturedRequest]:
        """So many requests, once they are there."""
        async with asyncio.timeout(RECEIVER_TIMEOUT):
            while len(self.got) < count:
                self._news.clear()
                await self._news.wait()
        return self.got[:count]

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            first, *lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").strip().split("\r\n")
            headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
            body = await reader.readexactly(int(headers.get("content-length", "0")))
            method, path, _ = first.split(" ")
            self.got.append(CapturedRequest(method, path, headers, body))
            self._news.set()
            if self.silent:
                await reader.read()
                return
            status = self.answers.pop(0) if self.answers else "200 OK"
            writer.write(f"HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".encode())
            await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


@asynccontextmanager
async def open_receiver() -> AsyncIterator[WebhookReceiver]:
    receiver = WebhookReceiver()
    server = await asyncio.start_server(receiver.serve, "127.0.0.1", 0)
    receiver.port = server.sockets[0].getsockname()[1]
    try:
        yield receiver
    finally:
        server.close()
