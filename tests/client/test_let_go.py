"""A daemon that lets its clients go: whoever watches, asks or types comes back by itself, and misses nothing."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.runtime.parts import House

from switchtower import config
from switchtower.client.client import Client
from switchtower.core import commands, events
from switchtower.core.access import Access
from switchtower.protocols.push.peer import PushPeer
from switchtower.testing.sessions import OWNER, start_session
from switchtower.transports import unix
from switchtower.transports.stream import Origin, Receiver

SESSION = "sess_1"


class Daemon:
    """A runtime, and the socket that push clients come to."""

    def __init__(self, home: Path) -> None:
        self.settings = config.Settings(home=home, socket=home / "pushd.sock")
        self.house = House()
        self.peers: list[PushPeer] = []

    def _accept(self, origin: Origin) -> Receiver:
        self.peers.append(PushPeer(self.house.runtime, Access(name="owner", via="cli", trusted=True), "0"))
        return self.peers[-1]

    @contextlib.asynccontextmanager
    async def open(self) -> AsyncIterator["Daemon"]:
        await self.house.open()
        listener = await unix.listen(self.settings.socket, self._accept, max_line_bytes=65_536, output_limit_bytes=65_536)
        try:
            yield self
        finally:
            await listener.close(grace=0)
            await self.house.close()

    def let_all_go(self) -> int:
        peers, self.peers = self.peers, []
        for peer in peers:
            peer.let_go(1.0)
        return len(peers)


@pytest.fixture
async def daemon(home: Path) -> AsyncIterator[Daemon]:
    async with Daemon(home).open() as daemon:
        await daemon.house.ask(start_session(SESSION))
        yield daemon


@pytest.fixture
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("h")


async def test_who_watches_a_session_sees_each_event_once_however_often_it_is_let_go(daemon: Daemon) -> None:
    lost = 0

    def on_lost() -> None:
        nonlocal lost
        lost += 1

    async with asyncio.timeout(60), await Client.connect(daemon.settings, start=False) as client:
        watched = client.session(SESSION, on_lost=on_lost)
        seen = []
        async for event in watched.events():
            seen.append(event.seq)
            if len(seen) < 40:
                if len(seen) % 5 == 0:
                    daemon.let_all_go()
                name = commands.ConfigureSession(session_id=SESSION, actor=OWNER, title=f"title {len(seen)}")
                await daemon.house.ask(name)
            else:
                break
    assert seen == list(range(seen[0], seen[0] + 40))
    assert lost > 0


async def test_what_is_asked_after_that_is_asked_again_on_a_new_connection(daemon: Daemon) -> None:
    async with asyncio.timeout(60), await Client.connect(daemon.settings, start=False) as client:
        first = await client.send(SESSION, "hello")
        assert daemon.let_all_go() >= 1
        while (await daemon.house.runtime.session(SESSION)).run is not None:
            await asyncio.sleep(0)
        second = await client.send(SESSION, "hello again")
    assert first != second
    entries = await daemon.house.runtime.entries(SESSION, 0, 1_000)
    assert [entry.kind for entry in entries].count(events.RunStarted.kind) == 2
