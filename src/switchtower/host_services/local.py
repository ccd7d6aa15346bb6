"""Implements the host services port with folders, processes, git and the catalogue of models.

It checks whether a folder can be used, whether a run met its criteria, and, before its session starts, whether a flow can be run
at all. A user's own command runs in the session's workspace and sandbox; the user that typed it has decided about it.
"""

import asyncio
import contextlib
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec.structs import replace

from switchtower import config
from switchtower.core import commands as core_commands
from switchtower.core import errors, events, policy
from switchtower.core.ports import host_services
from switchtower.core.rules import admission
from switchtower.core.session import WorkspaceChange
from switchtower.engines.agent.presets import PresetCatalog
from switchtower.engines.agent.prompts.system_prompt import PromptCatalog
from switchtower.engines.agent.tools import AskUserTool
from switchtower.engines.agent.trust import FolderTrust
from switchtower.extensions.loader import ExtensionLoader
from switchtower.host_services import presets
from switchtower.models.catalog import Catalog
from switchtower.models.providers import DEMO
from switchtower.settings.live import LiveSettings
from switchtower.tools.git import worktrees
from switchtower.tools.git.process import GitUnavailable
from switchtower.tools.processes import commands
from switchtower.tools.registry import Toolbox
from switchtower.tools.sandboxes import sandbox as sandboxes_sandbox
from switchtower.tools.snapshots.checkpoints import Checkpoints

CRITERION_TIMEOUT = 120.0
CRITERION_OUTPUT_LIMIT = 2_000


def check_folder(root: str) -> None:
    path = Path(root)
    if not path.is_absolute():
        raise errors.SandboxUnavailable(f"the workspace `{path}` is not an absolute path")
    if not _is_folder(path):
        raise errors.SandboxUnavailable(f"the workspace `{path}` is not a folder", hint="create it, or name another")


def _is_folder(root: Path) -> bool:
    try:
        return root.is_dir()
    except OSError:
        return False  # a name too long for any file, or in a folder without permission


async def check_criterion(
    criterion: events.Criterion,
    workspace: events.Workspace,
    run_id: str,
    timeout_s: float = CRITERION_TIMEOUT,
    *,
    sandbox_: sandboxes_sandbox.Sandbox = sandboxes_sandbox.LOCAL,
) -> events.CriterionResult:
    """Runs one acceptance check in the workspace. One that cannot be started or takes too long has not passed."""
    try:
        finished = await commands.run_command(
            criterion.check, cwd=workspace.root, run_id=run_id, timeout_s=timeout_s, sandbox=sandbox_
        )
    except (OSError, ValueError) as problem:
        return events.CriterionResult(criterion.id, passed=False, exit_code=126, output=str(problem)[:CRITERION_OUTPUT_LIMIT])
    finally:
        await commands.end_run(run_id)  # background processes of a check end with it
    output = finished.output
    if finished.timed_out:
        output = f"not finished after {timeout_s:g} s\n{output}"
    passed = not finished.timed_out and finished.exit_code == criterion.exit_code
    return events.CriterionResult(criterion.id, passed, finished.exit_code, output[:CRITERION_OUTPUT_LIMIT])


MAX_SHELL_SECONDS = 24 * 3600.0
"""A client ends its command earlier if it wants to; this limit is for a command whose client is gone."""


async def run_shell_command(
    command: str, workspace: events.Workspace, shell_id: str, *, where: sandboxes_sandbox.Sandbox = sandboxes_sandbox.LOCAL
) -> host_services.ShellResult:
    try:
        finished = await commands.run_command(
            command, cwd=workspace.root, run_id=shell_id, timeout_s=MAX_SHELL_SECONDS, sandbox=where
        )
    except (OSError, ValueError) as problem:
        raise errors.InvalidCommand(f"the command could not be started: {problem}") from problem
    finally:
        await commands.end_run(shell_id)  # with its background processes
    return host_services.ShellResult(finished.exit_code, finished.output)


_MAX_PROBLEMS = 20


def complete_flow(flow: events.Flow) -> events.Flow:
    """Returns the flow with its inputs' defaults. Raises `InvalidCommand` with every problem."""
    from switchtower.engines.flow import ir
    from switchtower.engines.flow.ir import parser
    from switchtower.engines.flow.runtime.kinds import catalog

    try:
        parsed = ir.parse_flow(flow.document)
        given = parser.check_inputs(parsed.inputs_schema, flow.inputs)
    except ir.InvalidFlow as invalid:
        told = str(invalid).splitlines()
        raise errors.InvalidCommand("\n".join(told[:_MAX_PROBLEMS]), hint="check it with `tower flow validate`") from None
    lasting = any(kind in catalog.SESSION_KINDS for kind in parsed.list_step_kinds())
    return replace(flow, name=parsed.name, inputs=given, lasting=lasting)


