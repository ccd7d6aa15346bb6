"""`tower host` as a person starts it, at a real hub."""

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.relay.stage import PATIENCE, Stage, counting, eventually, lines
from tests.warm import processes

LINKED = "linked to the hub"


class Foreground:
    """The command in a process of its own, and what it says to the person in front of it."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self._said = home / "said.txt"
        self._process: subprocess.Popen[bytes] | None = None

    def environment(self, **variables: str) -> dict[str, str]:
        others = {name: value for name, value in os.environ.items() if not name.startswith(("TOWER_", "PUSHD_"))}
        return {**others, "TOWER_HOME": str(self.home), **variables}

    def start(self, *flags: str, **variables: str) -> None:
        with self._said.open("wb") as said:
            self._process = processes.Popen(
                [sys.executable, "-m", "switchtower", "host", *flags],
                loaded="daemon",
                env=self.environment(**variables),
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
            )

    async def says(self, text: str) -> None:
        process = self._process
        assert process is not None
        await eventually(lambda: text in self.said or process.poll() is not None)
        assert text in self.said, self.said

    @property
    def said(self) -> str:
        return self._said.read_text()

    def stop(self, how: signal.Signals = signal.SIGTERM) -> int:
        assert self._process is not None
        self._process.send_signal(how)
        try:
            return self._process.wait(PATIENCE)
        finally:
            self.end()

    def end(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait(PATIENCE)
            self._process = None


@pytest.fixture
def foreground() -> Iterator[Foreground]:
    with tempfile.TemporaryDirectory(prefix="tw-h-", dir="/tmp") as home:
        command = Foreground(Path(home))
        yield command
        command.end()


async def test_a_host_is_a_command_away_from_its_hub(stage: Stage, foreground: Foreground) -> None:
    hub = await stage.open_hub()
    foreground.start("--hub", hub.url, "--name", "builder", "--host-id", "builder-1", "--hub-may", "start")
    await foreground.says(LINKED)
    await stage.online("builder-1")
    assert (await hub.http.hosts())["builder-1"]["name"] == "builder"
    app = await stage.app()
    run = await app.start("builder-1", counting(50), cwd=str(foreground.home))
    await app.next_of("run.exited", run)
    assert app.output(run) == lines(50)
    assert foreground.stop(signal.SIGINT) in (0, 130)

    async def is_offline() -> bool:
        return not (await hub.http.hosts())["builder-1"]["online"]

    await eventually(is_offline)
    assert (await hub.http.run(run))["status"] == "exited"


async def test_the_public_names_of_the_environment_say_where_and_who(stage: Stage, foreground: Foreground) -> None:
    hub = await stage.open_hub()
    token = "a-token-from-the-environment"
    foreground.start(SERVER_BASE_URL=hub.url, HOST_ID="from-outside", HOST_TOKEN=token)
    await foreground.says(LINKED)
    await stage.online("from-outside")
    assert token not in foreground.said
    assert foreground.stop() == 0
    # It is the token that counts: whoever has it is the host.
    await (await stage.host("from-outside", token)).heard()
    assert token not in hub.all_logs()


async def test_a_rotated_token_is_trusted_once_the_hub_was_told(stage: Stage, foreground: Foreground) -> None:
    hub = await stage.open_hub()
    foreground.start("--hub", hub.url, "--host-id", "turner")
    await foreground.says(LINKED)
    assert foreground.stop() == 0
    old = (foreground.home / "data" / "host.json").read_text()
    rotating = subprocess.run(
        [sys.executable, "-m", "switchtower", "host", "--rotate-token", "--host-id", "turner"],
        env=foreground.environment(),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=True,
    )
    new = (foreground.home / "data" / "host.json").read_text()
    assert new != old
    assert "tower hosts rotate turner" in rotating.stderr
    foreground.start("--hub", hub.url, "--host-id", "turner")
    await foreground.says("the hub refuses this host")
    assert foreground.stop() == 0
    told = hub.tower("hosts", "rotate", "turner")
    assert told.returncode == 0, told
    foreground.start("--hub", hub.url, "--host-id", "turner")
    await foreground.says(LINKED)
    for secret in (text.partition('"host_token":"')[2].partition('"')[0] for text in (old, new)):
        assert len(secret) > 20
        assert secret not in foreground.said + rotating.stdout + rotating.stderr + hub.all_logs()


async def test_a_host_that_has_to_wait_is_let_in_by_the_command_line(stage: Stage, foreground: Foreground) -> None:
    hub = await stage.open_hub(new_hosts="ask")
    foreground.start("--hub", hub.url, "--host-id", "waiting")
    await foreground.says("the hub refuses this host")
    assert foreground.stop() == 0
    approved = hub.tower("hosts", "approve", "waiting")
    assert approved.returncode == 0, approved
    foreground.start("--hub", hub.url, "--host-id", "waiting")
    await foreground.says(LINKED)
    assert "waiting" in hub.tower("hosts").stdout + hub.tower("hosts", "list").stdout


async def test_a_hub_that_is_stopped_and_started_has_its_hosts_again(stage: Stage, foreground: Foreground) -> None:
    hub = await stage.open_hub(shutdown_timeout=0.5)  # an app that does not leave is not waited for longer
    foreground.start("--hub", hub.url, "--host-id", "faithful", "--hub-may", "start")
    await foreground.says(LINKED)
    app = await stage.app()
    run = await app.start("faithful", "cat", cwd=str(foreground.home))
    await app.next_of("run.ready", run)
    assert await hub.stop() == 0
    await hub.start()
    await stage.online("faithful")
    app = await stage.app()
    await app.subscribe(run, after_id=0)
    await app.next_of("run.started", run)
    await app.command("run.send_input", run, input_id="again", text="still there\n")
    await app.until(lambda frame: "still there\r\nstill there" in app.output(run))
    await app.command("run.stop", run)
    await app.next_of("run.exited", run)


def test_without_a_hub_it_says_how_to_name_one(foreground: Foreground) -> None:
    asked = subprocess.run(
        [sys.executable, "-m", "switchtower", "host"],
        env=foreground.environment(),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert asked.returncode == 64
    assert "--hub" in asked.stderr
