"""Where the daemon listens and who can reach it."""

import os
import stat
from pathlib import Path

import pytest
from tests.conformance import shared_store
from tests.conformance.daemons import ManagedDaemon
from tests.conftest import Connect, StartDaemon

from switchtower import config
from switchtower.testing.push_client import PushClient


def get_permissions(path: str | Path) -> int:
    return stat.S_IMODE(os.lstat(path).st_mode)


@pytest.mark.requirement("push:transport:unix-socket", "push:security:socket-owner-only")
def test_the_socket_is_a_socket_of_its_owner_only(push_daemon: ManagedDaemon) -> None:
    path = Path(push_daemon.socket)
    assert stat.S_ISSOCK(path.lstat().st_mode)
    assert get_permissions(path) == 0o600
    assert get_permissions(path.parent) == 0o700
    assert path.lstat().st_uid == os.geteuid()


@pytest.mark.requirement("push:security:socket-owner-only")
def test_what_tells_of_the_daemon_is_its_owners_only(push_daemon: ManagedDaemon) -> None:
    journal = () if shared_store.is_wanted() else ("data/journal.db",)
    for name in ("run/endpoints.json", "run/pushd.pid", "data/owner.token", "logs/tower.log", *journal):
        assert get_permissions(push_daemon.home / name) & 0o077 == 0, name


@pytest.mark.requirement("push:transport:unix-socket")
def test_the_socket_is_where_the_document_recommends_unless_told_otherwise() -> None:
    assert config.load(environ={"HOME": "/home/u"}).socket == Path("/home/u/.push/run/pushd.sock")
    assert config.load(environ={"HOME": "/home/u"}).pid_path == Path("/home/u/.push/run/pushd.pid")


@pytest.mark.requirement("push:transport:environment")
async def test_clients_and_daemon_heed_pushd_socket(dedicated_daemon: StartDaemon, connect: Connect, workspace: Path) -> None:
    assert config.load(environ={"HOME": "/home/u", "PUSHD_SOCKET": "/run/other.sock"}).socket == Path("/run/other.sock")
    daemon = dedicated_daemon(socket=workspace / "s" / "other.sock")
    assert daemon.socket == str(workspace / "s" / "other.sock")
    assert await (await connect(daemon)).ping()
    assert (daemon.home / "run" / "pushd.pid").read_text() == str(daemon.pid)


@pytest.mark.requirement("push:transport:websocket", "push:security:websocket-token")
async def test_websockets_are_served_on_loopback(push_daemon: ManagedDaemon) -> None:
    assert push_daemon.http.startswith("http://127.0.0.1:")
    client = await PushClient.connect_websocket(push_daemon.http, push_daemon.token)
    async with client:
        assert (await client.send_hello())["runtimeName"] == "pushd"
