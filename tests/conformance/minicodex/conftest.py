"""MiniCodex clients of real daemons, which check every received frame and close with their test."""

from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from tests.conformance.daemons import ManagedDaemon
from tests.conformance.pi import theatre as theatres
from tests.conftest import Connect
from tests.protocols.minicodex import closed

from switchtower.testing import model_script as script
from switchtower.testing.minicodex_client import MiniCodexClient

Enter = Callable[..., Awaitable[MiniCodexClient]]
Play = Callable[..., Awaitable[MiniCodexClient]]


@pytest.fixture
async def connect_minicodex() -> AsyncIterator[Enter]:
    """`connect_minicodex(daemon, session_id=…)` opens a client that has not sent anything yet."""
    clients: list[MiniCodexClient] = []

    async def enter_one(daemon: ManagedDaemon, **query: Any) -> MiniCodexClient:
        options = {"token": daemon.token, **query}
        token = options.pop("token")
        clients.append(await MiniCodexClient.open(daemon.http, token, check=closed.check, **options))
        return clients[-1]

    yield enter_one
    for client in clients:
        client.wire.abort()


@pytest.fixture
async def minicodex_client(connect_minicodex: Enter, push_daemon: ManagedDaemon, workspace: Path) -> MiniCodexClient:
    """A client of the default daemon after `hello`, in a new session."""
    client = await connect_minicodex(push_daemon, cwd=workspace)
    await client.send_hello()
    return client


@pytest.fixture
async def second_client(
    connect_minicodex: Enter, push_daemon: ManagedDaemon, minicodex_client: MiniCodexClient
) -> MiniCodexClient:
    """A second client of the same session."""
    client = await connect_minicodex(push_daemon, session_id=minicodex_client.session_id)
    await client.send_hello()
    return client


@pytest.fixture(scope="session")
def scripted_models() -> Iterator[theatres.ScriptedModels]:
    with theatres.open_models() as opened:
        yield opened


@pytest.fixture
async def start_scripted_session(
    scripted_models: theatres.ScriptedModels, connect_minicodex: Enter, connect: Connect, workspace: Path
) -> Play:
    """`start_scripted_session(answer, …)` opens a client, after `hello`, of a session whose model gives these answers."""

    async def play_one(*answers: script.ScriptedAnswer, **fields: object) -> MiniCodexClient:
        model = f"m-{uuid4().hex}"
        scripted_models.plays[model] = deque(answers)
        push = await connect(scripted_models.daemon)
        started = await push.start_session(workspace, **{"provider": "openai", "model": model, **fields})
        client = await connect_minicodex(scripted_models.daemon, session_id=started.session_id)
        await client.send_hello()
        return client

    return play_one
