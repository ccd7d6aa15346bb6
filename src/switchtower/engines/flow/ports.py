"""The ports of the flow engine: runtimes that run steps, and agents that do them."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol

from msgspec import Struct

from switchtower.core import events

FlowRuntimeEvent = Mapping[str, Any]
"""An event of REP: `{type, timestamp, …}`."""
OnEvent = Callable[[FlowRuntimeEvent], Awaitable[None]]


class FlowOrder(Struct, frozen=True, kw_only=True):
    """A flow to be run, and where."""

    flow: events.Flow
    run_id: str
    workspace: str
    sandbox: str


class FlowResult(Struct, frozen=True):
    """The result of a flow, in REP's terms."""

    status: str
    summary: dict[str, Any]
    exit_code: int


class FlowRuntimes(Protocol):
    """Runs flows on the runtime that the flow has chosen. When a method returns, no process of a runtime is left."""

    async def run(self, order: FlowOrder, cancel: asyncio.Event, on_event: OnEvent) -> FlowResult:
        """Runs the whole flow on one runtime."""
        ...

    async def find_missing_kinds(self, order: FlowOrder, kinds: Sequence[str]) -> dict[str, Any] | None:
        """Returns the error that prevents the runtime's use, before anything is run; None when it has all these kinds."""
        ...

    async def run_step(self, order: FlowOrder, document: dict[str, Any], kind: str) -> Mapping[str, Any]:
        """Runs a flow of one node on a separate runtime and returns `{status, summary, events}`."""
        ...

    def get_exit_code(self, status: str, summary: Mapping[str, Any]) -> int: ...


class AgentOrder(Struct, frozen=True, kw_only=True):
    """A step that a session is to do. It is idempotent: requested twice under one id, it is done once."""

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
    """The last message of the agent."""
    acceptance: tuple[events.CriterionResult, ...] = ()
    tokens: int = 0
    cost: float = 0.0


class AgentRefused(Exception):
    """The session could not be started; the text gives the reason and the remedy."""

    def __init__(self, message: str, *, retriable: bool = False) -> None:
        super().__init__(message)
        self.retriable = retriable


class FlowAgents(Protocol):
    async def run_agent(self, order: AgentOrder) -> AgentResult:
        """Waits for the end of the session, however long that takes. Raises `AgentRefused`."""
        ...

    async def stop_agent(self, session_id: str) -> None:
        """Stops the session; its work is no longer needed."""
        ...
