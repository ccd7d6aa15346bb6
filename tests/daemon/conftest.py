"""Daemons in processes of their own, each on a home of its own, seen only from outside."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.crash.tower_process import DaemonProcess, RawPushClient
from tests.daemon.pi_stage import pi_harness as pi_harness
from tests.warm import processes

StartDaemon = Callable[..., Awaitable[DaemonProcess]]
Connect = Callable[[DaemonProcess], Awaitable[RawPushClient]]


@pytest.fixture
def home() -> Iterator[Path]:
    made = Path(tempfile.mkdtemp(prefix="tw-", dir="/tmp"))
    (made / "ws").mkdir()
    yield made
    if (log := made / "logs" / "tower.log").exists():
        print("The end of the daemon's log:", *log.read_text().splitlines()[-30:], sep="\n")
    shutil.rmtree(made)


@pytest.fixture
def workspace(home: Path) -> Path:
    return home / "ws"


@pytest.fixture
async def start_daemon_process(home: Path) -> AsyncIterator[StartDaemon]:
    """Starts a daemon on the test's home. Raises `DidNotStart` when it does not."""
    started: list[DaemonProcess] = []

    async def start_one(**settings: object) -> DaemonProcess:
        daemon = DaemonProcess(home, demo_delay_ms=settings.pop("demo_delay_ms", 0), **settings)
        started.append(daemon)
        return await daemon.wait_listening()

    yield start_one
    for daemon in started:
        daemon.end()


@pytest.fixture
async def connect() -> AsyncIterator[Connect]:
    clients: list[RawPushClient] = []

    async def connect_to(daemon: DaemonProcess) -> RawPushClient:
        clients.append(await RawPushClient.connect(daemon.socket))
        return clients[-1]

    yield connect_to
    for client in clients:
        client.close()


@pytest.fixture
def run_tower(home: Path) -> Callable[..., "subprocess.CompletedProcess[str]"]:
    """The command line, on the test's home, to its end."""

    def run(*arguments: str) -> "subprocess.CompletedProcess[str]":
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(("TOWER_", "PUSHD_"))}
        return processes.run(
            [sys.executable, "-m", "switchtower", *arguments],
            env={**inherited, "TOWER_HOME": str(home)},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    return run


def read_endpoints(home: Path) -> dict[str, Any]:
    return dict(msgspec.json.decode((home / "run" / "endpoints.json").read_bytes()))
