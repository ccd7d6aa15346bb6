"""Requests whose lines end in a bare line feed are refused: a proxy in front may read them otherwise than we do."""

import asyncio

import pytest
from tests.relay.stage import TIMEOUT, RelayNetwork
from tests.relay.stage import relay_network as relay_network

WHOLE = b"GET /health HTTP/1.1\r\nHost: localhost\r\nX-More: a\tb\r\n\r\n"
BARE = {
    "every line": b"GET /health HTTP/1.1\nHost: localhost\n\n",
    "the request line": b"GET /health HTTP/1.1\nHost: localhost\r\n\r\n",
    "a header": b"GET /health HTTP/1.1\r\nHost: localhost\nX-More: 1\r\n\r\n",
    "the blank line": b"GET /health HTTP/1.1\r\nHost: localhost\r\n\n",
    "a hidden header": b"GET /health HTTP/1.1\r\nHost: localhost\r\nX-A: b\nContent-Length: 40\r\n\r\n",
    "trailers": (
        b"POST /auth/login HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
        b"2\r\n{}\r\n0\r\nX-T: 1\nX-U: 2\r\n\r\n"
    ),
    "an upgrade": (
        b"GET /ws/app HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Version: 13\nSec-WebSocket-Key: c2l4dGVlbiBieXRlcyBvaw==\r\n\r\n"
    ),
}


async def ask(port: int, *requests: bytes, piece: int = 65_536) -> list[int]:
    """The status of the answer to each request, one after the other on one connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    statuses = []
    try:
        async with asyncio.timeout(TIMEOUT):
            for request in requests:
                for start in range(0, len(request), piece):
                    writer.write(request[start : start + piece])
                    await writer.drain()
                head = await reader.readuntil(b"\r\n\r\n")
                statuses.append(int(head.split()[1]))
                length = head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]
                await reader.readexactly(int(length or b"0"))
    finally:
        writer.transport.abort()
    return statuses


@pytest.mark.parametrize("piece", [65_536, 1], ids=["at once", "byte by byte"])
@pytest.mark.parametrize("where", sorted(BARE))
async def test_a_bare_line_feed_ends_no_line(relay_network: RelayNetwork, where: str, piece: int) -> None:
    hub = await relay_network.open_hub()
    port = int(hub.url.rpartition(":")[2])
    assert await ask(port, BARE[where], piece=piece) == [400]
    # Also behind another request on the same connection.
    assert await ask(port, WHOLE, BARE[where], piece=piece) == [200, 400]


@pytest.mark.parametrize("piece", [65_536, 1], ids=["at once", "byte by byte"])
async def test_whole_line_ends_are_read(relay_network: RelayNetwork, piece: int) -> None:
    hub = await relay_network.open_hub()
    assert await ask(int(hub.url.rpartition(":")[2]), WHOLE, WHOLE, piece=piece) == [200, 200]
