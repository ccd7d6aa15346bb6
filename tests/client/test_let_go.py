"""A daemon that lets its clients go: whoever watches, asks or types comes back by itself, and misses nothing."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.runtime.parts import RuntimeHarness

from switchtower import config
from switchtower.client.client import DaemonClient
from switchtower.core import commands, events
from switchtower.core.roles import Access
from switchtower.protocols.push.connection import PushConnection
from switchtower.testing.session_driver import OWNER, start_session
from switchtower.transports import unix
from switchtower.transports.stream import ConnectionOrigin, Receiver

SESSION = "sess_1"


class InProcessDaemon:
    """A runtime, and the socket that push clients come to."""

    def __init__(self, home: Path) -> None:
        self.settings = config.Settings(home=home, socket=home / "pushd.sock")
        self.pi_server = RuntimeHarness()
        self.peers: list[PushConnection] = []

    def _accept(self, origin: ConnectionOrigin) -> Receiver:
        self.peers.append(PushConnection(self.pi_server.runtime, Access(name="owner", via="cli", trusted=True), "0"))
        return self.peers[-1]

    @contextlib.asynccontextmanager
    async def open(self) -> AsyncIterator["InProcessDaemon"]:
        await self.pi_server.open()
        listener = await unix.listen(self.settings.socket, self._accept, max_line_bytes=65_536, output_limit_bytes=65_536)
        try:
            yield self
        finally:
            await listener.close(grace=0)
            await self.pi_server.close()

    def drain_clients(self) -> int:
        peers, self.peers = self.peers, []
        for peer in peers:
            peer.close_for_restart(1.0)
        return len(peers)


@pytest.fixture
async def daemon(home: Path) -> AsyncIterator[InProcessDaemon]:
    async with InProcessDaemon(home).open() as daemon:
        await daemon.pi_server.ask(start_session(SESSION))
        yield daemon


@pytest.fixture
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("h")


async def test_who_watches_a_session_sees_each_event_once_however_often_it_is_let_go(daemon: InProcessDaemon) -> None:
    lost = 0

    def on_lost() -> None:
        nonlocal lost
        lost += 1

    async with asyncio.timeout(60), await DaemonClient.connect(daemon.settings, start=False) as client:
        watched = client.subscribe(SESSION, on_lost=on_lost)
        seen = []
        async for event in watched.stream_events():
            seen.append(event.seq)
            if len(seen) < 40:
                if len(seen) % 5 == 0:
                    daemon.drain_clients()
                name = commands.ConfigureSession(session_id=SESSION, actor=OWNER, title=f"title {len(seen)}")
                await daemon.pi_server.ask(name)
            else:
                break
    assert seen == list(range(seen[0], seen[0] + 40))
    assert lost > 0


async def test_what_is_asked_after_that_is_asked_again_on_a_new_connection(daemon: InProcessDaemon) -> None:
    async with asyncio.timeout(60), await DaemonClient.connect(daemon.settings, start=False) as client:
        first = await client.send_message(SESSION, "hello")
        assert daemon.drain_clients() >= 1
        while (await daemon.pi_server.runtime.get_session(SESSION)).run is not None:
            await asyncio.sleep(0)
        second = await client.send_message(SESSION, "hello again")
    assert first != second
    entries = await daemon.pi_server.runtime.read_entries(SESSION, 0, 1_000)
    assert [entry.kind for entry in entries].count(events.RunStarted.kind) == 2