AUTO = presets.AUTO
LOCAL = admission.LOCAL
TERMINAL = "terminal"
FLOW = "flow"
"""The placeholder providers of sessions without a model."""


class LocalHostServices:
    """Implements `host_services.HostServices`."""

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

    def get_workspace(self, session_id: str) -> host_services.WorkspaceServices:
        return self

    def prepare_session(self, command: core_commands.StartSession) -> core_commands.StartSession:
        command = self._apply_sandbox(command)
        if command.trusts_folder:
            self.trust_folder(command.workspace.root, command.actor)
        if command.program is not None:
            check_folder(command.workspace.root)
            return replace(command, engine="pty", provider=TERMINAL, model=None)
        if command.flow is not None:
            check_folder(command.workspace.root)
            return replace(command, engine=FLOW, provider=FLOW, model=None, flow=complete_flow(command.flow))
        usual_budget = self._make_default_budget()
        command = presets.apply_preset(command, self._presets, usual_policy=self._settings.policy, usual=usual_budget)
        provider, model = self._choose_model(command.provider, command.model, allows_demo=command.allows_demo)
        self._catalog.check_model(provider, model)
        _check_policy(command.policy)
        check_folder(command.workspace.root)
        budget = presets.fill_budget(command.budget, usual_budget)
        self._check_price(provider, model, budget)
        return replace(
            command,
            provider=provider,
            model=model or self._catalog.choose_model(provider, None),
            policy=command.policy or self._settings.policy,
            budget=budget,
            warnings=(*command.warnings, *self._make_warnings(provider, command.model)),
        )

    def is_model_known(self, command: core_commands.StartSession) -> bool:
        if command.program is not None or command.flow is not None:
            return True
        if command.provider == AUTO or command.preset is not None or command.budget is not None or self._settings.max_cost:
            return False
        return self._catalog.has_current_models(command.provider, command.model)

    async def look_up_model(self, command: core_commands.StartSession | core_commands.ConfigureSession) -> None:
        if isinstance(command, core_commands.StartSession):
            if command.program is not None or command.flow is not None:
                return
            usual = self._make_default_budget()
            with contextlib.suppress(errors.CoreError):  # `prepare_session` refuses it
                command = presets.apply_preset(command, self._presets, usual_policy=self._settings.policy, usual=usual)
        provider = command.provider
        if provider == AUTO:
            await self._catalog.refresh_default()
            provider = None
            with contextlib.suppress(errors.ProviderNotConfigured):  # `prepare_session` refuses it
                provider, _ = self._choose_model(AUTO, command.model, allows_demo=True)
        if provider is not None:
            await self._catalog.refresh_models(provider, command.model)
            if (
                isinstance(command, core_commands.StartSession)
                and presets.fill_budget(command.budget, self._make_default_budget()).max_cost
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
        """A model name that its server cannot confirm is accepted as it is, with a warning."""
        if named is None or provider == DEMO or self._catalog.list_server_models(provider) is not None:
            return ()
        message = f"The model name `{named}` was not checked: {provider} lists no models"
        return (events.WarningRaised("MODEL_NOT_CHECKED", message),)

    def _apply_sandbox(self, command: core_commands.StartSession) -> core_commands.StartSession:
        """A session that names no sandbox gets the configured one; one that names a weaker one is refused. `auto` is about the
        agent's commands: a program or a flow that a user starts runs on the machine itself."""
        least, missing = self._settings.sandbox, None
        if least == AUTO:
            is_persons_own = command.program is not None or command.flow is not None
            least, missing = (LOCAL, None) if is_persons_own else sandboxes_sandbox.find_best_available()
        sandbox = command.sandbox or least
        if admission.is_weaker(sandbox, least) and not command.sandbox_is_settled:
            raise errors.SandboxUnavailable(
                f"commands run in `{least}` here, and `{sandbox}` is less",
                hint="leave the sandbox out, or name it on the owner's own socket, as with `tower run --sandbox local`",
            )
        sandboxes_sandbox.choose_sandbox(sandbox, network=self._settings.sandbox_network)
        warnings = () if missing is None or command.sandbox is not None else (_make_no_sandbox_warning(missing),)
        return replace(command, sandbox=sandbox, warnings=(*command.warnings, *warnings))

    def check_configuration(self, command: core_commands.ConfigureSession) -> None:
        self._live.current  # noqa: B018 - a changed file is read first
        _check_policy(command.policy)
        if command.provider is not None:
            self._catalog.check_model(command.provider, command.model)

    async def add_worktree(self, command: core_commands.StartSession) -> core_commands.StartSession:
        folder = self._settings.worktrees_dir
        worktree = await worktrees.create_worktree(command.workspace.root, folder, command.session_id)
        workspace = replace(command.workspace, root=worktree.root, branch=worktree.branch, origin=worktree.origin)
        return replace(command, workspace=workspace)

    async def check_criterion(
        self, criterion: events.Criterion, workspace: events.Workspace, sandbox: str, run_id: str
    ) -> events.CriterionResult:
        where = sandboxes_sandbox.choose_sandbox(sandbox, network=self._settings.sandbox_network)
        return await check_criterion(criterion, workspace, run_id, sandbox_=where)

    async def run_shell(
        self, command: str, workspace: events.Workspace, sandbox: str, shell_id: str
    ) -> host_services.ShellResult:
        where = sandboxes_sandbox.choose_sandbox(sandbox, network=self._settings.sandbox_network)
        return await run_shell_command(command, workspace, shell_id, where=where)

    def resolve_folder(self, path: str) -> str:
        return os.path.realpath(path)

    def kill_processes(self, run_id: str) -> int:
        return commands.kill_marked(run_id)

    async def diff(self, workspace: events.Workspace, changes: Sequence[WorkspaceChange]) -> str:
        if not changes:
            return ""
        first, last = changes[0], changes[-1]
        # A single run is shown as it ended; a whole session as the folder is now.
        after = last.after if len(changes) == 1 else None
        try:
            return await self._checkpoints.diff(workspace.root, first.before, after)
        except GitUnavailable as reason:
            raise errors.NothingToRestore(str(reason)) from reason

    async def list_models(self) -> Sequence[host_services.ModelInfo]:
        await self._catalog.refresh_default()
        default = self._get_default_provider()
        listings = await asyncio.to_thread(self._catalog.list_entries)  # the first call loads a list of prices
        return [
            host_services.ModelInfo(
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

    async def list_templates(self, workspace: str) -> Sequence[host_services.TemplateInfo]:
        return await asyncio.to_thread(presets.list_templates, self._store, self._extensions, workspace)

    async def list_presets(self, workspace: str) -> Sequence[host_services.PresetInfo]:
        def check_model(provider: str | None, model: str | None) -> None:
            self._catalog.check_model(*self._choose_model(provider or AUTO, model))

        return await asyncio.to_thread(presets.list_presets, self._presets, workspace, check_model)

    def trust_folder(self, path: str, actor: events.Actor) -> str:
        check_folder(path)
        return self._trust.add(path, by=actor.name, now_ms=time.time_ns() // 1_000_000)

    def forget_folder(self, path: str) -> bool:
        return self._trust.remove(path)

    def list_trusted_folders(self) -> Sequence[host_services.TrustedFolder]:
        return [host_services.TrustedFolder(one.path, one.since_ms, one.by) for one in self._trust.list_trusted()]

    def list_tools(self) -> Sequence[host_services.ToolInfo]:
        ours = [host_services.ToolInfo(tool.name, tool.description) for tool in self._toolbox.tools]
        return [*ours, host_services.ToolInfo(AskUserTool.name, AskUserTool.description)]

    def set_provider_variables(self, variables: Mapping[str, str]) -> None:
        self._catalog.add_shell_variables(variables)

    def list_breakers(self) -> Sequence[host_services.BreakerState]:
        return self._catalog.list_breaker_states()

    def _get_default_provider(self) -> str | None:
        """Returns the provider of a session that names none; None when there is none but the demo."""
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


def _make_no_sandbox_warning(missing: sandboxes_sandbox.SandboxProblem) -> events.WarningRaised:
    return events.WarningRaised(
        code="NO_SANDBOX",
        message=f"Commands run without a sandbox: {missing.reason}",
        detail=f"hint: {missing.remedy}; the setting `sandbox = local` says that you want none",
    )


def _check_policy(profile: str | None) -> None:
    if profile is not None and profile not in policy.PROFILES:
        raise errors.InvalidCommand(f"there is no policy `{profile}`", hint=f"use one of {', '.join(policy.PROFILES)}")
