"""Checkpoints: a workspace's files as they were before and after a run, stored, compared and restored. `docs/undo.md` describes
what is covered.

Objects are stored in the workspace's own repository, held by refs below `refs/switchtower`, or in a separate store when it has
none. Its index, branches, stash and configuration are never changed, and nothing that it configures is run. The operations on one
workspace run one at a time, under the workspace's lock.
"""

import asyncio
import os
import shutil
import string
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path, PurePath
from typing import Literal, TypeVar
from weakref import WeakValueDictionary

from msgspec import Struct

from switchtower.tools import concurrency
from switchtower.tools.git import process
from switchtower.tools.git.process import GitUnavailable, VerifiedRepository
from switchtower.tools.processes.cancellation import CancelScope
from switchtower.tools.snapshots import objects, snapshot
from switchtower.tools.snapshots import scan as snapshots_scan
from switchtower.tools.snapshots.objects import ObjectChecker, ObjectStore
from switchtower.tools.snapshots.restore import Restorer, RestoreResult, RestoreStep
from switchtower.tools.snapshots.scan import SnapshotLimits, WorkspaceScan, WorkspaceScanner

_MOST_WAITING = 200
_MOST_WAITING_BYTES = 8 * 1024 * 1024


class SnapshotTaker(Struct, frozen=True):
    root: str
    folder: Path
    """The folder for our data about the workspace."""
    repository: VerifiedRepository | None
    apart: frozenset[str]
    """Folders that do not belong to the workspace, relative to its root."""
    limits: SnapshotLimits
    cancel_scope: CancelScope

    def take(self, into: ObjectStore, *, also: Sequence[str] = (), remember: bool = True) -> str:
        """Returns the id of a snapshot whose objects are all in the store. `remember` makes the next one fast."""
        wanted = snapshots_scan.list_wanted_files(self.root, self.repository, into, also, self.limits, self.cancel_scope)
        known_file = self.folder / "stats"
        known = snapshots_scan.load_known(known_file, into.algorithm)
        try:
            id, scan = self._store_files(into, wanted, known)
        except objects.MissingObject:
            id, scan = self._store_files(into, wanted, snapshots_scan.KnownFileStats(into.algorithm, {}))
        if remember and scan.known != known.files:
            snapshots_scan.save_known(known_file, snapshots_scan.KnownFileStats(into.algorithm, scan.known))
        return id

    def _store_files(
        self, into: ObjectStore, wanted: snapshots_scan.WantedFiles, known: snapshots_scan.KnownFileStats
    ) -> tuple[str, WorkspaceScan]:
        with tempfile.TemporaryFile(dir=self.folder) as file, into.open_checker(self.cancel_scope) as checker:
            pack = objects.ObjectPack(into.algorithm, file)
            intake = _PackBuilder(pack, checker)
            scanner = WorkspaceScanner(
                self.root, known=known, keep=intake.keep, apart=self.apart, limits=self.limits, cancel_scope=self.cancel_scope
            )
            scan = scanner.walk(wanted)
            files = objects.add_trees(scan.files, scan.unread, pack, checker)
            id = intake.keep(snapshot.encode_snapshot(files, scan, intake.keep), kind="tree")
            intake.flush()
            into.write(pack, self.cancel_scope)
        return id, scan


class _PackBuilder:
    """Collects the objects for the pack that the store lacks. The store is queried for many at once."""

    def __init__(self, pack: objects.ObjectPack, checker: ObjectChecker) -> None:
        self._pack = pack
        self._checker = checker
        self._waiting: dict[str, tuple[str, bytes]] = {}
        self._waiting_bytes = 0

    def keep(self, content: bytes, *, kind: str = "blob") -> str:
        id = objects.compute_object_id(self._pack.algorithm, kind, content)
        if id not in self._waiting:
            self._waiting[id] = (kind, content)
            self._waiting_bytes += len(content)
            if len(self._waiting) >= _MOST_WAITING or self._waiting_bytes >= _MOST_WAITING_BYTES:
                self.flush()
        return id

    def flush(self) -> None:
        for id in self._checker.find_missing(list(self._waiting)):
            self._pack.add(*self._waiting[id])
        self._waiting.clear()
        self._waiting_bytes = 0


