"""A workspace's files as they were before and after a run: kept, compared, brought back. `docs/undo.md` says what is covered.

Objects go into the workspace's own repository, held by refs below `refs/switchtower`, or into a store of ours when it has
none. Its index, branches, stash and configuration are never touched, and nothing that it configures is run.
"""

import asyncio
import os
from collections.abc import Callable, Iterator, Sequence
from hashlib import sha256
from pathlib import Path, PurePath
from typing import Literal, TypeVar
from weakref import WeakValueDictionary

from switchtower.tools.git.plumbing import limit
from switchtower.tools.running import patience, threads
from switchtower.tools.running.leash import CancelScope
from switchtower.tools.snapshots.keeper import WorkspaceSnapshots
from switchtower.tools.snapshots.limits import SnapshotLimits
from switchtower.tools.snapshots.restoring import RestoreResult

DEFAULT_LIMITS = SnapshotLimits()

T = TypeVar("T")


class Checkpoints:
    """With a `run_id`, git's processes are ended like any of the run's should we crash."""

    def __init__(self, folder: Path, *, apart: Sequence[Path] = (), limits: SnapshotLimits = DEFAULT_LIMITS) -> None:
        """`folder` is where we keep what we need. It and the folders in `apart` are never covered, should they lie in a
        workspace: give it all that the daemon writes to."""
        self._folder = folder
        self._apart = (folder, *apart)
        self._limits = limits
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def take(
        self, workspace: str, session_id: str, label: str, *, also: Sequence[str] = (), run_id: str | None = None
    ) -> str:
        """Keeps the files as they are now and answers a git tree's id. `also` names files to cover though they are ignored;
        give the same names before and after. Raises `Unavailable`."""
        root = await _resolve_real_path(workspace)
        async with self._lock(root):
            return await self._run(root, lambda keeper: keeper.take(session_id, label, also), run_id)

    async def restore(
        self,
        workspace: str,
        *,
        before: str,
        after: str | None,
        direction: Literal["undo", "redo"],
        force: bool = False,
        run_id: str | None = None,
    ) -> RestoreResult:
        """Takes back what lies between two checkpoints, or makes it again; `force` also where somebody has changed a file
        since. Without `after`, what is there now counts as that. Raises `Unavailable` before anything is touched; once it has
        begun it goes to its end, also when cancelled."""
        root = await _resolve_real_path(workspace)
        async with self._lock(root):
            steps = await self._run(root, lambda keeper: keeper.plan_restore(before, after, redo=direction == "redo"), run_id)
            unstoppable = self._make_snapshots(root, CancelScope(run_id))
            return await patience.run_to_completion(threads.run_in_thread(unstoppable.restore, steps, force=force))

    async def diff(self, workspace: str, before: str, after: str | None = None, *, limit_bytes: int | None = None) -> str:
        """What changed from `before` to `after`, or to now, as a unified diff; cut off at the limit. Raises `Unavailable`."""
        root = await _resolve_real_path(workspace)
        most = self._limits.diff_bytes if limit_bytes is None else limit_bytes
        async with self._lock(root):
            return await self._run(root, lambda keeper: keeper.diff(before, after, most))

    async def forget(self, workspace: str, session_id: str) -> None:
        """Drops the session's checkpoints; also when the workspace itself is gone. Raises `Unavailable`."""
        root = await _resolve_real_path(workspace)
        async with self._lock(root):
            await self._run(root, lambda keeper: keeper.forget(session_id))

    async def _run(self, root: str, work: Callable[[WorkspaceSnapshots], T], run_id: str | None = None) -> T:
        return await limit.run_with_timeout(
            self._limits.seconds,
            lambda held: work(self._make_snapshots(root, held)),
            run_id=run_id,
            hint="let `.gitignore` name folders that hold no work",
        )

    def _lock(self, root: str) -> asyncio.Lock:
        """One for each workspace; it is gone when nobody holds or awaits it."""
        return self._locks.setdefault(root, asyncio.Lock())

    def _make_snapshots(self, root: str, cancel_scope: CancelScope) -> WorkspaceSnapshots:
        folder = self._folder / sha256(os.fsencode(root)).hexdigest()[:24]
        return WorkspaceSnapshots(root, folder, frozenset(self._iterate_excluded(root)), self._limits, cancel_scope)

    def _iterate_excluded(self, root: str) -> Iterator[str]:
        for folder in self._apart:
            path = PurePath(os.path.realpath(folder))
            if path.is_relative_to(root) and path != PurePath(root):
                yield path.relative_to(root).as_posix()


async def _resolve_real_path(workspace: str) -> str:
    return await threads.run_in_thread(os.path.realpath, workspace)
