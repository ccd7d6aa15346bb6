"""Pi's daemons, started when first wanted, and clients that end with their test."""

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
    """A running daemon with these settings. The same settings get the same daemon."""
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
def own_pi() -> Iterator[StartPi]:
    """A running daemon that nobody else uses: to restart, to kill, to count."""
    with ExitStack() as stack:

        def start(**settings: Any) -> PiDaemon:
            daemon = PiDaemon(**settings)
            stack.callback(daemon.discard)
            daemon.start()
            return daemon

        yield start


@pytest.fixture
def pid(start_pi: StartPi) -> PiDaemon:
    """The daemon that does not limit rates and is otherwise as it comes."""
    return start_pi()


@pytest.fixture(params=TRANSPORTS)
def door(request: pytest.FixtureRequest) -> str:
    """Tests that ask for it run over WebSocket and through `tower stdio`."""
    return str(request.param)


@pytest.fixture
async def join(door: str) -> AsyncIterator[Join]:
    """`join(daemon)`: another client by the same door, which ends with the test."""
    clients: list[CheckedClient] = []

    async def enter(daemon: PiDaemon, **options: Any) -> CheckedClient:
        clients.append(await connect(daemon, options.pop("door", door), **options))
        return clients[-1]

    yield enter
    for client in clients:
        await leave(client)


@pytest.fixture
async def pi(join: Join, pid: PiDaemon) -> CheckedClient:
    """A client of the usual daemon, once by each door."""
    return await join(pid)


@pytest.fixture(scope="session")
def theatre() -> Iterator[theatres.Theatre]:
    """A daemon with models that play what a test wrote."""
    with theatres.opened() as opened:
        yield opened


@pytest.fixture
def own_theatre() -> Iterator[theatres.Theatre]:
    """The same for one test alone: breakers remember."""
    with theatres.opened() as opened:
        yield opened
