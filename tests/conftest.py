"""What all tests share: real daemons, started when first wanted and kept for the worker's life, and push clients that check
every frame they are sent."""

import atexit
import os
import shutil
import signal
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from tests.conformance.daemons import ManagedDaemon
from tests.conformance.schema_check import check
from tests.warm import sweeper

from switchtower.testing.push_client import PushClient

StartDaemon = Callable[..., ManagedDaemon]
Connect = Callable[..., Awaitable[PushClient]]

TRANSPORTS = ("socket", "websocket")

# With the variable set, if only to nothing, no Ollama of this machine is looked for.
os.environ["OLLAMA_HOST"] = ""
# Programs in terminals and commands from afar are started by login shells, whose profile is the user's own and may do anything.
os.environ["HOME"] = tempfile.mkdtemp(prefix="tower-tests-home-")
atexit.register(shutil.rmtree, os.environ["HOME"], ignore_errors=True)

# A parent that ignores Ctrl-C (a job in the background of a script) or the end of its terminal (`nohup`) passes that on to
# every program below it.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)

# No test may read or write the keyring of the user who runs it.
os.environ["PYTHON_KEYRING_BACKEND"] = "keyring.backends.fail.Keyring"

# What a failing or killed test leaves behind ends with this process.
SWEEPER = sweeper.guard()

# How long an example takes depends on who else uses the machine: no test is about that.
hypothesis.settings.register_profile("switchtower", deadline=None)
hypothesis.settings.load_profile("switchtower")


@pytest.fixture(scope="session")
def start_daemon() -> Iterator[StartDaemon]:
    """A running daemon with these settings. The same settings get the same daemon: sessions are isolated by their ids."""
    started: dict[tuple[tuple[str, object], ...], ManagedDaemon] = {}
    with ExitStack() as stack:

        def start(**settings: Any) -> ManagedDaemon:
            key = tuple(sorted(settings.items()))
            if key not in started:
                daemon = ManagedDaemon(**settings)
                stack.callback(daemon.discard)
                started[key] = daemon.start()
            return started[key]

        yield start


@pytest.fixture
def dedicated_daemon() -> Iterator[StartDaemon]:
    """A running daemon that nobody else uses: to restart, to kill, to measure."""
    with ExitStack() as stack:

        def start(**settings: Any) -> ManagedDaemon:
            daemon = ManagedDaemon(**settings)
            stack.callback(daemon.discard)
            return daemon.start()

        yield start


@pytest.fixture
def push_daemon(start_daemon: StartDaemon) -> ManagedDaemon:
    """The daemon with default settings."""
    return start_daemon()


@pytest.fixture
def workspace() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="ws-", dir="/tmp"))
    (folder / "README.md").write_text("# A workspace\nwith two lines\n")
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(params=TRANSPORTS)
def transport(request: pytest.FixtureRequest) -> str:
    """Tests that ask for it run over the Unix socket and over WebSocket."""
    return str(request.param)


@pytest.fixture
async def connect() -> AsyncIterator[Connect]:
    """`connect(daemon, transport)`: a client that ends with the test."""
    clients: list[PushClient] = []

    async def connect_to(daemon: ManagedDaemon, transport: str = "socket", **options: Any) -> PushClient:
        if transport == "socket":
            client = await PushClient.connect_socket(daemon.socket, check=check, **options)
        else:
            client = await PushClient.connect_websocket(daemon.http, daemon.token, check=check, **options)
        clients.append(client)
        return client

    yield connect_to
    for client in clients:
        client.wire.abort()


@pytest.fixture
async def client(connect: Connect, push_daemon: ManagedDaemon) -> PushClient:
    """On the default daemon's socket."""
    return await connect(push_daemon)


@pytest.fixture
async def client_per_transport(connect: Connect, push_daemon: ManagedDaemon, transport: str) -> PushClient:
    """On the default daemon, once over each transport."""
    return await connect(push_daemon, transport)
