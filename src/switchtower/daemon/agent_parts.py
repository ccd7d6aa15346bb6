"""The agent's parts, made from the settings and joined: models, tools, MCP servers, checkpoints, prompts, policy. They are half
of all modules that the daemon loads, so `LazyAgent` loads them late."""

import asyncio
import hashlib
import logging
import os
from functools import partial

from msgspec import structs

from switchtower import config
from switchtower.core import events, policy, redact
from switchtower.core.roles import ProcessUnattributed
from switchtower.core.session import Session
from switchtower.engines.agent.context import AgentServices
from switchtower.engines.agent.loop import AgentEngine
from switchtower.engines.agent.presets import PresetCatalog
from switchtower.engines.agent.prompts.system_prompt import PromptCatalog
from switchtower.engines.agent.trust import FolderTrust
from switchtower.extensions.loader import ExtensionLoader
from switchtower.host_services.local import LocalHostServices
from switchtower.models import port
from switchtower.models.catalog import Catalog
from switchtower.settings.live import LiveSettings
from switchtower.settings.sources import ConfigError
from switchtower.tools import registry
from switchtower.tools.mcp.process import DAEMON, kill_leftovers
from switchtower.tools.mcp.servers import McpServers
from switchtower.tools.processes import marks, membership, orphans
from switchtower.tools.sandboxes import sandbox
from switchtower.tools.snapshots.checkpoints import Checkpoints
from switchtower.transports import socket_owner
from switchtower.transports.stream import ConnectionOrigin

log = logging.getLogger(__name__)


class AgentParts:
    def __init__(self, live: LiveSettings, redactor: redact.Redactor, catalog: Catalog) -> None:
        settings = live.current
        orphans.become_subreaper()
        self._daemon_id = hashlib.sha256(os.fsencode(settings.data_dir)).hexdigest()[:16]
        """Every daemon of this home has the same id, so that one finds the processes that another left behind."""
        self._kill_leftovers()
        _hide_keys(catalog, settings)
        sandbox.configure(hide=[*settings.folders, settings.socket, settings.pi_socket, settings.host_socket])
        ours = [settings.data_dir, settings.run_dir, settings.folders.logs]
        checkpoints = Checkpoints(settings.checkpoints_dir, apart=ours)
        trust = FolderTrust(settings.data_dir / "trusted_folders.json", settings.trusted_folders)
        shelf = PromptCatalog(settings.folders.config, trust.is_trusted)
        presets = PresetCatalog(settings.folders.config, redactor, trust.is_trusted)
        extensions = ExtensionLoader()
        self._servers = McpServers(
            settings.mcp_file,
            environment=lambda: {**marks.get_full_environment(), DAEMON: self._daemon_id},
            choose_sandbox=partial(sandbox.choose_sandbox, network=settings.sandbox_network),
            learn_secret=redactor.add_secret,
            trusts=trust.is_trusted,
        )
        toolbox = registry.make_core_toolbox(network=settings.sandbox_network)

        async def open_model(provider: str, model: str | None) -> port.Model:
            live.current  # noqa: B018 - a changed file is read first
            return await catalog.open_model(provider, model)

        kit = AgentServices(
            open_model=open_model,
            toolbox=toolbox,
            checkpoints=checkpoints,
            servers=self._servers,
            prompts=shelf,
            trust=trust,
            extensions=extensions,
            dialog_timeout=settings.pi_ui_timeout,
            rules=_make_policy_rules(settings),
            compact_at=settings.compact_at,
        )
        self._ending: set[asyncio.Task[None]] = set()
        self.engine = AgentEngine(kit)
        self.host_services = LocalHostServices(live, catalog, checkpoints, shelf, toolbox, extensions, presets, trust)

        def apply(fresh: config.Settings) -> None:
            rules = _make_policy_rules(fresh)
            _hide_keys(catalog, fresh)
            trust.configure(fresh.trusted_folders)
            self.engine.services = structs.replace(self.engine.services, rules=rules, compact_at=fresh.compact_at)

        live.on_change(apply)

    def _kill_leftovers(self) -> None:
        """Ends the processes that an earlier daemon of this home left behind when it was killed, before a new process can be
        mistaken for one of them."""
        killed = kill_leftovers(self._daemon_id)
        if killed:
            log.warning("killed %d processes of MCP servers that an earlier daemon had left behind", killed)

    def find_run(self, origin: ConnectionOrigin) -> str | None:
        """Returns the run whose process is at the other end of a connection. Raises `ProcessUnattributed` when that is not
        known."""
        if origin.pid is not None:
            return membership.find_run(origin.pid, origin.pid_started_at)
        if not membership.has_recent_runs() or not socket_owner.is_local_address(origin.address):
            return None
        found = socket_owner.find_socket(origin.address, origin.reached_at)
        if found is None:
            raise ProcessUnattributed(f"there is no socket at {origin.address} any more")
        return membership.find_run_of_socket(found.inode, found.uid)

    def on_event(self, session: Session, event: events.AnyEvent) -> None:
        """The MCP servers of an unloaded session are stopped."""
        if isinstance(event, events.SessionUnloaded | events.SessionDeleted):
            task = asyncio.get_running_loop().create_task(self._servers.end_session(session.id))
            self._ending.add(task)
            task.add_done_callback(self._ending.discard)

    async def close(self) -> None:
        await self._servers.close()


def _hide_keys(catalog: Catalog, settings: config.Settings) -> None:
    """No program inherits the variables that hold keys, including those that the file has named since the start."""
    marks.withhold_variables(catalog.list_secret_variables())
    marks.configure(secret_variables=catalog.list_secret_variables(), allowed=settings.pass_env)


def _make_policy_rules(settings: config.Settings) -> tuple[events.Rule, ...]:
    try:
        return policy.parse_rules(settings.rules)
    except ValueError as problem:
        raise ConfigError(
            "rules", f"`{settings.config_file}`", str(problem), hint="see docs/policy.md for the form of a rule"
        ) from None
