"""The flow engine as the runtime sees it: its rooms are loaded when the first flow is to run."""

import asyncio
from importlib import import_module
from typing import TYPE_CHECKING

from switchtower import config
from switchtower.core import engine, tower

if TYPE_CHECKING:
    from switchtower.engines.flow.engine import FlowEngine


class LazyFlowEngine:
    """Implements `engine.Engine`. Its agents are sessions of the tower, which is there only after its engines."""

    def __init__(self, settings: config.Settings) -> None:
        self._settings = settings
        self._engine: FlowEngine | None = None
        self.service: tower.SessionService | None = None

    async def run(self, task: engine.Task, context: engine.RunContext) -> engine.RunResult:
        if self._engine is None:
            await asyncio.to_thread(import_module, "switchtower.daemon.flow_runtimes")
            from switchtower.daemon.flow_agents import SessionAgents
            from switchtower.daemon.flow_runtimes import RepRuntimes
            from switchtower.engines.flow.engine import FlowEngine

            assert self.service is not None, "runs begin when the tower stands"
            runtimes = RepRuntimes(sandbox_network=self._settings.sandbox_network)
            self._engine = FlowEngine(runtimes, SessionAgents(self.service))
        return await self._engine.run(task, context)
