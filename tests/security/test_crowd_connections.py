"""A crowd of connections without a token: the owner's sockets still answer, users still come in, and half requests give way."""

import asyncio
import contextlib
import os
import signal
import ssl
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from tests.relay.stage import TIMEOUT, DaemonView, wait_until
from tests.security.certificates import Certificate

from switchtower.cli import reachability
from switchtower.testing.push_client import PushClient
from switchtower.transports import connection_limit
from switchtower.transports.connection_limit import ConnectionLimit

SERVE = """
import os, resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (int(sys.argv[1]), int(sys.argv[1])))
from switchtower import config
from switchtower.daemon import app
app.run_daemon(config.load())
"""
HALF = b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: "
"""The beginning of a request that never ends."""
HALF_HELLO = b"\x16\x03\x01\x02\x00\x01"
"""The beginning of a TLS handshake that never ends."""


class CrowdedDaemon(DaemonView):
    """A daemon with few descriptors, and a crowd around it."""

    def __init__(self, home: Path, descriptors: int, **settings: object) -> None:
        super().__init__(home)
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(("TOWER_", "PUSHD_"))}
        given = {f"TOWER_{name.upper()}": str(value) for name, value in settings.items()}
        self._process = subprocess.Popen(
            [sys.executable, "-c", SERVE, str(descriptors)],
            env={**inherited, "TOWER_HOME": str(home), "TOWER_HTTP": "127.0.0.1:0", "TOWER_PI": "127.0.0.1:0", **given},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        self.crowd: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

    async def list_listeners(self) -> None:
        await wait_until(lambda: (self.home / "run" / "endpoints.json").exists() or self._process.poll() is not None)
        assert self._process.poll() is None, self.log()

    def count_accepted(self) -> int:
        """How many connections to the HTTP port the daemon holds; those in the backlog have no inode yet."""
        port = f":{int(self.url.rpartition(':')[2]):04X}"
        rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
        return sum(row[1].endswith(port) and row[3] == "01" and row[9] != "0" for row in rows)

    async def gather(self, count: int, url: str | None = None, beginning: bytes = HALF) -> None:
        host, _, port = (url or self.url).rpartition("/")[2].rpartition(":")
        for _ in range(count):
            reader, writer = await asyncio.open_connection(host, int(port))
            self.crowd.append((reader, writer))
            with contextlib.suppress(ConnectionError):
                writer.write(beginning)
                await writer.drain()

    async def check_owner_answered(self) -> None:
        async with await PushClient.connect_socket(str(self.endpoints["socket"]), timeout=TIMEOUT) as push:
            await push.send_hello()
            await push.ping()

    async def end(self) -> None:
        for _, writer in self.crowd:
            writer.transport.abort()
        self._process.send_signal(signal.SIGTERM)
        try:
            await asyncio.to_thread(self._process.wait, TIMEOUT)
        finally:
            self._process.kill()
            self._process.wait()


@pytest.fixture
async def start_crowded_daemon() -> AsyncIterator[Callable[..., Any]]:
    async with contextlib.AsyncExitStack() as stack:

        async def start_one(descriptors: int = 160, **settings: object) -> CrowdedDaemon:
            home = stack.enter_context(tempfile.TemporaryDirectory(prefix="tw-crowd-", dir="/tmp"))
            crowded = CrowdedDaemon(Path(home), descriptors, **settings)
            stack.push_async_callback(crowded.end)
            await crowded.list_listeners()
            return crowded

        yield start_one


@pytest.mark.parametrize("door", ["http", "pi", "both"])
async def test_half_requests_do_not_lock_the_owner_out(start_crowded_daemon: Callable[..., Any], door: str) -> None:
    tower: CrowdedDaemon = await start_crowded_daemon()
    http, pi = tower.url, str(tower.endpoints["pi"])
    for url in {"http": [http], "pi": [pi], "both": [http, pi]}[door]:
        await tower.gather(139, url)
    for _ in range(10):
        await tower.check_owner_answered()
    done = await asyncio.to_thread(tower.run_tower, "sessions")
    assert done.returncode == 0, done


async def test_a_user_with_a_token_comes_in_through_a_crowd_of_half_requests(start_crowded_daemon: Callable[..., Any]) -> None:
    tower: CrowdedDaemon = await start_crowded_daemon()
    await tower.gather(139)

    async def is_answered() -> bool:
        try:
            return bool((await tower.http.request("GET", "/runs")).status == 200)
        except OSError:
            return False

    await wait_until(is_answered)
    assert "too many connections without a token" in tower.log()


async def test_who_is_in_stays_in_while_a_crowd_comes(start_crowded_daemon: Callable[..., Any]) -> None:
    tower: CrowdedDaemon = await start_crowded_daemon()
    async with await tower.connect_app() as app:
        await tower.gather(200)
        await app.wait_until_processed()
        assert (await app.call("rpc.host.info", host_id=(await read_host_id(tower)))) is not None


async def read_host_id(tower: CrowdedDaemon) -> str:
    """The daemon's own id as a host, read from its file: HTTP may be crowded."""
    return (tower.home / "data" / "host.json").read_text().partition('"host_id":"')[2].partition('"')[0]


async def test_a_refused_connection_is_told_to_try_again(start_crowded_daemon: Callable[..., Any]) -> None:
    tower: CrowdedDaemon = await start_crowded_daemon(max_connections=8)
    await tower.gather(4)
    reader, writer = await asyncio.open_connection("127.0.0.1", int(tower.url.rpartition(":")[2]))
    tower.crowd.append((reader, writer))
    async with asyncio.timeout(TIMEOUT):
        first = await asyncio.wait(
            {asyncio.ensure_future(pair[0].read(1024)) for pair in tower.crowd}, return_when="FIRST_COMPLETED"
        )
    told = {task.result() for task in first[0]}
    for task in first[1]:
        task.cancel()
    assert told <= {connection_limit.BUSY, b""}, "either the newest was refused, or the oldest gave way"


# Handshakes


@pytest.mark.parametrize("beginning", [b"", HALF_HELLO], ids=["silent", "half a hello"])
async def test_half_handshakes_are_counted_and_do_not_lock_anyone_out(
    start_crowded_daemon: Callable[..., Any], tmp_path: Path, beginning: bytes
) -> None:
    certificate = Certificate(tmp_path)
    tower: CrowdedDaemon = await start_crowded_daemon(tls_cert=certificate.cert, tls_key=certificate.key, max_connections=20)
    await tower.gather(139, beginning=beginning)
    await wait_until(lambda: "too many connections without a token" in tower.log())
    for _ in range(10):
        await tower.check_owner_answered()
    # Half of 20 places, and one that was just accepted.
    assert tower.count_accepted() <= 10 + 1
    await wait_until(lambda: is_healthy_over_tls(tower, certificate))


async def test_half_handshakes_of_one_address_take_only_its_share(
    start_crowded_daemon: Callable[..., Any], tmp_path: Path
) -> None:
    """Loopback is exempt, so the crowd comes by this machine's other address."""
    certificate = Certificate(tmp_path)
    host = reachability._find_own_address()
    given = {"tls_cert": certificate.cert, "tls_key": certificate.key, "max_connections_per_address": 4}
    tower: CrowdedDaemon = await start_crowded_daemon(512, http="0.0.0.0:0", **given)
    await tower.gather(60, f"https://{host}:{tower.url.rpartition(':')[2]}", HALF_HELLO)
    await wait_until(lambda: "too many connections without a token" in tower.log())
    assert tower.count_accepted() <= 4 + 1
    await wait_until(lambda: is_healthy_over_tls(tower, certificate))


async def is_healthy_over_tls(tower: CrowdedDaemon, certificate: Certificate) -> bool:
    port = int(tower.url.rpartition(":")[2])
    try:
        async with asyncio.timeout(TIMEOUT):
            reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=certificate.trusting)
            writer.write(f"GET /health HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\n\r\n".encode())
            answer = await reader.read()
            writer.transport.abort()
    except (OSError, ssl.SSLError):
        return False
    return answer.startswith(b"HTTP/1.1 200 ")


