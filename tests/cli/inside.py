"""Commands called inside the test's own process, for those to which a process of their own adds nothing."""

import json
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from switchtower.cli import console, main

OURS = ("TOWER_", "PUSHD_", "XDG_", "PI_SERVER_", "LOCAL_UNIX_", "HOST_", "REDACTION_")


class Ended(NamedTuple):
    code: int
    stdout: bytes
    stderr: str

    @property
    def json(self) -> Any:
        return json.loads(self.stdout)

    @property
    def text(self) -> str:
        return self.stdout.decode()


class Inside:
    """One home, without a daemon."""

    def __init__(
        self, home: Path, monkeypatch: pytest.MonkeyPatch, capture: pytest.CaptureFixture[bytes], environ: dict[str, str]
    ) -> None:
        self.home = home
        self.monkeypatch = monkeypatch
        self._capture = capture
        for name in environ:
            if name.startswith(OURS) or name.endswith(("_API_KEY", "_BASE_URL")):
                monkeypatch.delenv(name)
        monkeypatch.setenv("TOWER_HOME", str(home))

    def __call__(self, *arguments: str) -> Ended:
        self._capture.readouterr()
        code = console.exit_code_of(lambda: main.tower.main(args=list(arguments), prog_name="tower", standalone_mode=False))
        out, err = self._capture.readouterr()
        return Ended(int(code), out, err.decode())
