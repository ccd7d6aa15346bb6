"""The agent's parts, made from the settings and joined: models, tools, MCP servers, checkpoints, prompts, policy."""

import asyncio
import hashlib
import logging
import os
from functools import partial

from switchtower import config
from switchtower.core import events, policy, redact
from switchtower.daemon.workshop import DaemonWorkshop
from switchtower.engines.agent.kit import Kit
from switchtower.engines.agent.loop import AgentEngine
from switchtower.engines.agent.prompts.shelf import Shelf
from switchtower.models.catalog import Catalog
from switchtower.tools import registry
from switchtower.tools.mcp.process import DAEMON, kill_leftovers
from switchtower.tools.mcp.servers import Servers
from switchtower.tools.running import adoption, environment
from switchtower.tools.sandboxes import sandbox
from switchtower.tools.snapshots.checkpoints import Checkpoints

log = logging.getLogger(__name__)


class Agent:
    """`engine` does the work; `workshop` answers the runtime's questions about it."""

    def __init__(self, settings: config.Settings, redactor: redact.Redactor) -> None:
        adoption.become_subreaper()
        self._daemon_id = hashlib.sha256(os.fsencode(settings.data_dir)).hexdigest()[:16]
        """The same for every daemon of this home, so that one finds what another left behind."""
        self._catalog = Catalog(settings.models, os.environ, demo_delay=settings.demo_delay_ms / 1_000, on_secret=redactor.add)
        environment.configure(secret_variables=self._catalog.secret_variables(), allowed=settings.pass_env)
        sandbox.configure(hide=[*settings.folders, settings.socket])
        ours = [settings.data_dir, settings.run_dir, settings.folders.logs]
        checkpoints = Checkpoints(settings.checkpoints_dir, apart=ours)
        shelf = Shelf(settings.folders.config)
        self._servers = Servers(
            settings.mcp_file,
            environment=lambda: {**os.environ, DAEMON: self._daemon_id},
            choose_sandbox=partial(sandbox.choose, network=settings.sandbox_network),
            learn_secret=redactor.add,
        )
        kit = Kit(
            open_model=self._catalog.open,
            toolbox=registry.core_toolbox(network=settings.sandbox_network),
            checkpoints=checkpoints,
            servers=self._servers,
            shelf=shelf,
            rules=_configured_rules(settings),
            compact_at=settings.compact_at,
        )
        self.engine = AgentEngine(kit)
        self.workshop = DaemonWorkshop(settings, self._catalog, checkpoints, shelf)

    async def sweep(self) -> None:
        """Ends what an earlier daemon of this home left behind when it was killed."""
        killed = await asyncio.to_thread(kill_leftovers, self._daemon_id)
        if killed:
            log.warning("killed %d processes of MCP servers that an earlier daemon had left behind", killed)

    async def close(self) -> None:
        await self._servers.close()
        await self._catalog.close()


def _configured_rules(settings: config.Settings) -> tuple[events.Rule, ...]:
    try:
        return policy.parse_rules(settings.rules)
    except ValueError as problem:
        raise config.ConfigError(
            "rules", f"`{settings.config_file}`", str(problem), hint="see docs/policy.md for the form of a rule"
        ) from None
