"""A hub with apps and hosts, and one of our hosts that is connected to a fake hub. All tests of a worker share them; runs are
distinguished by their ids."""

import json
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from tests.conformance.daemons import ManagedDaemon
from tests.conformance.relay.fake_hub import FakeHub
from tests.conformance.relay.peers import TOKEN, CheckedApp, CheckedHost, CheckedHttp

OpenApp = Callable[..., Awaitable[CheckedApp]]
Dial = Callable[..., Awaitable[CheckedHost]]


class RelayDaemon(ManagedDaemon):
    """`variables` are environment variables with their own names. Login shells get an empty home instead of the developer's."""

    def __init__(self, variables: dict[str, str] | None = None, **settings: object) -> None:
        super().__init__(**settings)
        self.variables = variables or {}

    @property
    def environment(self) -> dict[str, str]:
        return {**super().environment, "HOME": str(self.home), **self.variables}


def connect_owner_socket(daemon: ManagedDaemon) -> CheckedHttp:
    """Returns the HTTP API of the host's owner-only socket."""
    endpoints = json.loads((daemon.home / "run" / "endpoints.json").read_bytes())
    return CheckedHttp(str(endpoints["hostd_socket"]))


def read_identity(daemon: ManagedDaemon) -> dict[str, str]:
    """Returns the daemon's identity for hubs."""
    found: dict[str, str] = json.loads(next(daemon.home.rglob("host.json")).read_bytes())
    return found


@pytest.fixture(scope="session")
def hub() -> Iterator[ManagedDaemon]:
    daemon = RelayDaemon(host_name="hub")
    try:
        yield daemon.start()
    finally:
        daemon.discard()


@pytest.fixture
def hub_http(hub: ManagedDaemon) -> CheckedHttp:
    return CheckedHttp(hub.http, hub.token)


@pytest.fixture
def local_host_id(hub_http: CheckedHttp) -> str:
    """The id of the hub's own host."""
    return str(next(host["id"] for host in hub_http.get("/hosts") if host["is_this_daemon"]))


@pytest.fixture
async def open_app() -> AsyncIterator[OpenApp]:
    """`open_app(daemon)` opens an app that closes with the test."""
    apps: list[CheckedApp] = []

    async def open_one(daemon: ManagedDaemon, token: str | None = None) -> CheckedApp:
        apps.append(await CheckedApp.open(daemon.http, token or daemon.token))
        return apps[-1]

    yield open_one
    for app in apps:
        app.wire.abort()


@pytest.fixture
async def app(open_app: OpenApp, hub: ManagedDaemon) -> CheckedApp:
    return await open_app(hub)


@pytest.fixture
async def connect_host() -> AsyncIterator[Dial]:
    """`connect_host(daemon)` connects a foreign host that closes with the test."""
    hosts: list[CheckedHost] = []

    async def dial_one(daemon: ManagedDaemon, host_id: str | None = None, token: str = TOKEN, **query: Any) -> CheckedHost:
        hosts.append(await CheckedHost.open(daemon.http, host_id or f"h-{uuid4().hex[:12]}", token, **query))
        return hosts[-1]

    yield dial_one
    for host in hosts:
        host.wire.abort()


@pytest.fixture
async def host(connect_host: Dial, hub: ManagedDaemon) -> CheckedHost:
    return await connect_host(hub)


class HostWithFakeHub:
    """One of our hosts, and the fake hub that it is connected to."""

    def __init__(self, daemon: RelayDaemon, hub: FakeHub) -> None:
        self.daemon = daemon
        self.hub = hub

    @property
    def host_id(self) -> str:
        return read_identity(self.daemon)["host_id"]


@pytest.fixture(scope="session")
def shared_linked_host() -> Iterator[HostWithFakeHub]:
    with ExitStack() as stack:
        hub = FakeHub()
        stack.callback(hub.close)
        daemon = RelayDaemon(hub=hub.url, hub_may="start", heartbeat=0.2, host_name="ours")
        stack.callback(daemon.discard)
        daemon.start()
        assert hub.line
        yield HostWithFakeHub(daemon, hub)


@pytest.fixture
def linked_fake_hub(shared_linked_host: HostWithFakeHub) -> Iterator[FakeHub]:
    """The fake hub of a shared host, whose settings are restored after the test."""
    hub = shared_linked_host.hub
    assert hub.line
    yield hub
    hub.acks, hub.refuses_with = True, None


@pytest.fixture
def make_linked_host() -> Iterator[Callable[..., HostWithFakeHub]]:
    """Creates a host and a fake hub for a single test, which may cut, kill or inspect them from the start."""
    with ExitStack() as stack:

        def make(variables: dict[str, str] | None = None, **settings: Any) -> HostWithFakeHub:
            hub = FakeHub()
            stack.callback(hub.close)
            daemon = RelayDaemon(variables, hub=hub.url, **{"hub_may": "start", **settings})
            stack.callback(daemon.discard)
            daemon.start()
            assert hub.line
            return HostWithFakeHub(daemon, hub)

        yield make


@pytest.fixture
def owner_http(hub: ManagedDaemon) -> CheckedHttp:
    """The owner-only socket of the hub's own host."""
    return connect_owner_socket(hub)


@pytest.fixture
def repository(workspace: Path) -> Path:
    """A workspace under git with one file changed since the commit."""
    git = ["git", "-C", str(workspace), "-c", "user.name=a", "-c", "user.email=a@example.org"]
    for words in (["init", "-q", "-b", "main"], ["add", "."], ["commit", "-qm", "one"]):
        subprocess.run([*git, *words], check=True)
    (workspace / "README.md").write_text("# A workspace\nwith three lines\nin it\n")
    return workspace
