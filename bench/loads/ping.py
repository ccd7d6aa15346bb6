"""Pings over one connection, a fixed number in flight. What is answered is asked again at once."""

import asyncio
import time
from typing import cast

from bench.loads import peer, requests


class Pinger(asyncio.Protocol):
    def __init__(self, in_flight: int, seconds: float) -> None:
        self.done: asyncio.Future[float] = asyncio.get_running_loop().create_future()
        """Answers a second."""
        self._batch = [requests.request(number, "ping", {}) + b"\n" for number in range(in_flight)]
        self._seconds = seconds
        self._answers = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._began = time.perf_counter()
        self._transport.write(b"".join(self._batch))

    def data_received(self, data: bytes) -> None:
        answered = data.count(b"\n")
        self._answers += answered
        elapsed = time.perf_counter() - self._began
        if elapsed < self._seconds:
            self._transport.write(b"".join(self._batch[:answered]))
        elif not self.done.done():
            self.done.set_result(self._answers / elapsed)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.done.done():
            self.done.set_exception(ConnectionError("the server went away"))


async def load(socket: str, in_flight: int, seconds: float) -> float:
    loop = asyncio.get_running_loop()
    transport, pinger = await loop.create_unix_connection(lambda: Pinger(in_flight, seconds), socket)
    rate = await pinger.done
    transport.close()
    return rate


if __name__ == "__main__":
    peer.main(load)
