"""What the flow engine needs of others: runtimes to run steps on, and agents to do them. Does nothing itself."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol

from msgspec import Struct

from switchtower.core import events

FlowRuntimeEvent = Mapping[str, Any]
"""REP's: `{type, timestamp, …}`."""
OnEvent = Callable[[FlowRuntimeEvent], Awaitable[None]]


class FlowOrder(Struct, frozen=True, kw_only=True):
    """A flow to be run, and where."""

    flow: events.Flow
    run_id: str
    workspace: str
    sandbox: str


class FlowResult(Struct, frozen=True):
    """How a flow ended, in REP's words."""

    status: str
    summary: dict[str, Any]
    exit_code: int


class FlowRuntimes(Protocol):
    """Runs on whatever runtime the flow has chosen. Nothing of a runtime is left when one of these returns."""

    async def run(self, order: FlowOrder, cancel: asyncio.Event, on_event: OnEvent) -> FlowResult:
        """The whole flow on one runtime."""
        ...

    async def find_missing_kinds(self, order: FlowOrder, kinds: Sequence[str]) -> dict[str, Any] | None:
        """The error that the runtime cannot be used for, asked before anything is run; None when it has all these kinds."""
        ...

    async def run_step(self, order: FlowOrder, document: dict[str, Any], kind: str) -> Mapping[str, Any]:
        """A flow of one node, on a runtime of its own: `{status, summary, events}`."""
        ...

    def get_exit_code(self, status: str, summary: Mapping[str, Any]) -> int: ...


class AgentOrder(Struct, frozen=True, kw_only=True):
    """A step that a session is to do. Asked for twice under one id, it is done once."""

    session_id: str
    prompt: str
    workspace: str
    sandbox: str
    title: str
    by: events.Actor
    metadata: dict[str, Any]
    provider: str = "auto"
    model: str | None = None
    preset: str | None = None
    policy: str | None = None
    thinking: str | None = None
    acceptance: tuple[events.Criterion, ...] = ()
    budget: events.Budget | None = None
    worktree: bool = False


class AgentResult(Struct, frozen=True, kw_only=True):
    run_id: str
    outcome: events.Outcome
    summary: str
    text: str
    """The last that the agent said."""
    acceptance: tuple[events.CriterionResult, ...] = ()
    tokens: int = 0
    cost: float = 0.0


class AgentRefused(Exception):
    """The session could not be started; its text says why, and what to do"""

    def __init__(self, message: str, *, retriable: bool = False) -> None:
        super().__init__(message)
        self.retriable = retriable


class FlowAgents(Protocol):
    async def run_agent(self, order: AgentOrder) -> AgentResult:
        """Waits for the end of it, however long that takes. Raises `Refused`."""
        ...

    async def stop_agent(self, session_id: str) -> None:
        """Its work is not wanted any more."""
        ...
