"""Who comes in through pi's doors, and who does not: real sockets, with an echo in place of the protocol."""

import asyncio
import contextlib
import json
import logging
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec
import pytest
from tests.daemon.echo_house import EchoPiServer
from tests.transports.conftest import TEXT, RawWebSocket

from switchtower import config
from switchtower.accounts.authenticators import ConnectionAuthenticator
from switchtower.core import redact
from switchtower.core.ports import journal
from switchtower.daemon.listeners import Listeners
from switchtower.daemon.pi import PiListeners
from switchtower.daemon.relay import LazyRelay, WebFeatures
from switchtower.runtime.runtime import Runtime
from switchtower.telemetry.metrics import Metrics
from switchtower.testing.host_services import StubHostServices
from switchtower.testing.memory.journal import MemoryJournal
from switchtower.transports import stream

TOKEN = "the-owner's"
NOBODY_UID = 65_534
MIB = 1024 * 1024

pytestmark = pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="the kernel does not tell whose a connection is")


class ListenerHarness:
    def __init__(self, settings: config.Settings, *, port_required: bool) -> None:
        self.server = EchoPiServer()
        self.pi = PiListeners(
            settings,
            lambda: self.server,
            ConnectionAuthenticator(TOKEN, attach_token_required=False),
            port_required=port_required,
        )
        doorkeeper = ConnectionAuthenticator(TOKEN, attach_token_required=False)
        self.journal = MemoryJournal()
        runtime = Runtime(
            self.journal,
            {},
            StubHostServices(),
            redactor=redact.Redactor(),
            approval_timeout_ms=1_000,
            receipt_ttl_ms=1_000,
            retention=journal.Retention(0, 0),
        )
        page = WebFeatures(settings, runtime, doorkeeper, Metrics(), "0")
        self.relay = LazyRelay(settings, runtime, doorkeeper, redact.Redactor(), TOKEN, "0", page)
        self.listeners = Listeners(settings, runtime, doorkeeper, self.pi, self.relay, "0")

    @property
    def port(self) -> int:
        return int(urlsplit(self.pi.url or "").port or 0)

    @property
    def main_port(self) -> int:
        return int(urlsplit(self.listeners.http_url or "").port or 0)


Open = Callable[..., Awaitable[ListenerHarness]]
Dial = Callable[..., Awaitable[RawWebSocket]]


@pytest.fixture
async def open_listeners(home: Path) -> AsyncIterator[Open]:
    async with contextlib.AsyncExitStack() as stack:

        async def open_them(*, port_required: bool = False, **given: Any) -> ListenerHarness:
            settings = config.Settings(home=home, **{"http": "127.0.0.1:0", "pi": "127.0.0.1:0"} | given)
            doors = ListenerHarness(settings, port_required=port_required)
            await doors.journal.open()
            stack.push_async_callback(doors.relay.close)
            stack.push_async_callback(doors.listeners.close, 0)
            await doors.listeners.open()
            return doors

        async with asyncio.timeout(60):
            yield open_them


@pytest.fixture
async def connect_raw() -> AsyncIterator[Dial]:
    async with contextlib.AsyncExitStack() as stack:

        async def connect(
            port: int, path: str = "/", *, host: str = "127.0.0.1", uid: int | None = None, **headers: str
        ) -> RawWebSocket:
            sock = _find_socket(uid)
            sock.setblocking(False)
            await asyncio.get_running_loop().sock_connect(sock, (host, port))
            client = RawWebSocket(*await asyncio.open_connection(sock=sock, limit=32 * MIB))
            stack.push_async_callback(client.leave)
            await client.send_handshake(port, path, headers)
            return client

        yield connect


def _find_socket(uid: int | None) -> socket.socket:
    if uid is None:
        return socket.socket()
    os.seteuid(uid)  # a socket belongs to whoever makes it
    try:
        return socket.socket()
    finally:
        os.seteuid(0)


as_somebody_else = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be somebody else")


async def read_greeting(client: RawWebSocket) -> dict[str, Any]:
    opcode, payload = await client.receive()
    assert opcode == TEXT, payload
    return dict(json.loads(payload))


@pytest.mark.parametrize("path", ["/", "/ws", "/any/path?x=1"])
async def test_our_own_processes_need_no_token_whatever_path_they_ask_for(
    open_listeners: Open, connect_raw: Dial, path: str
) -> None:
    doors = await open_listeners()
    client = await connect_raw(doors.port, path)
    assert client.status == 101
    assert await read_greeting(client) == {
        "type": "server_ready",
        "as": "owner",
        "via": "app",
        "namespace": "",
        "lifecycle": True,
    }
    client.send(TEXT, b"hello")
    assert await client.receive() == (TEXT, b"hello")


