"""Host services without a host, for tests: every session may start, no process is killed, and there is one model."""

from collections.abc import Awaitable, Callable, Mapping, Sequence

import msgspec

from switchtower.core import commands, events
from switchtower.core.ports import host_services
from switchtower.core.session import WorkspaceChange

RunShellStub = Callable[[str], Awaitable[host_services.ShellResult]]
CheckCriterionStub = Callable[[events.Criterion, events.Workspace, str], Awaitable[events.CriterionResult]]


async def _pass_criterion(criterion: events.Criterion, workspace: events.Workspace, run_id: str) -> events.CriterionResult:
    return events.CriterionResult(criterion.id, passed=True, exit_code=0, output="")


async def _run_nothing(command: str) -> host_services.ShellResult:
    return host_services.ShellResult(0, f"ran {command}")


class StubHostServices:
    """Implements `HostServices`. `killed` lists the runs whose processes were to be killed."""

    def __init__(self, check: CheckCriterionStub = _pass_criterion) -> None:
        self.killed: list[str] = []
        self._check = check
        self.shell: RunShellStub = _run_nothing
        """Runs a user's own command."""

    usual_policy = "ask"

    def get_workspace(self, session_id: str) -> host_services.WorkspaceServices:
        return self

    def is_model_known(self, command: commands.StartSession) -> bool:
        return True

    async def look_up_model(self, command: commands.StartSession | commands.ConfigureSession) -> None:
        """Does nothing: there is no server."""

    async def list_server_models(self, provider: str) -> Sequence[str] | None:
        return None

    def prepare_session(self, command: commands.StartSession) -> commands.StartSession:
        return msgspec.structs.replace(command, sandbox=command.sandbox or "local")

    def check_configuration(self, command: commands.ConfigureSession) -> None:
        """Accepts every configuration."""

    async def add_worktree(self, command: commands.StartSession) -> commands.StartSession:
        return command

    async def check_criterion(
        self, criterion: events.Criterion, workspace: events.Workspace, sandbox: str, run_id: str
    ) -> events.CriterionResult:
        return await self._check(criterion, workspace, run_id)

    async def run_shell(
        self, command: str, workspace: events.Workspace, sandbox: str, shell_id: str
    ) -> host_services.ShellResult:
        return await self.shell(command)

    def resolve_folder(self, path: str) -> str:
        return path

    def kill_processes(self, run_id: str) -> int:
        self.killed.append(run_id)
        return 0

    async def diff(self, workspace: events.Workspace, changes: Sequence[WorkspaceChange]) -> str:
        return "".join(f"--- {change.before}\n+++ {change.after}\n" for change in changes)

    async def list_models(self) -> Sequence[host_services.ModelInfo]:
        return [host_services.ModelInfo("demo", "demo", "demo", usable=True, reason="built in", is_default=True)]

    async def list_templates(self, workspace: str) -> Sequence[host_services.TemplateInfo]:
        return []

    async def list_presets(self, workspace: str) -> Sequence[host_services.PresetInfo]:
        return []

    def trust_folder(self, path: str, actor: events.Actor) -> str:
        return path

    def forget_folder(self, path: str) -> bool:
        return False

    def list_trusted_folders(self) -> Sequence[host_services.TrustedFolder]:
        return []

    def list_tools(self) -> Sequence[host_services.ToolInfo]:
        return []

    def list_breakers(self) -> Sequence[host_services.BreakerState]:
        return []

    def set_provider_variables(self, variables: Mapping[str, str]) -> None:
        pass
