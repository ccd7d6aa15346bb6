"""A hub with apps and hosts around it, and a host of ours that has dialled a hub of the tests' own. Shared by all tests of a
worker: runs are told apart by their ids."""

import json
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from tests.conformance.daemons import Daemon
from tests.conformance.relay.fake_hub import FakeHub
from tests.conformance.relay.peers import TOKEN, App, Host, Web

OpenApp = Callable[..., Awaitable[App]]
Dial = Callable[..., Awaitable[Host]]


class RelayDaemon(Daemon):
    """`variables` are of the environment, under their own names. Login shells find an empty home, not what a developer has."""

    def __init__(self, variables: dict[str, str] | None = None, **settings: object) -> None:
        super().__init__(**settings)
        self.variables = variables or {}

    @property
    def environment(self) -> dict[str, str]:
        return {**super().environment, "HOME": str(self.home), **self.variables}


def owners_socket(daemon: Daemon) -> Web:
    """The host's own HTTP."""
    endpoints = json.loads((daemon.home / "run" / "endpoints.json").read_bytes())
    return Web(str(endpoints["hostd_socket"]))


def identity(daemon: Daemon) -> dict[str, str]:
    """Who the daemon is to hubs."""
    found: dict[str, str] = json.loads(next(daemon.home.rglob("host.json")).read_bytes())
    return found


@pytest.fixture(scope="session")
def hub() -> Iterator[Daemon]:
    daemon = RelayDaemon(host_name="hub")
    try:
        yield daemon.start()
    finally:
        daemon.discard()


@pytest.fixture
def web(hub: Daemon) -> Web:
    return Web(hub.http, hub.token)


@pytest.fixture
def here(web: Web) -> str:
    """The id of the hub's own host."""
    return str(next(host["id"] for host in web.get("/hosts") if host["is_this_daemon"]))


@pytest.fixture
async def open_app() -> AsyncIterator[OpenApp]:
    """`open_app(daemon)`: an app that ends with the test."""
    apps: list[App] = []

    async def open_one(daemon: Daemon, token: str | None = None) -> App:
        apps.append(await App.open(daemon.http, token or daemon.token))
        return apps[-1]

    yield open_one
    for app in apps:
        app.wire.abort()


@pytest.fixture
async def app(open_app: OpenApp, hub: Daemon) -> App:
    return await open_app(hub)


@pytest.fixture
async def dial() -> AsyncIterator[Dial]:
    """`dial(daemon)`: a host that is not ours and ends with the test."""
    hosts: list[Host] = []

    async def dial_one(daemon: Daemon, host_id: str | None = None, token: str = TOKEN, **query: Any) -> Host:
        hosts.append(await Host.open(daemon.http, host_id or f"h-{uuid4().hex[:12]}", token, **query))
        return hosts[-1]

    yield dial_one
    for host in hosts:
        host.wire.abort()


@pytest.fixture
async def host(dial: Dial, hub: Daemon) -> Host:
    return await dial(hub)


class Linked:
    """A host of ours and the hub that it has dialled."""

    def __init__(self, daemon: RelayDaemon, hub: FakeHub) -> None:
        self.daemon = daemon
        self.hub = hub

    @property
    def host_id(self) -> str:
        return identity(self.daemon)["host_id"]


@pytest.fixture(scope="session")
def linked_for_all() -> Iterator[Linked]:
    with ExitStack() as stack:
        hub = FakeHub()
        stack.callback(hub.close)
        daemon = RelayDaemon(hub=hub.url, hub_may="start", heartbeat=0.2, host_name="ours")
        stack.callback(daemon.discard)
        daemon.start()
        assert hub.line
        yield Linked(daemon, hub)


@pytest.fixture
def linked(linked_for_all: Linked) -> Iterator[FakeHub]:
    """The hub of a shared host of ours, which is left as it was found."""
    hub = linked_for_all.hub
    assert hub.line
    yield hub
    hub.acks, hub.refuses_with = True, None


@pytest.fixture
def own_link() -> Iterator[Callable[..., Linked]]:
    """A host of ours and a hub that nobody else uses: to cut, to kill, to look at from the beginning."""
    with ExitStack() as stack:

        def make(variables: dict[str, str] | None = None, **settings: Any) -> Linked:
            hub = FakeHub()
            stack.callback(hub.close)
            daemon = RelayDaemon(variables, hub=hub.url, **{"hub_may": "start", **settings})
            stack.callback(daemon.discard)
            daemon.start()
            assert hub.line
            return Linked(daemon, hub)

        yield make


@pytest.fixture
def local(hub: Daemon) -> Web:
    """The owner's socket of the hub's own host."""
    return owners_socket(hub)


@pytest.fixture
def repository(workspace: Path) -> Path:
    """A workspace under git, with one file changed since the commit."""
    git = ["git", "-C", str(workspace), "-c", "user.name=a", "-c", "user.email=a@example.org"]
    for words in (["init", "-q", "-b", "main"], ["add", "."], ["commit", "-qm", "one"]):
        subprocess.run([*git, *words], check=True)
    (workspace / "README.md").write_text("# A workspace\nwith three lines\nin it\n")
    return workspace
