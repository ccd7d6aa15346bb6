"""A daemon that lets its push and MiniCodex clients go, over real doors: each is closed with the hint to come back, and may."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.daemon.conftest import home as home
from tests.daemon.test_pi_doors import Doors

from switchtower import config
from switchtower.testing.minicodex_client import MiniCodexClient
from switchtower.testing.push_client import PushClient
from switchtower.testing.wires import WebSocketWire, Wire

TOKEN = "the-owner's"


@pytest.fixture
async def doors(home: Path) -> AsyncIterator[Doors]:
    doors = Doors(config.Settings(home=home, http="127.0.0.1:0", pi="off"), port_required=False)
    await doors.journal.open()
    await doors.listeners.open()
    await doors.listeners.serve_socket()
    yield doors
    await doors.listeners.close(0)
    await doors.relay.close()


def http(doors: Doors) -> str:
    url = doors.listeners.http_url
    assert url is not None
    return url


async def to_the_end(wire: Wire) -> int | None:
    """The code that it was closed with, where there is one. Nothing is said to it before."""
    async with asyncio.timeout(60):
        with pytest.raises(EOFError):
            await wire.receive()
    return wire.close_code if isinstance(wire, WebSocketWire) else None


async def test_clients_of_push_and_minicodex_are_closed_and_may_come_back(doors: Doors, home: Path) -> None:
    socket = home / "run" / "pushd.sock"
    for _ in range(2):
        by_socket = await PushClient.over_socket(socket)
        by_web = await PushClient.over_websocket(http(doors), TOKEN)
        mini = await MiniCodexClient.open(http(doors), TOKEN, cwd=home / "ws")
        await by_socket.request("ping")
        await by_web.request("ping")
        doors.listeners.let_go(5.0)
        assert await to_the_end(by_socket.wire) is None
        assert await to_the_end(by_web.wire) == 1012
        assert await to_the_end(mini.wire) == 1012
