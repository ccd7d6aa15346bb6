"""Pi's own port: there by default, done without when somebody else has it, insisted on when somebody asked for it."""

import asyncio
import contextlib
import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from tests.crash.tower_process import RawPushClient
from tests.daemon.conftest import StartDaemon, read_endpoints
from tests.transports.conftest import TEXT, RawWebSocket

from switchtower import config
from switchtower.settings import parsers

DEFAULT = config.Settings.pi


async def _dial(home: Path) -> RawWebSocket:
    port = urlsplit(read_endpoints(home)["pi"]).port
    assert port is not None
    client = RawWebSocket(*await asyncio.open_connection("127.0.0.1", port))
    await client.send_handshake(port, "/", {})
    return client


async def test_where_pi_is_spoken_is_announced(start_daemon_process: StartDaemon, home: Path) -> None:
    await start_daemon_process(pi="127.0.0.1:0")
    endpoints = read_endpoints(home)
    assert endpoints["pi"].startswith("ws://127.0.0.1:")
    assert endpoints["piSocket"] == str(home / "run" / "pi.sock")
    client = await _dial(home)
    opcode, payload = await client.receive()
    assert (opcode, json.loads(payload)["type"]) == (TEXT, "server_ready")
    await client.leave()


async def test_without_it_the_other_doors_stay_open(start_daemon_process: StartDaemon, home: Path) -> None:
    await start_daemon_process(pi="off")
    endpoints = read_endpoints(home)
    assert endpoints["pi"] is None
    reader, writer = await asyncio.open_unix_connection(endpoints["piSocket"])
    assert json.loads(await reader.readline())["type"] == "server_ready"
    writer.close()


async def test_two_homes_on_one_machine_both_start(start_daemon_process: StartDaemon, home: Path) -> None:
    address = parsers.parse_address(DEFAULT)
    assert address is not None
    with socket.socket() as holder:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        async with asyncio.timeout(60):
            while True:  # another test's daemon may hold it for a while
                with contextlib.suppress(OSError):
                    holder.bind(address)
                    holder.listen()
                    break
                await asyncio.sleep(0.05)
        daemon = await start_daemon_process(pi=DEFAULT)
        assert read_endpoints(home)["pi"] is None
        assert f"{DEFAULT} is in use" in daemon.log()
        client = await RawPushClient.connect(daemon.socket)
        client.close()


@pytest.mark.parametrize("way", ["flag", "variable", "file"])
async def test_a_used_port_that_was_asked_for_is_refused_with_a_remedy(
    home: Path, way: str, run_tower: Callable[..., "subprocess.CompletedProcess[str]"]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as holder:
        taken = f"127.0.0.1:{holder.getsockname()[1]}"
        if way == "flag":
            refused = await asyncio.to_thread(run_tower, "serve", "--http", "off", "--pi", taken)
        elif way == "file":
            (home / "config.toml").write_text(f"pi = '{taken}'\nhttp = 'off'")
            refused = await asyncio.to_thread(run_tower, "serve")
        else:
            refused = await asyncio.to_thread(
                subprocess.run,
                [sys.executable, "-m", "switchtower", "serve", "--http", "off"],
                env={**os.environ, "TOWER_HOME": str(home), "PI_SERVER_PORT": taken.rpartition(":")[2]},
                capture_output=True,
                text=True,
                timeout=60,
            )
    assert refused.returncode != 0
    assert f"{taken}, the port of the pi protocol; hint: " in refused.stderr
    assert refused.stderr.count("\n") == 1
    assert list((home / "run").glob("*.sock")) == []
    assert not (home / "run" / "endpoints.json").exists()


async def test_one_too_many_is_closed_with_1013(start_daemon_process: StartDaemon, home: Path) -> None:
    await start_daemon_process(pi="127.0.0.1:0", pi_max_connections=2)
    first, second = await _dial(home), await _dial(home)
    for client in (first, second):
        assert json.loads((await client.receive())[1])["type"] == "server_ready"
    third = await _dial(home)
    assert (await third.read_close())[0] == 1013
    for client in (first, second, third):
        await client.leave()


async def test_clients_hear_that_it_stops_and_are_closed_with_1001(start_daemon_process: StartDaemon, home: Path) -> None:
    daemon = await start_daemon_process(pi="127.0.0.1:0")
    client = await _dial(home)
    await client.receive()
    stopping = asyncio.create_task(daemon.stop())
    assert json.loads((await client.receive())[1])["type"] == "server_shutdown"
    assert (await client.read_close())[0] == 1001
    await client.leave()
    assert await stopping == 0


async def test_a_crash_leaves_nothing_in_the_way(start_daemon_process: StartDaemon, home: Path) -> None:
    daemon = await start_daemon_process(pi="off")
    daemon.kill()
    daemon.process.wait(30)
    assert (home / "run" / "pi.sock").exists()
    await start_daemon_process(pi="off")
    reader, writer = await asyncio.open_unix_connection(home / "run" / "pi.sock")
    assert json.loads(await reader.readline())["type"] == "server_ready"
    writer.close()
