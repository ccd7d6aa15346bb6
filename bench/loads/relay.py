"""Relay's clients: an app that starts a program and watches it, a host that tells as fast as it can, and one that types keys."""

import asyncio
import itertools
import json
import re
import socket as sockets
import time
from typing import Any
from urllib.parse import quote

from bench.loads import peer, requests
from bench.loads.pi import PiLoadClient

WINDOW = 4_000
"""Events that a host has on the way at a time."""
LINE = "the quick brown fox jumps over the lazy dog, and back again, and once more 0123456789"
_UPGRADED = rb"HTTP/1.1 101[^\0]*\r\n\r\n"
_RUN = re.compile(rb'"run_id":"(sess_[^"]+)"')
_ACK = re.compile(rb'"last_seq":(\d+)')
_OWN = f"{time.time_ns():x}"
_numbers = itertools.count(1)


def flood_command(megabytes: int) -> str:
    """Lines of text, as programs print them."""
    lines = megabytes * 1_000_000 // (len(LINE) + 2)
    return f"yes '{LINE}' | head -n {lines}"


class RelayLoadApp(PiLoadClient):
    """Keeps what it hears until somebody has looked at it."""

    @classmethod
    async def join(cls, http: str, token: str) -> "RelayLoadApp":
        app = await cls.connect(http, f"ws/app?token={quote(token)}", until=_UPGRADED)
        app.news = asyncio.Event()
        app.received = bytearray()
        app.heard = app.keep
        return app

    news: asyncio.Event
    received: bytearray

    def data_received(self, data: bytes) -> None:
        if self._awaited is not None:
            super().data_received(data)
        else:
            self.keep(data)

    def keep(self, data: bytes) -> None:
        self.received += data
        self.news.set()

    async def wait_for(self, mark: bytes) -> float:
        async with asyncio.timeout(100):
            while mark not in self.received:
                self.news.clear()
                await self.news.wait()
        return time.perf_counter()

    async def start(self, host_id: str, command: str, cwd: str) -> str:
        request = {"request_id": f"{_OWN}-{next(_numbers)}", "host_id": host_id, "tool": "bench", "cmd": command, "cwd": cwd}
        self.send_command(json.dumps({"type": "rpc.run.start", "data": request}).encode())
        await self.wait_for(b'"rpc_type":"rpc.run.start"')
        found = _RUN.search(self.received)
        assert found, bytes(self.received)
        return found[1].decode()


async def _find_own_host(http: str, token: str) -> str:
    hosts = await _get(http, "/hosts", token)
    return str(next(host["id"] for host in hosts if host["is_this_daemon"]))


async def flood(http: str, token: str, megabytes: int, cwd: str) -> float:
    """Megabytes a second, from the start of the program until its end is journalled."""
    host_id = await _find_own_host(http, token)
    app = await RelayLoadApp.join(http, token)
    # Only the end is looked for: what the program prints is not read by anybody.
    app.send_command(b'{"type":"run.unsubscribe"}')
    began = time.perf_counter()
    run_id = await app.start(host_id, flood_command(megabytes), cwd)
    app.send_command(json.dumps({"type": "run.subscribe", "run_id": run_id, "data": {"include_output": False}}).encode())
    took = await app.wait_for(b'"type":"run.exited"') - began
    app.close()
    return megabytes / took


async def report(http: str, events: int) -> float:
    """Events a second, from the first to the acknowledgement of the last."""
    run_id = f"run-{_OWN}"
    host = await RelayLoadApp.connect(http, f"ws/host?host_id=h-{_OWN}&host_token=token-{_OWN}", until=_UPGRADED)
    acked, tail = 0, b""
    news = asyncio.Event()

    def heard(data: bytes) -> None:
        nonlocal acked, tail
        for found in _ACK.finditer(tail + data):
            acked = max(acked, int(found[1]))
        tail = data[-40:]
        news.set()

    host.keep = heard  # type: ignore[method-assign]
    head = f'{{"type":"run.output","ts":"2026-01-01T00:00:00Z","run_id":"{run_id}","seq":'
    body = f',"data":{{"stream":"stdout","text":"{LINE}\\r\\n"}}}}'
    began = time.perf_counter()
    started = f'{{"type":"run.started","run_id":"{run_id}","seq":1,"data":{{"tool":"bench","cwd":"/","command":"bench"}}}}'
    host.send_command(started.encode())
    sent = 1
    async with asyncio.timeout(100):
        while acked < events:
            if sent < events and sent - acked < WINDOW:
                last = min(events, sent + 500)
                host.send_command(*(f"{head}{seq}{body}".encode() for seq in range(sent + 1, last + 1)))
                sent = last
                await asyncio.sleep(0)
            else:
                news.clear()
                await news.wait()
    took = time.perf_counter() - began
    host.close()
    return events / took


async def fill(socket: str, events: int, cwd: str) -> None:
    """A session of so many events on a host whose hub is away."""
    control = await peer.PushLoadClient.connect(socket)
    session_id = await control.start_session(requests.start_session(peer.next_number()))
    ended = control.wait_for_last_frame()
    control.send_frame(requests.send(peer.next_number(), session_id, f"stream {events}"))
    async with asyncio.timeout(60):
        await ended
    control.close()


async def measure_drain(http: str, token: str, events: int) -> float:
    """Events a second, from the first that the hub has to the last."""
    first: float | None = None
    async with asyncio.timeout(110):
        while True:
            rows = await _get(http, "/runs", token)
            if rows and first is None:
                first = time.perf_counter()
            if rows and rows[0]["status"] != "running":
                break
            await asyncio.sleep(0.01)
    assert first is not None
    return events / (time.perf_counter() - first)


async def echo(http: str, token: str, keys: int, host_id: str, cwd: str) -> float:
    """Milliseconds from a key to its echo, in the middle."""
    app = await RelayLoadApp.join(http, token)
    async with asyncio.timeout(20):
        while not any(host["id"] == host_id and host["online"] for host in await _get(http, "/hosts", token)):
            await asyncio.sleep(0.05)
    run_id = await app.start(host_id, "cat", cwd)
    await app.wait_for(b'"run.ready"')
    took = []
    for _ in range(keys):
        app.received.clear()
        began = time.perf_counter()
        app.send_command(json.dumps({"type": "run.send_stdin", "run_id": run_id, "data": {"text": "x"}}).encode())
        took.append((await app.wait_for(b'"text":"x"') - began) * 1_000)
        await asyncio.sleep(0.06)  # a person's pace: keys that come faster share a piece
    app.send_command(json.dumps({"type": "run.stop", "run_id": run_id, "data": {"signal": "kill"}}).encode())
    await app.wait_for(b'"run.exited"')
    app.close()
    return sorted(took)[len(took) // 2]


async def find_free_port() -> int:
    with sockets.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


async def _get(http: str, path: str, token: str) -> Any:
    address = http.removeprefix("http://")
    host, _, port = address.partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(f"GET {path} HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {token}\r\nConnection: close\r\n\r\n".encode())
    answer = await reader.read()
    writer.close()
    return json.loads(answer.partition(b"\r\n\r\n")[2])


async def load(what: str, **arguments: Any) -> Any:
    work: Any = {
        "flood": flood,
        "report": report,
        "fill": fill,
        "drained": measure_drain,
        "echo": echo,
        "free_port": find_free_port,
    }[what]
    return await work(**arguments)


if __name__ == "__main__":
    peer.main(load)
