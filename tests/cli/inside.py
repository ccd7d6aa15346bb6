"""Commands called inside the test's own process, for those to which a process of their own adds nothing."""

import json
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from switchtower.cli import console, main

IN_PROCESS_PREFIXES = ("TOWER_", "PUSHD_", "XDG_", "PI_SERVER_", "LOCAL_UNIX_", "HOST_", "REDACTION_")


class InProcessResult(NamedTuple):
    code: int
    stdout: bytes
    stderr: str

    @property
    def json(self) -> Any:
        return json.loads(self.stdout)

    @property
    def text(self) -> str:
        return self.stdout.decode()


class InProcessCommand:
    """One home, without a daemon."""

    def __init__(
        self, home: Path, monkeypatch: pytest.MonkeyPatch, capture: pytest.CaptureFixture[bytes], environ: dict[str, str]
    ) -> None:
        self.home = home
        self.monkeypatch = monkeypatch
        self._capture = capture
        for name in environ:
            if name.startswith(IN_PROCESS_PREFIXES) or name.endswith(("_API_KEY", "_BASE_URL")):
                monkeypatch.delenv(name)
        monkeypatch.setenv("TOWER_HOME", str(home))

    def __call__(self, *arguments: str) -> InProcessResult:
        self._capture.readouterr()
        code = console.run_command_line(lambda: main.tower.main(args=list(arguments), prog_name="tower", standalone_mode=False))
        out, err = self._capture.readouterr()
        return InProcessResult(int(code), out, err.decode())
