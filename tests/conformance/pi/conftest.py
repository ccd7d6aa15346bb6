"""pi's daemons, which start on first use, and clients that close with their test."""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from tests.conformance.pi import theatre as theatres
from tests.conformance.pi.stage import CheckedClient, PiDaemon, connect, leave

StartPi = Callable[..., PiDaemon]
Join = Callable[..., Awaitable[CheckedClient]]

TRANSPORTS = ("websocket", "stdio")


@pytest.fixture(scope="session")
def start_pi() -> Iterator[StartPi]:
    """Starts a daemon with these settings. The same settings share one daemon."""
    started: dict[tuple[tuple[str, object], ...], PiDaemon] = {}
    with ExitStack() as stack:

        def start(**settings: Any) -> PiDaemon:
            key = tuple(sorted(settings.items()))
            if key not in started:
                daemon = PiDaemon(**settings)
                stack.callback(daemon.discard)
                daemon.start()
                started[key] = daemon
            return started[key]

        yield start


@pytest.fixture
def dedicated_pi() -> Iterator[StartPi]:
    """Starts a daemon for a single test, which may restart it, kill it or count what it does."""
    with ExitStack() as stack:

        def start(**settings: Any) -> PiDaemon:
            daemon = PiDaemon(**settings)
            stack.callback(daemon.discard)
            daemon.start()
            return daemon

        yield start


@pytest.fixture
def pi_daemon(start_pi: StartPi) -> PiDaemon:
    """A daemon with default settings, except that it does not limit rates."""
    return start_pi()


@pytest.fixture(params=TRANSPORTS)
def pi_transport(request: pytest.FixtureRequest) -> str:
    """The transport: tests that request it run over WebSocket and through `tower stdio`."""
    return str(request.param)


@pytest.fixture
async def connect_pi(pi_transport: str) -> AsyncIterator[Join]:
    """`connect_pi(daemon)` connects another client over the same transport; it closes with the test."""
    clients: list[CheckedClient] = []

    async def enter(daemon: PiDaemon, **options: Any) -> CheckedClient:
        clients.append(await connect(daemon, options.pop("door", pi_transport), **options))
        return clients[-1]

    yield enter
    for client in clients:
        await leave(client)


@pytest.fixture
async def pi_client(connect_pi: Join, pi_daemon: PiDaemon) -> CheckedClient:
    """A client of the default daemon, once over each transport."""
    return await connect_pi(pi_daemon)


@pytest.fixture(scope="session")
def scripted_models() -> Iterator[theatres.ScriptedModels]:
    """A daemon with models that give the answers that a test has written."""
    with theatres.open_models() as opened:
        yield opened


@pytest.fixture
def dedicated_scripted_models() -> Iterator[theatres.ScriptedModels]:
    """The same for a single test, because circuit breakers keep state."""
    with theatres.open_models() as opened:
        yield opened
