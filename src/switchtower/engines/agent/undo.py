"""Undo and redo of a run's changes. The workspace is kept as it was before a run's first change; a run without a model then takes
the changes back, or makes them again.
"""

import asyncio
import logging
from typing import Literal

from switchtower.core import events
from switchtower.core.ports import engine
from switchtower.tools.git.process import GitUnavailable
from switchtower.tools.snapshots.checkpoints import Checkpoints

CANCEL_TIMEOUT = 0.5
"""The seconds for the last checkpoint of a cancelled run: the user wants it to end. Without that checkpoint, everything found at
an undo counts as the run's changes.
"""

log = logging.getLogger(__name__)


class ChangeTracker:
    def __init__(self, checkpoints: Checkpoints, task: engine.Task, context: engine.RunContext) -> None:
        self._checkpoints = checkpoints
        self._task = task
        self._context = context
        self._before = task.checkpoint
        self._gave_up = False

    async def record_before(self) -> None:
        """Must be called before anything that may change a file. Only the first call of a run has an effect."""
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


_MOST_NAMED = 10


async def restore_workspace(task: engine.Task, context: engine.RunContext, checkpoints: Checkpoints) -> engine.RunResult:
    direction: Literal["undo", "redo"] = "redo" if task.purpose is events.Purpose.REDO else "undo"
    changes = task.timeline.undone if direction == "redo" else task.timeline.done
    assert changes, "a restoring run starts only when there is something to restore"
    change = changes[-1]
    root = task.workspace.root
    after = change.after
    try:
        if after is None:
            # A run that crashed has no final tree: the current tree counts as that, and is recorded before it changes.
            after = await checkpoints.take(root, task.session_id, f"{change.run_id}-after", run_id=task.run_id)
            await context.emit(events.CheckpointTaken("after", after, of=change.run_id))
            await context.flush()
        restored = await checkpoints.restore(
            root, before=change.before, after=after, direction=direction, force=task.force, run_id=task.run_id
        )
    except GitUnavailable as reason:
        await context.emit(events.ErrorRaised("RESTORE_FAILED", f"The workspace could not be restored: {reason}"))
        return engine.RunResult(events.Outcome.FAILED, f"The workspace could not be restored: {reason}")
    await context.emit(
        events.WorkspaceRestored(
            direction=direction,
            run_id=change.run_id,
            after=after,
            files=restored.files,
            skipped=restored.skipped,
            failed=restored.failed,
        )
    )
    if restored.failed:
        problem = f"These files could not be written: {_join_names(restored.failed)}"
        await context.emit(events.ErrorRaised("RESTORE_FAILED", problem))
        return engine.RunResult(events.Outcome.FAILED, problem)
    done = "Undid" if direction == "undo" else "Made again"
    return engine.RunResult(
        events.Outcome.SUCCESS, f"{done} {change.run_id}: {_join_names(restored.files)}{_describe_skipped(restored.skipped)}"
    )


def _join_names(files: tuple[str, ...]) -> str:
    if not files:
        return "there was nothing to change"
    more = f" and {len(files) - _MOST_NAMED} more" if len(files) > _MOST_NAMED else ""
    return ", ".join(files[:_MOST_NAMED]) + more


def _describe_skipped(files: tuple[str, ...]) -> str:
    return f"; left alone, because they were changed since: {_join_names(files)}" if files else ""
