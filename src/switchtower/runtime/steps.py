"""The steps of one run that can be stopped on their own, such as the wait before a retry, while the run itself goes on."""

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

from switchtower.core import engine

StepResult = TypeVar("StepResult")


class CancellableSteps:
    def __init__(self) -> None:
        self._doing: dict[str, asyncio.Future[object]] = {}

    async def run(self, step: str, work: Awaitable[StepResult]) -> StepResult:
        """Raises `engine.StepStopped` when it was stopped; a run that is cancelled is cancelled as ever."""
        task: asyncio.Future[StepResult] = asyncio.ensure_future(work)
        self._doing[step] = task  # type: ignore[assignment]
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError:
            task.cancel()
            await asyncio.wait([task])
            raise
        finally:
            self._doing.pop(step, None)
        if task.cancelled():
            raise engine.StepCancelled(step)
        return task.result()

    def stop(self, step: str) -> None:
        """Without one under way there is nothing to stop: it has ended by itself."""
        if (task := self._doing.get(step)) is not None:
            task.cancel()
