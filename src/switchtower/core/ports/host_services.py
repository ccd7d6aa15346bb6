"""The host services port: what the runtime needs from the machine, such as folders, processes and models."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from msgspec import Struct

from switchtower.core import commands, events
from switchtower.core.session import WorkspaceChange


class ModelInfo(Struct, frozen=True):
    """A model that sessions can name, or why they cannot. Prices are in US dollars per million tokens."""

    name: str
    provider: str
    model: str | None
    usable: bool
    reason: str
    is_default: bool = False
    context_window: int | None = None
    price_in: float | None = None
    price_out: float | None = None
    key_source: str | None = None
    """The source of its API key, for users to read."""


class TemplateInfo(Struct, frozen=True):
    """A skill or a prompt that a message can start with, as `/name`."""

    name: str
    kind: str
    description: str
    path: str
    origin: str


class PresetInfo(Struct, frozen=True, kw_only=True):
    """A preset that a session can start with, or why it cannot. Fields that it leaves open are None."""

    name: str
    origin: str
    path: str
    description: str = ""
    provider: str | None = None
    model: str | None = None
    policy: str | None = None
    thinking: str | None = None
    servers: tuple[str, ...] = ()
    usable: bool = True
    reason: str = ""


class TrustedFolder(Struct, frozen=True):
    """A folder whose instructions are used, and those of the folders below it."""

    path: str
    since_ms: int
    by: str


class ToolInfo(Struct, frozen=True):
    """A tool that an agent can call."""

    name: str
    description: str


class BreakerState(Struct, frozen=True, kw_only=True):
    """A provider's recent failures. `state` is `closed`, `open` or `half_open`; times are in milliseconds."""

    provider: str
    state: str
    failures: int
    last_failure_ms: int | None = None
    calls: int = 0
    rejected: int = 0
    successes: int = 0
    failed: int = 0
    average_ms: float = 0.0


class ShellResult(Struct, frozen=True):
    """The result of a user's own command; `text` is its output, bounded."""

    exit_code: int
    text: str


class WorkspaceServices(Protocol):
    """The files of one session's workspace, on the node that owns the session."""

    async def diff(self, workspace: events.Workspace, changes: Sequence[WorkspaceChange]) -> str:
        """Returns the changes of these runs as a unified diff."""
        ...

    async def list_templates(self, workspace: str) -> Sequence[TemplateInfo]: ...

    async def list_presets(self, workspace: str) -> Sequence[PresetInfo]: ...


class HostServices(WorkspaceServices, Protocol):
    """The services of this machine. A caller that knows the session uses `get_workspace`: another node may own the session,
    and have its folder.
    """

    @property
    def usual_policy(self) -> str:
        """The policy of a session that names none."""
        ...

    def get_workspace(self, session_id: str) -> WorkspaceServices: ...

    def is_model_known(self, command: commands.StartSession) -> bool:
        """Returns whether `prepare_session` can decide at once. If not, `look_up_model` must come first."""
        ...

    async def look_up_model(self, command: commands.StartSession | commands.ConfigureSession) -> None:
        """Asks the provider's server which models it has, for the decision afterwards. Bounded, cached, and raises nothing."""
        ...

    async def list_server_models(self, provider: str) -> Sequence[str] | None:
        """Lists the models of a provider's server; None when it has no list."""
        ...

    def prepare_session(self, command: commands.StartSession) -> commands.StartSession:
        """Returns the command with its open fields filled in. Refuses a session that could not work: an unknown model,
        sandbox, policy, preset or folder.
        """
        ...

    def check_configuration(self, command: commands.ConfigureSession) -> None: ...

    async def add_worktree(self, command: commands.StartSession) -> commands.StartSession:
        """Returns the same session in its own worktree."""
        ...

    async def check_criterion(
        self, criterion: events.Criterion, workspace: events.Workspace, sandbox: str, run_id: str
    ) -> events.CriterionResult: ...

    async def run_shell(self, command: str, workspace: events.Workspace, sandbox: str, shell_id: str) -> "ShellResult":
        """Runs a user's own command to its end. When cancelled, it ends all processes that the command started."""
        ...

    def resolve_folder(self, path: str) -> str:
        """Returns the folder that a path leads to, with links followed."""
        ...

    def kill_processes(self, run_id: str) -> int:
        """Kills the processes that a run left behind; returns their number."""
        ...

    async def list_models(self) -> Sequence[ModelInfo]: ...

    def trust_folder(self, path: str, actor: events.Actor) -> str:
        """Makes the folder trusted, so that its instructions are used; returns its real path."""
        ...

    def forget_folder(self, path: str) -> bool:
        """Returns whether a decision had made the folder trusted."""
        ...

    def list_trusted_folders(self) -> Sequence[TrustedFolder]: ...

    def list_tools(self) -> Sequence[ToolInfo]:
        """Lists the agent's own tools; those of MCP servers are added in a session's first run."""
        ...

    def list_breakers(self) -> Sequence[BreakerState]: ...

    def set_provider_variables(self, variables: Mapping[str, str]) -> None:
        """Takes keys and addresses of providers from the owner's shell, for this node and in memory only. Blocks. Raises
        `InvalidCommand` for other variables.
        """
        ...
