"""A session with its servers, and the proof that nothing of it is left afterwards."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.tools.mcp.parts import McpSessionHarness


@pytest.fixture
async def mcp_session(tmp_path: Path) -> AsyncIterator[McpSessionHarness]:
    bench = McpSessionHarness(tmp_path)
    yield bench
    await bench.servers.close()
    assert bench.list_processes() == []


@pytest.fixture(scope="session", autouse=True)
def load_sdk() -> None:
    """Once a worker: it takes a second or two, which no test's patience should have to cover."""
    import mcp  # noqa: F401