# The rules themselves, without sockets


class CountedConnection:
    """What the limit needs of a transport."""

    def __init__(self) -> None:
        self.written = b""
        self.is_closed = self.is_aborted = False

    def write(self, data: bytes) -> None:
        self.written += data

    def close(self) -> None:
        self.is_closed = True

    def abort(self) -> None:
        self.is_aborted = True


class ConnectionClock:
    now = 1_000.0

    def __call__(self) -> float:
        return self.now


def make_lines(limit: ConnectionLimit, count: int, address: str) -> list[Any]:
    made: list[Any] = [CountedConnection() for _ in range(count)]
    return [line for line in made if limit.admit(line, address)]


def test_strangers_have_half_of_the_places_and_the_authenticated_keep_theirs() -> None:
    clock = ConnectionClock()
    limit = ConnectionLimit(10, 100, now=clock)
    assert len(make_lines(limit, 20, "127.0.0.1")) == 5
    clock.now += connection_limit.SETTLING_SECONDS
    first = make_lines(limit, 1, "127.0.0.1")[0]
    limit.authenticate(first)
    clock.now += 100
    assert len(make_lines(limit, 20, "127.0.0.1")) == 5
    assert not first.is_aborted
    assert len(limit) == 6


def test_all_places_may_be_taken_by_the_authenticated_and_then_no_stranger_comes() -> None:
    limit = ConnectionLimit(4, 100, now=ConnectionClock())
    for _ in range(4):
        limit.authenticate(make_lines(limit, 1, "127.0.0.1")[0])
    refused: Any = CountedConnection()
    assert not limit.admit(refused, "127.0.0.1")
    assert (refused.written, refused.is_closed) == (connection_limit.BUSY, True)
    assert len(limit) == 4