_MOST_IN_A_NAME = 100
_PLAIN = frozenset(f"{string.ascii_letters}{string.digits}_-".encode())


class WorkspaceSnapshots(Struct, frozen=True):
    root: str
    """The workspace, links resolved."""
    folder: Path
    """The folder for our data about it."""
    apart: frozenset[str]
    limits: SnapshotLimits
    cancel_scope: CancelScope

    def take(self, session_id: str, label: str, also: Sequence[str]) -> str:
        with _translate_errors():
            taker, place = self._open_store()
            mark = self._sessions / _to_name(session_id)
            mark.parent.mkdir(exist_ok=True)
            mark.touch()
            id = taker.take(place, also=also)
            # The id is part of the name: a label that is used twice loses nothing.
            place.keep(f"{_to_name(session_id)}/{_to_name(label)}-{id[:12]}", id, self.cancel_scope)
            return id

    def plan_restore(self, before: str, after: str | None, *, redo: bool) -> list[RestoreStep]:
        """Returns the steps that lead from `after` to `before`, or the other way round."""
        with _translate_errors(), self._open_comparison(before, after) as (place, old, new, differences):
            wanted = new if redo else old
            steps = [
                RestoreStep(
                    path=difference.path,
                    have=difference.before if redo else difference.after,
                    want=difference.after if redo else difference.before,
                    private=difference.path in wanted.private,
                )
                for difference in differences
            ]
            with place.open_checker(self.cancel_scope) as checker:
                if checker.find_missing([step.want.id for step in steps if step.want]):
                    raise objects.DamagedObject("a file's content is gone")
            return steps

    def restore(self, steps: Sequence[RestoreStep], *, force: bool) -> RestoreResult:
        with _translate_errors():
            _, place = self._open_store()
            with place.open_reader(self.cancel_scope) as reader:
                return Restorer(
                    self.root, algorithm=place.algorithm, most_bytes=self.limits.file_bytes, reader=reader, force=force
                ).restore(steps)

    def diff(self, before: str, after: str | None, limit_bytes: int) -> str:
        with _translate_errors(), self._open_comparison(before, after) as (place, _, _, differences):
            return snapshot.diff_snapshots(differences, place, self.folder, limit_bytes, self.cancel_scope)

    def forget(self, session_id: str) -> None:
        """Drops the session's checkpoints here, and with the last session all our data about the workspace."""
        with _translate_errors():
            for place in objects.list_stores(self.folder):
                place.drop(_to_name(session_id), self.cancel_scope)
            with suppress(FileNotFoundError):
                (self._sessions / _to_name(session_id)).unlink()
            if not any(self._sessions.glob("*")):
                shutil.rmtree(self.folder, ignore_errors=True)
            elif own := objects.find_own_store(self.folder):
                own.clean(self.cancel_scope)

    @property
    def _sessions(self) -> Path:
        """The folder with a mark for each session that has checkpoints here."""
        return self.folder / "sessions"

    def _open_store(self) -> tuple[SnapshotTaker, objects.ObjectStore]:
        if not Path(self.root).is_dir():
            raise GitUnavailable(f"the workspace `{self.root}` is not there", hint="put the folder back where it was")
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        where = process.find_verified_repository(self.root, self.cancel_scope)
        taker = SnapshotTaker(self.root, self.folder, where, self.apart, self.limits, self.cancel_scope)
        return taker, objects.open_store(where, self.folder)

    @contextmanager
    def _open_comparison(
        self, before: str, after: str | None
    ) -> Iterator[
        tuple[objects.ObjectStore, snapshot.WorkspaceSnapshot, snapshot.WorkspaceSnapshot, list[snapshot.FileDifference]]
    ]:
        """Yields both snapshots and their differences, with a temporarily writable store. Without an `after`, the current
        workspace is used.
        """
        taker, place = self._open_store()
        for id in (before, after):
            if id is not None and (not objects.is_id(id) or objects.detect_algorithm(id) != place.algorithm):
                raise objects.DamagedObject(f"`{id[:12]}` is no checkpoint of this workspace")
        with place.open_scratch(self.folder) as scratch:
            now = taker.take(scratch, remember=False) if after is None else after
            with scratch.open_reader(self.cancel_scope) as reader:
                old, new = snapshot.load_snapshot(reader, before), snapshot.load_snapshot(reader, now)
                differences = list(snapshot.iterate_differences(reader, old, new))
            yield scratch, old, new, differences


