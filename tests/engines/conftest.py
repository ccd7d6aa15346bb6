"""Recording run contexts, tasks to give to an engine, and an agent with real tools."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from uuid import uuid4

import pytest
from tests.engines.parts import RecordingRunContext

from switchtower.core import events
from switchtower.core.ports import engine
from switchtower.engines.agent.context import AgentServices
from switchtower.engines.agent.loop import AgentEngine
from switchtower.models import port
from switchtower.models.catalog import Catalog
from switchtower.tools import registry
from switchtower.tools.mcp.servers import McpServers
from switchtower.tools.processes import commands
from switchtower.tools.snapshots.checkpoints import Checkpoints


@pytest.fixture
def make_run_context() -> Callable[..., RecordingRunContext]:
    return RecordingRunContext


@pytest.fixture
async def make_task(tmp_path: Path) -> AsyncIterator[Callable[..., engine.Task]]:
    run_id = f"run_{uuid4().hex}"

    def make(request: str | tuple[engine.Message, ...], **changes: object) -> engine.Task:
        messages = (engine.Message(role="user", text=request),) if isinstance(request, str) else request
        fields: dict[str, object] = {
            "session_id": "sess_1",
            "run_id": run_id,
            "workspace": events.Workspace(root=str(tmp_path)),
            "provider": "demo",
            "model": None,
            "sandbox": "local",
            "headless": False,
            "messages": messages,
        }
        return engine.Task(**(fields | changes))  # type: ignore[arg-type]

    yield make
    commands.kill_marked(run_id)


@pytest.fixture
async def agent(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Callable[..., AgentEngine]]:
    """An agent with real tools, and the demo model unless another is given."""
    catalog = Catalog({}, {}, demo_delay=0)
    servers = McpServers(None, environment=dict)

    def make(model: port.Model | None = None, **options: object) -> AgentEngine:
        async def open_model(provider: str, name: str | None) -> port.Model:
            return model or await catalog.open_model(provider, name)

        fields: dict[str, object] = {
            "open_model": open_model,
            "toolbox": registry.make_core_toolbox(),
            "checkpoints": Checkpoints(tmp_path_factory.mktemp("checkpoints")),
            "servers": servers,
        }
        return AgentEngine(AgentServices(**(fields | options)))  # type: ignore[arg-type]

    yield make
    await servers.close()
    await catalog.close()
