"""A model that plays what a test writes down, and the types of the fixtures."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

from switchtower.core import events
from switchtower.core.ports import engine
from switchtower.engines.agent.loop import AgentEngine
from switchtower.models import port

MakeTask = Callable[..., engine.Task]
MakeDesk = Callable[..., Any]
MakeAgent = Callable[..., AgentEngine]

APPROVE = engine.ApprovalAnswer(events.Verdict.APPROVE)
EXPIRED = engine.ApprovalAnswer(None)


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
