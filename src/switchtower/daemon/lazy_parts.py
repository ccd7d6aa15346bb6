"""Stand-ins for parts that are loaded late: the search, the flow engine, the terminal engine and the agent. Each is loaded at its
first use.

The agent's models are read at once, because a wrong entry must keep the daemon from starting and a key must be known before
anything is journalled. The rest is loaded when it is needed, or when the daemon listens and is idle.
"""

import asyncio
import os
import threading
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from switchtower import config
from switchtower.core import events, redact
from switchtower.core.ports import engine, host_services, journal, session_service
from switchtower.core.session import Session
from switchtower.models.catalog import Catalog
from switchtower.models.keys import KeyStore
from switchtower.settings.live import LiveSettings
from switchtower.transports.stream import ConnectionOrigin

if TYPE_CHECKING:
    from switchtower.daemon.agent_parts import AgentParts
    from switchtower.engines.flow.engine import FlowEngine
    from switchtower.engines.pty.engine import TerminalEngine
    from switchtower.stores.sqlite.search import SqliteSearch


NAME = "search.db"


class LazySearch:
    """Implements `search.Search`."""

    def __init__(self, journal_path: Path) -> None:
        self._journal_path = journal_path
        self._path = journal_path.with_name(NAME)
        self._search: SqliteSearch | None = None

    def _get(self) -> "SqliteSearch":
        if self._search is None:
            from switchtower.stores.sqlite.search import SqliteSearch

            self._search = SqliteSearch(self._path, self._journal_path)
        return self._search

    async def find(self, text: str, limit: int, *, session_id: str | None = None) -> list[journal.SearchHit]:
        return await self._get().find(text, limit, session_id=session_id)

    async def forget(self, session_id: str) -> None:
        if self._search is not None or self._path.exists():
            await self._get().forget(session_id)

    async def close(self) -> None:
        if self._search is not None:
            await self._search.close()


class LazyFlowEngine:
    """Implements `engine.Engine`. Its agents are sessions of the session service, which is made after its engines."""

    def __init__(self, settings: config.Settings) -> None:
        self._settings = settings
        self._engine: FlowEngine | None = None
        self.service: session_service.SessionService | None = None

    async def run(self, task: engine.Task, context: engine.RunContext) -> engine.RunResult:
        if self._engine is None:
            await asyncio.to_thread(import_module, "switchtower.flows.engine_adapters")
            from switchtower.engines.flow.engine import FlowEngine
            from switchtower.flows.engine_adapters import RepRuntimes, SessionAgents

            assert self.service is not None, "runs begin when the tower stands"
            runtimes = RepRuntimes(sandbox_network=self._settings.sandbox_network)
            self._engine = FlowEngine(runtimes, SessionAgents(self.service))
        return await self._engine.run(task, context)


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


class LazyAgent:
    """`engine` runs the agent; `host_services` answers the runtime's questions about it."""

    def __init__(self, settings: config.Settings, redactor: redact.Redactor) -> None:
        self._redactor = redactor
        self._live = LiveSettings(settings)
        self._catalog = Catalog(
            settings.models,
            os.environ,
            demo_delay=settings.demo_delay_ms / 1_000,
            on_secret=redactor.add_secret,
            stored_keys=KeyStore(settings.folders.config),
        )
        self._live.on_change(lambda fresh: self._catalog.reconfigure(fresh.models, demo_delay=fresh.demo_delay_ms / 1_000))
        self._loading = threading.Lock()
        self._parts: AgentParts | None = None
        self.engine = cast("engine.Engine", _LazyPart(self, "engine"))
        self.host_services = cast("host_services.HostServices", _LazyPart(self, "host_services"))
        if settings.rules:
            self.get_parts()  # only the policy can check whether they are rules

    @property
    def secret_variables(self) -> frozenset[str]:
        """The variables that hold keys of models."""
        return self._catalog.list_secret_variables()

    def get_parts(self) -> "AgentParts":
        """Loads the parts, unless they are loaded. Raises `ConfigError`."""
        with self._loading:
            if self._parts is None:
                from switchtower.daemon.agent_parts import AgentParts

                self._parts = AgentParts(self._live, self._redactor, self._catalog)
            return self._parts

    def find_run(self, origin: ConnectionOrigin) -> str | None:
        """Returns the run whose process is at the other end. Before the parts are loaded there is no run. Raises
        `ProcessUnattributed`."""
        return None if self._parts is None else self._parts.find_run(origin)

    def on_event(self, session: Session, event: events.AnyEvent) -> None:
        """The runtime's watcher."""
        if self._parts is not None:
            self._parts.on_event(session, event)

    async def load(self) -> None:
        await asyncio.to_thread(self.get_parts)
        await self._catalog.read_stored_keys()

    async def close(self) -> None:
        if self._parts is not None:
            await self._parts.close()
        await self._catalog.close()


class _LazyPart:
    """Represents one of the parts until it is first used, and forwards everything to it."""

    def __init__(self, agent: LazyAgent, part: str) -> None:
        self._agent = agent
        self._part = part

    def __getattr__(self, name: str) -> Any:
        return getattr(getattr(self._agent.get_parts(), self._part), name)
