"""A hub and its hosts as processes of their own, each on a home of its own; a wire between them that can be cut; and who looks
at them from outside: apps, hosts that are made up, HTTP, and what their journals say when read directly."""

import asyncio
import contextlib
import json
import os
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
import uuid
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.conformance import daemons as conformance_daemons
from tests.crash.tower_process import DaemonProcess
from tests.warm import processes

from switchtower.core import codec
from switchtower.core.ports import journal
from switchtower.protocols.relay import wire_values
from switchtower.stores.sqlite.journal import SqliteReader
from switchtower.testing.push_client import PushClient
from switchtower.testing.relay_client import RelayApp, RelayHost, RelayHttp

TIMEOUT = 60.0
"""Longer than anything needs: two cores are shared with other tests."""
LOOK_AGAIN = 0.02
TOKEN = "token-of-{}-0123456789"


async def wait_until(condition: Callable[[], Any], timeout: float = TIMEOUT) -> Any:
    """Looks from outside, again and again, at what no event tells. The first answer that is true."""
    async with asyncio.timeout(timeout):
        while True:
            found = condition()
            if asyncio.iscoroutine(found):
                found = await found
            if found:
                return found
            await asyncio.sleep(LOOK_AGAIN)


class DaemonView:
    """A daemon's home, as it is seen from outside."""

    def __init__(self, home: Path) -> None:
        self.home = home

    @property
    def endpoints(self) -> dict[str, Any]:
        return dict(msgspec.json.decode((self.home / "run" / "endpoints.json").read_bytes()))

    @property
    def url(self) -> str:
        return str(self.endpoints["http"])

    @property
    def token(self) -> str:
        return str(self.endpoints["token"])

    @property
    def http(self) -> RelayHttp:
        return RelayHttp(self.url, self.token)

    async def connect_app(self, token: str | None = None, **options: Any) -> RelayApp:
        return await RelayApp.open(self.url, token or self.token, **options)

    async def connect_host(self, host_id: str, token: str | None = None, **options: Any) -> RelayHost:
        """One that is made up."""
        return await RelayHost.open(self.url, host_id, token or TOKEN.format(host_id), **options)

    async def push(self) -> PushClient:
        client = await PushClient.connect_websocket(self.url, self.token, timeout=TIMEOUT)
        await client.send_hello()
        return client

    def log(self) -> str:
        return (self.home / "logs" / "tower.log").read_text()

    def read_logs(self) -> str:
        return "\n".join(path.read_text(errors="replace") for path in (self.home / "logs").rglob("*") if path.is_file())

    def measure_resident_mb(self) -> float:
        status = Path(f"/proc/{self.endpoints['pid']}/status").read_text()
        return int(status.partition("VmRSS:")[2].split()[0]) / 1024

    def run_tower(self, *arguments: str, stdin: str = "") -> "subprocess.CompletedProcess[str]":
        """The command line, on this home, to its end."""
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(("TOWER_", "PUSHD_"))}
        return processes.run(
            [sys.executable, "-m", "switchtower", *arguments],
            env={**inherited, "TOWER_HOME": str(self.home)},
            input=stdin,
            capture_output=True,
            text=True,
            timeout=TIMEOUT,
            check=False,
        )

    # The journal, read directly

    def list_entries(self, run_id: str) -> list[journal.Entry]:
        reader = SqliteReader(self.home / "data" / "journal.db")
        try:
            found: list[journal.Entry] = []
            session_id = wire_values.parse_run_id(run_id)
            while page := reader.read(session_id, found[-1].seq if found else 0, 5_000):
                found += page
            return found
        finally:
            reader.close()

    def list_host_events(self, run_id: str) -> list[Any]:
        """The events that a host has told, as the hub has stored them."""
        return [
            event for entry in self.list_entries(run_id) if (event := codec.decode(entry.kind, entry.data)).relayed is not None
        ]

    def list_host_seqs(self, run_id: str) -> list[int]:
        return [event.relayed.seq for event in self.list_host_events(run_id)]


class RestartableDaemon(DaemonView):
    """One home, on which a daemon may die and come back."""

    def __init__(self, name: str, **settings: object) -> None:
        self.name = name
        super().__init__(Path(tempfile.mkdtemp(prefix=f"tw-{name}-", dir="/tmp")))
        self.workspace = self.home / "ws"
        self.workspace.mkdir()
        self.settings: dict[str, object] = {
            "http": "127.0.0.1:0",
            "demo_delay_ms": 0,
            "sandbox": "local",
            "trusted_folders": "/",
            "host_id": f"host_{name}",
            "host_name": name,
            **settings,
        }
        self.daemon: DaemonProcess | None = None
        self.lives = 0

    @property
    def host_id(self) -> str:
        return str(self.settings["host_id"])

    async def start(self) -> "RestartableDaemon":
        self.daemon = DaemonProcess(self.home, **self.settings)
        self.lives += 1
        await self.daemon.wait_listening()
        if self.settings["http"] == "127.0.0.1:0":
            # The same port in its next life: who knew the address still does.
            self.settings["http"] = self.url.partition("://")[2]
        return self

    def kill(self) -> None:
        """As a crash."""
        assert self.daemon is not None
        self.daemon.kill()
        self.daemon.end()
        self.daemon = None

    async def restart(self) -> None:
        if self.daemon is not None:
            self.kill()
        await self.start()

    async def stop(self) -> int:
        assert self.daemon is not None
        exit_code = await self.daemon.stop()
        self.daemon = None
        return exit_code

    def discard(self) -> None:
        if self.daemon is not None:
            self.daemon.end()
        with contextlib.suppress(OSError):
            print(f"The end of {self.name}'s log:", *self.log().splitlines()[-25:], sep="\n")
        shutil.rmtree(self.home, ignore_errors=True)


