"""The workshop port: what the runtime needs of the world around it. Folders, processes and models are looked at there."""

from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct

from switchtower.core import commands, events
from switchtower.core.timeline import Change


class ModelOffer(Struct, frozen=True):
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


class TemplateOffer(Struct, frozen=True):
    """A skill or a prompt that a message can begin with, as `/name`."""

    name: str
    kind: str
    description: str
    path: str
    origin: str


class Workshop(Protocol):
    def prepared(self, command: commands.StartSession) -> commands.StartSession:
        """The command with what it left open filled in. Refuses a session that could not work: an unknown model, sandbox,
        policy or folder."""
        ...

    def check_configuration(self, command: commands.ConfigureSession) -> None: ...

    async def with_worktree(self, command: commands.StartSession) -> commands.StartSession:
        """The same session in a worktree of its own."""
        ...

    async def check_criterion(
        self, criterion: events.Criterion, workspace: events.Workspace, sandbox: str, run_id: str
    ) -> events.CriterionResult: ...

    def kill_processes(self, run_id: str) -> int:
        """Ends what a run left behind; how many there were."""
        ...

    async def diff(self, workspace: events.Workspace, changes: Sequence[Change]) -> str:
        """What these runs changed, as a unified diff."""
        ...

    async def models(self) -> Sequence[ModelOffer]: ...

    async def templates(self, workspace: str) -> Sequence[TemplateOffer]: ...