@contextmanager
def _translate_errors() -> Iterator[None]:
    """Turns all failures into one error that callers handle."""
    try:
        yield
    except objects.DamagedObject as damage:
        raise GitUnavailable(
            f"the checkpoint is gone or damaged: {damage}",
            hint="checkpoints live in the repository's `.git` folder and go with it",
        ) from damage
    except process.GitError as failure:
        raise GitUnavailable(f"git failed: {failure}", hint="see what `git fsck` says in the workspace") from failure
    except OSError as error:
        about = f"{error.strerror or error}: `{error.filename}`" if error.filename else str(error)
        raise GitUnavailable(about, hint="see whether the disk is full and who may write there") from error


def _to_name(text: str) -> str:
    """Returns a part of a ref's and of a file's name: letters, digits, `_` and `-` stay, everything else is escaped."""
    name = "".join(chr(byte) if byte in _PLAIN else f"={byte:02x}" for byte in text.encode(errors="replace"))
    return name if 0 < len(name) <= _MOST_IN_A_NAME else "=" + sha256(text.encode(errors="replace")).hexdigest()[:32]


DEFAULT_LIMITS = SnapshotLimits()

T = TypeVar("T")


class Checkpoints:
    """With a `run_id`, git's processes are ended after a crash like any process of the run."""

    def __init__(self, folder: Path, *, apart: Sequence[Path] = (), limits: SnapshotLimits = DEFAULT_LIMITS) -> None:
        """`folder` is for our own data. It and the folders in `apart` are never covered, should they lie in a workspace: pass all
        folders that the daemon writes to.
        """
        self._folder = folder
        self._apart = (folder, *apart)
        self._limits = limits
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def take(
        self, workspace: str, session_id: str, label: str, *, also: Sequence[str] = (), run_id: str | None = None
    ) -> str:
        """Stores the current files and returns the id of a git tree. `also` names files to cover although they are ignored; pass
        the same names before and after. Raises `GitUnavailable`.
        """
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
        """Takes back the changes between two checkpoints, or makes them again; with `force` also where a file has been changed
        since. Without `after`, the current files count as that. Raises `GitUnavailable` before anything is changed; once started,
        it runs to its end even when cancelled.
        """
        root = await _resolve_real_path(workspace)
        async with self._lock(root):
            steps = await self._run(root, lambda keeper: keeper.plan_restore(before, after, redo=direction == "redo"), run_id)
            unstoppable = self._make_snapshots(root, CancelScope(run_id))
            return await concurrency.run_to_completion(concurrency.run_in_thread(unstoppable.restore, steps, force=force))

    async def diff(self, workspace: str, before: str, after: str | None = None, *, limit_bytes: int | None = None) -> str:
        """Returns the changes from `before` to `after`, or to now, as a unified diff, truncated at the limit. Raises
        `GitUnavailable`.
        """
        root = await _resolve_real_path(workspace)
        most = self._limits.diff_bytes if limit_bytes is None else limit_bytes
        async with self._lock(root):
            return await self._run(root, lambda keeper: keeper.diff(before, after, most))

    async def forget(self, workspace: str, session_id: str) -> None:
        """Drops the session's checkpoints, even when the workspace itself no longer exists. Raises `GitUnavailable`."""
        root = await _resolve_real_path(workspace)
        async with self._lock(root):
            await self._run(root, lambda keeper: keeper.forget(session_id))

    async def _run(self, root: str, work: Callable[[WorkspaceSnapshots], T], run_id: str | None = None) -> T:
        return await process.run_with_timeout(
            self._limits.seconds,
            lambda held: work(self._make_snapshots(root, held)),
            run_id=run_id,
            hint="let `.gitignore` name folders that hold no work",
        )

    def _lock(self, root: str) -> asyncio.Lock:
        """Returns the lock of a workspace; it is collected when no task holds or awaits it."""
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
    return await concurrency.run_in_thread(os.path.realpath, workspace)
