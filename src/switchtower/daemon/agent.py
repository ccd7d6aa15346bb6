"""The agent as the daemon's other parts see it, before and after it is loaded. Its models are read at once, because a wrong
entry must keep the daemon from starting and a key must be known before anything is journalled. The rest waits until it is
wanted, or until the daemon listens and has a moment."""

import asyncio
import os
import threading
from typing import TYPE_CHECKING, Any, cast

from switchtower import config
from switchtower.core import engine, events, redact, workshop
from switchtower.core.session import Session
from switchtower.daemon.live_settings import LiveSettings
from switchtower.models.catalog import Catalog
from switchtower.models.key_store import KeyStore
from switchtower.transports.stream import ConnectionOrigin

if TYPE_CHECKING:
    from switchtower.daemon.agent_parts import AgentParts


class LazyAgent:
    """`engine` does the work; `workshop` answers the runtime's questions about it."""

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
        self.host_services = cast("workshop.HostServices", _LazyPart(self, "workshop"))
        if settings.rules:
            self.get_parts()  # only the policy can tell whether they are rules

    @property
    def secret_variables(self) -> frozenset[str]:
        """The variables that hold keys of models."""
        return self._catalog.list_secret_variables()

    def get_parts(self) -> "AgentParts":
        """Loads them if nobody has. Raises `ConfigError`."""
        with self._loading:
            if self._parts is None:
                from switchtower.daemon.agent_parts import AgentParts

                self._parts = AgentParts(self._live, self._redactor, self._catalog)
            return self._parts

    def find_run(self, origin: ConnectionOrigin) -> str | None:
        """The run whose process is at the other end. Before the parts are loaded there is no run. Raises `Unattributed`."""
        return None if self._parts is None else self._parts.find_run(origin)

    def on_event(self, session: Session, event: events.AnyEvent) -> None:
        """For the runtime's watchers."""
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
    """Stands for one of the parts until it is touched, and passes everything on."""

    def __init__(self, agent: LazyAgent, part: str) -> None:
        self._agent = agent
        self._part = part

    def __getattr__(self, name: str) -> Any:
        return getattr(getattr(self._agent.get_parts(), self._part), name)
