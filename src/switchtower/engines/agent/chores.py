"""Runs that are no work of the model: taking a run's changes back, or making them again."""

from typing import Literal

from switchtower.core import engine, events
from switchtower.tools.git.plumbing.unavailable import GitUnavailable
from switchtower.tools.snapshots.checkpoints import Checkpoints

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
            # Of a run that crashed nobody kept the end: what is there now counts as that, and is on record before it changes.
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
