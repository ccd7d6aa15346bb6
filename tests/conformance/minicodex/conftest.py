"""MiniCodex clients of real daemons, which check every frame that they are sent and end with their test."""

from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from tests.conformance.daemons import Daemon
from tests.conformance.pi import theatre as theatres
from tests.conftest import Connect
from tests.protocols.minicodex import closed

from switchtower.testing import model_server_script as script
from switchtower.testing.minicodex_client import MiniCodexClient

Enter = Callable[..., Awaitable[MiniCodexClient]]
Play = Callable[..., Awaitable[MiniCodexClient]]


@pytest.fixture
async def enter() -> AsyncIterator[Enter]:
    """`enter(daemon, session_id=…)`: a client that has said nothing yet."""
    clients: list[MiniCodexClient] = []

    async def enter_one(daemon: Daemon, **query: Any) -> MiniCodexClient:
        options = {"token": daemon.token, **query}
        token = options.pop("token")
        clients.append(await MiniCodexClient.open(daemon.http, token, check=closed.check, **options))
        return clients[-1]

    yield enter_one
    for client in clients:
        client.wire.abort()


@pytest.fixture
async def mini(enter: Enter, pushd: Daemon, workspace: Path) -> MiniCodexClient:
    """Greeted, in a new session, on the usual daemon."""
    client = await enter(pushd, cwd=workspace)
    await client.hello()
    return client


@pytest.fixture
async def other(enter: Enter, pushd: Daemon, mini: MiniCodexClient) -> MiniCodexClient:
    """A second client of the same session."""
    client = await enter(pushd, session_id=mini.session_id)
    await client.hello()
    return client


@pytest.fixture(scope="session")
def theatre() -> Iterator[theatres.Theatre]:
    with theatres.opened() as opened:
        yield opened


@pytest.fixture
async def play(theatre: theatres.Theatre, enter: Enter, connect: Connect, workspace: Path) -> Play:
    """`play(answer, …)`: a greeted client of a session whose model gives these answers."""

    async def play_one(*answers: script.Answer, **fields: object) -> MiniCodexClient:
        model = f"m-{uuid4().hex}"
        theatre.plays[model] = deque(answers)
        push = await connect(theatre.daemon)
        started = await push.start_session(workspace, **{"provider": "openai", "model": model, **fields})
        client = await enter(theatre.daemon, session_id=started.session_id)
        await client.hello()
        return client

    return play_one
