"""Pi commands over WebSockets: so many connections, so many in flight on each. What is answered is asked again at once.

Frames are counted by what they say in clear, never parsed, so that the load costs the server's core next to nothing.
"""

import asyncio
import base64
import itertools
import re
import time
from typing import Any, Self, cast
from urllib.parse import urlsplit

from bench.loads import peer

RESPONSE = b'{"type":"response",'
UPDATE = b'"type":"text_delta"'
AGENT_END = b'"type":"agent_end",'
MARK = len(RESPONSE)
assert len(UPDATE) == len(AGENT_END) == MARK, "a mark is never counted twice, nor missed"
_SESSION = re.compile(rb'"sessionId":"([A-Za-z0-9_.-]+)"')
_OWN = f"{time.time_ns():x}-"
_numbers = itertools.count(1)


class PiLoadClient(asyncio.Protocol):
    def __init__(self) -> None:
        self.bytes_received = 0
        self._transport: asyncio.Transport
        self._tail = b""
        self._awaited: tuple[re.Pattern[bytes], asyncio.Future[bytes]] | None = None
        self._buffer = b""
        self.heard: Any = None
        """Called with how many responses a read brought."""

    @classmethod
    async def connect(cls, url: str, query: str = "", *, until: bytes = rb'"server_ready"[^\0]*?}}') -> Self:
        address = urlsplit(url)
        _, made = await asyncio.get_running_loop().create_connection(cls, address.hostname or "", address.port or 80)
        key = base64.b64encode(bytes(16)).decode()
        upgrade = (
            f"GET /{query} HTTP/1.1\r\nHost: {address.netloc}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            f"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key}\r\n\r\n"
        )
        await made.exchange(upgrade.encode(), re.compile(until))
        return made

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self.bytes_received += len(data)
        if self._awaited is not None:
            self._buffer += data
            if found := self._awaited[0].search(self._buffer):
                self._awaited[1].set_result(found[0])
                self._awaited, self._buffer = None, b""
            return
        if self.heard is not None:
            # What is searched for may lie across two reads; all of it is of one length.
            self.heard(self._tail + data)
            self._tail = data[-(MARK - 1) :]

    async def exchange(self, data: bytes, until: re.Pattern[bytes]) -> bytes:
        answered: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._awaited = until, answered
        self._transport.write(data)
        async with asyncio.timeout(30):
            return await answered

    async def ask(self, type_: str, fields: str = "") -> bytes:
        until = re.compile(rb'{"type":"response","command":"' + type_.encode() + rb'"[^\n]*?"success":(true|false)[^\0]*?}')
        return await self.exchange(frame_message(encode_command(type_, fields)), until)

    async def create_session(self, cwd: str) -> str:
        answer = await self.ask("create_session", f',"cwd":"{cwd}"')
        found = _SESSION.search(answer)
        assert found, answer
        return found[1].decode()

    def send_command(self, *frames: bytes) -> None:
        self._transport.write(b"".join(frame_message(frame) for frame in frames))

    def close(self) -> None:
        self._transport.close()


def encode_command(type_: str, fields: str = "") -> bytes:
    # An id stands for one command for as long as the server lives, so each load has ids of its own.
    return f'{{"type":"{type_}","id":"{_OWN}{next(_numbers)}"{fields}}}'.encode()


def frame_message(frame: bytes) -> bytes:
    # RFC 6455: a client masks; with a key of zeros the text stays as it is.
    length = bytes((0x80 | len(frame),)) if len(frame) < 126 else b"\xfe" + len(frame).to_bytes(2, "big")
    return b"\x81" + length + bytes(4) + frame


async def measure_commands(
    url: str, type_: str, connections: int, in_flight: int, seconds: float, cwd: str, idle: int = 0, query: str = ""
) -> float:
    """Answers a second, all connections together. `idle` others are connected and silent."""
    silent = [await PiLoadClient.connect(url, query) for _ in range(idle)]
    peers = [await PiLoadClient.connect(url, query) for _ in range(connections)]
    fields = f',"sessionId":"{await peers[0].create_session(cwd)}"' if type_.startswith("get_") else ""
    if type_ == "create_session":
        fields = f',"cwd":"{cwd}"'
    answers, ended = 0, asyncio.get_running_loop().create_future()
    began = time.perf_counter()

    def hearing(one: PiLoadClient) -> Any:
        def heard(data: bytes) -> None:
            nonlocal answers
            answered = data.count(RESPONSE)
            if not answered:
                return
            answers += answered
            if time.perf_counter() - began < seconds:
                one.send_command(*(encode_command(type_, fields) for _ in range(answered)))
            elif not ended.done():
                ended.set_result(None)

        return heard

    for one in peers:
        one.heard = hearing(one)
        one.send_command(*(encode_command(type_, fields) for _ in range(in_flight)))
    async with asyncio.timeout(seconds + 60):
        await ended
    took = time.perf_counter() - began
    for one in [*peers, *silent]:
        one.close()
    return answers / took


async def measure_streaming(url: str, subscribers: int, order: str, deltas: int, cwd: str) -> dict[str, Any]:
    """One prompt's stream to so many subscribers: updates a second, all together, and bytes for each."""
    first = await PiLoadClient.connect(url, "?lifecycle=off")
    session = f',"sessionId":"{await first.create_session(cwd)}"'
    peers = [first, *[await PiLoadClient.connect(url, "?lifecycle=off") for _ in range(subscribers - 1)]]
    ends = []
    for one in peers:
        await one.ask("switch_session", session)
        end: asyncio.Future[tuple[float, int]] = asyncio.get_running_loop().create_future()
        one.heard = _wait_for_end(end)
        ends.append(end)
    began = time.perf_counter()
    first.send_command(encode_command("prompt", f'{session},"message":"{order}"'))
    async with asyncio.timeout(100):
        finished = await asyncio.gather(*ends)
    assert {updates for _, updates in finished} == {deltas}, f"{finished} of {deltas} updates arrived"
    took = max(ended for ended, _ in finished) - began
    return {"updates_per_second": subscribers * deltas / took, "bytes": peers[-1].bytes_received}


def _wait_for_end(end: "asyncio.Future[tuple[float, int]]") -> Any:
    updates, tail = 0, b""

    def heard(data: bytes) -> None:
        nonlocal updates, tail
        updates += data.count(UPDATE)
        if AGENT_END in tail + data and not end.done():
            end.set_result((time.perf_counter(), updates))
        tail = data[-len(AGENT_END) :]

    return heard


if __name__ == "__main__":
    import sys

    import msgspec

    arguments = msgspec.json.decode(sys.argv[1])
    peer.main(measure_streaming if "subscribers" in arguments else measure_commands)