async def test_our_own_processes_are_known_over_ipv6_too(open_listeners: Open) -> None:
    doors = await open_listeners(pi="[::1]:0")
    reader, writer = await asyncio.open_connection("::1", doors.port)
    client = RawWebSocket(reader, writer)
    await client.send_handshake(doors.port, "/", {"Host": f"[::1]:{doors.port}"})
    assert (await read_greeting(client))["type"] == "server_ready"
    await client.leave()


@as_somebody_else
async def test_another_user_is_closed_with_1008(open_listeners: Open, connect_raw: Dial) -> None:
    doors = await open_listeners()
    client = await connect_raw(doors.port, uid=NOBODY_UID)
    code, reason = await client.read_close()
    assert code == 1008
    assert "token" in reason
    assert doors.server.peers == []


@as_somebody_else
async def test_another_user_with_the_token_is_let_in(open_listeners: Open, connect_raw: Dial) -> None:
    doors = await open_listeners()
    by_query = await connect_raw(doors.port, f"/?token={TOKEN}", uid=NOBODY_UID)
    by_header = await connect_raw(doors.port, uid=NOBODY_UID, Authorization=f"Bearer {TOKEN}")
    for client in (by_query, by_header):
        assert (await read_greeting(client))["type"] == "server_ready"


async def test_a_wrong_token_is_closed_with_1008_even_from_our_own_processes(open_listeners: Open, connect_raw: Dial) -> None:
    doors = await open_listeners()
    client = await connect_raw(doors.port, "/?token=guessed")
    code, reason = await client.read_close()
    assert code == 1008
    assert TOKEN not in reason
    assert doors.server.peers == []


async def test_pages_of_other_sites_are_refused(open_listeners: Open, connect_raw: Dial) -> None:
    doors = await open_listeners()
    assert (await connect_raw(doors.port, f"/?token={TOKEN}", Origin="https://evil.example")).status == 403
    assert (await connect_raw(doors.port, Host="evil.example", Origin="http://evil.example")).status == 403
    for scheme in ("app", "tauri", "chrome-extension"):
        assert (await connect_raw(doors.port, Origin=f"{scheme}://localhost")).status == 403


async def test_a_page_of_this_machine_needs_the_token(open_listeners: Open, connect_raw: Dial) -> None:
    """The browser that shows it is the owner's process, whatever page it shows."""
    doors = await open_listeners()
    for origin in ("http://localhost:5173", f"http://127.0.0.1:{doors.port}", "https://[::1]"):
        assert (await (await connect_raw(doors.port, Origin=origin)).read_close())[0] == 1008
        allowed = await connect_raw(doors.port, f"/?token={TOKEN}", Origin=origin)
        assert (await read_greeting(allowed))["type"] == "server_ready"


async def test_at_all_interfaces_a_name_that_leads_here_needs_the_token(open_listeners: Open, connect_raw: Dial) -> None:
    """A page may have its own name lead to this machine: then the browser is ours and the page is not."""
    doors = await open_listeners(pi="0.0.0.0:0")
    rebound = await connect_raw(doors.port, Host="evil.example", Origin="http://evil.example")
    assert (await rebound.read_close())[0] == 1008
    with_token = await connect_raw(doors.port, f"/?token={TOKEN}", Host="tower.example")
    assert (await read_greeting(with_token))["type"] == "server_ready"
    assert (await read_greeting(await connect_raw(doors.port)))["type"] == "server_ready"


async def test_from_another_address_than_loopback_the_token_is_needed(open_listeners: Open, connect_raw: Dial) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # sends nothing; tells which address we would send from
        except OSError:
            pytest.skip("this machine has no other address")
        host = probe.getsockname()[0]
    doors = await open_listeners(pi="0.0.0.0:0")
    without = await connect_raw(doors.port, host=host)
    assert (await without.read_close())[0] == 1008
    assert (await read_greeting(await connect_raw(doors.port, f"/?token={TOKEN}", host=host)))["type"] == "server_ready"