def test_one_address_of_another_machine_takes_only_its_share() -> None:
    clock = ConnectionClock()
    limit = ConnectionLimit(1_000, 3, now=clock, is_shared=lambda address: address == "10.0.0.1")
    assert len(make_lines(limit, 10, "203.0.113.9")) == 3
    assert len(make_lines(limit, 10, "198.51.100.7")) == 3
    # Of IPv6, a whole network counts as one.
    assert len([line for n in range(10) for line in make_lines(limit, 1, f"2001:db8:0:1::{n:x}")]) == 3
    # Many clients share these.
    assert (
        len(make_lines(limit, 10, "10.0.0.1"))
        == len(make_lines(limit, 10, "127.0.0.1"))
        == len(make_lines(limit, 10, "::1"))
        == 10
    )
    clock.now += connection_limit.SETTLING_SECONDS
    assert len(make_lines(limit, 1, "203.0.113.9")) == 1, "the oldest of them gave way"
    assert len(limit) == 3 * 3 + 30


def test_the_one_that_waited_longest_gives_way_and_an_answer_renews_the_wait() -> None:
    clock = ConnectionClock()
    limit = ConnectionLimit(4, 100, now=clock)
    first, second = make_lines(limit, 2, "127.0.0.1")
    clock.now += 0.5
    limit.renew(first)
    clock.now += connection_limit.SETTLING_SECONDS - 0.5
    assert make_lines(limit, 1, "127.0.0.1")
    assert (first.is_aborted, second.is_aborted) == (False, True)


def test_half_requests_have_less_time_under_pressure() -> None:
    clock = ConnectionClock()
    limit = ConnectionLimit(20, 100, now=clock)
    waiting = make_lines(limit, 6, "127.0.0.1")
    clock.now += connection_limit.PRESSED_SECONDS
    assert make_lines(limit, 1, "127.0.0.1")
    assert all(line.is_aborted for line in waiting)
    assert len(limit) == 1


def test_what_is_released_or_evicted_is_forgotten() -> None:
    limit = ConnectionLimit(4, 1, now=ConnectionClock())
    (line,) = make_lines(limit, 1, "203.0.113.9")
    limit.release(line)
    limit.release(line)
    limit.authenticate(line)
    assert len(limit) == 0
    assert make_lines(limit, 1, "203.0.113.9")


def test_a_handshake_that_is_done_keeps_its_place() -> None:
    limit = ConnectionLimit(8, 1, now=ConnectionClock())
    (handshake,) = make_lines(limit, 1, "203.0.113.9")
    transport: Any = CountedConnection()
    limit.replace(handshake, transport)
    assert limit.admit(transport, "203.0.113.9")
    limit.release(handshake)
    assert len(limit) == 1
    assert make_lines(limit, 1, "203.0.113.9") == []
    limit.authenticate(transport)
    limit.release(transport)
    assert len(limit) == 0


def test_what_the_descriptors_allow_leaves_the_owner_some(monkeypatch: pytest.MonkeyPatch) -> None:
    import resource

    monkeypatch.setattr(resource, "getrlimit", lambda _: (1024, 4096))
    monkeypatch.setattr(connection_limit, "_count_open_descriptors", lambda: 24)
    assert connection_limit.compute_capacity() == 1024 - 24 - connection_limit.RESERVED_DESCRIPTORS
    assert connection_limit.compute_capacity(100) == 100
    assert connection_limit.compute_capacity(5_000) == connection_limit.compute_capacity()
    monkeypatch.setattr(resource, "getrlimit", lambda _: (64, 64))
    assert connection_limit.compute_capacity() == connection_limit.FEWEST
