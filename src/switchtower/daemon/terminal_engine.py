"""The terminal engine as the runtime sees it: its rooms are loaded when the first program is to run."""

import asyncio
from importlib import import_module
from typing import TYPE_CHECKING

from switchtower import config
from switchtower.core import engine

if TYPE_CHECKING:
    from switchtower.engines.pty.engine import TerminalEngine


class LazyTerminalEngine:
    """Implements `engine.Engine`."""

    def __init__(self, settings: config.Settings) -> None:
        self._settings = settings
        self._engine: TerminalEngine | None = None

    async def run(self, task: engine.Task, context: engine.RunContext) -> engine.RunResult:
        if self._engine is None:
            await asyncio.to_thread(import_module, "switchtower.engines.pty.engine")
            from switchtower.engines.pty.engine import TerminalEngine

            settings = self._settings
            self._engine = TerminalEngine(
                host_socket=str(settings.host_socket),
                prompts_file=settings.prompts_file,
                sandbox_network=settings.sandbox_network,
            )
        return await self._engine.run(task, context)