async def test_the_main_port_serves_pi_at_its_path_with_the_token(open_listeners: Open, connect_raw: Dial) -> None:
    doors = await open_listeners(pi="off")
    assert doors.pi.url is None
    assert (await connect_raw(doors.main_port, "/ws/pi")).status == 401
    assert (await connect_raw(doors.main_port, "/ws/pi?token=guessed")).status == 401
    client = await connect_raw(doors.main_port, "/ws/pi", Authorization=f"Bearer {TOKEN}")
    assert (await read_greeting(client))["lifecycle"] is True


@pytest.mark.parametrize(("query", "wanted"), [("lifecycle=off", False), ("lifecycle=on", True), ("lifecycle=", True)])
async def test_a_client_can_do_without_lifecycle_events(
    open_listeners: Open, connect_raw: Dial, query: str, wanted: bool
) -> None:
    doors = await open_listeners()
    assert (await read_greeting(await connect_raw(doors.port, f"/?{query}")))["lifecycle"] is wanted
    assert (await read_greeting(await connect_raw(doors.main_port, f"/ws/pi?{query}&token={TOKEN}")))["lifecycle"] is wanted


async def test_a_frame_over_ten_mebibytes_is_told_with_its_size_and_the_next_one_is_heard(
    open_listeners: Open, connect_raw: Dial
) -> None:
    doors = await open_listeners()
    complaint = {"type": "response", "success": False, "error": f"Message size {10 * MIB + 1} exceeds limit {10 * MIB}"}
    for port, path in ((doors.port, "/"), (doors.main_port, f"/ws/pi?token={TOKEN}")):
        client = await connect_raw(port, path)
        await read_greeting(client)
        client.send(TEXT, b"x" * (10 * MIB + 1))
        assert json.loads((await client.receive())[1]) == complaint
        client.send(TEXT, b"y" * 10 * MIB)
        assert (await client.receive())[1] == b"y" * 10 * MIB

    reader, writer = await asyncio.open_unix_connection(doors.pi.socket, limit=32 * MIB)
    await reader.readline()
    writer.write(b"x" * (10 * MIB + 1) + b"\nnext\n")
    answers = [await reader.readline(), await reader.readline()]
    assert b"next\n" in answers
    assert complaint in [json.loads(answer) for answer in answers if answer != b"next\n"]
    writer.close()


async def test_push_keeps_its_own_limit_on_the_same_port(open_listeners: Open, connect_raw: Dial) -> None:
    doors = await open_listeners(max_line_bytes=2_048)
    client = await connect_raw(doors.main_port, f"/ws/push?token={TOKEN}")
    client.send(TEXT, b"x" * 2_049)
    assert (await client.read_close())[0] == 1009


async def test_the_owner_s_socket_is_the_owner_s_alone(open_listeners: Open) -> None:
    doors = await open_listeners()
    path = Path(doors.pi.socket or "")
    assert path.name == "pi.sock"
    assert path.stat().st_mode & 0o777 == 0o600
    reader, writer = await asyncio.open_unix_connection(path)
    assert msgspec.json.decode(await reader.readline())["via"] == "cli"
    writer.close()


async def test_a_default_port_that_is_taken_is_done_without(
    open_listeners: Open, home: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as holder:
        taken = f"127.0.0.1:{holder.getsockname()[1]}"
        with caplog.at_level(logging.WARNING):
            doors = await open_listeners(pi=taken)
        assert doors.pi.url is None
        assert doors.pi.socket is not None
        assert f"{taken} is in use" in caplog.text


@pytest.mark.parametrize("chosen", [{"asked": frozenset({"pi"})}, {"port_required": True}])
async def test_a_port_that_somebody_asked_for_must_be_free(open_listeners: Open, chosen: dict[str, Any]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as holder:
        taken = f"127.0.0.1:{holder.getsockname()[1]}"
        with pytest.raises(stream.AddressInUse, match=rf"{taken}, the port of the pi protocol; hint: .*--pi HOST:PORT"):
            await open_listeners(pi=taken, **chosen)


async def test_goodbye_at_the_end_is_1001(open_listeners: Open, connect_raw: Dial) -> None:
    doors = await open_listeners()
    client = await connect_raw(doors.port)
    await read_greeting(client)
    closing = asyncio.create_task(doors.pi.close(5))
    assert (await client.read_close())[0] == 1001
    await client.leave()
    await closing


async def test_what_is_no_websocket_is_answered_in_http(open_listeners: Open) -> None:
    doors = await open_listeners()
    reader, writer = await asyncio.open_connection("127.0.0.1", doors.port)
    writer.write(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
    assert (await reader.read()).startswith(b"HTTP/1.1 404 ")
    writer.close()
