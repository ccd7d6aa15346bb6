"""A desk that records what an engine says and answers its questions from a list, and tasks to give to an engine."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from itertools import count
from pathlib import Path
from typing import TypeVar
from uuid import uuid4

import pytest

from switchtower.core import events
from switchtower.core.ports import engine
from switchtower.engines.agent.context import AgentServices
from switchtower.engines.agent.loop import AgentEngine
from switchtower.models import port
from switchtower.models.catalog import Catalog
from switchtower.runtime.run_context import CancellableSteps
from switchtower.tools import registry
from switchtower.tools.mcp.servers import McpServers
from switchtower.tools.processes import commands
from switchtower.tools.snapshots.checkpoints import Checkpoints

T = TypeVar("T")
EventT = TypeVar("EventT", bound=events.Event)

_PASSED_OVER = (
    events.TextDelta,
    events.ThinkingDelta,
    events.PhaseChanged,
    events.ToolProgressed,
    events.UsageReported,
    events.CheckpointTaken,
)


class RecordingRunContext:
    """Keeps the order of everything that passes: events, questions, dialogs and flushes."""

    def __init__(self, *answers: engine.ApprovalAnswer, dialogs: Sequence[engine.DialogAnswer] = ()) -> None:
        self.log: list[events.AnyEvent | engine.ApprovalQuestion | events.Dialog | str] = []
        self.waiting: list[events.MessageQueued] = []
        """Steering that the engine has not taken up yet."""
        self._answers = list(answers)
        self._dialog_answers = list(dialogs)
        self.steps = CancellableSteps()
        self._grew = asyncio.Condition()
        self._numbers = count(1)

    async def emit(self, event: events.AnyEvent) -> None:
        await self._note(event)

    async def flush(self) -> None:
        await self._note("flush")

    async def ask(self, question: engine.ApprovalQuestion) -> engine.ApprovalAnswer:
        await self._note(question)
        if not self._answers:
            await asyncio.Event().wait()
        return self._answers.pop(0)

    async def consult(self, dialog: events.Dialog) -> engine.DialogAnswer:
        await self._note(dialog)
        if not self._dialog_answers:
            await asyncio.Event().wait()
        return self._dialog_answers.pop(0)

    async def unless_stopped(self, step: str, work: Awaitable[T]) -> T:
        return await self.steps.run(step, work)

    def steered(self) -> tuple[events.MessageQueued, ...]:
        waiting, self.waiting = tuple(self.waiting), []
        return waiting

    def mint(self, prefix: str) -> str:
        return f"{prefix}_{next(self._numbers)}"

    def list_events(self, event_type: type[EventT]) -> list[EventT]:
        return [event for event in self.log if isinstance(event, event_type)]

    @property
    def questions(self) -> list[engine.ApprovalQuestion]:
        return [entry for entry in self.log if isinstance(entry, engine.ApprovalQuestion)]

    @property
    def dialogs(self) -> list[events.Dialog]:
        return [entry for entry in self.log if isinstance(entry, events.Dialog)]

    @property
    def outline(self) -> list[str]:
        """The order of things without the streams and the bookkeeping between them."""
        entries = (entry for entry in self.log if not isinstance(entry, _PASSED_OVER))
        return [entry if isinstance(entry, str) else type(entry).__name__ for entry in entries]

    async def wait_until(self, condition: Callable[["RecordingRunContext"], bool]) -> None:
        async with asyncio.timeout(60), self._grew:
            await self._grew.wait_for(lambda: condition(self))

    async def _note(self, entry: events.AnyEvent | engine.ApprovalQuestion | events.Dialog | str) -> None:
        async with self._grew:
            self.log.append(entry)
            self._grew.notify_all()


@pytest.fixture
def make_run_context() -> Callable[..., RecordingRunContext]:
    return RecordingRunContext


@pytest.fixture
async def make_task(tmp_path: Path) -> AsyncIterator[Callable[..., engine.Task]]:
    run_id = f"run_{uuid4().hex}"

    def make(request: str | tuple[engine.Message, ...], **changes: object) -> engine.Task:
        messages = (engine.Message(role="user", text=request),) if isinstance(request, str) else request
        fields: dict[str, object] = {
            "session_id": "sess_1",
            "run_id": run_id,
            "workspace": events.Workspace(root=str(tmp_path)),
            "provider": "demo",
            "model": None,
            "sandbox": "local",
            "headless": False,
            "messages": messages,
        }
        return engine.Task(**(fields | changes))  # type: ignore[arg-type]

    yield make
    commands.kill_marked(run_id)


@pytest.fixture
async def agent(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Callable[..., AgentEngine]]:
    """An agent with real tools, and the demo model unless another is given."""
    catalog = Catalog({}, {}, demo_delay=0)
    servers = McpServers(None, environment=dict)

    def make(model: port.Model | None = None, **options: object) -> AgentEngine:
        async def open_model(provider: str, name: str | None) -> port.Model:
            return model or await catalog.open_model(provider, name)

        fields: dict[str, object] = {
            "open_model": open_model,
            "toolbox": registry.make_core_toolbox(),
            "checkpoints": Checkpoints(tmp_path_factory.mktemp("checkpoints")),
            "servers": servers,
        }
        return AgentEngine(AgentServices(**(fields | options)))  # type: ignore[arg-type]

    yield make
    await servers.close()
    await catalog.close()
