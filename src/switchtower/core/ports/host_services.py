"""The workshop port: what the runtime needs of the world around it. Folders, processes and models are looked at there."""

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
    """Where its key comes from, for people."""


class TemplateInfo(Struct, frozen=True):
    """A skill or a prompt that a message can begin with, as `/name`."""

    name: str
    kind: str
    description: str
    path: str
    origin: str


class PresetInfo(Struct, frozen=True, kw_only=True):
    """A preset that a session can begin with, or why it cannot. What it leaves open is None."""

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
    """A folder whose instructions count, and those of the folders below it."""

    path: str
    since_ms: int
    by: str


class ToolInfo(Struct, frozen=True):
    """Something an agent can do."""

    name: str
    description: str


class BreakerState(Struct, frozen=True, kw_only=True):
    """How a provider has behaved lately. `state` is `closed`, `open` or `half_open`; times are in milliseconds."""

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
    """How a person's own command ended; `text` is what it put out, bounded."""

    exit_code: int
    text: str


class WorkspaceServices(Protocol):
    """What the disk of one session's home can tell."""

    async def diff(self, workspace: events.Workspace, changes: Sequence[WorkspaceChange]) -> str:
        """What these runs changed, as a unified diff."""
        ...

    async def list_templates(self, workspace: str) -> Sequence[TemplateInfo]: ...

    async def list_presets(self, workspace: str) -> Sequence[PresetInfo]: ...


class HostServices(WorkspaceServices, Protocol):
    """Of this machine. Whoever knows the session asks `of` it: its home, and so its folder, may be another node's."""

    @property
    def usual_policy(self) -> str:
        """The profile of a session that names none."""
        ...

    def get_workspace(self, session_id: str) -> WorkspaceServices: ...

    def needs_model_lookup(self, command: commands.StartSession) -> bool:
        """Whether `prepared` can decide at once. If not, `look_up_model` comes first."""
        ...

    async def look_up_model(self, command: commands.StartSession | commands.ConfigureSession) -> None:
        """Asks the provider's server which models it has, for what decides afterwards. Bounded, cached, and raises nothing."""
        ...

    async def list_server_models(self, provider: str) -> Sequence[str] | None:
        """The models that a provider's server lists; None when it has no list."""
        ...

    def prepare_session(self, command: commands.StartSession) -> commands.StartSession:
        """The command with what it left open filled in. Refuses a session that could not work: an unknown model, sandbox,
        policy, preset or folder."""
        ...

    def check_configuration(self, command: commands.ConfigureSession) -> None: ...

    async def add_worktree(self, command: commands.StartSession) -> commands.StartSession:
        """The same session in a worktree of its own."""
        ...

    async def check_criterion(
        self, criterion: events.Criterion, workspace: events.Workspace, sandbox: str, run_id: str
    ) -> events.CriterionResult: ...

    async def run_shell(self, command: str, workspace: events.Workspace, sandbox: str, shell_id: str) -> "ShellResult":
        """Runs a person's own command to its end. Cancelled, it ends all that it started."""
        ...

    def resolve_folder(self, path: str) -> str:
        """The folder that a path leads to, links followed."""
        ...

    def kill_processes(self, run_id: str) -> int:
        """Ends what a run left behind; how many there were."""
        ...

    async def list_models(self) -> Sequence[ModelInfo]: ...

    def trust_folder(self, path: str, actor: events.Actor) -> str:
        """From now on the folder's instructions count; its real path."""
        ...

    def forget_folder(self, path: str) -> bool:
        """Whether the folder was trusted by a decision."""
        ...

    def list_trusted_folders(self) -> Sequence[TrustedFolder]: ...

    def list_tools(self) -> Sequence[ToolInfo]:
        """The agent's own tools; those of MCP servers come with a session's first run."""
        ...

    def list_breakers(self) -> Sequence[BreakerState]: ...

    def set_provider_variables(self, variables: Mapping[str, str]) -> None:
        """Takes keys and addresses of providers from the owner's shell, for this node and in memory only. Blocks. Raises
        `InvalidCommand` for other variables."""
        ...
