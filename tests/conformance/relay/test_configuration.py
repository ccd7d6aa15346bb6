"""The commands that start a host, and the names under which the public programs are configured."""

import os
import signal
import subprocess
import sys
from urllib.parse import urlsplit

import argon2
import pytest
from tests.conformance import shared_store
from tests.conformance.relay.conftest import RelayDaemon
from tests.conformance.relay.fake_hub import FakeHub

TOWER_HOST = [sys.executable, "-m", "switchtower", "host"]
HOSTD = [sys.executable, "-c", "import sys; from switchtower.cli import main; sys.exit(main.hostd())"]


@shared_store.only_with_sqlite
@pytest.mark.requirement("relay:link:command", "relay:host:server-base-url")
@pytest.mark.parametrize(
    ("words", "by_flag"), [(TOWER_HOST, True), (HOSTD, True), (TOWER_HOST, False)], ids=["tower-host", "hostd", "SERVER_BASE_URL"]
)
def test_a_host_is_started_by_its_command_and_stopped_by_a_signal(words: list[str], by_flag: bool) -> None:
    hub = FakeHub()
    home = RelayDaemon({} if by_flag else {"SERVER_BASE_URL": hub.url})
    environment = {name: value for name, value in home.environment.items() if name not in ("TOWER_HTTP", "TOWER_PI")}
    process = subprocess.Popen(
        [*words, "--hub", hub.url] if by_flag else words,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        hub.wait_for("host.heartbeat")
        assert urlsplit(hub.paths[0]).path == "/ws/host"
        os.kill(process.pid, signal.SIGTERM)
        assert process.wait(15) == 0
    finally:
        process.kill()
        process.wait()
        home.discard()
        hub.close()


@pytest.mark.requirement("relay:auth:hash-password")
def test_a_command_prints_the_hash_that_the_environment_takes() -> None:
    home = RelayDaemon()
    try:
        printed = subprocess.run(
            [sys.executable, "-m", "switchtower", "user", "hash", "--password-stdin"],
            input=b"correct horse battery\n",
            env=home.environment,
            capture_output=True,
            timeout=60,
            check=True,
        )
        assert argon2.PasswordHasher().verify(printed.stdout.decode().strip(), "correct horse battery")
    finally:
        home.discard()
