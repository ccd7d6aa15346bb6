"""Checkpoints with a folder of their own, and workspaces of each kind to take them of."""

from functools import partial
from pathlib import Path

import pytest
from tests.tools.snapshots.workspaces import MakeWorkspace, make

from switchtower.tools.snapshots.checkpoints import Checkpoints


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def checkpoints(data: Path) -> Checkpoints:
    return Checkpoints(data)


@pytest.fixture(params=["plain folder", "repository"])
def make_workspace(request: pytest.FixtureRequest, tmp_path: Path) -> MakeWorkspace:
    return partial(make, request.param, tmp_path)


@pytest.fixture(params=["plain folder", "repository", "subfolder of a repository", "repository without commits", "worktree"])
def make_any_workspace(request: pytest.FixtureRequest, tmp_path: Path) -> MakeWorkspace:
    return partial(make, request.param, tmp_path)
