"""`tower host` as a person starts it, at a real hub."""

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.relay.stage import TIMEOUT, RelayNetwork, make_counting_program, make_expected_lines, wait_until
from tests.warm import processes

LINKED = "linked to the hub"


class ForegroundHost:
    """The command in a process of its own, and what it says to the person in front of it."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self._said = home / "said.txt"
        self._process: subprocess.Popen[bytes] | None = None

    def make_environment(self, **variables: str) -> dict[str, str]:
        others = {name: value for name, value in os.environ.items() if not name.startswith(("TOWER_", "PUSHD_"))}
        return {**others, "TOWER_HOME": str(self.home), **variables}

    def start(self, *flags: str, **variables: str) -> None:
        with self._said.open("wb") as said:
            self._process = processes.Popen(
                [sys.executable, "-m", "switchtower", "host", *flags],
                loaded="daemon",
                env=self.make_environment(**variables),
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
            )

    async def wait_for_output(self, text: str) -> None:
        process = self._process
        assert process is not None
        await wait_until(lambda: text in self.said or process.poll() is not None)
        assert text in self.said, self.said

    @property
    def said(self) -> str:
        return self._said.read_text()

    def stop(self, how: signal.Signals = signal.SIGTERM) -> int:
        assert self._process is not None
        self._process.send_signal(how)
        try:
            return self._process.wait(TIMEOUT)
        finally:
            self.end()

    def end(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait(TIMEOUT)
            self._process = None


@pytest.fixture
def foreground_host() -> Iterator[ForegroundHost]:
    with tempfile.TemporaryDirectory(prefix="tw-h-", dir="/tmp") as home:
        command = ForegroundHost(Path(home))
        yield command
        command.end()


async def test_a_host_is_a_command_away_from_its_hub(relay_network: RelayNetwork, foreground_host: ForegroundHost) -> None:
    hub = await relay_network.open_hub()
    foreground_host.start("--hub", hub.url, "--name", "builder", "--host-id", "builder-1", "--hub-may", "start")
    await foreground_host.wait_for_output(LINKED)
    await relay_network.wait_online("builder-1")
    assert (await hub.http.list_hosts())["builder-1"]["name"] == "builder"
    app = await relay_network.connect_app()
    run = await app.start("builder-1", make_counting_program(50), cwd=str(foreground_host.home))
    await app.next_of_type("run.exited", run)
    assert app.join_output(run) == make_expected_lines(50)
    assert foreground_host.stop(signal.SIGINT) in (0, 130)

    async def is_offline() -> bool:
        return not (await hub.http.list_hosts())["builder-1"]["online"]

    await wait_until(is_offline)
    assert (await hub.http.get_run(run))["status"] == "exited"


async def test_the_public_names_of_the_environment_say_where_and_who(
    relay_network: RelayNetwork, foreground_host: ForegroundHost
) -> None:
    hub = await relay_network.open_hub()
    token = "a-token-from-the-environment"
    foreground_host.start(SERVER_BASE_URL=hub.url, HOST_ID="from-outside", HOST_TOKEN=token)
    await foreground_host.wait_for_output(LINKED)
    await relay_network.wait_online("from-outside")
    assert token not in foreground_host.said
    assert foreground_host.stop() == 0
    # It is the token that counts: whoever has it is the host.
    await (await relay_network.connect_host("from-outside", token)).wait_until_read()
    assert token not in hub.read_logs()


async def test_a_rotated_token_is_trusted_once_the_hub_was_told(
    relay_network: RelayNetwork, foreground_host: ForegroundHost
) -> None:
    hub = await relay_network.open_hub()
    foreground_host.start("--hub", hub.url, "--host-id", "turner")
    await foreground_host.wait_for_output(LINKED)
    assert foreground_host.stop() == 0
    old = (foreground_host.home / "data" / "host.json").read_text()
    rotating = subprocess.run(
        [sys.executable, "-m", "switchtower", "host", "--rotate-token", "--host-id", "turner"],
        env=foreground_host.make_environment(),
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        check=True,
    )
    new = (foreground_host.home / "data" / "host.json").read_text()
    assert new != old
    assert "tower hosts rotate turner" in rotating.stderr
    foreground_host.start("--hub", hub.url, "--host-id", "turner")
    await foreground_host.wait_for_output("the hub refuses this host")
    assert foreground_host.stop() == 0
    told = hub.run_tower("hosts", "rotate", "turner")
    assert told.returncode == 0, told
    foreground_host.start("--hub", hub.url, "--host-id", "turner")
    await foreground_host.wait_for_output(LINKED)
    for secret in (text.partition('"host_token":"')[2].partition('"')[0] for text in (old, new)):
        assert len(secret) > 20
        assert secret not in foreground_host.said + rotating.stdout + rotating.stderr + hub.read_logs()


async def test_a_host_that_has_to_wait_is_let_in_by_the_command_line(
    relay_network: RelayNetwork, foreground_host: ForegroundHost
) -> None:
    hub = await relay_network.open_hub(new_hosts="ask")
    foreground_host.start("--hub", hub.url, "--host-id", "waiting")
    await foreground_host.wait_for_output("the hub refuses this host")
    assert foreground_host.stop() == 0
    approved = hub.run_tower("hosts", "approve", "waiting")
    assert approved.returncode == 0, approved
    foreground_host.start("--hub", hub.url, "--host-id", "waiting")
    await foreground_host.wait_for_output(LINKED)
    assert "waiting" in hub.run_tower("hosts").stdout + hub.run_tower("hosts", "list").stdout


async def test_a_hub_that_is_stopped_and_started_has_its_hosts_again(
    relay_network: RelayNetwork, foreground_host: ForegroundHost
) -> None:
    hub = await relay_network.open_hub(shutdown_timeout=0.5)  # an app that does not leave is not waited for longer
    foreground_host.start("--hub", hub.url, "--host-id", "faithful", "--hub-may", "start")
    await foreground_host.wait_for_output(LINKED)
    app = await relay_network.connect_app()
    run = await app.start("faithful", "cat", cwd=str(foreground_host.home))
    await app.next_of_type("run.ready", run)
    assert await hub.stop() == 0
    await hub.start()
    await relay_network.wait_online("faithful")
    app = await relay_network.connect_app()
    await app.subscribe(run, after_id=0)
    await app.next_of_type("run.started", run)
    await app.send_command("run.send_input", run, input_id="again", text="still there\n")
    await app.wait_for(lambda frame: "still there\r\nstill there" in app.join_output(run))
    await app.send_command("run.stop", run)
    await app.next_of_type("run.exited", run)


def test_without_a_hub_it_says_how_to_name_one(foreground_host: ForegroundHost) -> None:
    asked = subprocess.run(
        [sys.executable, "-m", "switchtower", "host"],
        env=foreground_host.make_environment(),
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        check=False,
    )
    assert asked.returncode == 64
    assert "--hub" in asked.stderr
