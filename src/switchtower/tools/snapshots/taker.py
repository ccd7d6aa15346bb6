"""Takes snapshots of one workspace: lists, walks, and puts what is new into a store in one go."""

import tempfile
from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

from switchtower.tools.git.plumbing.discovery import VerifiedRepository
from switchtower.tools.running.leash import CancelScope
from switchtower.tools.snapshots import listing, objects, snapshot, stats, trees
from switchtower.tools.snapshots.limits import SnapshotLimits
from switchtower.tools.snapshots.reading import ObjectChecker
from switchtower.tools.snapshots.scan import WorkspaceScan, WorkspaceScanner
from switchtower.tools.snapshots.store import ObjectStore

_MOST_WAITING = 200
_MOST_WAITING_BYTES = 8 * 1024 * 1024


class SnapshotTaker(Struct, frozen=True):
    root: str
    folder: Path
    """Where we keep what we know about the workspace."""
    repository: VerifiedRepository | None
    apart: frozenset[str]
    """Folders that are none of the workspace's business, relative to its root."""
    limits: SnapshotLimits
    cancel_scope: CancelScope

    def take(self, into: ObjectStore, *, also: Sequence[str] = (), remember: bool = True) -> str:
        """The id of a snapshot whose objects are all in the store. `remember` makes the next one quick."""
        wanted = listing.list_wanted_files(self.root, self.repository, into, also, self.limits, self.cancel_scope)
        known_file = self.folder / "stats"
        known = stats.load_known(known_file, into.algorithm)
        try:
            id, scan = self._store_files(into, wanted, known)
        except trees.MissingObject:
            id, scan = self._store_files(into, wanted, stats.KnownFileStats(into.algorithm, {}))
        if remember and scan.known != known.files:
            stats.save_known(known_file, stats.KnownFileStats(into.algorithm, scan.known))
        return id

    def _store_files(
        self, into: ObjectStore, wanted: listing.WantedFiles, known: stats.KnownFileStats
    ) -> tuple[str, WorkspaceScan]:
        with tempfile.TemporaryFile(dir=self.folder) as file, into.open_checker(self.cancel_scope) as checker:
            pack = objects.ObjectPack(into.algorithm, file)
            intake = _PackBuilder(pack, checker)
            scanner = WorkspaceScanner(
                self.root, known=known, keep=intake.keep, apart=self.apart, limits=self.limits, cancel_scope=self.cancel_scope
            )
            scan = scanner.walk(wanted)
            files = trees.add_trees(scan.files, scan.unread, pack, checker)
            id = intake.keep(snapshot.encode_snapshot(files, scan, intake.keep), kind="tree")
            intake.flush()
            into.write(pack, self.cancel_scope)
        return id, scan


class _PackBuilder:
    """What goes into the pack unless the store has it. The store is asked about many at once."""

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
