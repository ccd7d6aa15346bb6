"""A session with its servers, and the proof that nothing of it is left afterwards."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.tools.mcp.parts import Bench


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    bench = Bench(tmp_path)
    yield bench
    await bench.servers.close()
    assert bench.processes() == []


@pytest.fixture(scope="session", autouse=True)
def sdk_is_loaded() -> None:
    """Once a worker: it takes a second or two, which no test's patience should have to cover."""
    import mcp  # noqa: F401
