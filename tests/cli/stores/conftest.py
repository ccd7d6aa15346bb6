"""Commands against a real PostgreSQL."""

import os
from pathlib import Path

import pytest
from tests.cli.inside import InProcessCommand
from tests.stores.postgres.conftest import dedicated_server, dsn, emptied_databases, empty_dsn, fresh_dsn, shared_server

__all__ = ["dedicated_server", "dsn", "emptied_databases", "empty_dsn", "fresh_dsn", "shared_server"]


@pytest.fixture
def in_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]) -> InProcessCommand:
    inside = InProcessCommand(tmp_path / "home", monkeypatch, capfdbinary, dict(os.environ))
    inside.home.mkdir(mode=0o700)
    monkeypatch.setenv("TOWER_HTTP", "127.0.0.1:0")
    monkeypatch.setenv("TOWER_PI", "off")
    return inside
