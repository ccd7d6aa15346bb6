"""A real daemon in a separate process with its own home, which tests start, find, restart and measure."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.conformance import shared_store
from tests.warm import processes

START_TIMEOUT = 30.0
STOP_TIMEOUT = 15.0
UNHINDERED = {"sandbox": "local", "trusted_folders": "/"}
"""Settings for tests that concern neither the sandbox nor folder trust: commands run on the machine, and every folder is
trusted."""


def get_default_provider(home: Path) -> dict[str, str]:
    """Makes the demo model the default, unless the test configures models in the file."""
    return {} if (home / "config.toml").exists() else {"provider": "demo"}


class ManagedDaemon:
    """A daemon with these `settings`, named as in the configuration. The home has a short path, because a socket's must be
    short."""

    def __init__(self, **settings: object) -> None:
        self.home = Path(tempfile.mkdtemp(prefix="tw-", dir="/tmp"))
        self.settings = {"http": "127.0.0.1:0", "pi": "off", "demo_delay_ms": 0, **UNHINDERED, **settings}
        if shared_store.is_wanted() and "hub" not in settings:
            self.settings.setdefault("store", shared_store.create_database())
        self._process: subprocess.Popen[bytes] | None = None
        self._endpoints: dict[str, Any] = {}

    @property
    def environment(self) -> dict[str, str]:
        """The environment of the daemon, and of commands that should find it."""
        others = {name: value for name, value in os.environ.items() if not name.startswith(("TOWER_", "PUSHD_"))}
        settings = {**get_default_provider(self.home), **self.settings}
        named = {f"TOWER_{name.upper()}": str(value) for name, value in settings.items()}
        return {**others, **named, "TOWER_HOME": str(self.home), "PYTHONWARNINGS": "ignore"}

    def start(self) -> "ManagedDaemon":
        self._process = process = processes.Popen(
            [sys.executable, "-m", "switchtower", "serve"],
            loaded=processes.choose_preload(self.home),
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        assert process.stderr is not None
        deadline = time.monotonic() + START_TIMEOUT
        while not self._read_announcement(process.pid):
            if process.poll() is not None or time.monotonic() > deadline:
                process.kill()
                raise AssertionError(f"the daemon did not start: {process.stderr.read().decode()}")
            time.sleep(0.005)
        return self

    def _read_announcement(self, pid: int) -> bool:
        try:
            self._endpoints = json.loads((self.home / "run" / "endpoints.json").read_bytes())
        except FileNotFoundError:
            return False
        return self.pid == pid  # not the endpoints of a killed daemon

    def stop(self, how: signal.Signals = signal.SIGTERM) -> None:
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait(STOP_TIMEOUT)
            assert self._process.stderr is not None
            self._process.stderr.close()
            self._process = None

    def discard(self) -> None:
        self.stop()
        shutil.rmtree(self.home)

    @property
    def pid(self) -> int:
        return int(self._endpoints["pid"])

    @property
    def socket(self) -> str:
        return str(self._endpoints["socket"])

    @property
    def http(self) -> str:
        return str(self._endpoints["http"])

    @property
    def token(self) -> str:
        return str(self._endpoints["token"])

    @property
    def log(self) -> str:
        return (self.home / "logs" / "tower.log").read_text()

    @property
    def resident_bytes(self) -> int:
        """The resident memory of the process."""
        resident_pages = int(Path(f"/proc/{self.pid}/statm").read_text().split()[1])
        return resident_pages * os.sysconf("SC_PAGE_SIZE")
