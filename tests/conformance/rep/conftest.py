"""Our runtime as a process, and our command in a folder; each test has its own."""

import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from tests.conformance.rep.peers import Orchestrator, TmCommand, make_python_path

Spawn = Callable[..., Orchestrator]


@pytest.fixture
def start_runtime(tmp_path: Path) -> Iterator[Spawn]:
    """`start_runtime(**variables)` starts our runtime, which ends with the test."""
    with ExitStack() as stack:
        yield lambda **settings: stack.enter_context(Orchestrator(tmp_path, **settings))


@pytest.fixture
def runtime(start_runtime: Spawn) -> Orchestrator:
    return start_runtime()


@pytest.fixture
def tm_command(tmp_path: Path) -> Iterator[TmCommand]:
    with tempfile.TemporaryDirectory(prefix="tm-", dir="/tmp") as home:
        yield TmCommand(tmp_path, Path(home))


@pytest.fixture
def foreign_kinds_environment(tmp_path: Path) -> dict[str, Any]:
    """Variables with which our runtime finds a third-party package of step kinds."""
    folder = tmp_path / "installed"
    info = folder / "others-1.0.dist-info"
    info.mkdir(parents=True)
    (folder / "others.py").write_text(OTHERS)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: others\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[switchtower.flow_kinds]\nothers.print = others:Print\nothers.break = others:Break\n")
    return {"PYTHONPATH": make_python_path(folder)}


OTHERS = """
class Print:
    async def run(self, given, context):
        print(given["text"], flush=True)
        return {"printed": True}


class Break:
    async def run(self, given, context):
        raise LookupError("the password is hunter2")
"""
