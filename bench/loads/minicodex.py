"""MiniCodex clients: how long from `hello` to the snapshot, and one session's stream to many sockets."""

import asyncio
import re
import time
from typing import Any
from urllib.parse import quote

from bench.loads import peer
from bench.loads.pi import PiLoadClient, frame_message

TEXT = b'{"type":"assistant_text",'
STATUS = b'"status":"finished"'
_SESSION = re.compile(rb'"session_id":"([A-Za-z0-9_.-]+)"')
_SNAPSHOT = re.compile(rb'"snapshot"[^\0]*"event_id":(\d+)[^\0]{0,200}$')
HELLO = b'{"type":"hello","v":"1.0.0"}'


class MiniCodexLoadClient(PiLoadClient):
    """Says hello when it is told to; what arrives afterwards is only counted."""

    def count_seen(self) -> None:
        """From now on nothing is kept."""
        self.texts = 0
        self.finished: asyncio.Future[float] = asyncio.get_running_loop().create_future()
        tail = b""

        def heard(data: bytes) -> None:
            nonlocal tail
            self.texts += (tail + data).count(TEXT) - tail.count(TEXT)
            if STATUS in tail + data and not self.finished.done():
                self.finished.set_result(time.perf_counter())
            tail = data[-(len(TEXT) - 1) :]

        self.heard = heard

    def data_received(self, data: bytes) -> None:
        self.bytes_received += len(data)
        if self._awaited is not None:
            self._buffer += data
            if found := self._awaited[0].search(self._buffer):
                self._awaited[1].set_result(found[0])
                self._awaited, self._buffer = None, b""
        elif self.heard is not None:
            self.heard(data)


async def connect_client(http: str, token: str, query: str) -> MiniCodexLoadClient:
    return await MiniCodexLoadClient.connect(
        http, f"ws/minicodex?token={quote(token)}{query}", until=rb"HTTP/1.1 101[^\0]*\r\n\r\n"
    )


async def measure_greetings(http: str, token: str, cwd: str, order: str, times: int) -> dict[str, Any]:
    """Milliseconds from `hello` to the whole snapshot of a session in which this order was carried out; and its bytes."""
    first = await connect_client(http, token, f"&cwd={quote(cwd)}")
    session = _SESSION.search(await first.exchange(frame_message(HELLO), _SNAPSHOT))
    assert session, "welcome names the session"
    first.count_seen()
    first.send_command(b'{"type":"send","text":"%b"}' % order.encode())
    async with asyncio.timeout(60):
        await first.finished
    took, size = [], 0
    for _ in range(times):
        client = await connect_client(http, token, f"&session_id={session[1].decode()}")
        before = client.bytes_received
        began = time.perf_counter()
        await client.exchange(frame_message(HELLO), _SNAPSHOT)
        took.append((time.perf_counter() - began) * 1_000)
        size = client.bytes_received - before
        client.close()
    return {"ms": sorted(took)[len(took) // 2], "bytes": size}


async def measure_fanout(http: str, token: str, cwd: str, order: str, deltas: int, subscribers: int) -> dict[str, Any]:
    first = await connect_client(http, token, f"&cwd={quote(cwd)}")
    session = _SESSION.search(await first.exchange(frame_message(HELLO), _SNAPSHOT))
    assert session, "welcome names the session"
    clients = [first]
    for _ in range(subscribers - 1):
        other = await connect_client(http, token, f"&session_id={session[1].decode()}")
        await other.exchange(frame_message(HELLO), _SNAPSHOT)
        clients.append(other)
    for client in clients:
        client.count_seen()
    began = time.perf_counter()
    first.send_command(b'{"type":"send","text":"%b"}' % order.encode())
    async with asyncio.timeout(100):
        ended = max(await asyncio.gather(*(client.finished for client in clients)))
    assert {client.texts for client in clients} == {deltas}, f"{[client.texts for client in clients][:5]} of {deltas}"
    return {"deliveries_per_second": subscribers * deltas / (ended - began)}


if __name__ == "__main__":
    import sys

    import msgspec

    arguments = msgspec.json.decode(sys.argv[1])
    peer.main(measure_fanout if "subscribers" in arguments else measure_greetings)
