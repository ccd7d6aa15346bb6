"""A daemon that lets its push and MiniCodex clients go, over real doors: each is closed with the hint to come back, and may."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.daemon.conftest import home as home
from tests.daemon.test_pi_doors import ListenerHarness

from switchtower import config
from switchtower.testing.minicodex_client import MiniCodexClient
from switchtower.testing.push_client import PushClient
from switchtower.testing.wire import ClientWire, WebSocketWire

TOKEN = "the-owner's"


@pytest.fixture
async def listener_harness(home: Path) -> AsyncIterator[ListenerHarness]:
    doors = ListenerHarness(config.Settings(home=home, http="127.0.0.1:0", pi="off"), port_required=False)
    await doors.journal.open()
    await doors.listeners.open()
    await doors.listeners.serve_socket()
    yield doors
    await doors.listeners.close(0)
    await doors.relay.close()


def get_http_address(doors: ListenerHarness) -> str:
    url = doors.listeners.http_url
    assert url is not None
    return url


async def read_close_code(wire: ClientWire) -> int | None:
    """The code that it was closed with, where there is one. Nothing is said to it before."""
    async with asyncio.timeout(60):
        with pytest.raises(EOFError):
            await wire.receive()
    return wire.close_code if isinstance(wire, WebSocketWire) else None


async def test_clients_of_push_and_minicodex_are_closed_and_may_come_back(listener_harness: ListenerHarness, home: Path) -> None:
    socket = home / "run" / "pushd.sock"
    for _ in range(2):
        by_socket = await PushClient.connect_socket(socket)
        by_web = await PushClient.connect_websocket(get_http_address(listener_harness), TOKEN)
        mini = await MiniCodexClient.open(get_http_address(listener_harness), TOKEN, cwd=home / "ws")
        await by_socket.request("ping")
        await by_web.request("ping")
        listener_harness.listeners.close_for_restart(5.0)
        assert await read_close_code(by_socket.wire) is None
        assert await read_close_code(by_web.wire) == 1012
        assert await read_close_code(mini.wire) == 1012
