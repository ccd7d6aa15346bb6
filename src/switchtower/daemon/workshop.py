"""The world around the runtime, for real: the workshop port with folders, processes, git and the catalogue of models."""

import asyncio
import contextlib
import os
import time
from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from switchtower import config
from switchtower.core import admission, commands, errors, events, policy, workshop
from switchtower.core.timeline import WorkspaceChange
from switchtower.daemon import checks, offers, shell
from switchtower.daemon import presets as preset_rules
from switchtower.daemon.live_settings import LiveSettings
from switchtower.engines.agent.ask_tool import AskUserTool
from switchtower.engines.agent.presets.catalogue import PresetCatalog
from switchtower.engines.agent.prompts.shelf import PromptCatalog
from switchtower.engines.agent.trust import FolderTrust
from switchtower.extensions.loader import ExtensionLoader
from switchtower.models.catalog import Catalog
from switchtower.models.providers import DEMO
from switchtower.tools.git import worktrees
from switchtower.tools.git.plumbing.unavailable import GitUnavailable
from switchtower.tools.registry import Toolbox
from switchtower.tools.running import processes
from switchtower.tools.sandboxes import sandbox as sandboxes
from switchtower.tools.snapshots.checkpoints import Checkpoints

AUTO = preset_rules.AUTO
LOCAL = admission.LOCAL
TERMINAL = "terminal"
FLOW = "flow"
"""Stands for the provider of a session that has no model."""


