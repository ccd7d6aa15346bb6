"""Executes a run on an event loop: starts the steps that may start, a few at a time, and continues as steps end. When the run is
over, however it ends, none of its steps is still running.
"""

import asyncio
from collections.abc import Mapping
from typing import Any

from switchtower.engines.flow.runtime import failures, run, steps
from switchtower.tools import concurrency

CONCURRENCY = 4
_LAST_WAIT = 10.0
"""The seconds that a cancelled kind has to stop. One that does not stop is abandoned: its process is about to end."""


class FlowExecution:
    def __init__(self, of: run.FlowRunState, *, concurrency: int = CONCURRENCY) -> None:
        self._run = of
        self._concurrency = concurrency
        self._driving: asyncio.Task[None] | None = None
        self._is_cancelled = False

    def cancel(self) -> None:
        """Cancels the run; must be called on the event loop. A run that is over stays as it is."""
        if self._is_cancelled:
            return
        self._is_cancelled = True
        if self._driving is not None:
            self._driving.cancel()

    async def execute(self) -> None:
        """Executes the run to its end. A failed run raises nothing."""
        if self._run.status == "pending" and not self._is_cancelled:
            self._run.begin()
        if self._run.is_over:
            return
        # A separate task, so that cancelling the run does not cancel the caller that waits for it.
        self._driving = asyncio.create_task(self._run_in_time())
        if self._is_cancelled:
            self._driving.cancel()
        failure: failures.StepFailure | None = failures.make_cancelled()
        try:
            await asyncio.wait({self._driving})
            failure = self._find_failure(self._driving)
        except asyncio.CancelledError:
            self._driving.cancel()
            await concurrency.run_to_completion(asyncio.wait({self._driving}, timeout=_LAST_WAIT))
            raise
        finally:
            try:
                await concurrency.run_to_completion(self._clean_up())
            finally:
                self._run.end(failure)

    def _find_failure(self, driving: asyncio.Task[None]) -> failures.StepFailure | None:
        if driving.cancelled():
            return failures.make_cancelled()
        match driving.exception():
            case None:
                return None
            case run.FlowRunFailed() as failed:
                return failed.failure
            case TimeoutError():
                message = f"the flow took longer than {self._run.flow.timeout_ms} ms"
                return failures.StepFailure(code=failures.STOPPED, message=message, cause=failures.TIMEOUT)
            case error:
                return failures.make_panic(error)

    async def _run_in_time(self) -> None:
        async with asyncio.timeout(self._run.flow.timeout_ms / 1000 or None):
            await self._drive()

    async def _drive(self) -> None:
        waiting = self._run.waiting
        running: dict[asyncio.Task[Mapping[str, Any] | failures.StepFailure], steps.StepExecution] = {}
        try:
            while waiting or running:
                while waiting and (waiting[0].is_waiting_only or self._count_busy(running) < self._concurrency):
                    step = waiting.popleft()
                    running[asyncio.create_task(step.run(), name=f"step {step.node.id}")] = step
                done, _ = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                for task in [task for task in running if task in done]:
                    self._run.settle(running.pop(task), task.result())
                if self._run.proceed():
                    return
        finally:
            for task in running:
                task.cancel()
            if running:
                await concurrency.run_to_completion(asyncio.wait(running, timeout=_LAST_WAIT))

    def _count_busy(self, running: Mapping[Any, steps.StepExecution]) -> int:
        return sum(not step.is_waiting_only for step in running.values())

    async def _clean_up(self) -> None:
        """Closes what the kinds still hold, such as a server that several steps share."""
        setting = self._run.setting
        closings = [closing() for closing in setting.closings.values()]
        for ended in await asyncio.gather(*closings, return_exceptions=True):
            if isinstance(ended, Exception):
                setting.events.add_log("warning", f"cleaning up failed with {type(ended).__name__}")
