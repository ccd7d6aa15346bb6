"""The workspace as it was before a run's first change, kept so that the run can be undone. Changes nothing itself."""

import asyncio
import logging

from switchtower.core import engine, events
from switchtower.tools.git.plumbing.unavailable import GitUnavailable
from switchtower.tools.snapshots.checkpoints import Checkpoints

CANCEL_TIMEOUT = 0.5
"""Whoever cancels a run wants it to end. Without the tree after it, what is found at an undo counts as the run's."""

log = logging.getLogger(__name__)


class ChangeTracker:
    def __init__(self, checkpoints: Checkpoints, task: engine.Task, context: engine.RunContext) -> None:
        self._checkpoints = checkpoints
        self._task = task
        self._context = context
        self._before = task.checkpoint
        self._gave_up = False

    async def record_before(self) -> None:
        """Call it before anything that may change a file. Only the first call of a run does something."""
        if self._before is not None or self._gave_up:
            return
        try:
            self._before = await self._take_checkpoint("before")
        except GitUnavailable as reason:
            self._gave_up = True
            await self._context.emit(
                events.WarningRaised("CHECKPOINT_UNAVAILABLE", f"This run's changes cannot be undone: {reason}")
            )
        else:
            await self._context.emit(events.CheckpointTaken("before", self._before))

    async def record_after(self) -> None:
        if self._before is None:
            return
        try:
            tree = await self._take_checkpoint("after")
        except GitUnavailable as reason:
            log.warning("no checkpoint after run %s: %s", self._task.run_id, reason)
        else:
            await self._context.emit(events.CheckpointTaken("after", tree))

    async def record_after_cancel(self) -> None:
        try:
            async with asyncio.timeout(CANCEL_TIMEOUT):
                await self.record_after()
        except TimeoutError:
            log.warning("no checkpoint after the cancelled run %s: it takes too long", self._task.run_id)

    async def _take_checkpoint(self, when: str) -> str:
        task = self._task
        return await self._checkpoints.take(task.workspace.root, task.session_id, f"{task.run_id}-{when}", run_id=task.run_id)
