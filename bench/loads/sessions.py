"""New sessions over one connection, a fixed number in flight."""

import asyncio
import time
from typing import cast

from bench.loads import peer, requests
from bench.loads.report import report


class Starter(asyncio.Protocol):
    def __init__(self, in_flight: int, count: int) -> None:
        self.done: asyncio.Future[float] = asyncio.get_running_loop().create_future()
        self._requests = [requests.start_session(number) + b"\n" for number in range(count)]
        self._in_flight = in_flight
        self._unanswered = count
        self._unfinished = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._began = time.perf_counter()
        self._ask(self._in_flight)

    def data_received(self, data: bytes) -> None:
        *lines, self._unfinished = (self._unfinished + data).split(b"\n")
        answered = sum(b'"kind":"response"' in line for line in lines)
        if b'"ok":false' in data and not self.done.done():
            self.done.set_exception(RuntimeError(f"refused: {data!r}"))
        self._unanswered -= answered
        if not self._unanswered and not self.done.done():
            self.done.set_result(time.perf_counter() - self._began)
        self._ask(answered)

    def _ask(self, count: int) -> None:
        if count and self._requests:
            self._transport.write(b"".join(self._requests[:count]))
            del self._requests[:count]


async def load(socket: str, in_flight: int, count: int, report_path: str) -> float:
    loop = asyncio.get_running_loop()
    transport, starter = await loop.create_unix_connection(lambda: Starter(in_flight, count), socket)
    async with asyncio.timeout(100):
        elapsed = await starter.done
    transport.close()
    await report(socket, report_path)
    return count / elapsed


if __name__ == "__main__":
    peer.main(load)
