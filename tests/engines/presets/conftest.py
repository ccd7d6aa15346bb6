"""A workspace and a user's folder with real files in them."""

from collections.abc import Callable
from pathlib import Path

import pytest

from switchtower.core import redact
from switchtower.engines.agent.presets import PresetCatalog

Put = Callable[[Path, str], None]


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    root = tmp_path / "workspace"
    (root / ".tower" / "presets").mkdir(parents=True)
    (tmp_path / "outside.txt").write_text("OUTSIDE")
    return root


@pytest.fixture
def user_folder(tmp_path: Path) -> Path:
    folder = tmp_path / "user"
    (folder / "presets").mkdir(parents=True)
    return folder


@pytest.fixture
def presets(user_folder: Path) -> PresetCatalog:
    return PresetCatalog(user_folder, redact.Redactor())
