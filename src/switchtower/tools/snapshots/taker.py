"""Takes snapshots of one workspace: lists, walks, and puts what is new into a store in one go."""

import tempfile
from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

from switchtower.tools.git.plumbing.discovery import Repository
from switchtower.tools.running.leash import Leash
from switchtower.tools.snapshots import listing, objects, snapshot, stats, trees
from switchtower.tools.snapshots.limits import Limits
from switchtower.tools.snapshots.reading import Checker
from switchtower.tools.snapshots.scan import Scan, Scanner
from switchtower.tools.snapshots.store import Store

_MOST_WAITING = 200
_MOST_WAITING_BYTES = 8 * 1024 * 1024


class Taker(Struct, frozen=True):
    root: str
    folder: Path
    """Where we keep what we know about the workspace."""
    repository: Repository | None
    apart: frozenset[str]
    """Folders that are none of the workspace's business, relative to its root."""
    limits: Limits
    held: Leash

    def take(self, into: Store, *, also: Sequence[str] = (), remember: bool = True) -> str:
        """The id of a snapshot whose objects are all in the store. `remember` makes the next one quick."""
        wanted = listing.of_workspace(self.root, self.repository, into, also, self.limits, self.held)
        known_file = self.folder / "stats"
        known = stats.load(known_file, into.algorithm)
        try:
            id, scan = self._stored(into, wanted, known)
        except trees.Forgotten:
            id, scan = self._stored(into, wanted, stats.Known(into.algorithm, {}))
        if remember and scan.known != known.files:
            stats.save(known_file, stats.Known(into.algorithm, scan.known))
        return id

    def _stored(self, into: Store, wanted: listing.Wanted, known: stats.Known) -> tuple[str, Scan]:
        with tempfile.TemporaryFile(dir=self.folder) as file, into.checker(self.held) as checker:
            pack = objects.Pack(into.algorithm, file)
            intake = _Intake(pack, checker)
            scanner = Scanner(self.root, known=known, keep=intake.keep, apart=self.apart, limits=self.limits, held=self.held)
            scan = scanner.walk(wanted)
            files = trees.add(scan.files, scan.unread, pack, checker)
            id = intake.keep(snapshot.encode(files, scan, intake.keep), kind="tree")
            intake.flush()
            into.write(pack, self.held)
        return id, scan


class _Intake:
    """What goes into the pack unless the store has it. The store is asked about many at once."""

    def __init__(self, pack: objects.Pack, checker: Checker) -> None:
        self._pack = pack
        self._checker = checker
        self._waiting: dict[str, tuple[str, bytes]] = {}
        self._waiting_bytes = 0

    def keep(self, content: bytes, *, kind: str = "blob") -> str:
        id = objects.object_id(self._pack.algorithm, kind, content)
        if id not in self._waiting:
            self._waiting[id] = (kind, content)
            self._waiting_bytes += len(content)
            if len(self._waiting) >= _MOST_WAITING or self._waiting_bytes >= _MOST_WAITING_BYTES:
                self.flush()
        return id

    def flush(self) -> None:
        for id in self._checker.missing(list(self._waiting)):
            self._pack.add(*self._waiting[id])
        self._waiting.clear()
        self._waiting_bytes = 0
