"""A run context that records what an engine emits, a model that plays what a test writes down, and the types of the fixtures."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from itertools import count
from typing import TypeVar

from switchtower.core import events
from switchtower.core.ports import engine
from switchtower.engines.agent.loop import AgentEngine
from switchtower.models import port
from switchtower.runtime.run_context import CancellableSteps

T = TypeVar("T")
EventT = TypeVar("EventT", bound=events.Event)

MakeTask = Callable[..., engine.Task]
MakeAgent = Callable[..., AgentEngine]

APPROVE = engine.ApprovalAnswer(events.Verdict.APPROVE)
EXPIRED = engine.ApprovalAnswer(None)


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

    async def request_approval(self, question: engine.ApprovalQuestion) -> engine.ApprovalAnswer:
        await self._note(question)
        if not self._answers:
            await asyncio.Event().wait()
        return self._answers.pop(0)

    async def open_dialog(self, dialog: events.Dialog) -> engine.DialogAnswer:
        await self._note(dialog)
        if not self._dialog_answers:
            await asyncio.Event().wait()
        return self._dialog_answers.pop(0)

    async def run_step(self, step: str, work: Awaitable[T]) -> T:
        return await self.steps.run(step, work)

    def take_steering_messages(self) -> tuple[events.MessageQueued, ...]:
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


MakeDesk = Callable[..., RecordingRunContext]


class ScriptedModel:
    """Plays its parts, one list a turn, and raises what is an exception among them."""

    provider = "scripted"
    name = "script-1"

    def __init__(self, *turns: Sequence[port.Part | Exception], context_window: int | None = None) -> None:
        self.turns = list(turns)
        self.requests: list[port.CompletionRequest] = []
        self.context_window = context_window
        self.closed = 0

    @property
    def conversations(self) -> list[tuple[engine.Message, ...]]:
        return [tuple(request.conversation) for request in self.requests]

    async def stream(self, request: port.CompletionRequest) -> AsyncIterator[port.Part]:
        self.requests.append(request)
        try:
            for part in self.turns.pop(0):
                if isinstance(part, Exception):
                    raise part
                yield part
                await asyncio.sleep(0)
        finally:
            self.closed += 1
