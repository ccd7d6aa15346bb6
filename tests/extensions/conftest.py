"""Installed plugins, gone with the test."""

from functools import partial
from pathlib import Path

import pytest
from tests.extensions.parts import Install, install_into


@pytest.fixture
def install(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Install:
    folder: Path = tmp_path_factory.mktemp("site")
    monkeypatch.syspath_prepend(str(folder))
    return partial(install_into, folder)