class LocalHostServices:
    """Implements `workshop.Workshop`."""

    def __init__(
        self,
        live: LiveSettings,
        catalog: Catalog,
        checkpoints: Checkpoints,
        store: PromptCatalog,
        toolbox: Toolbox,
        extensions: ExtensionLoader,
        presets: PresetCatalog,
        trust: FolderTrust,
    ) -> None:
        self._live = live
        self._catalog = catalog
        self._checkpoints = checkpoints
        self._store = store
        self._toolbox = toolbox
        self._extensions = extensions
        self._presets = presets
        self._trust = trust

    @property
    def _settings(self) -> config.Settings:
        return self._live.current

    @property
    def usual_policy(self) -> str:
        return self._settings.policy

    def get_workspace(self, session_id: str) -> workshop.WorkspaceServices:
        return self

    def prepare_session(self, command: commands.StartSession) -> commands.StartSession:
        command = self._apply_sandbox(command)
        if command.trusts_folder:
            self.trust_folder(command.workspace.root, command.actor)
        if command.program is not None:
            checks.check_folder(command.workspace.root)
            return replace(command, engine="pty", provider=TERMINAL, model=None)
        if command.flow is not None:
            from switchtower.daemon import flow_check

            checks.check_folder(command.workspace.root)
            return replace(command, engine=FLOW, provider=FLOW, model=None, flow=flow_check.complete_flow(command.flow))
        usual_budget = self._make_default_budget()
        command = preset_rules.apply_preset(command, self._presets, usual_policy=self._settings.policy, usual=usual_budget)
        provider, model = self._choose_model(command.provider, command.model, allows_demo=command.allows_demo)
        self._catalog.check_model(provider, model)
        _check_policy(command.policy)
        checks.check_folder(command.workspace.root)
        budget = preset_rules.fill_budget(command.budget, usual_budget)
        self._check_price(provider, model, budget)
        return replace(
            command,
            provider=provider,
            model=model or self._catalog.choose_model(provider, None),
            policy=command.policy or self._settings.policy,
            budget=budget,
            warnings=(*command.warnings, *self._make_warnings(provider, command.model)),
        )

    def needs_model_lookup(self, command: commands.StartSession) -> bool:
        if command.program is not None or command.flow is not None:
            return True
        if command.provider == AUTO or command.preset is not None or command.budget is not None or self._settings.max_cost:
            return False
        return self._catalog.has_current_models(command.provider, command.model)

    async def look_up_model(self, command: commands.StartSession | commands.ConfigureSession) -> None:
        if isinstance(command, commands.StartSession):
            if command.program is not None or command.flow is not None:
                return
            usual = self._make_default_budget()
            with contextlib.suppress(errors.CoreError):  # `prepared` refuses it
                command = preset_rules.apply_preset(command, self._presets, usual_policy=self._settings.policy, usual=usual)
        provider = command.provider
        if provider == AUTO:
            await self._catalog.refresh_default()
            provider = None
            with contextlib.suppress(errors.ProviderNotConfigured):  # `prepared` refuses it
                provider, _ = self._choose_model(AUTO, command.model, allows_demo=True)
        if provider is not None:
            await self._catalog.refresh_models(provider, command.model)
            if (
                isinstance(command, commands.StartSession)
                and preset_rules.fill_budget(command.budget, self._make_default_budget()).max_cost
            ):
                await asyncio.to_thread(self._catalog.has_price, provider, command.model)  # loads the list of prices

    async def list_server_models(self, provider: str) -> Sequence[str] | None:
        self._catalog.check_provider(provider)
        await self._catalog.refresh_models(provider)
        return self._catalog.list_server_models(provider)

    def _check_price(self, provider: str, model: str | None, budget: events.Budget) -> None:
        if budget.max_cost is not None and not self._catalog.has_price(provider, model):
            name = model or self._catalog.choose_model(provider, None)
            remedy = f"set `price_in` and `price_out` in `[models.{provider}]` (0 if it is free), or use `--max-tokens`"
            raise errors.PriceUnknown(f"the price of `{name}` is unknown", hint=remedy)

    def _make_warnings(self, provider: str, named: str | None) -> tuple[events.WarningRaised, ...]:
        """A name that a client gave and that its server cannot confirm is taken as it is, and said so."""
        if named is None or provider == DEMO or self._catalog.list_server_models(provider) is not None:
            return ()
        message = f"The model name `{named}` was not checked: {provider} lists no models"
        return (events.WarningRaised("MODEL_NOT_CHECKED", message),)

    def _apply_sandbox(self, command: commands.StartSession) -> commands.StartSession:
        """A session that names no sandbox gets the configured one; one that names less is refused. `auto` is about the agent's
        commands: a program or a flow that a person starts runs on the machine itself."""
        least, missing = self._settings.sandbox, None
        if least == AUTO:
            is_persons_own = command.program is not None or command.flow is not None
            least, missing = (LOCAL, None) if is_persons_own else sandboxes.find_best_available()
        sandbox = command.sandbox or least
        if admission.is_weaker(sandbox, least) and not command.sandbox_is_settled:
            raise errors.SandboxUnavailable(
                f"commands run in `{least}` here, and `{sandbox}` is less",
                hint="leave the sandbox out, or name it on the owner's own socket, as with `tower run --sandbox local`",
            )
        sandboxes.choose_sandbox(sandbox, network=self._settings.sandbox_network)
        warnings = () if missing is None or command.sandbox is not None else (_make_no_sandbox_warning(missing),)
        return replace(command, sandbox=sandbox, warnings=(*command.warnings, *warnings))

    def check_configuration(self, command: commands.ConfigureSession) -> None:
        self._live.current  # noqa: B018 - a changed file is read first
        _check_policy(command.policy)
        if command.provider is not None:
            self._catalog.check_model(command.provider, command.model)

    async def add_worktree(self, command: commands.StartSession) -> commands.StartSession:
        folder = self._settings.worktrees_dir
        worktree = await worktrees.create_worktree(command.workspace.root, folder, command.session_id)
        workspace = replace(command.workspace, root=worktree.root, branch=worktree.branch, origin=worktree.origin)
        return replace(command, workspace=workspace)

    async def check_criterion(
        self, criterion: events.Criterion, workspace: events.Workspace, sandbox: str, run_id: str
    ) -> events.CriterionResult:
        where = sandboxes.choose_sandbox(sandbox, network=self._settings.sandbox_network)
        return await checks.check_criterion(criterion, workspace, run_id, sandbox_=where)

    async def run_shell(self, command: str, workspace: events.Workspace, sandbox: str, shell_id: str) -> workshop.ShellResult:
        where = sandboxes.choose_sandbox(sandbox, network=self._settings.sandbox_network)
        return await shell.run_shell_command(command, workspace, shell_id, where=where)

    def resolve_folder(self, path: str) -> str:
        return os.path.realpath(path)

    def kill_processes(self, run_id: str) -> int:
        return processes.kill_marked(run_id)

    async def diff(self, workspace: events.Workspace, changes: Sequence[WorkspaceChange]) -> str:
        if not changes:
            return ""
        first, last = changes[0], changes[-1]
        # One run alone is shown as it ended; a whole session as the folder is now.
        after = last.after if len(changes) == 1 else None
        try:
            return await self._checkpoints.diff(workspace.root, first.before, after)
        except GitUnavailable as reason:
            raise errors.NothingToRestore(str(reason)) from reason

    async def list_models(self) -> Sequence[workshop.ModelInfo]:
        await self._catalog.refresh_default()
        default = self._get_default_provider()
        listings = await asyncio.to_thread(self._catalog.list_entries)  # the first time it loads a list of prices
        return [
            workshop.ModelInfo(
                name=listing.name,
                provider=listing.provider,
                model=listing.model,
                usable=listing.usable,
                reason=listing.reason,
                is_default=listing.name == default,
                context_window=listing.context_window,
                price_in=listing.price_in,
                price_out=listing.price_out,
                key_source=listing.key_source,
            )
            for listing in listings
        ]

    async def list_templates(self, workspace: str) -> Sequence[workshop.TemplateInfo]:
        return await asyncio.to_thread(offers.list_templates, self._store, self._extensions, workspace)

    async def list_presets(self, workspace: str) -> Sequence[workshop.PresetInfo]:
        def check_model(provider: str | None, model: str | None) -> None:
            self._catalog.check_model(*self._choose_model(provider or AUTO, model))

        return await asyncio.to_thread(preset_rules.list_presets, self._presets, workspace, check_model)

    def trust_folder(self, path: str, actor: events.Actor) -> str:
        checks.check_folder(path)
        return self._trust.add(path, by=actor.name, now_ms=time.time_ns() // 1_000_000)

    def forget_folder(self, path: str) -> bool:
        return self._trust.remove(path)

    def list_trusted_folders(self) -> Sequence[workshop.TrustedFolder]:
        return [workshop.TrustedFolder(one.path, one.since_ms, one.by) for one in self._trust.list_trusted()]

    def list_tools(self) -> Sequence[workshop.ToolInfo]:
        ours = [workshop.ToolInfo(tool.name, tool.description) for tool in self._toolbox.tools]
        return [*ours, workshop.ToolInfo(AskUserTool.name, AskUserTool.description)]

    def set_provider_variables(self, variables: Mapping[str, str]) -> None:
        self._catalog.add_shell_variables(variables)

    def list_breakers(self) -> Sequence[workshop.BreakerState]:
        return self._catalog.list_breaker_states()

    def _get_default_provider(self) -> str | None:
        """The provider of a session that names none; None when there is none but the demo."""
        if self._settings.provider != AUTO:
            return self._settings.provider
        default = self._catalog.choose_default()
        return None if default is None else default[0]

    def _choose_model(self, provider: str, model: str | None, *, allows_demo: bool = False) -> tuple[str, str | None]:
        if provider != AUTO:
            return provider, model
        if self._settings.provider != AUTO:
            return self._settings.provider, model or self._settings.model
        return self._catalog.choose(model, allows_demo=allows_demo)

    def _make_default_budget(self) -> events.Budget:
        settings = self._settings
        return events.Budget(
            max_turns=settings.max_turns or None,
            max_tokens=settings.max_tokens or None,
            max_cost=settings.max_cost or None,
            max_minutes=settings.max_minutes or None,
        )


def _make_no_sandbox_warning(missing: sandboxes.SandboxProblem) -> events.WarningRaised:
    return events.WarningRaised(
        code="NO_SANDBOX",
        message=f"Commands run without a sandbox: {missing.reason}",
        detail=f"hint: {missing.remedy}; the setting `sandbox = local` says that you want none",
    )


def _check_policy(profile: str | None) -> None:
    if profile is not None and profile not in policy.PROFILES:
        raise errors.InvalidCommand(f"there is no policy `{profile}`", hint=f"use one of {', '.join(policy.PROFILES)}")
