"""The end of a server, and `pi-server` as a process of its own: both transports at once, stdout for the protocol alone."""

import asyncio
import json
import os
import signal
import socket
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
from tests.conformance.pi.conftest import Join, StartPi
from tests.conformance.pi.stage import CheckedClient, PiDaemon, StdioWire

from switchtower.testing.wire import WebSocketWire

ENTRY = "from switchtower.cli.main import pi_server; pi_server()"


class PiServer:
    """One `pi-server` process, and a client on its stdin and stdout."""

    def __init__(self, process: asyncio.subprocess.Process, home: Path) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self.process, self.home = process, home
        wire = StdioWire(process.stdout, process.stdin)
        wire.process = process
        self.client = CheckedClient(wire)

    @property
    def port(self) -> str:
        return str(json.loads((self.home / "run" / "endpoints.json").read_bytes())["pi"]).replace("ws://", "http://")


Serve = Callable[..., Awaitable[PiServer]]


@pytest.fixture
async def pi_server() -> AsyncIterator[Serve]:
    started: list[PiServer] = []
    homes: list[PiDaemon] = []

    async def serve(**environment: str) -> PiServer:
        place = PiDaemon()
        homes.append(place)
        variables = {name: value for name, value in place.environment.items() if name != "TOWER_PI"}
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-c", ENTRY),
            env={**variables, "PI_SERVER_PORT": "0", **environment},
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        started.append(PiServer(process, place.home))
        return started[-1]

    yield serve
    for server in started:
        if server.process.returncode is None:
            server.process.kill()
        await server.process.communicate()
    for home in homes:
        home.discard()


@pytest.mark.requirement("pi:server:both-transports", "pi:server:stdout")
async def test_pi_server_speaks_over_stdio_and_at_its_port_at_once(pi_server: Serve) -> None:
    server = await pi_server()
    assert (await server.client.receive())["type"] == "server_ready"
    async with CheckedClient(await WebSocketWire.open(server.port, None, path="/")) as other:
        await other.receive()
        session_id = await server.client.start_session()
        await other.execute("switch_session", sessionId=session_id)
        await server.client.execute("prompt", sessionId=session_id, message="say: hello")
        await other.next_event("agent_end")


@pytest.mark.requirement("pi:server:stdin-eof")
async def test_the_end_of_its_input_ends_pi_server(pi_server: Serve) -> None:
    server = await pi_server()
    await server.client.receive()
    server.process.stdin.close()
    await server.client.wait_for(lambda frame: frame["type"] == "server_shutdown")
    assert await server.process.wait() == 0


@pytest.mark.requirement("pi:server:used-port", "pi:server:port-variable")
async def test_a_used_port_is_a_non_zero_exit_with_nothing_on_stdout(pi_server: Serve) -> None:
    with socket.create_server(("127.0.0.1", 0)) as holder:
        server = await pi_server(PI_SERVER_PORT=str(holder.getsockname()[1]))
        stdout, stderr = await server.process.communicate()
    assert server.process.returncode != 0
    assert stdout == b""
    assert stderr


@pytest.mark.requirement("pi:server:port-variable")
async def test_the_port_is_taken_from_the_environment(pi_server: Serve) -> None:
    with socket.create_server(("127.0.0.1", 0)) as holder:
        port = holder.getsockname()[1]
    server = await pi_server(PI_SERVER_PORT=str(port))
    await server.client.receive()
    assert server.port.endswith(f"127.0.0.1:{port}")


@pytest.mark.requirement("pi:shutdown:announced", "pi:event:server_shutdown", "pi:shutdown:close-code")
async def test_sigterm_is_announced_before_the_connection_closes(
    dedicated_pi: StartPi, connect_pi: Join, pi_transport: str
) -> None:
    daemon = dedicated_pi()
    pi = await connect_pi(daemon)
    os.kill(daemon.pid, signal.SIGTERM)
    shutdown = await pi.wait_for(lambda frame: frame["type"] == "server_shutdown")
    assert shutdown["data"]["reason"] == "graceful_shutdown"
    assert shutdown["data"]["timeoutMs"] > 0
    with pytest.raises(EOFError):
        await pi.receive()
    if isinstance(pi.wire, WebSocketWire):
        assert pi.wire.close_code == 1001


@pytest.mark.requirement("pi:shutdown:refuses", "pi:error:shutting-down", "pi:shutdown:finishes-work")
async def test_while_it_shuts_down_new_commands_are_refused_and_old_ones_finish(dedicated_pi: StartPi, connect_pi: Join) -> None:
    daemon = dedicated_pi(shutdown_timeout=20)
    pi = await connect_pi(daemon)
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        os.mkfifo(f"{folder}/gate")
        session_id = await pi.start_session(folder)
        bash = await pi.begin("bash", sessionId=session_id, command="cat gate")
        await pi.next_event("bash_start")
        os.kill(daemon.pid, signal.SIGTERM)
        await pi.wait_for(lambda frame: frame["type"] == "server_shutdown")
        refused = await pi.request("list_sessions")
        assert refused["error"] == "Server is shutting down"
        assert pi.list_phases(refused["id"]) == ["response"]
        gate = await asyncio.to_thread(lambda: Path(f"{folder}/gate").write_text("open\n"))
        assert gate
        assert (await pi.wait_for_response(bash))["data"]["output"] == "open\n"


@pytest.mark.requirement("pi:server:access")
async def test_the_port_is_on_this_machine_alone(pi_daemon: PiDaemon) -> None:
    assert pi_daemon.pi.startswith("http://127.0.0.1:")
