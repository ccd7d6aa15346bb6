"""The installed command as a user has it: a process, a home of its own and a folder to work in."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tests.cli.scripted import ScriptedDaemon
from tests.warm import processes

TIMEOUT = 60

OUR_PREFIXES = ("TOWER_", "PUSHD_", "XDG_")
MODEL_SUFFIXES = ("_API_KEY", "_BASE_URL", "_HOST")
"""No test may reach a real model because somebody has a key."""
CI_VARIABLES = ("GITHUB_ACTIONS", "CI")
"""Nor say more because of where it runs."""


class TowerResult(NamedTuple):
    code: int
    stdout: bytes
    stderr: str

    @property
    def json(self) -> Any:
        return json.loads(self.stdout)

    @property
    def events(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.stdout.splitlines()]


class TowerCommand:
    """One home. A short path: a Unix socket's may not be long."""

    def __init__(self) -> None:
        self.home = Path(tempfile.mkdtemp(dir="/tmp", prefix="tower-"))
        self.folder = self.home / "work"
        self.folder.mkdir()
        self.environment = {
            **{
                name: value
                for name, value in os.environ.items()
                if not name.startswith(OUR_PREFIXES) and not name.endswith(MODEL_SUFFIXES) and name not in CI_VARIABLES
            },
            "TOWER_HOME": str(self.home),
            "TOWER_HTTP": "127.0.0.1:0",
            "TOWER_PI": "off",
            "TOWER_DEMO_DELAY_MS": "0",
            "TOWER_SANDBOX": "local",
            "TOWER_TRUSTED_FOLDERS": "/",
            "OLLAMA_HOST": "",
        }

    @property
    def effective_environment(self) -> dict[str, str]:
        """The demo model answers where a session names none, unless the test configures models in the file."""
        usual = {} if (self.home / "config.toml").exists() else {"TOWER_PROVIDER": "demo"}
        return {**usual, **self.environment}

    def __call__(self, *arguments: str, stdin: bytes = b"", **environment: str) -> TowerResult:
        ended = processes.run(
            self.build_command(*arguments),
            input=stdin,
            capture_output=True,
            cwd=self.folder,
            env={**self.effective_environment, **environment},
            timeout=TIMEOUT,
        )
        return TowerResult(ended.returncode, ended.stdout, ended.stderr.decode())

    def start(self, *arguments: str, **more: Any) -> subprocess.Popen[bytes]:
        streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **more}
        process = processes.Popen(self.build_command(*arguments), cwd=self.folder, env=self.effective_environment, **streams)
        # Whoever reads its output must not wait for ever.
        watchdog = threading.Timer(2 * TIMEOUT, process.kill)
        watchdog.daemon = True
        watchdog.start()
        return process

    def build_command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-P", "-m", "switchtower", *arguments]

    @property
    def endpoints(self) -> dict[str, Any]:
        endpoints: dict[str, Any] = json.loads((self.home / "run/endpoints.json").read_text())
        return endpoints

    def remove(self) -> None:
        self.folder = self.home
        if (self.home / "run/tower.lock").exists():  # a daemon was started here, perhaps more than one
            ended = self("stop")
            assert ended.code == 0, ended.stderr
        shutil.rmtree(self.home)


def read_line_with(process: subprocess.Popen[bytes], text: str, *, of: str = "stderr") -> str:
    """Reads the stream up to the line that proves it."""
    stream = process.stderr if of == "stderr" else process.stdout
    assert stream is not None
    seen = []
    for line in stream:
        seen.append(line.decode())
        if text in seen[-1]:
            return seen[-1]
    raise AssertionError(f"`{text}` never came: {seen}")


def find_processes_with(text: str) -> list[str]:
    """The command lines of living processes that contain this text."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                words = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except OSError:
                continue
            if text in words:
                found.append(words)
    return found


@pytest.fixture
def tower_command() -> Iterator[TowerCommand]:
    """A fresh home, without a daemon."""
    tower = TowerCommand()
    yield tower
    tower.remove()


@pytest.fixture(scope="session")
def running_daemon() -> Iterator[TowerCommand]:
    tower = TowerCommand()
    yield tower
    tower.remove()


@pytest.fixture
def shared_command(running_daemon: TowerCommand, tmp_path: Path) -> TowerCommand:
    """One daemon for many tests, each with a folder of its own."""
    running_daemon.folder = tmp_path
    return running_daemon


@pytest.fixture
def scripted_daemon(tower_command: TowerCommand) -> Iterator[ScriptedDaemon]:
    """In place of that home's daemon: one that says what the test tells it to."""
    with ScriptedDaemon(tower_command.home) as daemon:
        yield daemon


@pytest.fixture(name="line_with")
def _read_line_with_fixture() -> Any:
    return read_line_with


@pytest.fixture(name="processes_with")
def _find_processes_with_fixture() -> Any:
    return find_processes_with