class HubProxy:
    """A TCP proxy in front of the hub. It can be cut, stalled, half-closed and refused."""

    def __init__(self, port: Callable[[], int]) -> None:
        self._port = port
        self._server: asyncio.Server | None = None
        self._pairs: dict[asyncio.StreamWriter, asyncio.StreamWriter] = {}
        self._tasks: set[asyncio.Task[Any]] = set()
        self._flowing = asyncio.Event()
        self._flowing.set()
        self.refusing = False

    async def open(self) -> "HubProxy":
        self._server = await asyncio.start_server(self._forward_connection, "127.0.0.1", 0)
        return self

    @property
    def url(self) -> str:
        assert self._server is not None
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    def cut(self) -> None:
        """Both ends see a reset."""
        for near, far in tuple(self._pairs.items()):
            for end in (near, far):
                sock = end.get_extra_info("socket")
                with contextlib.suppress(OSError):
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
                end.transport.abort()

    def stall(self) -> None:
        self._flowing.clear()

    def forward(self) -> None:
        self._flowing.set()

    def close_host_side(self) -> None:
        """The hub hears that the host says no more; the host hears nothing."""
        for far in tuple(self._pairs.values()):
            with contextlib.suppress(OSError, RuntimeError):
                far.write_eof()

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        self.forward()
        self.cut()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _forward_connection(self, reader: asyncio.StreamReader, near: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        try:
            if self.refusing:
                raise ConnectionRefusedError
            far_reader, far = await asyncio.open_connection("127.0.0.1", self._port())
        except OSError:
            near.transport.abort()
            return
        self._pairs[near] = far
        both = [asyncio.ensure_future(self._pump(reader, far)), asyncio.ensure_future(self._pump(far_reader, near))]
        try:
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for pump in both:
                pump.cancel()
            await asyncio.gather(*both, return_exceptions=True)
            self._pairs.pop(near, None)
            near.transport.abort()
            far.transport.abort()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, RuntimeError):
            while data := await reader.read(65_536):
                await self._flowing.wait()
                writer.write(data)
                await writer.drain()


class RelayNetwork:
    """Everything that a test has started, to be ended with it."""

    def __init__(self) -> None:
        self.towers: list[RestartableDaemon] = []
        self._closing = contextlib.AsyncExitStack()
        self.hub: DaemonView

    async def open_hub(self, **settings: object) -> RestartableDaemon:
        self.hub = hub = await self.start_daemon("hub", **settings)
        return hub

    async def start_daemon(self, name: str, **settings: object) -> RestartableDaemon:
        tower = RestartableDaemon(name, **settings)
        self.towers.append(tower)
        return await tower.start()

    async def start_host(self, name: str, *, url: str | None = None, **settings: object) -> RestartableDaemon:
        """A daemon that dials the hub, or whatever is at `url`, and lets it do everything unless told otherwise."""
        return await self.start_daemon(name, hub=url or self.hub.url, heartbeat=0.5, **{"hub_may": "start", **settings})

    async def open_proxy(self) -> HubProxy:
        wire = await HubProxy(lambda: int(self.hub.url.rpartition(":")[2])).open()
        self._closing.push_async_callback(wire.close)
        return wire

    async def connect_app(self, tower: DaemonView | None = None, **options: Any) -> RelayApp:
        return await self._closing.enter_async_context(await (tower or self.hub).connect_app(**options))

    async def connect_host(self, host_id: str, token: str | None = None, **options: Any) -> RelayHost:
        return await self._closing.enter_async_context(await self.hub.connect_host(host_id, token, **options))

    async def push(self, tower: DaemonView | None = None) -> PushClient:
        return await self._closing.enter_async_context(await (tower or self.hub).push())

    async def wait_online(self, host_id: str) -> None:
        async def is_online() -> bool:
            return bool((await self.hub.http.list_hosts()).get(host_id, {}).get("online"))

        await wait_until(is_online)

    async def close(self) -> None:
        await self._closing.aclose()
        for tower in self.towers:
            tower.discard()


@pytest.fixture
def unique_name() -> str:
    """For names in a hub that several tests use."""
    return uuid.uuid4().hex[:12]


@pytest.fixture
async def shared_relay_network(
    relay_network: "RelayNetwork", start_daemon: Callable[..., conformance_daemons.ManagedDaemon]
) -> "RelayNetwork":
    """A stage whose hub other tests use too: what is asked of it goes by names of one's own."""
    relay_network.hub = DaemonView(start_daemon(new_hosts="trust", host_id="hub").home)
    return relay_network


@pytest.fixture
async def relay_network() -> AsyncIterator[RelayNetwork]:
    made = RelayNetwork()
    try:
        yield made
    finally:
        await made.close()


def make_python_command(script: str) -> str:
    """A command line that runs this script."""
    return shlex.join([sys.executable, "-u", "-c", script])


def make_counting_program(upto: int, *, pause: float = 0.0, name: str = "line") -> str:
    """A program that prints numbered lines."""
    return make_python_command(
        f"import time\nfor n in range({upto}):\n print('{name}', n)\n {f'time.sleep({pause})' if pause else 'pass'}"
    )


def make_expected_lines(upto: int, name: str = "line") -> str:
    """What such a program leaves in its terminal."""
    return "".join(f"{name} {number}\r\n" for number in range(upto))


def get_comparable_message(message: dict[str, Any]) -> tuple[Any, ...]:
    """What must be equal of a message on its host and on the hub: all but its place in the one or the other journal."""
    return message["seq"], message["kind"], message["text"], json.dumps(message["data"], sort_keys=True), message["ts"]
